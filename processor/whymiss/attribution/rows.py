"""The predicates of the table, one a row, in the order of the table.

A row answers ``None`` (not this), ``Yes`` or ``Unsure``. It decides from the facts alone.
"""

from __future__ import annotations

import msgspec

from ..model import SECOND, Facts, Reason, Removal, Residency


class Yes(msgspec.Struct, frozen=True):
    """The row holds; ``lost_blocks`` is what its fix would have saved, where the chain is known."""

    reason: Reason = Reason.NONE
    lost_blocks: int | None = None
    lost_tokens: int | None = None


class Unsure(msgspec.Struct, frozen=True):
    """The row may hold; the reason is the hole in its evidence."""

    reason: Reason


class Policy(msgspec.Struct, frozen=True):
    """How strict an operator is about other workers, and how old an index may be."""

    fleet_view_declared: bool = False
    index_lag_nanos: int = SECOND


def blocks(facts: Facts) -> int | None:
    """Matchable blocks: every engine recomputes at least the last token."""
    if facts.prompt_tokens is None or not facts.block_size:
        return None
    unit = facts.match_unit or facts.block_size
    return (facts.prompt_tokens - 1) // unit * unit // facts.block_size


def none(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 1: ``k >= M``. A prompt too short for one unit is row 3."""
    del policy
    matchable = blocks(facts)
    if facts.disabled or matchable is None or facts.block_size is None or facts.prompt_tokens is None:
        return None
    if facts.prompt_tokens < (facts.match_unit or facts.block_size):
        return None
    if facts.first is not None and facts.first >= matchable:
        return Yes(lost_tokens=0)
    return None


def cache_disabled(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 2: the engine says that the request did not read the cache."""
    del policy
    return Yes(lost_blocks=facts.dense_ahead if facts.here is not None else None) if facts.disabled else None


def below_match_unit(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 3: less than one match unit to gain."""
    del policy
    unit = facts.match_unit or facts.block_size
    if unit is None or facts.prompt_tokens is None or facts.block_size is None:
        return None
    if facts.prompt_tokens < unit:
        return Yes(lost_tokens=0)
    if unit > facts.block_size and 0 < facts.dense_ahead * facts.block_size < unit and resident(facts):
        return Yes(lost_tokens=0)
    return None


def sparse_retention(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 4: reported, or the dense group alone held more (``Facts.sparse_boundary``)."""
    del policy
    if facts.sparse_lost_tokens:
        return Yes(lost_tokens=facts.sparse_lost_tokens)
    if facts.sparse_boundary is not None and facts.first is not None:
        return Yes(lost_blocks=facts.sparse_boundary - facts.first)
    return None


def speculative_replay(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 5: the draft model costs the last matched block."""
    del policy
    # The drafter makes the engine give up the last block that it matched: that block is there, and the
    # one behind it is not.
    return Yes(lost_blocks=1) if facts.speculative and resident(facts) and facts.dense_ahead == 1 else None


def transfer_timeout(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 6: a tier said so."""
    del policy
    if facts.offload is None or facts.offload.status != "timeout":
        return None
    return Yes(lost_blocks=facts.offload.found_blocks)


def transfer_failed(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 7: a tier said so, or loaded less than it had found."""
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


def stale_index(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 8: a promise that was not true when it was made."""
    offload = facts.offload
    if offload is not None:
        promised = bool(offload.found_blocks) and offload.loaded_blocks == 0
        if offload.status == "stale" or promised:
            return Yes(lost_blocks=offload.found_blocks)
    return router_was_stale(facts, policy)


def router_was_stale(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 8 for routers: a promise later than the eviction's publication plus the index's lag."""
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


def resident(facts: Facts) -> bool:
    """Whether the first missed block was on the device here."""
    return facts.here is not None and facts.here.state is Residency.RESIDENT


def lookup_failure(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 9; and where the record does not say whether the block was here, nothing farther is named."""
    del policy
    if facts.here is None:
        return Unsure(facts.record_gap or Reason.NO_FIRST_MISS_KEY)
    if facts.here.state in {Residency.AMBIGUOUS, Residency.UNKNOWN}:
        return Unsure(facts.record_gap or Reason.EVENTS_DROPPED)
    if not resident(facts):
        return None
    # From events alone a skipped lookup and a full re-announcement look the same.
    return Yes(lost_blocks=facts.dense_ahead) if facts.lookup_seen else Unsure(Reason.LOOKUP_UNSEEN)


def tier_unreachable(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 10: held in a tier below, and nobody asked there."""
    del policy
    tried = facts.offload is not None and facts.offload.status not in {None, "none"}
    return Yes() if facts.tiers_holding and not tried else None


def routing_miss(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 11: another worker held it; one that only looks like a holder stops the search."""
    if facts.holders:
        return Yes(routing_reason(facts), lost_blocks=facts.holders[0].leading_blocks)
    if facts.holder_gap:
        late = facts.holder_gap is Reason.EVIDENCE_LATE
        if policy.fleet_view_declared and late:
            return Yes(routing_reason(facts))
        return Unsure(facts.holder_gap)
    return None


def routing_reason(facts: Facts) -> Reason:
    """Whether the router knew of a better worker, was blind, or was told which to take."""
    route = facts.route
    if route is not None and route.pinned:
        return Reason.PINNED
    known = route is not None and (route.best_blocks or 0) > (facts.first or 0)
    return Reason.HOLDER_KNOWN if known else Reason.HOLDER_UNKNOWN


def view_gap(facts: Facts, policy: Policy) -> Unsure | None:
    """Rows 12 to 18 say that no other worker could have served the block."""
    if facts.view_gap and not policy.fleet_view_declared:
        return Unsure(facts.view_gap)
    return None


def evicted(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 12: held here and lost before the lookup."""
    here = facts.here
    if here is None or here.state is not Residency.EVICTED:
        return view_gap(facts, policy)
    if (gap := view_gap(facts, policy)) is not None:
        return gap
    reason = {Removal.CLEARED: Reason.CLEARED, Removal.RESTARTED: Reason.RESTARTED}.get(
        here.removal or Removal.REMOVED, Reason.CAPACITY
    )
    promised = facts.route is not None and (facts.route.predicted_blocks or 0) > (facts.first or 0)
    routed = facts.route_unix_nanos
    if promised and routed is not None and here.at_unix_nanos is not None and here.at_unix_nanos > routed:
        reason = Reason.AFTER_ROUTE
    return Yes(reason, lost_blocks=facts.recoverable)


def never_here(facts: Facts) -> Unsure | None:
    """What follows rests on the serving worker never having held the block."""
    return Unsure(facts.record_gap) if facts.record_gap else None


def evicted_elsewhere(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 13: others held it and lost it."""
    del policy
    return never_here(facts) or (Yes(Reason.CAPACITY) if facts.lost_elsewhere else None)


def extra_key_mismatch(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 14: the same tokens are here under other extra keys."""
    del policy
    if facts.differing_kinds is not None:
        return Yes(lost_blocks=facts.same_tokens_leading)
    if facts.siblings and not facts.tokens_known and facts.first == 0:
        # Without token digests another root may be the same tokens under another salt.
        return Unsure(Reason.NO_FIRST_MISS_KEY)
    return None


def identity_mismatch(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 15: the same tokens and extra keys are here under another key."""
    del policy
    return Yes(lost_blocks=facts.same_tokens_leading) if facts.same_identity and facts.first == 0 else None


def token_divergence(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 16: other tokens now, the same ones again later."""
    del policy
    return Yes(lost_blocks=1 + facts.reconverging) if facts.reconverging else None


def new_content(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 17: the parent had no child before."""
    del policy
    return Yes(lost_tokens=0) if facts.extends else None


def no_recent_match(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 18: what is left when the record is unbroken."""
    del policy
    if facts.concurrent:
        return Yes(Reason.CONCURRENT_PREFILL, lost_tokens=0)
    return Yes(Reason.BRANCH if facts.first and facts.siblings else Reason.FIRST_SEEN, lost_tokens=0)
