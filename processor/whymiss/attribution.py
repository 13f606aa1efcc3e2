"""The ordered table of causes: from facts to one verdict.

The order answers one question: whose single change would have made the first missed block a hit? The
nearest fix comes first. Nothing was missed (1) precedes what the engine itself decided (2-5), what a tier
or an index promised and did not keep (6-8), a lookup that failed on a block that was there (9), a tier that
was not asked (10), another worker that held the block (11: a fleet that still holds it lost nothing to
capacity), its eviction here (12) and everywhere (13), the same tokens under another identity (14, 15),
changed tokens (16), and only then content that nobody had stored (17, 18).

A row answers ``None`` (not this), ``Yes`` or ``Unsure``. The first answer that is not ``None`` ends the
search: a row that cannot be decided stops all rows behind it, because a farther fix must not be named
while a nearer one may be true.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .model import SECOND, Cause, Facts, Grade, Owner, Reason, Removal, Residency, Verdict


class Yes(msgspec.Struct, frozen=True):
    """The row holds; ``lost_blocks`` is what its fix would have saved, where the chain is known."""

    reason: Reason = Reason.NONE
    lost_blocks: int | None = None
    lost_tokens: int | None = None


class Unsure(msgspec.Struct, frozen=True):
    """The row may hold; the reason is the hole in its evidence."""

    reason: Reason


class Row(msgspec.Struct, frozen=True):
    """One line of the table; ``when`` is its sentence in the documentation."""

    cause: Cause
    owner: Owner
    when: str
    decide: Callable[[Facts, Policy], Yes | Unsure | None]


class Policy(msgspec.Struct, frozen=True):
    """How strict an operator is about other workers, and how old an index may be."""

    fleet_view_declared: bool = False
    index_lag_nanos: int = SECOND


def _blocks(facts: Facts) -> int | None:
    """Matchable blocks: every engine recomputes at least the last token."""
    if facts.prompt_tokens is None or not facts.block_size:
        return None
    unit = facts.match_unit or facts.block_size
    return (facts.prompt_tokens - 1) // unit * unit // facts.block_size


def _none(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    matchable = _blocks(facts)
    if facts.disabled or matchable is None or facts.block_size is None or facts.prompt_tokens is None:
        return None
    if facts.prompt_tokens < (facts.match_unit or facts.block_size):
        return None
    if facts.first is not None and facts.first >= matchable:
        return Yes(lost_tokens=0)
    return None


def _cache_disabled(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    return Yes(lost_blocks=facts.dense_ahead if facts.here is not None else None) if facts.disabled else None


def _below_match_unit(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    unit = facts.match_unit or facts.block_size
    if unit is None or facts.prompt_tokens is None or facts.block_size is None:
        return None
    if facts.prompt_tokens < unit:
        return Yes(lost_tokens=0)
    if unit > facts.block_size and 0 < facts.dense_ahead * facts.block_size < unit and _resident(facts):
        return Yes(lost_tokens=0)
    return None


def _sparse_retention(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    if facts.sparse_lost_tokens:
        return Yes(lost_tokens=facts.sparse_lost_tokens)
    if facts.sparse_boundary is not None and facts.first is not None:
        return Yes(lost_blocks=facts.sparse_boundary - facts.first)
    return None


def _speculative_replay(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    # The drafter makes the engine give up the last block that it matched: that block is there, and the
    # one behind it is not.
    return Yes(lost_blocks=1) if facts.speculative and _resident(facts) and facts.dense_ahead == 1 else None


def _transfer_timeout(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    if facts.offload is None or facts.offload.status != "timeout":
        return None
    return Yes(lost_blocks=facts.offload.found_blocks)


def _transfer_failed(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    offload = facts.offload
    if offload is None:
        return None
    found, loaded = offload.found_blocks, offload.loaded_blocks
    short = found is not None and loaded is not None and 0 < loaded < found
    if offload.status == "failed" or (short and offload.status != "stale"):
        lost = None if found is None else found - (loaded or 0)
        return Yes(lost_blocks=lost)
    return None


def _stale_index(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    offload = facts.offload
    if offload is not None:
        promised = bool(offload.found_blocks) and offload.loaded_blocks == 0
        if offload.status == "stale" or promised:
            return Yes(lost_blocks=offload.found_blocks)
    return _router_was_stale(facts, policy)


def _router_was_stale(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    route = facts.route
    if route is None or route.predicted_blocks is None or facts.first is None or facts.here is None:
        return None
    if route.predicted_blocks <= facts.first or facts.route_unix_nanos is None:
        return None
    if facts.here.state is Residency.EVICTED and facts.here.at_unix_nanos is not None:
        if facts.here.at_unix_nanos + policy.index_lag_nanos < facts.route_unix_nanos:
            return Yes(lost_blocks=route.predicted_blocks - facts.first)
        return None
    if facts.here.state is Residency.NEVER_SEEN:
        if facts.record_gap:
            return Unsure(facts.record_gap)
        return Yes(lost_blocks=route.predicted_blocks - facts.first)
    return None


def _resident(facts: Facts) -> bool:
    return facts.here is not None and facts.here.state is Residency.RESIDENT


def _lookup_failure(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    if facts.here is None:
        return Unsure(facts.record_gap or Reason.NO_FIRST_MISS_KEY)
    if facts.here.state in {Residency.AMBIGUOUS, Residency.UNKNOWN}:
        return Unsure(facts.record_gap or Reason.EVENTS_DROPPED)
    if not _resident(facts):
        return None
    # From events alone a skipped lookup and a full re-announcement look the same.
    return Yes(lost_blocks=facts.dense_ahead) if facts.lookup_seen else Unsure(Reason.LOOKUP_UNSEEN)


def _tier_unreachable(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    tried = facts.offload is not None and facts.offload.status not in {None, "none"}
    return Yes() if facts.tiers_holding and not tried else None


def _routing_miss(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    if facts.holders:
        return Yes(_routing_reason(facts), lost_blocks=facts.holders[0].leading_blocks)
    if facts.holder_gap:
        late = facts.holder_gap is Reason.EVIDENCE_LATE
        if policy.fleet_view_declared and late:
            return Yes(_routing_reason(facts))
        return Unsure(facts.holder_gap)
    return None


def _routing_reason(facts: Facts) -> Reason:
    route = facts.route
    if route is not None and route.pinned:
        return Reason.PINNED
    known = route is not None and (route.best_blocks or 0) > (facts.first or 0)
    return Reason.HOLDER_KNOWN if known else Reason.HOLDER_UNKNOWN


def _view_gap(facts: Facts, policy: Policy) -> Unsure | None:
    """Rows 12 to 18 say that no other worker could have served the block."""
    if facts.view_gap and not policy.fleet_view_declared:
        return Unsure(facts.view_gap)
    return None


def _evicted(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    here = facts.here
    if here is None or here.state is not Residency.EVICTED:
        return _view_gap(facts, policy)
    if (gap := _view_gap(facts, policy)) is not None:
        return gap
    reason = {Removal.CLEARED: Reason.CLEARED, Removal.RESTARTED: Reason.RESTARTED}.get(
        here.removal or Removal.REMOVED, Reason.CAPACITY
    )
    promised = facts.route is not None and (facts.route.predicted_blocks or 0) > (facts.first or 0)
    routed = facts.route_unix_nanos
    if promised and routed is not None and here.at_unix_nanos is not None and here.at_unix_nanos > routed:
        reason = Reason.AFTER_ROUTE
    return Yes(reason, lost_blocks=facts.recoverable)


def _never_here(facts: Facts) -> Unsure | None:
    """What follows rests on the serving worker never having held the block."""
    return Unsure(facts.record_gap) if facts.record_gap else None


def _evicted_elsewhere(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    return _never_here(facts) or (Yes(Reason.CAPACITY) if facts.lost_elsewhere else None)


def _extra_key_mismatch(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    if facts.differing_kinds is not None:
        return Yes(lost_blocks=facts.same_tokens_leading)
    if facts.siblings and not facts.tokens_known and facts.first == 0:
        # Without token digests another root may be the same tokens under another salt.
        return Unsure(Reason.NO_FIRST_MISS_KEY)
    return None


def _identity_mismatch(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    return Yes(lost_blocks=facts.same_tokens_leading) if facts.same_identity and facts.first == 0 else None


def _token_divergence(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    return Yes(lost_blocks=1 + facts.reconverging) if facts.reconverging else None


def _new_content(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    return Yes(lost_tokens=0) if facts.extends else None


def _no_recent_match(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    del policy
    if facts.concurrent:
        return Yes(Reason.CONCURRENT_PREFILL, lost_tokens=0)
    return Yes(Reason.BRANCH if facts.first and facts.siblings else Reason.FIRST_SEEN, lost_tokens=0)


TABLE: tuple[Row, ...] = (
    Row(Cause.NONE, Owner.NONE, "Nothing was missed: every matchable block was reused.", _none),
    Row(Cause.CACHE_DISABLED, Owner.ENGINE, "The engine or the request opted out of prefix caching.", _cache_disabled),
    Row(
        Cause.BELOW_MATCH_UNIT,
        Owner.ENGINE,
        "The prompt, or the shared part behind the last hit, is shorter than one match unit.",
        _below_match_unit,
    ),
    Row(
        Cause.SPARSE_RETENTION,
        Owner.ENGINE,
        "The full-attention group held the boundary and a sparse group (Mamba, sliding window) did not.",
        _sparse_retention,
    ),
    Row(
        Cause.SPECULATIVE_REPLAY,
        Owner.ENGINE,
        "The engine dropped its last matched block for the draft model.",
        _speculative_replay,
    ),
    Row(Cause.TRANSFER_TIMEOUT, Owner.PLATFORM, "A tier promised the block and the load timed out.", _transfer_timeout),
    Row(
        Cause.TRANSFER_FAILED,
        Owner.PLATFORM,
        "A tier promised the block and the load failed or delivered less.",
        _transfer_failed,
    ),
    Row(
        Cause.STALE_INDEX,
        Owner.PLATFORM,
        "A router or tier promised the block and the holder did not have it when it promised.",
        _stale_index,
    ),
    Row(
        Cause.LOOKUP_FAILURE,
        Owner.ENGINE,
        "The block was resident on the selected worker, and a lookup that took place missed it.",
        _lookup_failure,
    ),
    Row(
        Cause.TIER_UNREACHABLE,
        Owner.PLATFORM,
        "A tier below this worker held the block and no lookup there was tried or completed.",
        _tier_unreachable,
    ),
    Row(Cause.ROUTING_MISS, Owner.ROUTING, "Another worker held the block at the lookup.", _routing_miss),
    Row(Cause.EVICTED, Owner.PLATFORM, "This worker had held the block and lost it before the lookup.", _evicted),
    Row(
        Cause.EVICTED_ELSEWHERE,
        Owner.PLATFORM,
        "Only other workers had ever held the block, and all of them lost it before the lookup.",
        _evicted_elsewhere,
    ),
    Row(
        Cause.EXTRA_KEY_MISMATCH,
        Owner.SECURITY,
        "The same tokens were resident under other extra keys (salt, adapter, image). Can be correct isolation.",
        _extra_key_mismatch,
    ),
    Row(
        Cause.IDENTITY_MISMATCH,
        Owner.PLATFORM,
        "The same tokens and extra keys were resident under another key: hash seeds or algorithms differ.",
        _identity_mismatch,
    ),
    Row(
        Cause.TOKEN_DIVERGENCE,
        Owner.APPLICATION,
        "The block's tokens changed and later blocks are the same again: a volatile value in the prompt.",
        _token_divergence,
    ),
    Row(Cause.NEW_CONTENT, Owner.NONE, "The block extends what was stored: a new turn. Not a defect.", _new_content),
    Row(
        Cause.NO_RECENT_MATCH,
        Owner.APPLICATION,
        "Nothing like the block was stored within the retention window, and the record is unbroken.",
        _no_recent_match,
    ),
)
"""First match wins. ``unknown`` is what is left when a row is unsure or nothing is known to decide on."""


def decide(facts: Facts, policy: Policy) -> Verdict:
    """Name the cause of one lookup under one reading of its evidence, or say why it has no name."""
    for row in TABLE:
        if facts.gap and row.cause is Cause.LOOKUP_FAILURE:
            # What spans alone prove has been said above; the rest needs the first missed block.
            return _unknown(facts, facts.gap)
        answer = row.decide(facts, policy)
        if isinstance(answer, Unsure):
            return _unknown(facts, answer.reason)
        if answer is not None:
            return _verdict(facts, row, answer)
    raise AssertionError("the last row always answers")


def _lost(facts: Facts, answer: Yes) -> int | None:
    if answer.lost_tokens is not None:
        return answer.lost_tokens
    matchable = _blocks(facts)
    if answer.lost_blocks is None or facts.block_size is None or matchable is None or facts.first is None:
        return None
    if facts.here is not None and not facts.chain_known:
        return None
    return facts.block_size * max(0, min(answer.lost_blocks, matchable - facts.first))


def _verdict(facts: Facts, row: Row, answer: Yes) -> Verdict:
    grade = facts.grade
    if grade is Grade.NONE:
        grade = Grade.SPANS
    declared = facts.view_gap or facts.holder_gap
    return msgspec.structs.replace(
        _common(facts),
        cause=row.cause,
        owner=row.owner,
        reason=answer.reason,
        grade=grade,
        lost_tokens=_lost(facts, answer),
        fleet_view_complete=not declared if facts.here is not None else None,
    )


def _unknown(facts: Facts, reason: Reason) -> Verdict:
    return msgspec.structs.replace(_common(facts), reason=reason, grade=facts.grade)


def _common(facts: Facts) -> Verdict:
    """Every true fact travels with the verdict, whichever row won."""
    here = facts.here
    cached, prompt = facts.cached_tokens, facts.prompt_tokens
    route, offload = facts.route, facts.offload
    missed = facts.first is not None and facts.here is not None
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
        holders=tuple(worker_name(holder.stream.worker, holder.stream.rank) for holder in facts.holders),
        predicted_blocks=route.predicted_blocks if route else None,
        best_blocks=route.best_blocks if route else None,
        index_version=route.index_version if route else None,
        route=route.worker if route else None,
        remote_lookup=offload.status if offload else None,
        extra_key_kinds=facts.differing_kinds or facts.extra_key_kinds,
        window_seconds=facts.window_seconds if missed else None,
        history_complete=not facts.record_gap if missed else None,
        first_miss_key=facts.key,
        last_hit_key=facts.last_hit_key,
    )


def worker_name(worker: str, rank: int | None) -> str:
    """A worker as users see it: ranks other than the first are named as llm-d names them."""
    return f"{worker}-rank-{rank}" if rank else worker


def agree(verdicts: list[Verdict]) -> Verdict:
    """The one verdict of several readings: their common cause, or ``unknown``.

    What the readings do not share is left out.
    """
    first, *rest = verdicts
    if not rest:
        return first
    shared = {
        name: getattr(first, name)
        for name in Verdict.__struct_fields__
        if all(getattr(other, name) == getattr(first, name) for other in rest)
    }
    if "cause" not in shared or first.cause is Cause.UNKNOWN:
        shared["cause"] = Cause.UNKNOWN
        shared["owner"] = Owner.OBSERVABILITY
        shared.setdefault("reason", Reason.AMBIGUOUS_CHAIN)
        if first.cause is not Cause.UNKNOWN or shared["reason"] is Reason.NONE:
            shared["reason"] = Reason.AMBIGUOUS_CHAIN
        shared["grade"] = Grade.NONE
        shared.pop("lost_tokens", None)
    return Verdict(**shared)
