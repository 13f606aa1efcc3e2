"""The metrics as sums in plain dictionaries.

Both renderers (OTLP and Prometheus, at the edge) read the same immutable snapshot, so the two can
never disagree. This file refuses to know clocks, exporters and text formats; and it does not know
duplicates: the caller calls `Measures.observe` once per lookup.

Two limits keep memory and backends safe: a dimension shows at most ``values_max`` values and then
``_other``, and a metric has at most ``series_max`` series, the last of which takes everything that
came too late (``otel.metric.overflow``). Sums are conserved by both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import Final

import msgspec

from ..config.dimensions import DIMENSIONS, FIELD_OF, OTHER, VALUE_CHARS_MAX, Dimensions
from ..model import Cause, Reason, Verdict
from .instruments import FIRST_TOKEN_BOUNDS, INSTRUMENTS, Instrument, Kind

OVERFLOW: Final = "otel.metric.overflow"
"""The only label of the series that takes what came after ``series_max``."""


class Exemplar(msgspec.Struct, frozen=True, kw_only=True):
    """A sampled span to look at. Ids are lower-case hex, 32 and 16 digits."""

    trace_id: str
    span_id: str
    unix_nanos: int


class Point(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One series at one moment. ``value`` is a histogram's sum.

    ``counts`` has one entry a bucket and one more for values above the last bound; it is empty
    unless the metric is a histogram. An exemplar comes with its own value.
    """

    labels: tuple[tuple[str, str], ...]
    value: float
    counts: tuple[float, ...] = ()
    exemplars: tuple[tuple[float, Exemplar], ...] = ()


class MetricSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One metric at one moment; sums and counts are totals since ``start_unix_nanos``."""

    instrument: Instrument
    start_unix_nanos: int
    points: tuple[Point, ...]


class _Series:
    """What one series has added up. One exemplar a bucket: the newest replaces the one before."""

    __slots__ = ("counts", "labels", "sampled", "total")

    def __init__(self, labels: tuple[tuple[str, str], ...], buckets: int) -> None:
        self.labels = labels
        self.total = 0.0
        self.counts = [0.0] * buckets
        self.sampled: dict[int, tuple[int, float, Exemplar]] = {}


class _Table:
    """The series of one metric, and the cap on their number."""

    def __init__(self, instrument: Instrument, dimensions: tuple[str, ...], series_max: int) -> None:
        self.instrument = instrument
        self.labels = (*instrument.labels, *dimensions)
        self.keywords = tuple(label.replace(".", "_") for label in self.labels)
        self._buckets = len(instrument.bounds) + 1 if instrument.kind is Kind.HISTOGRAM else 0
        # The overflow series counts towards the cap; a metric without labels has one series anyway.
        self._room = series_max - 1 if self.labels else 1
        self._series: dict[tuple[str | None, ...], _Series] = {}
        self._overflow: _Series | None = None
        if not self.labels and not instrument.dimensional and instrument.kind is Kind.SUM:
            # A counter that first shows itself at 1 hides that 1 from rate().
            self._series[()] = _Series((), 0)

    def at(self, key: tuple[str | None, ...]) -> _Series:
        """The series of the given label values, or the one for what came too late."""
        series = self._series.get(key)
        if series is not None:
            return series
        if len(self._series) < self._room:
            labels = tuple((name, value) for name, value in zip(self.labels, key, strict=True) if value)
            return self._series.setdefault(key, _Series(labels, self._buckets))
        if self._overflow is None:
            self._overflow = _Series(((OVERFLOW, "true"),), self._buckets)
        return self._overflow

    def used(self) -> bool:
        """Whether there is a series to show."""
        return bool(self._series) or self._overflow is not None

    def points(self, after: int) -> tuple[Point, ...]:
        """All series; of their exemplars those with an ordinal past ``after``."""
        points = [_point(series, after) for series in self._series.values()]
        if self._overflow is not None:
            points.append(_point(self._overflow, after))
        return tuple(points)

    def totals(self) -> dict[tuple[str | None, ...], float]:
        """The sums over everything but the metric's own labels; `OTHER` holds what came after the cap was reached."""
        own = len(self.instrument.labels)
        if self.instrument.dimensional:
            totals: dict[tuple[str | None, ...], float] = {}
            for key, series in self._series.items():
                totals[key[:own]] = totals.get(key[:own], 0.0) + series.total
        else:
            totals = {key: series.total for key, series in self._series.items()}
        if self._overflow is not None:
            others = (OTHER,) * own
            totals[others] = totals.get(others, 0.0) + self._overflow.total
        return totals


