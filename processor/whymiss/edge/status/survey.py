"""Gathers what the status page says from the parts of the running service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ... import __version__
from ...model import Cause
from ..pace import Pace
from .markup import clean
from .publishers import Records, records_of, sources_of
from .settings import settings_of
from .snapshot import (
    CauseCount,
    Destination,
    Hold,
    MemoryUse,
    NamedCount,
    ReceiverCounts,
    Snapshot,
    Spans,
    SpoolRoom,
    TimelineStep,
    VerdictCounts,
)
from .totals import GAUGES, PAST, STEP_SECONDS, Sums, Totals, Window, sums_of
from .troubles import Troubles

if TYPE_CHECKING:
    from ...config import Config
    from ...measures import Measures
    from ...pipeline import Pipeline
    from ..exporters.exporter import Exporter
    from ..exporters.fan_out import FanOut
    from ..kv.silence import Silence
    from ..spool.spool import Spool
    from ..telemetry.health import Readiness


class Surveyed(NamedTuple):
    """The parts of the service that the status page tells of.

    ``pipeline`` is ``None`` where another core takes its place: then nothing is said of records and of the oldest trace.
    """

    readiness: Readiness
    fan_out: FanOut
    silence: Silence
    spool: Spool | None = None
    pipeline: Pipeline | None = None


class Survey:
    """Looks at the parts of a service.

    ``measure`` brings the gauges up to date and gives what is counted. ``run`` it as a task, so that there is a recent
    past. It belongs to the event loop of the service.
    """

    def __init__(
        self,
        config: Config,
        measure: Callable[[], Measures],
        surveyed: Surveyed,
        *,
        pace: Pace | None = None,
        unix_nanos: Callable[[], int] = time.time_ns,
    ) -> None:
        self._surveyed = surveyed
        self._pipeline = surveyed.pipeline
        self._spool = surveyed.spool
        self.troubles = Troubles()
        self._config = config
        self._measure = measure
        self._pace = pace or Pace()
        self._unix_nanos = unix_nanos
        self._began, self._began_unix_nanos = self._pace.now(), unix_nanos()
        self._window = Window(self._began)
        self._settings = settings_of(config)

    def adopt(self, config: Config) -> None:
        """Show what a running service has changed; the rest stays what it began with."""
        self._config = msgspec.structs.replace(
            self._config, kv_events=config.kv_events, redaction=config.redaction, references=config.references
        )
        self._settings = settings_of(self._config)

    async def run(self) -> None:
        """Take note of the metrics again and again, until cancelled."""
        never = asyncio.Event()
        self.troubles.open()
        try:
            while True:
                await self._pace.wait(never, STEP_SECONDS)
                self._window.note(self._pace.now(), sums_of(self._measure(), PAST))
        finally:
            self.troubles.close()

    def take(self) -> Snapshot:
        """Take a snapshot of all parts."""
        measures, now, unix_nanos = self._measure(), self._pace.now(), self._unix_nanos()
        steps = self._window.steps(now, sums_of(measures, PAST))
        totals = Totals(sums_of(measures), steps, sums_of(measures, GAUGES))
        sources, sources_left_out = sources_of(totals, self._surveyed.silence.heard())
        records = self._records(now, unix_nanos, totals.seconds)
        return Snapshot(
            version=__version__,
            state=self._surveyed.readiness.status.value,
            taken_unix_nanos=unix_nanos,
            started_unix_nanos=self._began_unix_nanos,
            uptime_seconds=now - self._began,
            recent_seconds=totals.seconds,
            memory=_memory(totals),
            doors=_doors(totals),
            spans=_spans(totals),
            hold=self._hold(totals, now),
            sources=sources,
            sources_left_out=sources_left_out,
            discovery_failures=totals.count("whymiss.ledger.discovery_failures"),
            streams=records.streams,
            streams_left_out=records.left_out,
            stream_states=records.states,
            retained_bytes=0 if self._pipeline is None else self._pipeline.ledger.retained_bytes,
            retained_bytes_max=self._config.ledger.bytes_max,
            destinations=self._destinations(totals, now),
            spool=self._spool_room(totals),
            verdicts=_verdicts(totals),
            moments=tuple(_moment(added) for _, added in steps),
            moment_seconds=STEP_SECONDS,
            failures=_cleaned(totals.tallies("whymiss.stage.failures")),
            troubles=self.troubles.lines(),
            settings=self._settings,
        )

    def _records(self, now: float, unix_nanos: int, recent_seconds: float) -> Records:
        if self._pipeline is None:
            return Records()
        return records_of(self._pipeline.ledger, now, unix_nanos, recent_seconds)

    def _hold(self, totals: Totals, now: float) -> Hold:
        limits = self._config.join
        oldest = None if self._pipeline is None else self._pipeline.oldest_arrived
        return Hold(
            open_traces=_gauge(totals, "whymiss.join.open_traces"),
            open_spans=_gauge(totals, "whymiss.join.open_spans"),
            open_spans_max=limits.open_spans_max,
            held_bytes=_gauge(totals, "whymiss.join.memory"),
            held_bytes_max=limits.open_bytes_max,
            oldest_seconds=None if oldest is None else max(0.0, now - oldest),
            hold_seconds=limits.hold_seconds,
            released=totals.tallies("whymiss.join.released"),
        )

    def _destinations(self, totals: Totals, now: float) -> tuple[Destination, ...]:
        return tuple(_destination(one, totals, now) for one in self._surveyed.fan_out.exporters)

    def _spool_room(self, totals: Totals) -> SpoolRoom | None:
        if self._spool is None:
            return None
        return SpoolRoom(
            size_bytes=self._spool.size,
            bytes_max=self._config.spool.bytes_max,
            replaying_bytes=self._spool.replaying_bytes,
            fsync=self._config.spool.fsync,
            refused=totals.count("whymiss.spool.refused_requests"),
            failures=totals.count("whymiss.spool.failures"),
            corrupt=totals.count("whymiss.spool.corrupt_records"),
            replayed=totals.count("whymiss.spool.replayed_requests"),
        )


def _destination(one: Exporter, totals: Totals, now: float) -> Destination:
    delivery, settings = one.delivery, one.settings
    retrying = delivery.deferring_since
    state = "retrying" if retrying is not None else "idle" if delivery.answered_at is None else "ok"
    return Destination(
        name=clean(one.name),
        protocol=settings.protocol,
        target=clean(settings.target),
        state=state,
        retrying_seconds=None if retrying is None else now - retrying,
        code=None if delivery.code is None else clean(delivery.code),
        code_seconds=None if delivery.failed_at is None else now - delivery.failed_at,
        held_requests=one.held_requests,
        held_requests_max=settings.queue_requests_max,
        held_bytes=one.held_bytes,
        held_bytes_max=settings.queue_bytes_max,
        fullness=one.fullness,
        sent=totals.count("whymiss.exporter.sent_spans", one.name),
        failed=totals.count("whymiss.exporter.failed_spans", one.name),
    )


def _memory(totals: Totals) -> MemoryUse:
    return MemoryUse(
        resident_bytes=_gauge(totals, "whymiss.process.memory"),
        parts=totals.gauges("whymiss.memory.held"),
        limits=totals.gauges("whymiss.memory.limit"),
        refused=totals.count("whymiss.memory.refused_requests"),
    )


def _doors(totals: Totals) -> tuple[ReceiverCounts, ...]:
    accepted, refused = "whymiss.receiver.accepted_requests", "whymiss.receiver.refused_requests"
    transports = sorted(totals.values(accepted) | totals.values(refused))
    signals = sorted(totals.values(accepted, 1) | totals.values(refused, 1), reverse=True)
    doors = [
        ReceiverCounts(
            transport=clean(transport),
            signal=clean(signal),
            accepted=totals.count(accepted, transport, signal),
            refused=totals.count(refused, transport, signal),
            reasons=_cleaned(totals.tallies(refused, transport, signal, by=2)),
        )
        for transport in transports
        for signal in signals
    ]
    return tuple(door for door in doors if door.accepted.total or door.refused.total)


def _spans(totals: Totals) -> Spans:
    return Spans(
        accepted=totals.count("whymiss.receiver.accepted_spans"),
        refused=totals.count("whymiss.receiver.refused_spans"),
        claimed=_cleaned(totals.tallies("whymiss.spans.claimed")),
        passed_through=totals.count("whymiss.spans.passed_through"),
        late=totals.count("whymiss.spans.late"),
        rejected=_cleaned(totals.tallies("whymiss.spans.rejected")),
        dropped=_cleaned(totals.tallies("whymiss.spans.dropped")),
        sent=_cleaned(totals.tallies("whymiss.exporter.sent_spans")),
        failed=_cleaned(totals.tallies("whymiss.exporter.failed_spans", by=1)),
    )


def _verdicts(totals: Totals) -> VerdictCounts:
    causes = totals.tallies("prefix_cache.requests")
    return VerdictCounts(
        lookups=totals.count("prefix_cache.requests"),
        misses=totals.count("prefix_cache.misses"),
        queried_tokens=totals.count("prefix_cache.queried_tokens"),
        hit_tokens=totals.count("prefix_cache.hit_tokens"),
        causes=tuple(_cause(one, totals) for one in causes),
        unknown=totals.tallies("prefix_cache.unknown"),
    )


def _cause(tally: NamedCount, totals: Totals) -> CauseCount:
    owners = [one.name for one in totals.tallies("prefix_cache.misses", tally.name, by=1)]
    return CauseCount(
        cause=tally.name,
        owners=tuple(owners),
        lookups=tally.count,
        lost_tokens=totals.count("prefix_cache.lost_tokens", tally.name),
    )


def _moment(added: Sums) -> TimelineStep:
    counts = {key[1]: value for key, value in added.items() if key[0] == "prefix_cache.requests"}
    hits, unknown = counts.get(Cause.NONE, 0.0), counts.get(Cause.UNKNOWN, 0.0)
    return TimelineStep(hits, sum(counts.values()) - hits - unknown, unknown)


def _cleaned(tallies: Sequence[NamedCount]) -> tuple[NamedCount, ...]:
    return tuple(NamedCount(clean(one.name), one.count) for one in tallies)


def _gauge(totals: Totals, name: str) -> int:
    return round(totals.gauge(name) or 0)
