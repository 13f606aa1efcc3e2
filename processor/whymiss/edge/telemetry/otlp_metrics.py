"""A snapshot as the OpenTelemetry SDK's metric objects, ready for its OTLP exporters.

Totals become whole numbers here and not before, so that weights lose nothing by rounding twice. With
delta temporality `Sent` remembers what was delivered of each series: a failed push is part of the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from opentelemetry.sdk.metrics import Exemplar as SdkExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ... import __version__
from ...measures import OVERFLOW, Kind, MetricSnapshot

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from ...measures import Exemplar, Instrument, Point

POINTS_MAX: Final = 2000
"""Points a request. One of a histogram with all dimensions takes about 1 KiB, and 4 MiB is the limit."""

_Total: TypeAlias = tuple[float, tuple[int, ...]]
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


class Sent:
    """What the next hop has of each series, and since when.

    With ``delta`` false it has nothing ever, which is what cumulative temporality means.
    """

    def __init__(self, *, delta: bool) -> None:
        self.delta = delta
        self._totals: dict[_Key, tuple[int, _Total]] = {}

    @property
    def temporality(self) -> AggregationTemporality:
        """The word of the SDK for it."""
        return AggregationTemporality.DELTA if self.delta else AggregationTemporality.CUMULATIVE

    def before(self, metric: MetricSnapshot, point: Point) -> tuple[int, _Total]:
        """When the stretch to report begins, and what had been counted by then."""
        nothing = (0, (0,) * len(point.counts))
        return self._totals.get((metric.instrument.name, point.labels), (metric.start_unix_nanos, nothing))

    def acknowledge(self, batch: Iterable[MetricSnapshot], unix_nanos: int) -> None:
        """The next hop has the batch as it stood at a time."""
        if self.delta:
            for metric in batch:
                for point in metric.points:
                    self._totals[metric.instrument.name, point.labels] = unix_nanos, _total(metric.instrument, point)


def batches(snapshot: Iterable[MetricSnapshot], points_max: int = POINTS_MAX) -> Iterator[tuple[MetricSnapshot, ...]]:
    """The same points in pieces of at most ``points_max``."""
    batch: list[MetricSnapshot] = []
    room = points_max
    for metric in snapshot:
        points = metric.points
        while points:
            taken, points = points[:room], points[room:]
            room -= len(taken)
            batch.append(
                MetricSnapshot(instrument=metric.instrument, start_unix_nanos=metric.start_unix_nanos, points=taken)
            )
            if not room:
                yield tuple(batch)
                batch, room = [], points_max
    if batch:
        yield tuple(batch)


def metrics_of(batch: Iterable[MetricSnapshot], sent: Sent, resource: Resource, unix_nanos: int) -> MetricsData | None:
    """What there is to say about a batch at a time, given what the next hop has already; perhaps nothing."""
    metrics = [metric for snapshot in batch if (metric := _metric(snapshot, sent, unix_nanos))]
    if not metrics:
        return None
    scope = ScopeMetrics(scope=InstrumentationScope("whymiss", __version__), metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])


def _metric(metric: MetricSnapshot, sent: Sent, unix_nanos: int) -> Metric | None:
    instrument = metric.instrument
    data: Sum | Gauge | Histogram
    if instrument.kind is Kind.GAUGE:
        data = Gauge([_number(point, metric.start_unix_nanos, unix_nanos, point.value) for point in metric.points])
    elif instrument.kind is Kind.SUM:
        data = Sum([*_sums(metric, sent, unix_nanos)], sent.temporality, is_monotonic=True)
    else:
        data = Histogram([*_histograms(metric, sent, unix_nanos)], sent.temporality)
    if not data.data_points:
        return None
    return Metric(name=instrument.name, description=instrument.description, unit=instrument.unit, data=data)


def _sums(metric: MetricSnapshot, sent: Sent, unix_nanos: int) -> Iterator[NumberDataPoint]:
    for point in metric.points:
        total, _ = _total(metric.instrument, point)
        start, (had, _) = sent.before(metric, point)
        if total != had or not sent.delta:
            yield _number(point, start, unix_nanos, int(total - had))


def _histograms(metric: MetricSnapshot, sent: Sent, unix_nanos: int) -> Iterator[HistogramDataPoint]:
    for point in metric.points:
        total, counts = _total(metric.instrument, point)
        start, (had_total, had_counts) = sent.before(metric, point)
        if counts == had_counts and sent.delta:
            continue
        new = [count - had for count, had in zip(counts, had_counts, strict=True)]
        yield HistogramDataPoint(
            attributes=_attributes(point),
            start_time_unix_nano=start,
            time_unix_nano=unix_nanos,
            count=sum(new),
            sum=total - had_total,
            bucket_counts=new,
            explicit_bounds=metric.instrument.bounds,
            min=None,  # type: ignore[arg-type]  # optional on the wire, and not kept: a delta has none
            max=None,  # type: ignore[arg-type]
            exemplars=[_exemplar(value, seen) for value, seen in point.exemplars],
        )


def _number(point: Point, start: int, unix_nanos: int, value: float) -> NumberDataPoint:
    exemplars = [_exemplar(seen_value, seen) for seen_value, seen in point.exemplars]
    return NumberDataPoint(_attributes(point), start, unix_nanos, value, exemplars)


def _total(instrument: Instrument, point: Point) -> _Total:
    """A point's total as it is told: whole numbers, but for the sum of a histogram's values."""
    value = round(point.value) if instrument.kind is Kind.SUM else point.value
    return value, tuple(round(count) for count in point.counts)


def _attributes(point: Point) -> dict[str, str | bool]:
    return {name: True if name == OVERFLOW else value for name, value in point.labels}


def _exemplar(value: float, seen: Exemplar) -> SdkExemplar:
    return SdkExemplar({}, value, seen.unix_nanos, int(seen.span_id, 16), int(seen.trace_id, 16))
