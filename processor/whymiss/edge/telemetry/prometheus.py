"""A snapshot as Prometheus text or OpenMetrics, by the names that OpenTelemetry's translation gives.

``prefix_cache.misses`` {miss} becomes ``prefix_cache_misses_total``, ``…time_to_first_token`` s becomes
``…time_to_first_token_seconds``, a label's dot becomes an underscore. Exemplars exist in OpenMetrics only, and so does
the time at which a count began: a Prometheus that reads it (``created-timestamp-zero-ingestion``) loses neither the first
increment of a series nor a restart that counted up to where the process before had been.

At the default caps that is 60,000 lines and more. They come in portions, so that whoever writes them can let others
have their turn, and the labels of a series, which stay what they are, are put into words once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import accumulate
from math import inf, isnan
from typing import TYPE_CHECKING, Final, TypeAlias

from ...measures import Kind

if TYPE_CHECKING:
    from ...measures import Exemplar, Instrument, MetricSnapshot, Point

PORTION_CHARS: Final = 1 << 17
"""How long a portion is, but for its last series: about half a millisecond of work."""

WHOLE_MAX: Final = 1 << 53
"""Above it a float is no exact count, and is written as a float."""

Labels: TypeAlias = tuple[tuple[str, str], ...]

_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "By": "bytes"}
_TYPES: Final[Mapping[Kind, str]] = {Kind.SUM: "counter", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}
_TARGET_HELP: Final = "Attributes of the resource that these metrics are about."


class Format(Enum):
    """A text format; the value is its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"


def name_of(instrument: Instrument) -> str:
    """The name of an instrument's family; a counter's samples end in ``_total``, its family does not."""
    unit = _UNITS.get(instrument.unit)
    name = instrument.name.replace(".", "_")
    return f"{name}_{unit}" if unit else name


class Exposition:
    """Writes one service's snapshots. ``resource`` holds the attributes of what the metrics are about.

    It keeps the escaped labels of every series that it has seen: as many as the measures' own caps let through.
    """

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._target = f"target_info{{{_escaped(tuple(resource.items()))}}} 1\n"
        self._labels: dict[Labels, str] = {}

    def portions(self, snapshot: Iterable[MetricSnapshot], form: Format) -> Iterator[bytes]:
        """The whole text in order, some `PORTION_CHARS` at a time."""
        pieces: list[str] = []
        size = 0
        for piece in self._pieces(snapshot, openmetrics=form is Format.OPENMETRICS):
            pieces.append(piece)
            size += len(piece)
            if size >= PORTION_CHARS:
                yield _encoded(pieces)
                pieces, size = [], 0
        if pieces:
            yield _encoded(pieces)

    def _pieces(self, snapshot: Iterable[MetricSnapshot], *, openmetrics: bool) -> Iterator[str]:
        yield _target_heading(openmetrics=openmetrics) + self._target
        for metric in snapshot:
            instrument = metric.instrument
            yield _heading(instrument, openmetrics=openmetrics)
            write = _histogram if instrument.kind is Kind.HISTOGRAM else _number
            family = _Family(metric, openmetrics=openmetrics)
            for point in metric.points:
                labels = self._labels.get(point.labels)
                if labels is None:
                    labels = self._labels[point.labels] = _escaped(point.labels)
                yield write(family, labels, point)
        if openmetrics:
            yield "# EOF\n"


class _Family:
    """What the samples of one metric have in common."""

    __slots__ = ("begun", "bounds", "buckets", "exemplars", "name", "sample")

    def __init__(self, metric: MetricSnapshot, *, openmetrics: bool) -> None:
        instrument = metric.instrument
        self.name = name_of(instrument)
        self.sample = f"{self.name}_total" if instrument.kind is Kind.SUM else self.name
        self.exemplars = openmetrics
        counted = openmetrics and instrument.kind is not Kind.GAUGE
        self.begun = _value(metric.start_unix_nanos / 1e9) if counted else None
        self.bounds = instrument.bounds
        self.buckets = tuple(f'le="{_bound(bound)}"}} ' for bound in (*instrument.bounds, inf))

    def created(self, braced: str) -> str:
        """The sample that says when a series began to count, where the format has one."""
        return "" if self.begun is None else f"{self.name}_created{braced} {self.begun}\n"


def _number(family: _Family, labels: str, point: Point) -> str:
    braced = f"{{{labels}}}" if labels else ""
    seen = _exemplar(*point.exemplars[-1]) if family.exemplars and point.exemplars else ""
    return f"{family.sample}{braced} {_value(point.value)}{seen}\n{family.created(braced)}"


def _histogram(family: _Family, labels: str, point: Point) -> str:
    head = f"{family.name}_bucket{{{labels}," if labels else f"{family.name}_bucket{{"
    # Rounded a bucket, as OTLP has to: the two must agree, and a total of rounded ones still rises.
    totals = list(accumulate(map(round, point.counts)))
    lines = [f"{head}{bucket}{total}" for bucket, total in zip(family.buckets, totals, strict=True)]
    if family.exemplars:
        for value, seen in point.exemplars:
            lines[bisect_left(family.bounds, value)] += _exemplar(value, seen)
    braced = f"{{{labels}}}" if labels else ""
    lines.append(f"{family.name}_count{braced} {totals[-1]}")
    lines.append(f"{family.name}_sum{braced} {_value(point.value)}\n")
    return "\n".join(lines) + family.created(braced)


def _heading(instrument: Instrument, *, openmetrics: bool) -> str:
    name, unit = name_of(instrument), _UNITS.get(instrument.unit)
    shown = f"{name}_total" if instrument.kind is Kind.SUM and not openmetrics else name
    text = f"# HELP {shown} {_help(instrument.description, openmetrics=openmetrics)}\n"
    text += f"# TYPE {shown} {_TYPES[instrument.kind]}\n"
    return f"{text}# UNIT {shown} {unit}\n" if unit and openmetrics else text


def _target_heading(*, openmetrics: bool) -> str:
    name, kind = ("target", "info") if openmetrics else ("target_info", "gauge")
    return f"# HELP {name} {_TARGET_HELP}\n# TYPE {name} {kind}\n"


def _help(text: str, *, openmetrics: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if openmetrics else text


def _escaped(labels: Labels) -> str:
    return ",".join([f'{name.replace(".", "_")}="{_quoted(value)}"' for name, value in labels])


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _exemplar(value: float, seen: Exemplar) -> str:
    at = seen.unix_nanos / 1e9
    return f' # {{trace_id="{seen.trace_id}",span_id="{seen.span_id}"}} {_value(value)} {_value(at)}'


def _value(value: float) -> str:
    """A number as both formats read it: the shortest text that is read as the same float."""
    if -WHOLE_MAX < value < WHOLE_MAX:
        whole = int(value)
        return str(whole) if whole == value else repr(float(value))
    return "NaN" if isnan(value) else _bound(value).replace("-inf", "-Inf")


def _bound(bound: float) -> str:
    """A bucket's bound. It is part of a series' identity, so it always has its decimal point."""
    return "+Inf" if bound == inf else repr(float(bound))


def _encoded(pieces: list[str]) -> bytes:
    # Half a surrogate pair, which JSON can spell, is no text: it must not cost everybody the whole answer.
    return "".join(pieces).encode("utf-8", "replace")
