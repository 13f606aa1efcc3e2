"""The evidence of a lookup, each section established when something first asks for it.

Nothing here looks at anything later than the lookup.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import msgspec

from ..config import Config
from ..model import (
    SECOND,
    FleetEvidence,
    FleetView,
    Grade,
    IsolationEvidence,
    Likeness,
    LocalEvidence,
    LookupEvidence,
    PromiseEvidence,
    Reason,
    RelationEvidence,
    Residency,
    StreamView,
    Templates,
    TierEvidence,
)
from .hypotheses import Reading, Readings
from .missed import Missed
from .peers import Peers
from .requests.companions import Companion, Companions
from .requests.report import RequestReport
from .requests.request_log import RequestLog
from .requests.workers import Workers
from .sections.fleet import holdings
from .sections.isolation import recorded_isolation, told_isolation
from .sections.local import local_evidence
from .sections.lookup import lookup_of_reading, lookup_of_spans, match_unit
from .sections.promises import PromiseReader
from .sections.relations import NoRelations, Relations
from .sections.template import compared
from .sections.tiers import surely_left, tier_evidence


class Remembered(NamedTuple):
    """What is remembered of earlier requests."""

    log: RequestLog
    companions: Companions


class Case(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One lookup under one reading, as far as it is read before any record is asked."""

    report: RequestReport
    worker: str | None
    lookup: LookupEvidence
    record: StreamView | None = None
    """Of the worker that served it."""
    missed: Missed | None = None
    """``None`` where no record can be asked."""
    absent: Reason = Reason.NONE
    """Why not, where there is a reading."""


class Sources:
    """What evidence is established from: the record of the fleet, and what is remembered of earlier requests."""

    def __init__(
        self, config: Config, fleet: FleetView, workers: Workers, remembered: Remembered, templates: Templates
    ) -> None:
        self.fleet = fleet
        self.log, self.companions = remembered
        self.templates = templates
        self.unit = config.attribution.match_unit
        self.window_seconds = config.ledger.window_seconds
        self.window = round(config.ledger.window_seconds * SECOND)
        self.tolerance = round(config.attribution.clock_tolerance_seconds * SECOND)
        self.promises = PromiseReader(workers, fleet, self.tolerance)

    def of_spans(self, report: RequestReport, readings: Readings, worker: str | None) -> EstablishedEvidence:
        """The evidence of a request without a reading: what its spans alone say."""
        lookup = lookup_of_spans(report, readings, self.fleet, self.unit, self._lookup_gap(report, worker))
        return EstablishedEvidence(self, Case(report=report, worker=worker, lookup=lookup))

    def of_uncounted(self, report: RequestReport, block_size: int | None, worker: str | None) -> EstablishedEvidence:
        """The same of one whose counts say nothing of what was in the cache."""
        unseen = Readings(grade=Grade.NONE, gap=Reason.NO_CACHED_TOKENS, block_size=block_size)
        evidence = self.of_spans(report, unseen, worker)
        evidence.lookup = msgspec.structs.replace(evidence.lookup, cached_tokens=None, first=None)
        return evidence

    def of_reading(
        self, report: RequestReport, reading: Reading, readings: Readings, worker: str | None
    ) -> EstablishedEvidence:
        """The evidence of a request under one of its readings; their gap says why a reading has no stream."""
        record = self.fleet.stream(reading.stream) if reading.stream is not None else None
        unit = match_unit(record, report, reading.block_size, reading.cached_tokens, self.unit)
        lookup = lookup_of_reading(report, reading, readings.grade, unit, self._lookup_gap(report, worker))
        if record is None or not reading.chain:
            # guard: facts-no-stream
            absent = readings.gap or (Reason.NO_WORKER if record is None else Reason.NO_FIRST_MISS_KEY)
            return EstablishedEvidence(
                self, Case(report=report, worker=worker, lookup=lookup, record=record, absent=absent)
            )
        missed = Missed.of(reading, record, lookup.prompt_tokens, self.window)
        return EstablishedEvidence(
            self, Case(report=report, worker=worker, lookup=lookup, record=record, missed=missed)
        )

    def _lookup_gap(self, report: RequestReport, worker: str | None) -> Reason:
        # guard: facts-lookup-lost
        return self.lost(Companion.LOOKUP, report, worker) if report.lookup is None else Reason.NONE

    def lost(self, kind: Companion, report: RequestReport, worker: str | None) -> Reason:
        """Why a companion that is missing was lost: others that came at the time had one."""
        subject = report.request.subject
        if kind is Companion.PROMISE and not any(subject.parent_span_id):  # guard: facts-no-caller
            # Nobody called this engine in a trace: there was no router.
            return Reason.NONE
        expected = self.companions.expected(kind, worker, subject.start_unix_nanos)
        return Reason.PARTIAL_TRACE if expected else Reason.NONE


