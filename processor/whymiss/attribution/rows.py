"""The predicates of the table, one a row, in the order of the table.

A row answers ``None`` (not this), ``Yes`` or ``Unsure``. It decides from the facts alone.
"""

from __future__ import annotations

import msgspec

from ..model import SECOND, Facts, Likeness, Reason, Removal, Residency


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
    return (facts.prompt_tokens - 1) // unit * unit // facts.block_size  # guard: matchable-last-token, matchable-unit


def none(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 1: ``k >= M``. A prompt too short for one unit is row 3."""
    del policy
    matchable = blocks(facts)
    if matchable is None or facts.block_size is None or facts.prompt_tokens is None or facts.first is None:
        return None
    # guard: none-short-prompt, none-partial
    if facts.prompt_tokens < (facts.match_unit or facts.block_size) or facts.first < matchable:
        return None
    # What a tier promised counts as cached from the first scheduling on, whether or not it arrives.
    if (facts.local_hit_tokens or 0) >= matchable * facts.block_size:  # guard: none-local-first
        return Yes(lost_tokens=0)
    if facts.offload is None and facts.offload_gap:  # guard: none-tier-unheard
        return Unsure(facts.offload_gap)
    return None if tier_failed(facts) else Yes(lost_tokens=0)  # guard: none-tier-failed


def cache_disabled(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 2: the engine says that the request did not read the cache."""
    del policy
    if facts.disabled:  # guard: disabled-said
        certain = facts.here is not None and not facts.ahead_gap  # guard: disabled-cost
        return Yes(lost_blocks=facts.dense_ahead if certain else None)
    # A request that opted out has no tier asked for it.
    # guard: disabled-lookup-lost, disabled-tier-asked
    return Unsure(facts.lookup_gap) if facts.lookup_gap and not tier_failed(facts) else None


def below_match_unit(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 3: less than one match unit to gain."""
    del policy
    unit = facts.match_unit or facts.block_size
    if unit is None or facts.prompt_tokens is None or facts.block_size is None:
        return None
    if facts.prompt_tokens < unit:  # guard: unit-short-prompt
        return Yes(lost_tokens=0)
    # An engine that reports sparse loss had a legal boundary to lose.
    # guard: unit-resident, unit-sparse-said, unit-less-than-one
    if resident(facts) and not facts.sparse_lost_tokens and 0 < facts.dense_ahead * facts.block_size < unit:
        return Unsure(facts.ahead_gap) if facts.ahead_gap else Yes(lost_tokens=0)  # guard: unit-ahead-gap
    return None


def sparse_retention(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 4: reported, or the dense group alone held more (``Facts.sparse_boundary``)."""
    del policy
    if facts.sparse_lost_tokens:  # guard: sparse-said
        return Yes(lost_tokens=facts.sparse_lost_tokens)
    if facts.sparse_boundary is not None and facts.first is not None:  # guard: sparse-derived
        if facts.sparse_lost_tokens == 0:  # guard: sparse-contradicted
            # The engine and its own events contradict each other.
            return Unsure(Reason.AMBIGUOUS_COPIES)
        return Yes(lost_blocks=facts.sparse_boundary - facts.first)
    # guard: sparse-gap, sparse-gap-resident
    return Unsure(facts.sparse_gap) if facts.sparse_gap and resident(facts) else None


def speculative_replay(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 5: the draft model costs the last matched unit, so that is there and what follows is not."""
    del policy
    if not (facts.speculative and resident(facts) and facts.block_size):  # guard: replay-speculative, replay-resident
        return None
    unit = max(1, (facts.match_unit or facts.block_size) // facts.block_size)
    if facts.dense_ahead > unit:  # guard: replay-one-unit
        return None
    return Unsure(facts.ahead_gap) if facts.ahead_gap else Yes(lost_blocks=facts.dense_ahead)  # guard: replay-ahead-gap


def tier_failed(facts: Facts) -> bool:
    """Whether a tier says that it did not deliver what it had promised."""
    offload = facts.offload
    if offload is None or offload.found_blocks == 0:  # guard: tier-nothing-found
        return False
    found, loaded = offload.found_blocks, offload.loaded_blocks
    short = found is not None and loaded is not None and loaded < found
    return offload.status in {"timeout", "failed", "stale"} or short  # guard: tier-short, tier-status


def undelivered(facts: Facts) -> int | None:
    """Blocks that a tier had found and not loaded."""
    offload = facts.offload
    if offload is None or offload.found_blocks is None:
        return None
    return offload.found_blocks - (offload.loaded_blocks or 0)


def transfer_timeout(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 6: a tier said so."""
    del policy
    if facts.offload is None:
        return Unsure(facts.offload_gap) if facts.offload_gap else None  # guard: timeout-tier-unheard
    # guard: timeout-failed, timeout-said
    return Yes(lost_blocks=undelivered(facts)) if tier_failed(facts) and facts.offload.status == "timeout" else None


def transfer_failed(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 7: a tier said so, or loaded less than it had found."""
    del policy
    offload = facts.offload
    if offload is None or not tier_failed(facts) or offload.status == "stale":  # guard: failed-stale, failed-at-all
        return None
    # Nothing of what was found, and no word of a failure, is row 8.
    # guard: failed-nothing-loaded
    return Yes(lost_blocks=undelivered(facts)) if offload.status == "failed" or offload.loaded_blocks else None


def stale_index(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 8: a promise that was not true when it was made."""
    if tier_failed(facts):  # guard: stale-tier
        return Yes(lost_blocks=undelivered(facts))
    if facts.gap or facts.first is None or facts.here is None:
        return None
    if facts.here.state not in {Residency.EVICTED, Residency.NEVER_SEEN}:  # guard: stale-here
        return None
    return router_was_stale(facts, policy)


def router_was_stale(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 8 for routers: the block was lost, and known to be lost, before the decision."""
    promised = facts.route.predicted_blocks if facts.route is not None else None
    # guard: stale-promised, stale-promised-enough
    if not facts.route_gap and (promised is None or promised <= (facts.first or 0)):
        return None
    assert facts.here is not None, "checked by the caller"
    if facts.here.state is Residency.NEVER_SEEN:
        gap = facts.route_gap or facts.record_gap  # guard: stale-record, stale-promise-lost
    else:
        if facts.promised_at is None or facts.lost_at is None:
            return Unsure(facts.route_gap or Reason.PARTIAL_TRACE)  # guard: stale-times
        # guard: stale-order, stale-lag
        if facts.lost_at.earliest_unix_nanos + policy.index_lag_nanos > facts.promised_at.latest_unix_nanos:
            return None
        # guard: stale-overlap-lag
        late = facts.lost_at.latest_unix_nanos + policy.index_lag_nanos >= facts.promised_at.earliest_unix_nanos
        gap = facts.route_gap or (_order_gap(facts) if late else Reason.NONE)  # guard: stale-overlap
    if gap or promised is None:
        return Unsure(gap)
    return Yes(lost_blocks=promised - (facts.first or 0))


def _order_gap(facts: Facts) -> Reason:
    """Why a loss and a promise have no order: copies, clocks, or a reset that is published with the next step."""
    if facts.here is not None and facts.here.state is Residency.EVICTED and facts.here.removal is None:
        return Reason.AMBIGUOUS_COPIES  # guard: stale-copies
    delayed = facts.here is not None and facts.here.removal in {Removal.CLEARED, Removal.RESTARTED}
    return Reason.EVIDENCE_LATE if delayed else Reason.CLOCK_SKEW  # guard: stale-reset-delayed


def resident(facts: Facts) -> bool:
    """Whether the first missed block was on the device here."""
    return facts.here is not None and facts.here.state is Residency.RESIDENT


def lookup_failure(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 9; and where the record does not say whether the block was here, nothing farther is named."""
    del policy
    if facts.here is None:
        return Unsure(facts.record_gap or Reason.NO_FIRST_MISS_KEY)  # guard: lookup-no-record
    # guard: lookup-unclear, lookup-ambiguous, lookup-unknown
    if facts.here.state in {Residency.AMBIGUOUS, Residency.UNKNOWN}:
        return Unsure(facts.record_gap or Reason.EVENTS_DROPPED)
    if not resident(facts):  # guard: lookup-resident
        return None
    # From events alone a skipped lookup and a full re-announcement look the same.
    if not facts.lookup_seen:  # guard: lookup-seen
        return Unsure(Reason.LOOKUP_UNSEEN)
    return Yes(lost_blocks=None if facts.ahead_gap else facts.dense_ahead)  # guard: lookup-cost


def tier_unreachable(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 10: held in a tier below, and the tier itself says that nobody asked or that it did not answer."""
    if not facts.tiers_holding:  # guard: below-holds
        # guard: below-tier-declared, below-tier-late
        idle = facts.tier_gap is Reason.EVIDENCE_LATE and policy.fleet_view_declared
        return Unsure(facts.tier_gap) if facts.tier_gap and not idle else None  # guard: below-tier-gap, below-tier-idle
    if facts.offload is None or facts.offload.status is None:
        # A lookup there leaves no trace of its own on most engines.
        return Unsure(Reason.LOOKUP_UNSEEN)  # guard: below-asked
    if facts.offload.status in {"none", "timeout"}:  # guard: below-status
        return Yes(lost_blocks=facts.tier_blocks)
    return Unsure(Reason.AMBIGUOUS_COPIES)  # guard: below-contradicted


def routing_miss(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 11: another worker held it; one that only looks like a holder stops the search."""
    if facts.holders:  # guard: route-holders
        leading = [holder.leading_blocks for holder in facts.holders]
        known = [count for count in leading if count is not None]
        # guard: route-cost
        return Yes(routing_reason(facts), lost_blocks=max(known) if len(known) == len(leading) else None)
    if facts.holder_gap:
        late = facts.holder_gap is Reason.EVIDENCE_LATE
        if policy.fleet_view_declared and late:  # guard: route-declared, route-declared-late
            return Yes(routing_reason(facts))
        return Unsure(facts.holder_gap)  # guard: route-holder-gap
    return None


def routing_reason(facts: Facts) -> Reason:
    """Whether the router knew of a better worker, was blind, or was told which to take; if it says so."""
    route = facts.route
    if route is None:
        return Reason.NONE
    if route.pinned:  # guard: route-pinned
        return Reason.PINNED
    if route.best_blocks is not None:
        # guard: route-best-elsewhere, route-best-more
        known = facts.best_is_elsewhere and route.best_blocks > (facts.first or 0)
        return Reason.HOLDER_KNOWN if known else Reason.HOLDER_UNKNOWN
    return Reason.HOLDER_UNKNOWN if route.prefix_aware is False else Reason.NONE  # guard: route-blind


def view_gap(facts: Facts, policy: Policy) -> Unsure | None:
    """Rows 12 to 18 say that no other worker could have served the block."""
    if facts.view_gap and not policy.fleet_view_declared:  # guard: view-declared
        return Unsure(facts.view_gap)  # guard: view-gap
    return None


_REASONS = {
    Removal.REMOVED: Reason.CAPACITY,
    Removal.CLEARED: Reason.CLEARED,
    Removal.RESTARTED: Reason.RESTARTED,
}


def evicted(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 12: held here and lost before the lookup."""
    here = facts.here
    # guard: evicted-here
    if (gap := view_gap(facts, policy)) is not None or here is None or here.state is not Residency.EVICTED:
        return gap
    # guard: evicted-reason, evicted-reason-unknown
    reason = Reason.NONE if here.removal is None else _REASONS[here.removal]
    promised = facts.route is not None and (facts.route.predicted_blocks or 0) > (facts.first or 0)
    # guard: evicted-promised, evicted-promise-known
    if promised and not facts.route_gap and facts.promised_at is not None and facts.lost_at is not None:
        after = facts.lost_at.earliest_unix_nanos > facts.promised_at.latest_unix_nanos
        reason = Reason.AFTER_ROUTE if after else reason  # guard: evicted-after
    return Yes(reason, lost_blocks=facts.recoverable)


def never_here(facts: Facts) -> Unsure | None:
    """What follows rests on the serving worker never having held the block."""
    return Unsure(facts.record_gap) if facts.record_gap else None  # guard: never-here


def evicted_elsewhere(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 13: others held it and lost it."""
    del policy
    # guard: elsewhere-lost
    return never_here(facts) or (Yes(lost_blocks=facts.lost_elsewhere_blocks) if facts.lost_elsewhere else None)


def extra_key_mismatch(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 14: the same tokens are here under other extra keys; and where nothing can be compared, no more is said."""
    del policy
    if facts.differing_kinds is not None:  # guard: extra-kinds
        return Yes(lost_blocks=facts.same_tokens_leading)
    return Unsure(facts.relatives_gap) if facts.relatives_gap else None  # guard: extra-relatives-gap


def identity_mismatch(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 15: the same tokens and extra keys are elsewhere under another key."""
    del policy
    return Yes(lost_blocks=facts.same_tokens_leading) if facts.same_identity else None  # guard: identity-same


def token_divergence(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 16: other tokens than a known-good template's; or other ones now, and the same again later."""
    if facts.likeness is not None:
        # Where its tokens are the good ones, it was another prompt that changed them.
        # guard: divergence-template-good
        return _off_template(facts, facts.likeness) if facts.likeness.differs else None
    if facts.reconverging:  # guard: divergence-same-later
        # guard: divergence-cost-tail, divergence-cost-siblings
        return Yes(lost_blocks=None if facts.tail_gap or facts.siblings_gap else 1 + facts.reconverging)
    # guard: divergence-tail-gap, divergence-siblings-gap
    gap = facts.tail_gap or (Reason.NONE if policy.fleet_view_declared else facts.siblings_gap)
    return Unsure(gap) if gap else None


def _off_template(facts: Facts, likeness: Likeness) -> Yes:
    # guard: divergence-template-cost
    return Yes(lost_blocks=None if likeness.again is None else 1 + max(likeness.again, facts.reconverging))


def new_content(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 17: the parent had no child before."""
    del policy
    return Yes(lost_tokens=0) if facts.extends else None  # guard: new-extends


def no_recent_match(facts: Facts, policy: Policy) -> Yes | Unsure | None:
    """Row 18: what is left when the record is unbroken.

    At block 0 every other prompt is a sibling, so only a later block can be a branch.
    """
    del policy
    if facts.concurrent:  # guard: match-concurrent
        return Yes(Reason.CONCURRENT_PREFILL, lost_tokens=0)
    # guard: match-branch-later, match-branch
    return Yes(Reason.BRANCH if facts.first and facts.siblings else Reason.FIRST_SEEN, lost_tokens=0)
