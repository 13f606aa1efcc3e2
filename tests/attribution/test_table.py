"""The table as data: every cause and reason can be said, and the nearest fix is said first."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.attribution.known import (
    COMPLETE,
    DECLARED,
    SHOWS,
    Changes,
    Known,
    at,
    but,
    judged,
    lost,
    promised,
    resident,
    tier,
)
from whymiss.attribution import TABLE
from whymiss.attribution.rows import Yes
from whymiss.model import Cause, Fact, Moment, Owner, Reason, Removal, Residency, Tier

OWNERS = {
    Owner.NONE: {Cause.NONE, Cause.NEW_CONTENT},
    Owner.ENGINE: {
        Cause.CACHE_DISABLED,
        Cause.BELOW_MATCH_UNIT,
        Cause.SPARSE_RETENTION,
        Cause.SPECULATIVE_REPLAY,
        Cause.LOOKUP_FAILURE,
    },
    Owner.PLATFORM: {
        Cause.TRANSFER_TIMEOUT,
        Cause.TRANSFER_FAILED,
        Cause.STALE_INDEX,
        Cause.TIER_UNREACHABLE,
        Cause.EVICTED,
        Cause.EVICTED_ELSEWHERE,
        Cause.IDENTITY_MISMATCH,
    },
    Owner.ROUTING: {Cause.ROUTING_MISS},
    Owner.SECURITY: {Cause.EXTRA_KEY_MISMATCH},
    Owner.APPLICATION: {Cause.TOKEN_DIVERGENCE, Cause.NO_RECENT_MATCH},
    Owner.OBSERVABILITY: {Cause.UNKNOWN},
}


@pytest.mark.parametrize("said", SHOWS, ids="/".join)
def test_facts_show_each_cause_and_reason(said: tuple[Cause, Reason]) -> None:
    verdict = judged(but(**SHOWS[said]))
    assert (verdict.cause, verdict.reason) == said
    assert verdict.cause in OWNERS[verdict.owner]


def test_p15_no_cause_and_no_reason_is_only_documented() -> None:
    assert {cause for cause, _ in SHOWS} == set(Cause)
    assert {reason for _, reason in SHOWS} == set(Reason)


def test_the_table_has_a_row_for_each_cause_in_the_order_of_the_words() -> None:
    assert [row.cause for row in TABLE] == [cause for cause in Cause if cause is not Cause.UNKNOWN]


BOTH: dict[tuple[Cause, Cause], Known] = {
    (Cause.NONE, Cause.CACHE_DISABLED): but(first=12, disabled=True),
    (Cause.CACHE_DISABLED, Cause.BELOW_MATCH_UNIT): but(disabled=True, match_unit=784),
    (Cause.BELOW_MATCH_UNIT, Cause.SPARSE_RETENTION): but(match_unit=784, sparse_lost_tokens=64),
    (Cause.SPARSE_RETENTION, Cause.SPECULATIVE_REPLAY): but(sparse_lost_tokens=64, speculative=True, **resident(1)),
    (Cause.SPECULATIVE_REPLAY, Cause.TRANSFER_TIMEOUT): but(speculative=True, **resident(1), **tier("timeout", 8, 0)),
    (Cause.TRANSFER_TIMEOUT, Cause.TRANSFER_FAILED): but(**tier("timeout", 8, 2)),
    (Cause.TRANSFER_FAILED, Cause.STALE_INDEX): but(**tier("failed", 8, 2), **lost(), **promised()),
    (Cause.STALE_INDEX, Cause.LOOKUP_FAILURE): but(**tier(None, 8, 0), **resident()),
    (Cause.LOOKUP_FAILURE, Cause.TIER_UNREACHABLE): but(**resident(), **SHOWS[Cause.TIER_UNREACHABLE, Reason.NONE]),
    (Cause.TIER_UNREACHABLE, Cause.ROUTING_MISS): but(
        **SHOWS[Cause.TIER_UNREACHABLE, Reason.NONE], **SHOWS[Cause.ROUTING_MISS, Reason.NONE]
    ),
    (Cause.ROUTING_MISS, Cause.EVICTED): but(**SHOWS[Cause.ROUTING_MISS, Reason.NONE], **lost()),
    (Cause.EVICTED, Cause.EVICTED_ELSEWHERE): but(**lost(), lost_elsewhere=True),
    (Cause.EVICTED_ELSEWHERE, Cause.EXTRA_KEY_MISMATCH): but(lost_elsewhere=True, differing_kinds=("lora",)),
    (Cause.EXTRA_KEY_MISMATCH, Cause.IDENTITY_MISMATCH): but(differing_kinds=("lora",), same_identity=True, first=0),
    (Cause.IDENTITY_MISMATCH, Cause.TOKEN_DIVERGENCE): but(
        same_identity=True, first=0, has_siblings=True, reconverging=3
    ),
    (Cause.TOKEN_DIVERGENCE, Cause.NEW_CONTENT): but(reconverging=3, extends=True),
    (Cause.NEW_CONTENT, Cause.NO_RECENT_MATCH): but(extends=True),
}


@pytest.mark.parametrize("pair", BOTH, ids="-".join)
def test_the_nearer_fix_wins_where_both_rows_hold(pair: tuple[Cause, Cause]) -> None:
    rows = {row.cause: row for row in TABLE}
    if pair == (Cause.TRANSFER_TIMEOUT, Cause.TRANSFER_FAILED):
        # One status a tier: a timeout that loaded 2 of 8 also delivered less than it had found.
        assert isinstance(rows[pair[1]].decide(BOTH[pair], COMPLETE), Yes)
    assert all(isinstance(rows[cause].decide(BOTH[pair], COMPLETE), Yes) for cause in pair)
    assert judged(BOTH[pair]).cause is pair[0]


def test_every_neighbouring_pair_of_the_table_is_tried() -> None:
    assert list(BOTH) == [(one.cause, other.cause) for one, other in pairwise(TABLE)]


def test_a_row_that_cannot_be_decided_stops_all_behind_it() -> None:
    for name in (
        "lookup_gap",
        "sparse_gap",
        "offload_gap",
        "tier_gap",
        "holder_gap",
        "view_gap",
        "record_gap",
        "equal_gap",
        "identity_gap",
    ):
        facts = but(extends=True, **{**(resident() if name == "sparse_gap" else {}), name: Reason.EVENTS_DROPPED})
        assert (judged(facts).cause, judged(facts).reason) == (Cause.UNKNOWN, Reason.EVENTS_DROPPED), name


def test_what_spans_alone_prove_is_said_without_events() -> None:
    for shown in (
        tier("timeout"),
        tier("failed", 8, 2),
        tier(None, 8, 0),
        {"sparse_lost_tokens": 64},
        {"disabled": True},
    ):
        facts = but(gap=Reason.NO_EVENT_SOURCE, here=None, first=None, cached_tokens=None, **shown)
        assert judged(facts).cause is not Cause.UNKNOWN
        assert judged(facts).owner is not Owner.OBSERVABILITY


def test_a_declared_view_names_and_marks_what_a_complete_one_leaves_open() -> None:
    partial = but(**lost(), view_gap=Reason.FLEET_VIEW_PARTIAL)
    assert judged(partial).cause is Cause.UNKNOWN
    named = judged(partial, DECLARED)
    assert (named.cause, named.fleet_view_complete) == (Cause.EVICTED, False)
    late = but(holder_gap=Reason.EVIDENCE_LATE, view_gap=Reason.EVIDENCE_LATE)
    assert judged(late).reason is Reason.EVIDENCE_LATE
    assert (judged(late, DECLARED).cause, judged(late, DECLARED).fleet_view_complete) == (Cause.ROUTING_MISS, False)
    # Clocks are no matter of taste.
    skewed = but(holder_gap=Reason.CLOCK_SKEW, view_gap=Reason.CLOCK_SKEW)
    assert judged(skewed, DECLARED).cause is Cause.UNKNOWN


def test_an_index_may_lag_before_it_is_stale() -> None:
    assert judged(but(**lost(seconds=0.9), **promised(seconds=0.1))).reason is Reason.CAPACITY
    assert judged(but(**lost(seconds=5.0), **promised(seconds=0.1))).cause is Cause.STALE_INDEX
    assert judged(but(**promised())).cause is Cause.STALE_INDEX, "promised what was never there"
    assert judged(but(**lost(), **promised(4))).cause is Cause.EVICTED, "promised no more than was there"


def test_a_reset_that_may_have_come_before_or_after_the_promise_is_undecided() -> None:
    anytime = Moment(earliest_unix_nanos=0, latest_unix_nanos=at(0.05).latest_unix_nanos)
    facts = but(**{**lost(Removal.CLEARED, 0.05), **promised(seconds=0.1), "lost_at": anytime})
    assert (judged(facts).cause, judged(facts).reason) == (Cause.UNKNOWN, Reason.EVIDENCE_LATE)


def test_a_lost_promise_leaves_room_for_a_stale_index() -> None:
    missing: Changes = {"route_gap": Reason.PARTIAL_TRACE, "promised_at": promised()["promised_at"]}
    assert judged(but(**lost(), **missing)).reason is Reason.PARTIAL_TRACE
    assert judged(but(**missing)).reason is Reason.PARTIAL_TRACE
    # Evicted so shortly before that no index could be blamed.
    assert judged(but(**lost(seconds=0.5), **missing)).cause is Cause.EVICTED


def test_a_tier_that_holds_the_block_names_nothing_until_it_says_what_it_did() -> None:
    held: Changes = {"tiers_holding": (Tier.HOST,)}
    assert judged(but(**held)).reason is Reason.LOOKUP_UNSEEN
    assert judged(but(**held, **tier("miss"))).reason is Reason.AMBIGUOUS_COPIES
    assert judged(but(**held, **tier("timeout", 0))).cause is Cause.TIER_UNREACHABLE


def test_the_engine_and_its_events_may_not_contradict_each_other_over_sparse_groups() -> None:
    vetoed = but(sparse_boundary=8, **resident())
    assert judged(vetoed).cause is Cause.SPARSE_RETENTION
    assert judged(but(vetoed, sparse_lost_tokens=0)).reason is Reason.AMBIGUOUS_COPIES


def test_a_block_behind_the_last_dropped_one_makes_it_no_replay() -> None:
    replay = SHOWS[Cause.SPECULATIVE_REPLAY, Reason.NONE]
    assert judged(but(**{**replay, "dense_ahead": 2})).cause is Cause.LOOKUP_FAILURE
    assert judged(but(**replay, ahead_gap=Reason.EVENTS_DROPPED)).cause is Cause.UNKNOWN


def test_unknown_residency_is_never_passed_over() -> None:
    for state in (Residency.AMBIGUOUS, Residency.UNKNOWN):
        facts = but(here=Fact(state=state), holders=SHOWS[Cause.ROUTING_MISS, Reason.NONE]["holders"])
        assert judged(facts).cause is Cause.UNKNOWN
