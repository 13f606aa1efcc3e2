"""The facts of a lookup under one reading of its evidence, from all that spans and records say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..config import Config
from ..model import (
    SECOND,
    EngineRequest,
    Facts,
    GatewayUsage,
    LedgerView,
    Lookup,
    Reason,
    Request,
    Residency,
    Span,
    StreamId,
)
from .apart import recorded_apart, said_apart
from .companions import Companion, Companions
from .elsewhere import Elsewhere
from .grouping import engine_says, lookup_bounds, lookup_says
from .promises import PromiseReader, offload_of
from .reading import Reading, Readings
from .recent import RecentRequests
from .record import OwnRecord, matchable_chain
from .relatives import Relatives, decided_by_holders
from .view import View
from .workers import Workers


class FactFinder:
    """Establishes facts for readings. Nothing here looks at anything later than the lookup."""

    def __init__(
        self, config: Config, ledger: LedgerView, workers: Workers, recent: RecentRequests, companions: Companions
    ) -> None:
        tolerance = round(config.attribution.clock_tolerance_seconds * SECOND)
        self._unit = config.attribution.match_unit
        self._window_seconds = config.ledger.window_seconds
        self._ledger = ledger
        self._companions = companions
        self._promises = PromiseReader(workers, ledger, tolerance)
        self._record = OwnRecord(ledger, round(config.ledger.window_seconds * SECOND))
        view = View(ledger, self._record, recent, tolerance)
        self._relatives = Relatives(ledger, view)
        self._elsewhere = Elsewhere(ledger, self._record, recent, view)

    def bare(self, request: Request, readings: Readings, worker: str | None, stream: StreamId | None = None) -> Facts:
        """The facts of a request without a reading: what its spans alone say."""
        said, lookup = engine_says(request.engine), lookup_says(request.lookup)
        cached = lookup.cached_tokens if lookup is not None else None
        cached = reported_cached(request) if cached is None else cached
        size = (lookup.block_size if lookup is not None else None) or readings.block_size
        promise = self._promises.of(
            request, stream, _looked(request, said), expected=self._expects(Companion.PROMISE, request, worker)
        )
        offload = offload_of(request.offloads)
        lost = Reason.PARTIAL_TRACE
        # guard: facts-lookup-lost, facts-offload-lost
        return Facts(
            grade=readings.grade,
            gap=readings.gap,
            stream=stream,
            prompt_tokens=_prompt_tokens(said, lookup, request.gateways),
            cached_tokens=cached,
            local_hit_tokens=_local_hit(lookup),
            block_size=size,
            match_unit=self._match_unit(stream, lookup, size, cached),
            first=cached // size if cached is not None and size else None,
            disabled=lookup is not None and lookup.disabled,
            speculative=lookup is not None and lookup.speculative,
            sparse_lost_tokens=lookup.sparse_lost_tokens if lookup is not None else None,
            lookup_seen=lookup is not None,
            lookup_gap=lost if lookup is None and self._expects(Companion.LOOKUP, request, worker) else Reason.NONE,
            extra_key_kinds=(lookup.extra_key_kinds or ()) if lookup is not None else (),
            kept_apart_by=said_apart(lookup),
            window_seconds=self._window_seconds,
            route=promise.route,
            promised_at=promise.at,
            route_gap=promise.gap,
            best_is_elsewhere=promise.best_is_elsewhere,
            offload=offload,
            offload_gap=lost if offload is None and self._expects(Companion.OFFLOAD, request, worker) else Reason.NONE,
        )

    def of(self, request: Request, reading: Reading, readings: Readings, worker: str | None) -> Facts:
        """The facts of a request under one of its readings; their gap says why a reading has no stream."""
        lookup = lookup_says(request.lookup)
        reading = msgspec.structs.replace(reading, decodes=request.decodes)
        stream = reading.stream
        facts = self.bare(request, Readings(grade=readings.grade, block_size=reading.block_size), worker, stream)
        # guard: facts-local-hit
        facts = msgspec.structs.replace(
            facts,
            cached_tokens=reading.cached_tokens,
            block_size=reading.block_size,
            first=reading.first,
            last_hit_key=reading.last_hit_key,
            chain_known=reading.chain_known,
            lookup_seen=reading.lookup_seen,
            # What a tier delivers is stored like what was computed: a chain begins where the local hit ended.
            local_hit_tokens=facts.local_hit_tokens if reading.lookup_seen else reading.cached_tokens,
            match_unit=self._match_unit(stream, lookup, reading.block_size, reading.cached_tokens),
        )
        if stream is not None:
            facts = recorded_apart(facts, self._ledger, stream, reading)
        if stream is None or not reading.chain:
            missing = readings.gap or (Reason.NO_FIRST_MISS_KEY if stream is not None else Reason.NO_WORKER)
            return msgspec.structs.replace(facts, record_gap=missing)  # guard: facts-no-stream
        facts = self._lost_at(self._record.add(facts, stream, reading, lookup), stream)
        chain, _ = matchable_chain(facts, reading)
        unseen = facts.here is not None and facts.here.state is Residency.NEVER_SEEN
        if unseen:  # guard: facts-relatives-unseen
            facts = self._relatives.add_twins(facts, stream, reading, chain)
        facts = self._elsewhere.add(facts, stream, reading, chain)
        if unseen and not decided_by_holders(facts):  # guard: facts-identities-unseen
            facts = self._elsewhere.add_identities(facts, stream, reading, chain)
        if unseen and not decided_by_holders(facts):  # guard: facts-siblings-unseen
            facts = self._relatives.add_siblings(facts, stream, reading)
        return self._settle_offload(facts, stream)

    def _lost_at(self, facts: Facts, stream: StreamId) -> Facts:
        here = facts.here
        if here is None or here.state is not Residency.EVICTED or here.at_unix_nanos is None:
            return facts
        moment = self._promises.lost_at(stream, here.removal, here.at_unix_nanos)
        return msgspec.structs.replace(facts, lost_at=moment)

    def _settle_offload(self, facts: Facts, stream: StreamId) -> Facts:
        """A tier that publishes what it holds, and did not hold the block, had none to promise."""
        spoken = bool(self._ledger.tiers(stream)) and not facts.tier_gap  # guard: facts-tier-gap
        if facts.offload_gap and spoken and not facts.tiers_holding:  # guard: facts-tier-holding
            return msgspec.structs.replace(facts, offload_gap=Reason.NONE)  # guard: facts-tier-spoken
        return facts

    def _expects(self, kind: Companion, request: Request, worker: str | None) -> bool:
        subject = request.subject
        if kind is Companion.PROMISE and not any(subject.parent_span_id):  # guard: facts-no-caller
            # Nobody called this engine in a trace: there was no router.
            return False
        return self._companions.expected(kind, worker, subject.start_unix_nanos)

    def _match_unit(
        self, stream: StreamId | None, lookup: Lookup | None, block_size: int | None, cached: int | None
    ) -> int | None:
        told = self._unit or (lookup.match_unit if lookup is not None else None)
        if told:
            return told
        inferred = self._ledger.match_unit(stream) if stream is not None else None
        if inferred and (cached or 0) % inferred:
            # A hit that is no multiple of it: the engine matches in finer steps.
            inferred = None  # guard: facts-unit-finer
        return inferred or block_size


def reported_cached(request: Request) -> int | None:
    """A cached-token count that the engine's own span or a gateway reports; absent is not zero."""
    said = engine_says(request.engine)
    if said is not None and said.cached_tokens is not None:
        return said.cached_tokens
    counts = {usage.cached_tokens for usage in _usages(request.gateways) if usage.cached_tokens is not None}
    return counts.pop() if len(counts) == 1 else None  # guard: facts-cached-disagree


