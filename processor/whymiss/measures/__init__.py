"""The metrics: declared in `instruments`, added up in `sums`."""

from .instruments import FIRST_TOKEN_BOUNDS, INSTRUMENTS, Instrument, Kind
from .sums import (
    DIMENSIONS,
    OTHER,
    OVERFLOW,
    VALUE_CHARS_MAX,
    Dimensions,
    Exemplar,
    Measures,
    MetricSnapshot,
    Point,
)

__all__ = [
    "DIMENSIONS",
    "FIRST_TOKEN_BOUNDS",
    "INSTRUMENTS",
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
