"""A snapshot as Prometheus text or OpenMetrics, by the names that OpenTelemetry's translation gives.

``prefix_cache.misses`` {miss} becomes ``prefix_cache_misses_total``, ``…time_to_first_token`` s becomes
``…time_to_first_token_seconds``, a label's dot becomes an underscore. Exemplars exist in OpenMetrics only, and so does
the time at which a count began: a Prometheus that reads it (``created-timestamp-zero-ingestion``) loses neither the first
increment of a series nor a restart that counted up to where the process before had been.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as ExemplarText
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from ..measures import Kind

if TYPE_CHECKING:
    from ..measures import Exemplar, Instrument, MetricSnapshot, Point

_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "By": "bytes"}
_ESCAPING: Final = re.compile(r";\s*escaping=[^;,]*")
_TYPES: Final[Mapping[Kind, str]] = {Kind.SUM: "counter", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}


def family(instrument: Instrument) -> Metric:
    """The empty metric family of an instrument; a counter's samples end in ``_total``, its family does not."""
    name = instrument.name.replace(".", "_")
    return Metric(name, instrument.description, _TYPES[instrument.kind], _UNITS.get(instrument.unit, ""))


def families(snapshot: Iterable[MetricSnapshot], resource: Mapping[str, str], *, begun: bool) -> Iterator[Metric]:
    """All families, ``target_info`` with the resource's attributes first; ``begun`` adds when each count began."""
    target = Metric("target", "Attributes of the resource that these metrics are about.", "info")
    target.samples.append(Sample("target_info", _labels(resource.items()), 1.0))
    yield target
    for metric in snapshot:
        described = family(metric.instrument)
        for point in metric.points:
            described.samples.extend(_samples(described.name, metric.instrument, point))
            if begun and metric.instrument.kind is not Kind.GAUGE:
                since = metric.start_unix_nanos / 1e9
                described.samples.append(Sample(f"{described.name}_created", _labels(point.labels), since))
        yield described


def render(snapshot: Sequence[MetricSnapshot], resource: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """The body and its content type, in the format that an ``Accept`` header asks for."""
    # Our names need no escaping, and prometheus_client 0.26 names samples otherwise than their family
    # under ``escaping=values``.
    encode, content_type = choose_encoder(_ESCAPING.sub("", accept))
    begun = content_type.startswith("application/openmetrics-text")
    return encode(_Once(families(snapshot, resource, begun=begun))), content_type


class _Once(Collector):
    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics


def _samples(name: str, instrument: Instrument, point: Point) -> Iterator[Sample]:
    labels = _labels(point.labels)
    if instrument.kind is Kind.GAUGE:
        yield Sample(name, labels, point.value)
    elif instrument.kind is Kind.SUM:
        newest = point.exemplars[-1] if point.exemplars else None
        yield Sample(f"{name}_total", labels, point.value, None, _exemplar(newest) if newest else None)
    else:
        yield from _histogram(name, labels, instrument.bounds, point)


def _histogram(name: str, labels: dict[str, str], bounds: tuple[float, ...], point: Point) -> Iterator[Sample]:
    exemplars = {bisect_left(bounds, value): _exemplar((value, seen)) for value, seen in point.exemplars}
    # Rounded a bucket, as OTLP has to: the two must agree, and a total of rounded ones still rises.
    totals = accumulate(round(count) for count in point.counts)
    total = 0
    for bucket, (bound, total) in enumerate(zip((*bounds, inf), totals, strict=True)):
        edge = {**labels, "le": floatToGoString(bound)}  # type: ignore[no-untyped-call]
        yield Sample(f"{name}_bucket", edge, float(total), None, exemplars.get(bucket))
    yield Sample(f"{name}_count", labels, float(total))
    yield Sample(f"{name}_sum", labels, point.value)


def _labels(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in pairs}


def _exemplar(seen: tuple[float, Exemplar]) -> ExemplarText:
    value, exemplar = seen
    labels = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
    return ExemplarText(labels, value, exemplar.unix_nanos / 1e9)
