"""Losing evidence never names another cause: the same one, or none."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.known import COMPLETE, DECLARED, NOW, OTHER, UNSEEN, Known, Relations, at, but, judged
from whymiss.attribution import TABLE, Policy, decide
from whymiss.attribution.rows import blocks, tier_failed
from whymiss.model import (
    Cause,
    Fact,
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
def whole(draw: st.DrawFn) -> Known:
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
    return but(
        UNSEEN,
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
        has_siblings=siblings,
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


def without_events(known: Known) -> Known:
    """No record of the serving worker."""
    return Known(
        lookup=msgspec.structs.replace(
            known.lookup,
            grade=Grade.SPANS,
            gap=Reason.NO_EVENT_SOURCE,
            stream=None,
            chain_known=False,
            local_hit_tokens=None,
        ),
        promises=known.promises,
    )


def without_count(known: Known) -> Known:
    """Neither events nor a count. Who opted out has a count: nothing."""
    if known.lookup.disabled:
        return known
    return but(without_events(known), first=None, cached_tokens=None, gap=Reason.NO_CACHED_TOKENS)


def without_residency(known: Known) -> Known:
    """A hole between the last operation on the block and the lookup."""
    unknown = but(
        known,
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


def without_tokens(known: Known) -> Known:
    """No digest of the block's tokens."""
    return but(
        known,
        differing_kinds=None,
        same_identity=False,
        has_siblings=False,
        extends=False,
        reconverging=0,
        equal_gap=Reason.NO_FIRST_MISS_KEY,
    )


def without_chain(known: Known) -> Known:
    """Only the first missed key."""
    return but(
        known,
        chain_known=False,
        dense_ahead=min(1, known.local.dense_ahead),
        ahead_gap=Reason.NO_FIRST_MISS_KEY if known.local.dense_ahead else Reason.NONE,
        sparse_boundary=None,
        sparse_gap=Reason.NO_FIRST_MISS_KEY if known.local.dense_ahead else Reason.NONE,
        recoverable=None,
        reconverging=0,
        tail_gap=Reason.NO_FIRST_MISS_KEY if known.relations.siblings.has_siblings else Reason.NONE,
    )


def without_history(known: Known) -> Known:
    """A hole somewhere in the window: nothing negative can be said of this record."""
    if known.local.here is None or known.local.here.state is not Residency.NEVER_SEEN:
        return known
    return but(known, record_gap=Reason.EVENTS_DROPPED)


def without_view(known: Known) -> Known:
    """A hole in the other worker's record."""
    return but(known, holders=(), lost_elsewhere=False, view_gap=Reason.FLEET_VIEW_PARTIAL)


def unconfirmed(known: Known) -> Known:
    """Nothing came from the other worker after the lookup."""
    held = Reason.EVIDENCE_LATE if known.fleet.holders else Reason.NONE
    return but(known, holders=(), holder_gap=held, view_gap=Reason.EVIDENCE_LATE)


def without_tiers(known: Known) -> Known:
    """A hole over what was said of the tiers."""
    return but(known, tiers_holding=(), tier_gap=Reason.EVENTS_DROPPED)


def without_route(known: Known) -> Known:
    """The router's span was sampled out or late."""
    if known.promises.route is None:
        return known
    return but(
        known,
        route=None,
        route_gap=Reason.PARTIAL_TRACE,
        promised_at=Moment(earliest_unix_nanos=0, latest_unix_nanos=NOW),
    )


def without_offload(known: Known) -> Known:
    """The tier's span was lost."""
    return known if known.promises.offload is None else but(known, offload=None, offload_gap=Reason.PARTIAL_TRACE)


def without_lookup(known: Known) -> Known:
    """The engine's own word was lost, events are left."""
    return but(
        known,
        grade=Grade.DERIVED,
        lookup_seen=False,
        lookup_gap=Reason.PARTIAL_TRACE,
        disabled=False,
        speculative=False,
        sparse_lost_tokens=None,
    )


LOSSES: tuple[Callable[[Known], Known], ...] = (
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
def test_evidence_is_monotone(known: Known, losses: list[Callable[[Known], Known]]) -> None:
    before = judged(known)
    left = known
    for lose in losses:
        left = lose(left)
    after = decide(left, COMPLETE)
    if after.cause in {before.cause, Cause.UNKNOWN}:
        return
    # What a tier says stands by itself, also where the record that named a nearer fix is gone.
    assert tier_failed(known)
    assert after.cause in {Cause.TRANSFER_TIMEOUT, Cause.TRANSFER_FAILED, Cause.STALE_INDEX}


@given(whole(), st.lists(st.sampled_from(LOSSES), max_size=4))
def test_every_facts_have_one_verdict_and_no_negative_cost(
    known: Known, losses: list[Callable[[Known], Known]]
) -> None:
    for lose in losses:
        known = lose(known)
    verdict = judged(known)
    matchable = blocks(known)
    assert matchable is not None
    if verdict.lost_tokens is not None:
        assert verdict.lost_tokens >= 0
        if verdict.sparse_lost_tokens is None and known.lookup.first is not None:
            assert verdict.lost_tokens <= 16 * max(0, matchable - known.lookup.first)
    assert verdict.cause is not Cause.UNKNOWN or verdict.reason is not Reason.NONE


@given(whole())
def test_whole_evidence_is_unknown_only_where_lookups_or_tiers_contradict_it(known: Known) -> None:
    verdict = judged(known)
    if verdict.cause is Cause.UNKNOWN:
        # A tier that holds the block and does not say why it did not deliver; a reset within the index's lag.
        allowed = {Reason.LOOKUP_UNSEEN, Reason.AMBIGUOUS_COPIES, Reason.CLOCK_SKEW, Reason.EVIDENCE_LATE}
        assert verdict.reason in allowed


class WatchedRelations(msgspec.Struct, frozen=True):
    """Relations that note which of their parts are asked for."""

    given: Relations
    asked: set[str]

    def __getattr__(self, part: str) -> object:
        self.asked.add(part)
        return getattr(self.given, part)


@given(whole(), st.lists(st.sampled_from(LOSSES), max_size=4), st.sampled_from([COMPLETE, DECLARED]))
def test_what_costs_much_is_asked_only_where_no_nearer_row_answers(
    known: Known, losses: list[Callable[[Known], Known]], policy: Policy
) -> None:
    for lose in losses:
        known = lose(known)
    asked: set[str] = set()
    watched = msgspec.structs.replace(known, relations=WatchedRelations(known.relations, asked))
    assert decide(watched, policy) == decide(known, policy)
    for part, cause in (
        ("identities", Cause.IDENTITY_MISMATCH),
        ("siblings", Cause.TOKEN_DIVERGENCE),
        ("concurrent", Cause.NO_RECENT_MATCH),
    ):
        nearer = TABLE[: [row.cause for row in TABLE].index(cause)]
        is_open = all(row.decide(known, policy) is None for row in nearer) and not known.lookup.gap
        assert part not in asked or is_open


@given(whole(), st.lists(st.sampled_from(LOSSES), max_size=4), st.sampled_from([COMPLETE, DECLARED]))
def test_how_much_others_lost_matters_only_where_nobody_holds_it_and_it_was_never_here(
    known: Known, losses: list[Callable[[Known], Known]], policy: Policy
) -> None:
    for lose in losses:
        known = lose(known)
    if known.fleet.holders or (known.local.here is not None and known.local.here.state is not Residency.NEVER_SEEN):
        counted = but(known, lost_elsewhere_blocks=3)
        assert decide(known, policy) == decide(counted, policy)
