"""From the table's answer to a verdict; several readings speak with one voice or not at all."""

from __future__ import annotations

import msgspec

from ..model import Cause, Facts, Grade, Owner, Reason, Verdict
from ..model.worker_name import with_rank
from .rows import Policy, Unsure, Yes, blocks
from .table import TABLE, Row


def decide(facts: Facts, policy: Policy) -> Verdict:
    """Name the cause of one lookup under one reading of its evidence, or say why it has no name."""
    for row in TABLE:  # guard: decide-order
        if facts.gap and row.cause is Cause.LOOKUP_FAILURE:  # guard: decide-gap, decide-spans-first
            # What spans alone prove has been said above; the rest needs the first missed block.
            return _unknown(facts, facts.gap)
        answer = row.decide(facts, policy)
        if isinstance(answer, Unsure):
            return _unknown(facts, answer.reason)  # guard: decide-unsure
        if answer is not None:
            return _verdict(facts, row, answer)
    raise AssertionError("the last row always answers")


def _lost(facts: Facts, answer: Yes) -> int | None:
    if answer.lost_tokens is not None:
        return answer.lost_tokens
    matchable = blocks(facts)
    if answer.lost_blocks is None or facts.block_size is None or matchable is None or facts.first is None:
        return None
    if facts.first >= matchable:  # guard: cost-full-hit
        # A count that names a full hit and a tier that did not deliver: what was lost is not known.
        return None
    if facts.here is not None and not facts.chain_known:  # guard: cost-chain-known
        return None
    # guard: cost-matchable, cost-negative
    return facts.block_size * max(0, min(answer.lost_blocks, matchable - facts.first))


def _verdict(facts: Facts, row: Row, answer: Yes) -> Verdict:
    grade = facts.grade
    if grade is Grade.NONE:
        grade = Grade.SPANS
    declared = facts.view_gap or facts.holder_gap or facts.tier_gap  # guard: verdict-view-marked, verdict-holder-marked
    # guard: decide-owner
    return msgspec.structs.replace(
        _shared_facts(facts),
        cause=row.cause,
        owner=row.owner,
        reason=answer.reason,
        grade=grade,
        lost_tokens=_lost(facts, answer),
        fleet_view_complete=not declared if facts.here is not None else None,
    )


def _unknown(facts: Facts, reason: Reason) -> Verdict:
    return msgspec.structs.replace(_shared_facts(facts), reason=reason, grade=facts.grade)


def _shared_facts(facts: Facts) -> Verdict:
    """Every true fact travels with the verdict, whichever row won."""
    here = facts.here
    cached, prompt = facts.cached_tokens, facts.prompt_tokens
    route, offload = facts.route, facts.offload
    missed = facts.first is not None and facts.here is not None
    # guard: facts-holders-missed, facts-history
    return Verdict(
        cause=Cause.UNKNOWN,
        owner=Owner.OBSERVABILITY,
        worker=facts.stream.worker if facts.stream else None,
        rank=facts.stream.rank if facts.stream else None,
        prompt_tokens=prompt,
        cached_tokens=cached,
        recomputed_tokens=prompt - cached if prompt is not None and cached is not None else None,
        sparse_lost_tokens=facts.sparse_lost_tokens,
        block_size=facts.block_size,
        match_unit=facts.match_unit,
        block_index=facts.first,
        residency=here.state if here is not None else None,
        eviction_age_ms=None if facts.eviction_age_nanos is None else facts.eviction_age_nanos // 1_000_000,
        eviction_reason=here.removal.value if here is not None and here.removal is not None else None,
        holders_count=len(facts.holders) if missed else None,
        holders_tiers=tuple(sorted({holder.tier.value for holder in facts.holders} | set(facts.tiers_holding))),
        holders=tuple(with_rank(holder.stream.worker, holder.stream.rank) for holder in facts.holders),
        predicted_blocks=route.predicted_blocks if route else None,
        best_blocks=route.best_blocks if route else None,
        index_version=route.index_version if route else None,
        route=route.worker if route else None,
        remote_lookup=offload.status if offload else None,
        extra_key_kinds=facts.differing_kinds or facts.extra_key_kinds,
        window_seconds=facts.window_seconds if missed else None,
        history_complete=not facts.record_gap if missed else None,
        template_version=facts.likeness.version if facts.likeness is not None else None,
        template_name=facts.likeness.name if facts.likeness is not None else None,
        kept_apart_by=facts.kept_apart_by,
        adapter=facts.adapter,
        first_miss_key=facts.key,
        last_hit_key=facts.last_hit_key,
    )


def agree(verdicts: list[Verdict]) -> Verdict:
    """The one verdict of several readings: their common cause, or ``unknown``.

    What the readings do not share is left out.
    """
    first, *rest = verdicts
    if not rest:
        return first
    # guard: agree-shared, agree-every
    shared = {
        name: getattr(first, name)
        for name in Verdict.__struct_fields__
        if all(getattr(other, name) == getattr(first, name) for other in rest)
    }
    if "cause" not in shared or first.cause is Cause.UNKNOWN:  # guard: agree-unknown
        shared["cause"] = Cause.UNKNOWN
        shared["owner"] = Owner.OBSERVABILITY
        shared.setdefault("reason", Reason.AMBIGUOUS_CHAIN)
        if first.cause is not Cause.UNKNOWN or shared["reason"] is Reason.NONE:  # guard: agree-reason
            shared["reason"] = Reason.AMBIGUOUS_CHAIN
        shared["grade"] = Grade.NONE
        shared.pop("lost_tokens", None)  # guard: agree-cost
    return Verdict(**shared)
