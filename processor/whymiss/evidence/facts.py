"""What the record says of the first missed block at the moment of the lookup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..config import AttributionConfig
from ..model import (
    SECOND,
    Block,
    Fact,
    Facts,
    Grade,
    GroupSpec,
    Holder,
    LedgerView,
    Lookup,
    OffloadOutcome,
    Reason,
    Request,
    Residency,
    RouteDecision,
    Span,
    StreamId,
    Tier,
)
from .grouping import engine_says, lookup_says
from .reading import Reading

_GONE = frozenset({Residency.EVICTED, Residency.NEVER_SEEN})


class FactFinder:
    """Establishes facts for readings. Nothing here looks at anything later than the lookup."""

    def __init__(self, config: AttributionConfig, window_seconds: float, ledger: LedgerView) -> None:
        self._config = config
        self._window = round(window_seconds * SECOND)
        self._window_seconds = window_seconds
        self._ledger = ledger
        self._tolerance = round(config.clock_tolerance_seconds * SECOND)

    def bare(self, request: Request, grade: Grade, gap: Reason, block_size: int | None) -> Facts:
        """The facts of a request without a reading: what its spans alone say."""
        said = engine_says(request.engine)
        lookup = lookup_says(request.lookup)
        route, route_at = _route(request.routes)
        return Facts(
            grade=grade,
            gap=gap,
            prompt_tokens=_first(lookup.prompt_tokens if lookup else None, said.prompt_tokens if said else None),
            cached_tokens=_first(lookup.cached_tokens if lookup else None, said.cached_tokens if said else None),
            block_size=block_size,
            match_unit=self._config.match_unit or (lookup.match_unit if lookup else None) or block_size,
            disabled=bool(lookup and lookup.disabled),
            speculative=bool(lookup and lookup.speculative),
            sparse_lost_tokens=lookup.sparse_lost_tokens if lookup else None,
            lookup_seen=lookup is not None,
            extra_key_kinds=(lookup.extra_key_kinds or ()) if lookup else (),
            window_seconds=self._window_seconds,
            route=route,
            route_unix_nanos=route_at,
            offload=_offload(request.offloads),
        )

    def of(self, request: Request, reading: Reading, grade: Grade, gap: Reason) -> Facts:
        """The facts of a request under one reading; ``gap`` says why the reading has no stream."""
        lookup = lookup_says(request.lookup)
        facts = self.bare(request, grade, Reason.NONE, reading.block_size)
        stream = reading.stream
        facts = msgspec.structs.replace(
            facts,
            stream=stream,
            cached_tokens=reading.cached_tokens,
            first=reading.first,
            last_hit_key=reading.last_hit_key,
            chain_known=reading.chain_known,
            lookup_seen=reading.lookup_seen,
            match_unit=self._match_unit(stream, lookup, reading.block_size),
        )
        if stream is None or not reading.chain:
            missing = gap or (Reason.NO_FIRST_MISS_KEY if stream is not None else Reason.NO_WORKER)
            return msgspec.structs.replace(facts, record_gap=missing)
        facts = self._here(facts, stream, reading)
        facts = self._relatives(facts, stream, reading)
        return self._elsewhere(facts, stream, reading)

    def _match_unit(self, stream: StreamId | None, lookup: Lookup | None, block_size: int) -> int:
        told = self._config.match_unit or (lookup.match_unit if lookup else None)
        return told or (self._ledger.match_unit(stream) if stream is not None else None) or block_size

    # --- the serving worker -------------------------------------------------------------------------

    def _here(self, facts: Facts, stream: StreamId, reading: Reading) -> Facts:
        chain = self._up_to_last_matchable(facts, reading)
        states = self._ledger.as_of(stream, chain, reading.position)
        here = states[0]
        if reading.undecided:
            here = Fact(state=Residency.AMBIGUOUS)
        recoverable = _leading(states, {Residency.RESIDENT, Residency.EVICTED})
        ahead = _leading(states, {Residency.RESIDENT})
        block = self._ledger.block(stream, chain[0])
        kinds = block.kinds if block is not None else facts.extra_key_kinds
        age = None if here.at_unix_nanos is None else max(0, reading.earliest - here.at_unix_nanos)
        return msgspec.structs.replace(
            facts,
            key=chain[0],
            here=here,
            record_gap=self._record_gap(stream, here, reading),
            recoverable=recoverable,
            dense_ahead=ahead,
            sparse_boundary=self._vetoed(stream, facts, reading, ahead),
            extra_key_kinds=kinds,
            eviction_age_nanos=age if here.state is Residency.EVICTED else None,
        )

    def _up_to_last_matchable(self, facts: Facts, reading: Reading) -> Sequence[int]:
        matchable = ((facts.prompt_tokens or 1) - 1) // reading.block_size
        count = max(1, matchable - reading.first) if facts.prompt_tokens is not None else len(reading.chain)
        return reading.chain[:count]

    def _record_gap(self, stream: StreamId, here: Fact, reading: Reading) -> Reason:
        """Why nothing negative can be said from this stream's record, if so."""
        if here.state is Residency.AMBIGUOUS:
            return Reason.EVIDENCE_LATE if reading.undecided else Reason.AMBIGUOUS_COPIES
        begin = reading.latest - self._window
        coverage = self._ledger.coverage(stream, begin, reading.latest)
        if here.state in {Residency.NEVER_SEEN, Residency.UNKNOWN}:
            if coverage.holes:
                return coverage.holes[0].reason
            if not coverage.from_birth and coverage.begins_unix_nanos > begin:
                return Reason.HISTORY_SHORT
        return Reason.NONE

    def _vetoed(self, stream: StreamId, facts: Facts, reading: Reading, ahead: int) -> int | None:
        """The dense boundary in blocks, when a sparse group alone kept a lookup from reaching further.

        A sliding window needs the blocks of its window before the boundary, a Mamba group its state at
        the boundary (vllm ``v1/core/single_type_kv_cache_manager.py``).
        """
        groups = self._ledger.groups(stream)
        sparse = [spec for spec in groups if not spec.dense]
        if not sparse or not ahead or not groups[0].dense or not reading.chain_known:
            return None
        unit = max(1, (facts.match_unit or reading.block_size) // reading.block_size)
        boundary = reading.first + ahead
        for blocks in range(boundary - boundary % unit, reading.first, -unit):
            if all(self._holds(stream, spec, reading, blocks) for spec in sparse):
                return None
        return boundary

    def _holds(self, stream: StreamId, spec: GroupSpec, reading: Reading, blocks: int) -> bool:
        size = reading.block_size
        needed = 1 if spec.window is None else max(1, -(-(spec.window - 1) // size))
        keys = [key for index, key in enumerate(reading.chain, reading.first) if blocks - needed <= index < blocks]
        states = self._ledger.as_of(stream, keys, reading.position, group=spec.group)
        return all(fact.state not in _GONE for fact in states)

    # --- blocks with the same parent or the same tokens -----------------------------------------------

    def _relatives(self, facts: Facts, stream: StreamId, reading: Reading) -> Facts:
        key = reading.chain[0]
        block = self._ledger.block(stream, key)
        parent = reading.last_hit_key if reading.first else None
        if reading.first and parent is None and block is not None:
            parent = block.parent
        siblings = [other for other in self._ledger.children(stream, parent, reading.position) if other != key]
        twins = self._ledger.same_tokens(stream, key, reading.position)
        different = [_kinds_between(block, twin) for twin in twins if block is not None and _differ(block, twin)]
        parent_known = parent is None or self._ledger.block(stream, parent) is not None
        return msgspec.structs.replace(
            facts,
            tokens_known=block is not None and block.prefix is not None,
            siblings=bool(siblings),
            extends=bool(reading.first) and parent_known and not siblings,
            differing_kinds=min(different, key=lambda kinds: (len(kinds), kinds)) if different else None,
            same_identity=any(block is not None and not _differ(block, twin) for twin in twins),
            same_tokens_leading=self._same_leading(stream, facts, reading) if twins else 0,
            reconverging=self._ledger.reconverges(stream, reading.chain, reading.position),
        )

    def _same_leading(self, stream: StreamId, facts: Facts, reading: Reading) -> int:
        count = 0
        for key in self._up_to_last_matchable(facts, reading):
            if not self._ledger.same_tokens(stream, key, reading.position):
                break
            count += 1
        return count

    # --- other workers and tiers ------------------------------------------------------------------------

    def _elsewhere(self, facts: Facts, stream: StreamId, reading: Reading) -> Facts:
        holders: list[Holder] = []
        holder_gap = view_gap = Reason.NONE
        lost = False
        chain = self._up_to_last_matchable(facts, reading)
        for other in self._ledger.view_of(stream):
            if self._ledger.block_size(other) not in (None, reading.block_size):
                continue
            before = self._ledger.position_at(other, reading.earliest - self._tolerance)
            states = self._ledger.as_of(other, chain, before)
            gap, late = self._doubt(other, chain[0], states[0], before, reading)
            view_gap = view_gap or gap
            if states[0].state is Residency.RESIDENT:
                if gap or late:
                    holder_gap = holder_gap or gap or late
                else:
                    leading = _leading(states, {Residency.RESIDENT})
                    holders.append(Holder(stream=other, tier=Tier.DEVICE, leading_blocks=leading))
            lost = lost or states[0].state is Residency.EVICTED
        tiers = tuple(
            tier
            for tier in self._ledger.tiers(stream)
            if self._ledger.as_of(stream, chain[:1], reading.position, tier=tier)[0].state is Residency.RESIDENT
        )
        return msgspec.structs.replace(
            facts,
            holders=tuple(sorted(holders, key=lambda holder: (-holder.leading_blocks, holder.stream))),
            holder_gap=holder_gap,
            view_gap=view_gap,
            lost_elsewhere=lost,
            tiers_holding=tiers,
        )

    def _doubt(self, other: StreamId, key: int, fact: Fact, before: int, reading: Reading) -> tuple[Reason, Reason]:
        """Why another worker's record does not show whether it held the key; why a holder is not confirmed."""
        after = self._ledger.position_at(other, reading.latest + self._tolerance)
        if self._ledger.touched(other, key, before, after):
            return Reason.CLOCK_SKEW, Reason.NONE
        begin = reading.latest - self._window
        coverage = self._ledger.coverage(other, begin, reading.latest + self._tolerance)
        if fact.state in {Residency.NEVER_SEEN, Residency.UNKNOWN}:
            if coverage.holes or (not coverage.from_birth and coverage.begins_unix_nanos > begin):
                return Reason.FLEET_VIEW_PARTIAL, Reason.NONE
        elif fact.state is Residency.AMBIGUOUS:
            return Reason.AMBIGUOUS_COPIES, Reason.NONE
        else:
            since = fact.at_unix_nanos or 0
            holes = self._ledger.coverage(other, since, reading.latest + self._tolerance).holes
            if holes:
                return Reason.FLEET_VIEW_PARTIAL, Reason.NONE
        confirmed = self._ledger.confirmed_position(other, reading.latest + self._tolerance)
        if confirmed is None:
            return Reason.NONE, Reason.EVIDENCE_LATE
        # The first batch after the lookup may tell of what had happened before it, a reset above all.
        if self._ledger.touched(other, key, after, confirmed):
            return Reason.NONE, Reason.CLOCK_SKEW
        return Reason.NONE, Reason.NONE


def _leading(states: Iterable[Fact], wanted: set[Residency]) -> int:
    count = 0
    for fact in states:
        if fact.state not in wanted:
            break
        count += 1
    return count


def _differ(block: Block, twin: Block) -> bool:
    """Whether two blocks with the same tokens in one process differ in extra keys.

    They do unless both published the same ones; an adapter's path is hashed but only its name is
    published, so one name can stand for two adapters.
    """
    return block.extras is None or block.extras != twin.extras or "lora" in block.kinds


def _kinds_between(block: Block, twin: Block) -> tuple[str, ...]:
    """Kinds that differ; where both carry the same kinds, their values do."""
    kinds = set(block.kinds) ^ set(twin.kinds)
    return tuple(sorted(kinds or set(block.kinds)))


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _route(spans: Sequence[Span]) -> tuple[RouteDecision | None, int | None]:
    """The decision that names a worker and, best, a promise; the latest of equals."""
    found = [
        (said.predicted_blocks is not None, said.worker is not None, span.end_unix_nanos, said)
        for span in spans
        for said in span.says
        if isinstance(said, RouteDecision)
    ]
    if not found:
        return None, None
    best = max(found, key=lambda entry: entry[:3])
    return best[3], best[2]


def _offload(spans: Sequence[Span]) -> OffloadOutcome | None:
    """The worst outcome that a tier reported: a failure explains more than a success."""
    order = ("timeout", "failed", "stale", "miss", "hit", "none", None)
    found = [said for span in spans for said in span.says if isinstance(said, OffloadOutcome)]
    return min(found, key=lambda said: order.index(said.status) if said.status in order else 1, default=None)
