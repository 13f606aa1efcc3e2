"""Losing evidence never names another cause: the same one, or none."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.known import COMPLETE, DECLARED, HERE, NOW, OTHER, at, but, judged
from whymiss.attribution import Policy, decide
from whymiss.attribution.rows import blocks, tier_failed
from whymiss.evidence.relatives import decided_by_holders
from whymiss.model import (
    Cause,
    Fact,
    Facts,
    Grade,
    Holder,
    Moment,
    OffloadOutcome,
    Reason,
    Removal,
    Residency,
    RouteDecision,
    Tier,
)

STATES = (Residency.RESIDENT, Residency.EVICTED, Residency.NEVER_SEEN)


@st.composite
def whole(draw: st.DrawFn) -> Facts:
    """Facts without a gap: everything that can be known of a lookup is known."""
    unit = draw(st.sampled_from([16, 16, 64]))
    prompt = draw(st.integers(10, 260))
    matchable = (prompt - 1) // unit * unit // 16
    first = draw(st.integers(0, matchable // (unit // 16))) * (unit // 16)
    left = matchable - first
    state = draw(st.sampled_from(STATES))
    ahead = draw(st.integers(1, max(1, left))) if state is Residency.RESIDENT else 0
    unseen = state is Residency.NEVER_SEEN
    siblings = unseen and draw(st.booleans())
    disabled = draw(st.booleans()) and draw(st.booleans())
    removal = draw(st.sampled_from(Removal))
    lost_at = at(draw(st.floats(0.01, 30.0)))
    gone = state is Residency.EVICTED
    return Facts(
        grade=Grade.DIRECT,
        stream=HERE,
        prompt_tokens=prompt,
        cached_tokens=first * 16,
        block_size=16,
        match_unit=unit,
        first=first,
        key=first,
        chain_known=True,
        lookup_seen=True,
        disabled=disabled,
        speculative=draw(st.booleans()),
        # A dense group that holds less than a unit further than the others has lost none.
        sparse_lost_tokens=draw(st.sampled_from([None, None, 64])) if left and not 0 < ahead * 16 < unit else None,
        sparse_boundary=first + ahead if ahead and ahead * 16 >= unit and draw(st.booleans()) else None,
        dense_ahead=ahead,
        here=Fact(
            state=state,
            removal=removal if gone else None,
            at_unix_nanos=lost_at.latest_unix_nanos if gone else None,
        ),
        recoverable=ahead,
        lost_at=lost_at if gone else None,
        holders=(Holder(stream=OTHER, leading_blocks=1),) if draw(st.booleans()) else (),
        lost_elsewhere=draw(st.booleans()),
        tiers_holding=(Tier.HOST,) if draw(st.booleans()) else (),
        differing_kinds=draw(st.sampled_from([None, ("lora",)])) if unseen else None,
        same_identity=unseen and draw(st.booleans()),
        siblings=siblings,
        reconverging=draw(st.integers(0, 3)) if siblings else 0,
        extends=unseen and first > 0 and not siblings,
        concurrent=unseen and draw(st.booleans()),
        route=draw(st.none() | st.builds(RouteDecision, predicted_blocks=st.integers(0, 20))),
        promised_at=at(draw(st.floats(0.2, 10.0)), 0.1),
        # A request that opted out has no tier asked for it.
        offload=draw(
            st.none()
            if disabled
            else st.none()
            | st.builds(
                OffloadOutcome,
                status=st.sampled_from(["none", "hit", "miss", "timeout", "failed", "stale"]),
                found_blocks=st.integers(0, 8),
                loaded_blocks=st.integers(0, 8),
            )
        ),
    )


def without_events(facts: Facts) -> Facts:
    """No record of the serving worker."""
    return Facts(
        grade=Grade.SPANS,
        gap=Reason.NO_EVENT_SOURCE,
        prompt_tokens=facts.prompt_tokens,
        cached_tokens=facts.cached_tokens,
        block_size=facts.block_size,
        match_unit=facts.match_unit,
        first=facts.first,
        lookup_seen=facts.lookup_seen,
        lookup_gap=facts.lookup_gap,
        offload_gap=facts.offload_gap,
        route_gap=facts.route_gap,
        disabled=facts.disabled,
        speculative=facts.speculative,
        sparse_lost_tokens=facts.sparse_lost_tokens,
        route=facts.route,
        promised_at=facts.promised_at,
        offload=facts.offload,
    )


def without_count(facts: Facts) -> Facts:
    """Neither events nor a count. Who opted out has a count: nothing."""
    if facts.disabled:
        return facts
    return but(without_events(facts), first=None, cached_tokens=None, gap=Reason.NO_CACHED_TOKENS)


def without_residency(facts: Facts) -> Facts:
    """A hole between the last operation on the block and the lookup."""
    unknown = but(
        facts,
        here=Fact(state=Residency.UNKNOWN),
        record_gap=Reason.EVENTS_DROPPED,
        lost_at=None,
        dense_ahead=0,
        sparse_boundary=None,
        sparse_gap=Reason.EVENTS_DROPPED,
        ahead_gap=Reason.EVENTS_DROPPED,
        recoverable=None,
    )
    return without_tokens(unknown)


def without_tokens(facts: Facts) -> Facts:
    """No digest of the block's tokens."""
    return but(
        facts,
        differing_kinds=None,
        same_identity=False,
        siblings=False,
        extends=False,
        reconverging=0,
        relatives_gap=Reason.NO_FIRST_MISS_KEY,
    )