def _point(series: _Series, after: int) -> Point:
    # Thousands of these are made in one go while other work waits: most have neither buckets nor exemplars.
    if not series.sampled and not series.counts:
        return Point(labels=series.labels, value=series.total)
    exemplars = tuple([(value, seen) for ordinal, value, seen in series.sampled.values() if ordinal > after])
    return Point(labels=series.labels, value=series.total, counts=tuple(series.counts), exemplars=exemplars)


class Measures:
    """Adds up verdicts and counts, within bounds.

    One task owns it: calls must not overlap. ``dimensions`` names those of `DIMENSIONS` that are
    switched on; ``values_max`` caps the values shown of each, ``series_max`` (at least 1) the series
    of each metric. ``start_unix_nanos`` is when counting began.
    """

    def __init__(self, *, dimensions: Collection[str], values_max: int, series_max: int, start_unix_nanos: int) -> None:
        if not set(dimensions) <= set(DIMENSIONS) or values_max < 0 or series_max < 1:
            raise AssertionError("config lets through only what exists, within its bounds")
        self._start_unix_nanos = start_unix_nanos
        self._dimensions = tuple(name for name in DIMENSIONS if name in dimensions)
        self._shown: dict[str, dict[str, str]] = {name: {} for name in self._dimensions}
        self._values_max = values_max
        self._ordinal = 0
        self._collected: dict[str, int] = {}
        self._fields = tuple((name, FIELD_OF[name]) for name in self._dimensions)
        self._tables = {
            instrument.name: _Table(instrument, self._dimensions if instrument.dimensional else (), series_max)
            for instrument in INSTRUMENTS
        }
        self._requests = self._tables["prefix_cache.requests"]
        self._misses = self._tables["prefix_cache.misses"]
        self._queried = self._tables["prefix_cache.queried_tokens"]
        self._hit = self._tables["prefix_cache.hit_tokens"]
        self._recomputed = self._tables["prefix_cache.recomputed_tokens"]
        self._lost = self._tables["prefix_cache.lost_tokens"]
        self._sparse_lost = self._tables["prefix_cache.sparse_lost_tokens"]
        self._first_token = self._tables["prefix_cache.time_to_first_token"]
        self._unknown = self._tables["prefix_cache.unknown"]

    def observe(
        self,
        verdict: Verdict,
        dimensions: Dimensions,
        *,
        first_token_seconds: float | None,
        weight: float = 1.0,
        exemplar: Exemplar | None = None,
    ) -> None:
        """Add one judged lookup, once, however often its span came.

        ``weight`` is the span's adjusted count: how many lookups it represents. ``exemplar`` is for
        sampled spans only. What the verdict does not know is added to no sum.
        """
        if not 0 < weight < inf:
            raise AssertionError("an adjusted count is positive")
        shown = tuple([self._show(name, getattr(dimensions, field)) for name, field in self._fields])
        # str() of a member is a plain string: an enum's own hash is a call into Python.
        cause, owner, reason = str(verdict.cause), str(verdict.owner), str(verdict.reason)
        self._requests.at((cause, *shown)).total += weight
        if verdict.cause is Cause.UNKNOWN:
            self._unknown.at((reason, *shown)).total += weight
        if _missed(verdict):
            series = self._misses.at((cause, owner, reason, *shown))
            series.total += weight
            self._sample(series, 0, 1.0, exemplar)
        self._add_tokens(verdict, (cause, owner, *shown), shown, weight, exemplar)
        if first_token_seconds is not None and 0 <= first_token_seconds < inf:
            series = self._first_token.at((cause, *shown))
            bucket = bisect_left(FIRST_TOKEN_BOUNDS, first_token_seconds)
            series.total += first_token_seconds * weight
            series.counts[bucket] += weight
            self._sample(series, bucket, first_token_seconds, exemplar)

    def _add_tokens(
        self,
        verdict: Verdict,
        classed: tuple[str | None, ...],
        shown: tuple[str | None, ...],
        weight: float,
        exemplar: Exemplar | None,
    ) -> None:
        prompt, cached = verdict.prompt_tokens, verdict.cached_tokens
        # Both or neither: prompt tokens of an engine that does not report its cached ones would
        # pull the hit ratio down, which says that they missed.
        if prompt is not None and cached is not None and prompt >= 0 and cached >= 0:
            self._queried.at(shown).total += prompt * weight
            self._hit.at(shown).total += cached * weight
        if verdict.recomputed_tokens is not None and verdict.recomputed_tokens >= 0:
            self._recomputed.at(classed).total += verdict.recomputed_tokens * weight
        if verdict.lost_tokens is not None and verdict.lost_tokens >= 0:
            series = self._lost.at(classed)
            series.total += verdict.lost_tokens * weight
            self._sample(series, 0, verdict.lost_tokens, exemplar)
        if verdict.sparse_lost_tokens is not None and verdict.sparse_lost_tokens >= 0:
            self._sparse_lost.at(shown).total += verdict.sparse_lost_tokens * weight

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to one of the service's own sums; a dot in a label is an underscore here."""
        if value < 0:
            raise AssertionError("a sum never falls")
        self._own(name, Kind.SUM, labels).total += value

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set one of the service's own gauges."""
        self._own(name, Kind.GAUGE, labels).total = value

    def snapshot(self, reader: str | None = None) -> tuple[MetricSnapshot, ...]:
        """All metrics that have a series.

        A named reader is given each exemplar once, as OTLP wants it; without a name it is the newest
        ones every time, as several Prometheus servers that scrape the same process want it.
        """
        after = 0
        if reader is not None:
            after = self._collected.get(reader, 0)
            self._collected[reader] = self._ordinal
        return tuple(self._metrics(after))

    def in_turn(self) -> Iterator[MetricSnapshot]:
        """The metrics of `snapshot` one by one, each as it is when it is asked for, so that other work can run in between.

        What is added meanwhile may be in one metric and not yet in another.
        """
        return self._metrics(0)

    def _metrics(self, after: int) -> Iterator[MetricSnapshot]:
        for table in self._tables.values():
            if table.used():
                yield MetricSnapshot(
                    instrument=table.instrument, start_unix_nanos=self._start_unix_nanos, points=table.points(after)
                )

    def totals(self, name: str) -> Mapping[tuple[str | None, ...], float]:
        """One metric by the values of its own labels, added up over the dimensions; cheaper than a snapshot."""
        return self._tables[name].totals()

    def _own(self, name: str, kind: Kind, labels: Mapping[str, str]) -> _Series:
        table = self._tables.get(name)
        if table is None or table.instrument.dimensional or table.instrument.kind is not kind:
            raise AssertionError(f"no {kind} of the service is called {name}")
        if labels.keys() != set(table.keywords):
            raise AssertionError(f"the labels of {name} are {table.keywords}")
        return table.at(tuple([labels[keyword] for keyword in table.keywords]))

    def _show(self, name: str, value: str | None) -> str | None:
        if not value:
            return None
        values = self._shown[name]
        shown = values.get(value)
        if shown is None:
            if len(values) >= self._values_max or len(value) > VALUE_CHARS_MAX:
                return OTHER
            shown = values[value] = value
        return shown

    def _sample(self, series: _Series, bucket: int, value: float, exemplar: Exemplar | None) -> None:
        if exemplar is not None:
            self._ordinal += 1
            series.sampled[bucket] = (self._ordinal, value, exemplar)


def _missed(verdict: Verdict) -> bool:
    """An engine that reports no cached tokens has not missed: it is not known."""
    return verdict.cause is not Cause.NONE and verdict.reason is not Reason.NO_CACHED_TOKENS
