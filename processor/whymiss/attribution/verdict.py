"""From the table's answer to a verdict; several readings speak with one voice or not at all."""

from __future__ import annotations

from ..model import Cause, Evidence, Grade, Owner, Reason, Verdict
from ..model.worker_name import with_rank
from .rows import Policy, Unsure, Yes, blocks
from .table import TABLE, Row


def decide(evidence: Evidence, policy: Policy) -> Verdict:
    """Name the cause of one lookup under one reading of its evidence, or say why it has no name."""
    gap = evidence.lookup.gap
    for row in TABLE:  # guard: decide-order
        if gap and row.needs_block:  # guard: decide-gap, decide-spans-first
            return _unknown(evidence, gap)
        answer = row.decide(evidence, policy)
        if isinstance(answer, Unsure):
            return _unknown(evidence, answer.reason)  # guard: decide-unsure
        if answer is not None:
            return _verdict(evidence, row, answer)
    raise AssertionError("the last row always answers")


def _lost(evidence: Evidence, answer: Yes) -> int | None:
    if answer.lost_tokens is not None:
        return answer.lost_tokens
    lookup, matchable = evidence.lookup, blocks(evidence)
    if answer.lost_blocks is None or lookup.block_size is None or matchable is None or lookup.first is None:
        return None
    if lookup.first >= matchable:  # guard: cost-full-hit
        # A count that names a full hit and a tier that did not deliver: what was lost is not known.
        return None
    if evidence.local.here is not None and not lookup.chain_known:  # guard: cost-chain-known
        return None
    # guard: cost-matchable, cost-negative
    return lookup.block_size * max(0, min(answer.lost_blocks, matchable - lookup.first))


def _verdict(evidence: Evidence, row: Row, answer: Yes) -> Verdict:
    grade = evidence.lookup.grade
    if grade is Grade.NONE:
        grade = Grade.SPANS
    return _said(evidence, row, answer.reason, grade, _lost(evidence, answer))


def _unknown(evidence: Evidence, reason: Reason) -> Verdict:
    return _said(evidence, None, reason, evidence.lookup.grade, None)


def _said(evidence: Evidence, row: Row | None, reason: Reason, grade: Grade, lost_tokens: int | None) -> Verdict:
    """Every true fact travels with the verdict, whichever row won; without one it is unknown."""
    lookup, local, fleet = evidence.lookup, evidence.local, evidence.fleet
    tiers, isolation, template = evidence.tiers, evidence.isolation, evidence.template
    route, offload = evidence.promises.route, evidence.promises.offload
    here, stream = local.here, lookup.stream
    cached, prompt = lookup.cached_tokens, lookup.prompt_tokens
    missed = lookup.first is not None and here is not None
    # guard: verdict-view-marked, verdict-holder-marked
    partial = fleet.view_gap or fleet.holder_gap or tiers.tier_gap
    return Verdict(  # guard: facts-holders-missed, facts-history, decide-owner
        cause=Cause.UNKNOWN if row is None else row.cause,
        owner=Owner.OBSERVABILITY if row is None else row.owner,
        reason=reason,
        grade=grade,
        worker=stream.worker if stream else None,
        rank=stream.rank if stream else None,
        prompt_tokens=prompt,
        cached_tokens=cached,
        recomputed_tokens=prompt - cached if prompt is not None and cached is not None else None,
        lost_tokens=lost_tokens,
        sparse_lost_tokens=lookup.sparse_lost_tokens,
        block_size=lookup.block_size,
        match_unit=lookup.match_unit,
        block_index=lookup.first,
        residency=here.state if here is not None else None,
        eviction_age_ms=None if local.eviction_age_nanos is None else local.eviction_age_nanos // 1_000_000,
        eviction_reason=here.removal.value if here is not None and here.removal is not None else None,
        holders_count=len(fleet.holders) if missed else None,
        holders_tiers=tuple(sorted({holder.tier.value for holder in fleet.holders} | set(tiers.tiers_holding))),
        holders=tuple([with_rank(holder.stream.worker, holder.stream.rank) for holder in fleet.holders]),
        predicted_blocks=route.predicted_blocks if route else None,
        best_blocks=route.best_blocks if route else None,
        index_version=route.index_version if route else None,
        route=route.worker if route else None,
        remote_lookup=offload.status if offload else None,
        extra_key_kinds=evidence.relations.equal_tokens.differing_kinds or isolation.extra_key_kinds,
        window_seconds=local.window_seconds if missed else None,
        history_complete=not local.record_gap if missed else None,
        fleet_view_complete=not partial if here is not None and row is not None else None,
        template_version=template.version if template is not None else None,
        template_name=template.name if template is not None else None,
        kept_apart_by=isolation.kept_apart_by,
        adapter=isolation.adapter,
        first_miss_key=local.key,
        last_hit_key=lookup.last_hit_key,
    )


def agree(verdicts: list[Verdict]) -> Verdict:
    """The one verdict of several readings: their common cause, or ``unknown``.

    What the readings do not share is left out.
    """
    first, *rest = verdicts
    if not rest:
        return first
    shared = {  # guard: agree-shared, agree-every
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