def without_chain(facts: Facts) -> Facts:
    """Only the first missed key."""
    return but(
        facts,
        chain_known=False,
        dense_ahead=min(1, facts.dense_ahead),
        ahead_gap=Reason.NO_FIRST_MISS_KEY if facts.dense_ahead else Reason.NONE,
        sparse_boundary=None,
        sparse_gap=Reason.NO_FIRST_MISS_KEY if facts.dense_ahead else Reason.NONE,
        recoverable=None,
        reconverging=0,
        tail_gap=Reason.NO_FIRST_MISS_KEY if facts.siblings else Reason.NONE,
    )


def without_history(facts: Facts) -> Facts:
    """A hole somewhere in the window: nothing negative can be said of this record."""
    if facts.here is None or facts.here.state is not Residency.NEVER_SEEN:
        return facts
    return but(facts, record_gap=Reason.EVENTS_DROPPED)


def without_view(facts: Facts) -> Facts:
    """A hole in the other worker's record."""
    return but(facts, holders=(), lost_elsewhere=False, view_gap=Reason.FLEET_VIEW_PARTIAL)


def unconfirmed(facts: Facts) -> Facts:
    """Nothing came from the other worker after the lookup."""
    held = Reason.EVIDENCE_LATE if facts.holders else Reason.NONE
    return but(facts, holders=(), holder_gap=held, view_gap=Reason.EVIDENCE_LATE)


def without_tiers(facts: Facts) -> Facts:
    """A hole over what was said of the tiers."""
    return but(facts, tiers_holding=(), tier_gap=Reason.EVENTS_DROPPED)


def without_route(facts: Facts) -> Facts:
    """The router's span was sampled out or late."""
    if facts.route is None:
        return facts
    return but(
        facts,
        route=None,
        route_gap=Reason.PARTIAL_TRACE,
        promised_at=Moment(earliest_unix_nanos=0, latest_unix_nanos=NOW),
    )


def without_offload(facts: Facts) -> Facts:
    """The tier's span was lost."""
    return facts if facts.offload is None else but(facts, offload=None, offload_gap=Reason.PARTIAL_TRACE)


def without_lookup(facts: Facts) -> Facts:
    """The engine's own word was lost, events are left."""
    return but(
        facts,
        grade=Grade.DERIVED,
        lookup_seen=False,
        lookup_gap=Reason.PARTIAL_TRACE,
        disabled=False,
        speculative=False,
        sparse_lost_tokens=None,
    )


LOSSES: tuple[Callable[[Facts], Facts], ...] = (
    without_events,
    without_count,
    without_residency,
    without_tokens,
    without_chain,
    without_history,
    without_view,
    unconfirmed,
    without_tiers,
    without_route,
    without_offload,
    without_lookup,
)


@given(whole(), st.lists(st.sampled_from(LOSSES), min_size=1, max_size=4))
def test_evidence_is_monotone(facts: Facts, losses: list[Callable[[Facts], Facts]]) -> None:
    before = judged(facts)
    left = facts
    for lose in losses:
        left = lose(left)
    after = decide(left, COMPLETE)
    if after.cause in {before.cause, Cause.UNKNOWN}:
        return
    # What a tier says stands by itself, also where the record that named a nearer fix is gone.
    assert tier_failed(facts)
    assert after.cause in {Cause.TRANSFER_TIMEOUT, Cause.TRANSFER_FAILED, Cause.STALE_INDEX}


@given(whole(), st.lists(st.sampled_from(LOSSES), max_size=4))
def test_every_facts_have_one_verdict_and_no_negative_cost(
    facts: Facts, losses: list[Callable[[Facts], Facts]]
) -> None:
    for lose in losses:
        facts = lose(facts)
    verdict = judged(facts)
    matchable = blocks(facts)
    assert matchable is not None
    if verdict.lost_tokens is not None:
        assert verdict.lost_tokens >= 0
        if verdict.sparse_lost_tokens is None and facts.first is not None:
            assert verdict.lost_tokens <= 16 * max(0, matchable - facts.first)
    assert verdict.cause is not Cause.UNKNOWN or verdict.reason is not Reason.NONE


@given(whole())
def test_whole_evidence_is_unknown_only_where_lookups_or_tiers_contradict_it(facts: Facts) -> None:
    verdict = judged(facts)
    if verdict.cause is Cause.UNKNOWN:
        # A tier that holds the block and does not say why it did not deliver; a reset within the index's lag.
        allowed = {Reason.LOOKUP_UNSEEN, Reason.AMBIGUOUS_COPIES, Reason.CLOCK_SKEW, Reason.EVIDENCE_LATE}
        assert verdict.reason in allowed


@given(
    whole(),
    st.lists(st.sampled_from(LOSSES), max_size=4),
    st.sampled_from(Reason),
    st.sampled_from([COMPLETE, DECLARED]),
)
def test_what_holders_decide_needs_no_siblings(
    facts: Facts, losses: list[Callable[[Facts], Facts]], gap: Reason, policy: Policy
) -> None:
    for lose in losses:
        facts = lose(facts)
    if decided_by_holders(facts):
        nothing = but(
            facts, siblings=False, extends=False, reconverging=0, tail_gap=Reason.NONE, siblings_gap=Reason.NONE
        )
        doubtful = but(nothing, siblings=True, reconverging=2, tail_gap=gap, siblings_gap=gap)
        assert decide(facts, policy) == decide(nothing, policy) == decide(doubtful, policy)


@given(whole(), st.lists(st.sampled_from(LOSSES), max_size=4), st.sampled_from([COMPLETE, DECLARED]))
def test_how_much_others_lost_matters_only_where_nobody_holds_it_and_it_was_never_here(
    facts: Facts, losses: list[Callable[[Facts], Facts]], policy: Policy
) -> None:
    for lose in losses:
        facts = lose(facts)
    if facts.holders or (facts.here is not None and facts.here.state is not Residency.NEVER_SEEN):
        counted = but(facts, lost_elsewhere_blocks=3)
        assert decide(facts, policy) == decide(counted, policy)