class EstablishedEvidence:
    """Implements ``model.Evidence``. Where nothing was missed, or no record can be asked, none is."""

    def __init__(self, sources: Sources, case: Case) -> None:
        self._sources = sources
        self._report = case.report
        self._worker = case.worker
        self._record = case.record
        self._missed = case.missed
        self._absent = case.absent
        self.lookup = case.lookup

    @cached_property
    def _peers(self) -> Peers:
        assert self._missed is not None, "checked by the caller"
        sources = self._sources
        return Peers(sources.fleet, sources.log, sources.tolerance, self._missed)

    @cached_property
    def _unseen(self) -> bool:
        """Whether the serving worker never held the block."""
        here = self.local.here
        return here is not None and here.state is Residency.NEVER_SEEN

    @cached_property
    def local(self) -> LocalEvidence:
        """The serving worker's record of the missed blocks."""
        seconds = self._sources.window_seconds
        if self._missed is None:
            return LocalEvidence(record_gap=self._absent, window_seconds=seconds)
        return local_evidence(self._missed, self.lookup, self._report.lookup, seconds)

    @cached_property
    def tiers(self) -> TierEvidence:
        """Lower tiers within reach."""
        return TierEvidence() if self._missed is None else tier_evidence(self._peers)

    @cached_property
    def fleet(self) -> FleetEvidence:
        """Other workers."""
        if self._missed is None:
            return FleetEvidence()
        return holdings(self._peers, self._peers.that_may_know(), unseen=self._unseen).evidence()

    @cached_property
    def relations(self) -> RelationEvidence:
        """Blocks that are like the missed one."""
        if self._missed is None or not self._unseen:  # guard: facts-relatives-unseen
            return NoRelations()
        # guard: facts-tiered, facts-tiered-lost
        tiered = self._report.offload is not None or bool(
            self._sources.lost(Companion.OFFLOAD, self._report, self._worker)
        )
        return Relations(self._peers, chain_known=self.lookup.chain_known, tiered=tiered)

    @cached_property
    def promises(self) -> PromiseEvidence:
        """What routers and tiers had said."""
        sources, report, offload = self._sources, self._report, self._report.offload
        expected = bool(sources.lost(Companion.PROMISE, report, self._worker))
        promise = sources.promises.of(report.request, self.lookup.stream, report.looked_at, expected=expected)
        return PromiseEvidence(
            route=promise.route,
            promised_at=promise.at,
            route_gap=promise.gap,
            best_is_elsewhere=promise.best_is_elsewhere,
            offload=offload,
            offload_gap=Reason.NONE if offload is not None else self._offload_gap(),
        )

    def _offload_gap(self) -> Reason:
        gap = self._sources.lost(Companion.OFFLOAD, self._report, self._worker)  # guard: facts-offload-lost
        if gap and self._missed is not None and surely_left(self._missed):
            tiers = self.tiers
            if not tiers.tier_gap and not tiers.tiers_holding:  # guard: facts-tier-gap, facts-tier-holding
                # A tier that published that it let the block go had none to promise.
                return Reason.NONE  # guard: facts-tier-spoken
        return gap

    @cached_property
    def isolation(self) -> IsolationEvidence:
        """Whose blocks they can be."""
        told = told_isolation(self._report.lookup)
        if self._record is None:
            return told
        first = None if self._missed is None else self._missed.block
        return recorded_isolation(told, self._record, first, self.lookup.last_hit_key)

    @cached_property
    def template(self) -> Likeness | None:
        """How the block compares with a known-good template."""
        # guard: likeness-never, likeness-gap, likeness-chain
        if self._missed is None or not self._unseen or self.relations.equal_tokens.equal_gap:
            return None
        engine = self._report.engine
        model = engine.model if engine is not None else None
        return compared(self._missed, self.lookup, self._sources.templates, model)