def _usages(gateways: Sequence[Span]) -> list[GatewayUsage]:
    return [said for span in gateways for said in span.says if isinstance(said, GatewayUsage)]


def _prompt_tokens(said: EngineRequest | None, lookup: Lookup | None, gateways: Sequence[Span]) -> int | None:
    if lookup is not None and lookup.prompt_tokens is not None:
        return lookup.prompt_tokens
    if said is not None and said.prompt_tokens is not None:
        return said.prompt_tokens
    counts = {usage.prompt_tokens for usage in _usages(gateways) if usage.prompt_tokens is not None}
    return counts.pop() if len(counts) == 1 else None  # guard: facts-prompt-disagree


def _local_hit(lookup: Lookup | None) -> int | None:
    """Cached tokens of the engine's own cache, where a lookup keeps them apart."""
    if lookup is None or lookup.local_hit_tokens is not None or lookup.external_hit_tokens is None:
        return lookup.local_hit_tokens if lookup is not None else None
    # guard: facts-external
    return None if lookup.cached_tokens is None else lookup.cached_tokens - lookup.external_hit_tokens


def _looked(request: Request, said: EngineRequest | None) -> int:
    """The latest possible time of the lookup."""
    if request.lookup is not None:
        return request.lookup.start_unix_nanos
    assert request.engine is not None, "a request has an engine span or a lookup"
    return lookup_bounds(request.engine, said or EngineRequest())[1]
