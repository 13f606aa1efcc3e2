"""The predicates of the table, one a row, in the order of the table.

A row answers ``None`` (not this), ``Yes`` or ``Unsure``. It decides from the evidence alone, and asks
for no more of it than it needs: each section is established when the first row asks for it.
"""

from __future__ import annotations

import msgspec

from ..model import SECOND, Evidence, Likeness, Reason, Removal, Residency


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


def blocks(evidence: Evidence) -> int | None:
    """Matchable blocks: every engine recomputes at least the last token."""
    lookup = evidence.lookup
    if lookup.prompt_tokens is None or not lookup.block_size:
        return None
    unit = lookup.match_unit or lookup.block_size
    # guard: matchable-last-token, matchable-unit
    return (lookup.prompt_tokens - 1) // unit * unit // lookup.block_size


def none(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """``k >= M``. A prompt too short for one unit is `below_match_unit`."""
    del policy
    lookup = evidence.lookup
    matchable = blocks(evidence)
    if matchable is None or lookup.block_size is None or lookup.prompt_tokens is None or lookup.first is None:
        return None
    # guard: none-short-prompt, none-partial
    if lookup.prompt_tokens < (lookup.match_unit or lookup.block_size) or lookup.first < matchable:
        return None
    if lookup.loads_gap:  # guard: none-loads
        return Unsure(lookup.loads_gap)
    # What a tier promised counts as cached from the first scheduling on, whether or not it arrives.
    if (lookup.local_hit_tokens or 0) >= matchable * lookup.block_size:  # guard: none-local-first
        return Yes(lost_tokens=0)
    promises = evidence.promises
    if promises.offload is None and promises.offload_gap:  # guard: none-tier-unheard
        return Unsure(promises.offload_gap)
    return None if tier_failed(evidence) else Yes(lost_tokens=0)  # guard: none-tier-failed


def cache_disabled(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """The engine says that the request did not read the cache."""
    del policy
    lookup = evidence.lookup
    if lookup.disabled:  # guard: disabled-said
        local = evidence.local
        certain = local.here is not None and not local.ahead_gap  # guard: disabled-cost
        return Yes(lost_blocks=local.dense_ahead if certain else None)
    # A request that opted out has no tier asked for it.
    # guard: disabled-lookup-lost, disabled-tier-asked
    return Unsure(lookup.lookup_gap) if lookup.lookup_gap and not tier_failed(evidence) else None


def below_match_unit(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Less than one match unit to gain."""
    del policy
    lookup = evidence.lookup
    local = evidence.local
    unit = lookup.match_unit or lookup.block_size
    if unit is None or lookup.prompt_tokens is None or lookup.block_size is None:
        return None
    # Part of a block may have been found: then nothing was missed.
    inexact = lookup.cached_tokens is None and lookup.first is not None
    if lookup.prompt_tokens < unit:  # guard: unit-short-prompt
        return Unsure(Reason.AMBIGUOUS_CHAIN) if inexact else Yes(lost_tokens=0)  # guard: unit-short-inexact
    # An engine that reports sparse loss had a legal boundary to lose.
    # guard: unit-resident, unit-sparse-said, unit-less-than-one
    if resident(evidence) and not lookup.sparse_lost_tokens and 0 < local.dense_ahead * lookup.block_size < unit:
        if inexact:  # guard: unit-inexact
            return Unsure(Reason.AMBIGUOUS_CHAIN)
        return Unsure(local.ahead_gap) if local.ahead_gap else Yes(lost_tokens=0)  # guard: unit-ahead-gap
    return None


def sparse_retention(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Reported, or the dense group alone held more (``LocalEvidence.sparse_boundary``)."""
    del policy
    lookup = evidence.lookup
    if lookup.sparse_lost_tokens:  # guard: sparse-said
        return Yes(lost_tokens=lookup.sparse_lost_tokens)
    local = evidence.local
    if local.sparse_boundary is not None and lookup.first is not None:  # guard: sparse-derived
        if lookup.sparse_lost_tokens == 0:  # guard: sparse-contradicted
            # The engine and its own events contradict each other.
            return Unsure(Reason.AMBIGUOUS_COPIES)
        return Yes(lost_blocks=local.sparse_boundary - lookup.first)
    # guard: sparse-gap, sparse-gap-resident
    return Unsure(local.sparse_gap) if local.sparse_gap and resident(evidence) else None


def speculative_replay(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """The draft model costs the last matched unit, so that is there and what follows is not."""
    del policy
    lookup = evidence.lookup
    # guard: replay-speculative, replay-resident
    if not (lookup.speculative and resident(evidence) and lookup.block_size):
        return None
    local = evidence.local
    unit = max(1, (lookup.match_unit or lookup.block_size) // lookup.block_size)
    if local.dense_ahead > unit:  # guard: replay-one-unit
        return None
    # guard: replay-ahead-gap
    return Unsure(local.ahead_gap) if local.ahead_gap else Yes(lost_blocks=local.dense_ahead)


def tier_failed(evidence: Evidence) -> bool:
    """Whether a tier says that it did not deliver what it had promised."""
    offload = evidence.promises.offload
    if offload is None or offload.found_blocks == 0:  # guard: tier-nothing-found
        return False
    found, loaded = offload.found_blocks, offload.loaded_blocks
    short = found is not None and loaded is not None and loaded < found
    return offload.status in {"timeout", "failed", "stale"} or short  # guard: tier-short, tier-status


def undelivered(evidence: Evidence) -> int | None:
    """Blocks that a tier had found and not loaded."""
    offload = evidence.promises.offload
    if offload is None or offload.found_blocks is None:
        return None
    return offload.found_blocks - (offload.loaded_blocks or 0)


def transfer_timeout(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """A tier said so."""
    del policy
    promises = evidence.promises
    if promises.offload is None:
        return Unsure(promises.offload_gap) if promises.offload_gap else None  # guard: timeout-tier-unheard
    return (  # guard: timeout-failed, timeout-said
        Yes(lost_blocks=undelivered(evidence))
        if tier_failed(evidence) and promises.offload.status == "timeout"
        else None
    )


def transfer_failed(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """A tier said so, or loaded less than it had found."""
    del policy
    offload = evidence.promises.offload
    # guard: failed-stale, failed-at-all
    if offload is None or not tier_failed(evidence) or offload.status == "stale":
        return None
    # Nothing of what was found, and no word of a failure, is a stale index.
    # guard: failed-nothing-loaded
    return Yes(lost_blocks=undelivered(evidence)) if offload.status == "failed" or offload.loaded_blocks else None


def stale_index(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """A promise that was not true when it was made."""
    if tier_failed(evidence):  # guard: stale-tier
        return Yes(lost_blocks=undelivered(evidence))
    lookup, local = evidence.lookup, evidence.local
    if lookup.gap or lookup.first is None or local.here is None:
        return None
    if local.here.state not in {Residency.EVICTED, Residency.NEVER_SEEN}:  # guard: stale-here
        return None
    return router_was_stale(evidence, policy)


def router_was_stale(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Routers: the block was lost, and known to be lost, before the decision."""
    promises, lookup = evidence.promises, evidence.lookup
    promised = promises.route.predicted_blocks if promises.route is not None else None
    # guard: stale-promised, stale-promised-enough
    if not promises.route_gap and (promised is None or promised <= (lookup.first or 0)):
        return None
    local = evidence.local
    assert local.here is not None, "checked by the caller"
    if local.here.state is Residency.NEVER_SEEN:
        gap = promises.route_gap or local.record_gap  # guard: stale-record, stale-promise-lost
    else:
        if promises.promised_at is None or local.lost_at is None:
            return Unsure(promises.route_gap or Reason.PARTIAL_TRACE)  # guard: stale-times
        # guard: stale-order, stale-lag
        if local.lost_at.earliest_unix_nanos + policy.index_lag_nanos > promises.promised_at.latest_unix_nanos:
            return None
        # guard: stale-overlap-lag
        late = local.lost_at.latest_unix_nanos + policy.index_lag_nanos >= promises.promised_at.earliest_unix_nanos
        gap = promises.route_gap or (_order_gap(evidence) if late else Reason.NONE)  # guard: stale-overlap
    if gap or promised is None:
        return Unsure(gap)
    return Yes(lost_blocks=promised - (lookup.first or 0))


def _order_gap(evidence: Evidence) -> Reason:
    """Why a loss and a promise have no order: copies, clocks, or a reset that is published with the next step."""
    local = evidence.local
    if local.here is not None and local.here.state is Residency.EVICTED and local.here.removal is None:
        return Reason.AMBIGUOUS_COPIES  # guard: stale-copies
    delayed = local.here is not None and local.here.removal in {Removal.CLEARED, Removal.RESTARTED}
    return Reason.EVIDENCE_LATE if delayed else Reason.CLOCK_SKEW  # guard: stale-reset-delayed


def resident(evidence: Evidence) -> bool:
    """Whether the first missed block was on the device here."""
    local = evidence.local
    return local.here is not None and local.here.state is Residency.RESIDENT


def lookup_failure(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """The block was here; and where the record does not say whether the block was here, nothing farther is named."""
    del policy
    local = evidence.local
    if local.here is None:
        return Unsure(local.record_gap or Reason.NO_FIRST_MISS_KEY)  # guard: lookup-no-record
    # guard: lookup-unclear, lookup-ambiguous, lookup-unknown
    if local.here.state in {Residency.AMBIGUOUS, Residency.UNKNOWN}:
        return Unsure(local.record_gap or Reason.EVENTS_DROPPED)
    if not resident(evidence):  # guard: lookup-resident
        return None
    # From events alone a skipped lookup and a full re-announcement look the same.
    if not evidence.lookup.lookup_seen:  # guard: lookup-seen
        return Unsure(Reason.LOOKUP_UNSEEN)
    return Yes(lost_blocks=None if local.ahead_gap else local.dense_ahead)  # guard: lookup-cost


def tier_unreachable(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Held in a tier below, and the tier itself says that nobody asked or that it did not answer."""
    tiers = evidence.tiers
    if not tiers.tiers_holding:  # guard: below-holds
        # guard: below-tier-declared, below-tier-late
        idle = tiers.tier_gap is Reason.EVIDENCE_LATE and policy.fleet_view_declared
        # guard: below-tier-gap, below-tier-idle
        return Unsure(tiers.tier_gap) if tiers.tier_gap and not idle else None
    offload = evidence.promises.offload
    if offload is None or offload.status is None:
        # A lookup there leaves no trace of its own on most engines.
        return Unsure(Reason.LOOKUP_UNSEEN)  # guard: below-asked
    if offload.status in {"none", "timeout"}:  # guard: below-status
        return Yes(lost_blocks=tiers.tier_blocks)
    return Unsure(Reason.AMBIGUOUS_COPIES)  # guard: below-contradicted


def routing_miss(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Another worker held it; one that only looks like a holder stops the search."""
    fleet = evidence.fleet
    if evidence.lookup.keys_gap and (fleet.holders or fleet.holder_gap):  # guard: route-keys
        return Unsure(evidence.lookup.keys_gap)
    if fleet.holders:  # guard: route-holders
        leading = [holder.leading_blocks for holder in fleet.holders]
        known = [count for count in leading if count is not None]
        # guard: route-cost
        return Yes(routing_reason(evidence), lost_blocks=max(known) if len(known) == len(leading) else None)
    if fleet.holder_gap:
        late = fleet.holder_gap is Reason.EVIDENCE_LATE
        if policy.fleet_view_declared and late:  # guard: route-declared, route-declared-late
            return Yes(routing_reason(evidence))
        return Unsure(fleet.holder_gap)  # guard: route-holder-gap
    return None


def routing_reason(evidence: Evidence) -> Reason:
    """Whether the router knew of a better worker, was blind, or was told which to take; if it says so."""
    promises = evidence.promises
    route = promises.route
    if route is None:
        return Reason.NONE
    if route.pinned:  # guard: route-pinned
        return Reason.PINNED
    if route.best_blocks is not None:
        # guard: route-best-elsewhere, route-best-more
        known = promises.best_is_elsewhere and route.best_blocks > (evidence.lookup.first or 0)
        return Reason.HOLDER_KNOWN if known else Reason.HOLDER_UNKNOWN
    return Reason.HOLDER_UNKNOWN if route.prefix_aware is False else Reason.NONE  # guard: route-blind


def view_gap(evidence: Evidence, policy: Policy) -> Unsure | None:
    """This row and what follows it say that no other worker could have served the block."""
    fleet = evidence.fleet
    if fleet.view_gap and not policy.fleet_view_declared:  # guard: view-declared
        return Unsure(fleet.view_gap)  # guard: view-gap
    return None


_REASONS = {
    Removal.REMOVED: Reason.CAPACITY,
    Removal.CLEARED: Reason.CLEARED,
    Removal.RESTARTED: Reason.RESTARTED,
}


def evicted(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Held here and lost before the lookup."""
    local = evidence.local
    here = local.here
    # guard: evicted-here
    if (gap := view_gap(evidence, policy)) is not None or here is None or here.state is not Residency.EVICTED:
        return gap
    # guard: evicted-reason, evicted-reason-unknown
    reason = Reason.NONE if here.removal is None else _REASONS[here.removal]
    promises = evidence.promises
    promised = promises.route is not None and (promises.route.predicted_blocks or 0) > (evidence.lookup.first or 0)
    # guard: evicted-promised, evicted-promise-known
    if promised and not promises.route_gap and promises.promised_at is not None and local.lost_at is not None:
        after = local.lost_at.earliest_unix_nanos > promises.promised_at.latest_unix_nanos
        reason = Reason.AFTER_ROUTE if after else reason  # guard: evicted-after
    return Yes(reason, lost_blocks=local.recoverable)


def never_here(evidence: Evidence) -> Unsure | None:
    """What follows rests on the serving worker never having held the block."""
    local = evidence.local
    return Unsure(local.record_gap) if local.record_gap else None  # guard: never-here


def evicted_elsewhere(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Others held it and lost it."""
    del policy
    fleet = evidence.fleet
    if evidence.lookup.keys_gap and fleet.lost_elsewhere:  # guard: elsewhere-keys
        return Unsure(evidence.lookup.keys_gap)
    # guard: elsewhere-lost
    return never_here(evidence) or (Yes(lost_blocks=fleet.lost_elsewhere_blocks) if fleet.lost_elsewhere else None)


def extra_key_mismatch(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """The same tokens are here under other extra keys; and where nothing can be compared, no more is said."""
    del policy
    equal = evidence.relations.equal_tokens
    if equal.differing_kinds is not None:  # guard: extra-kinds
        return Yes(lost_blocks=equal.equal_leading)
    return Unsure(equal.equal_gap) if equal.equal_gap else None  # guard: extra-relatives-gap


def identity_mismatch(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """The same tokens and extra keys are elsewhere under another key; and where that is not clear, no more is said."""
    del policy
    found = evidence.relations.identities
    if found.identity_gap:
        return Unsure(found.identity_gap)  # guard: identity-gap
    return Yes(lost_blocks=found.identity_leading) if found.same_identity else None  # guard: identity-same


def token_divergence(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """Other tokens than a known-good template's; or other ones now, and the same again later."""
    likeness = evidence.template
    if likeness is not None:
        # Where its tokens are the good ones, it was another prompt that changed them.
        return _off_template(evidence, likeness) if likeness.differs else None  # guard: divergence-template-good
    found = evidence.relations.siblings
    if found.reconverging:  # guard: divergence-same-later
        # guard: divergence-cost-tail, divergence-cost-siblings
        return Yes(lost_blocks=None if found.tail_gap or found.siblings_gap else 1 + found.reconverging)
    # guard: divergence-tail-gap, divergence-siblings-gap
    gap = found.tail_gap or (Reason.NONE if policy.fleet_view_declared else found.siblings_gap)
    return Unsure(gap) if gap else None


def _off_template(evidence: Evidence, likeness: Likeness) -> Yes:
    again = likeness.again
    # guard: divergence-template-cost
    return Yes(lost_blocks=None if again is None else 1 + max(again, evidence.relations.siblings.reconverging))


def new_content(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """The parent had no child before."""
    del policy
    return Yes(lost_tokens=0) if evidence.relations.siblings.extends else None  # guard: new-extends


def no_recent_match(evidence: Evidence, policy: Policy) -> Yes | Unsure | None:
    """What is left when the record is unbroken.

    At block 0 every other prompt is a sibling, so only a later block can be a branch.
    """
    del policy
    if evidence.relations.concurrent:  # guard: match-concurrent
        return Yes(Reason.CONCURRENT_PREFILL, lost_tokens=0)
    # guard: match-branch-later, match-branch
    branch = evidence.lookup.first and evidence.relations.siblings.has_siblings
    return Yes(Reason.BRANCH if branch else Reason.FIRST_SEEN, lost_tokens=0)
