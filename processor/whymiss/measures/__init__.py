"""The metrics: declared in `instruments`, broken down by `config.dimensions`, added up in `sums`."""

from ..config.dimensions import DIMENSIONS, MEANINGS, OTHER, VALUE_CHARS_MAX, Dimensions
from .instruments import FIRST_TOKEN_BOUNDS, INSTRUMENTS, Instrument, Kind
from .sums import OVERFLOW, Exemplar, Measures, MetricSnapshot, Point

__all__ = [
    "DIMENSIONS",
    "FIRST_TOKEN_BOUNDS",
    "INSTRUMENTS",
    "MEANINGS",
    "OTHER",
    "OVERFLOW",
    "VALUE_CHARS_MAX",
    "Dimensions",
    "Exemplar",
    "Instrument",
    "Kind",
    "Measures",
    "MetricSnapshot",
    "Point",
]
