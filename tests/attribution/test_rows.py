"""Conditions of the rows that no other test would miss: what must not be named, and what must not be passed over."""

from __future__ import annotations

import pytest

from tests.attribution.known import (
    DECLARED,
    HELD,
    NOW,
    SHOWS,
    Changes,
    Known,
    but,
    judged,
    lost,
    promised,
    resident,
    tier,
)
from whymiss.attribution import agree
from whymiss.model import Cause, Grade, Likeness, Moment, Owner, Reason, Residency, RouteDecision, Verdict

HOLE = Reason.EVENTS_DROPPED


def said(facts: Known) -> tuple[Cause, Reason]:
    verdict = judged(facts)
    return verdict.cause, verdict.reason


def test_a_full_hit_that_a_tier_may_not_have_delivered_waits_for_the_tiers_word() -> None:
    full = but(first=12, cached_tokens=192, local_hit_tokens=64, offload_gap=Reason.PARTIAL_TRACE)
    assert said(full) == (Cause.UNKNOWN, Reason.PARTIAL_TRACE)
    assert said(but(full, local_hit_tokens=192)) == (Cause.NONE, Reason.NONE)


def test_an_opt_out_has_no_price_behind_a_hole() -> None:
    assert judged(but(disabled=True, **resident(3))).lost_tokens == 3 * 16
    assert judged(but(disabled=True, **resident(3), ahead_gap=HOLE)).lost_tokens is None


def test_who_asked_a_tier_had_not_opted_out() -> None:
    assert judged(but(lookup_gap=Reason.PARTIAL_TRACE, **tier("failed", 8, 2))).cause is Cause.TRANSFER_FAILED


def test_only_a_resident_part_of_a_unit_is_below_it() -> None:
    part: Changes = {**resident(2), "match_unit": 64}
    assert said(but(**part)) == (Cause.BELOW_MATCH_UNIT, Reason.NONE)
    assert said(but(**part, ahead_gap=HOLE)) == (Cause.UNKNOWN, HOLE)
    assert said(but(**part, sparse_lost_tokens=64)) == (Cause.SPARSE_RETENTION, Reason.NONE)
    assert said(but(**{**part, **lost()})) == (Cause.EVICTED, Reason.CAPACITY)


def test_a_hole_in_a_sparse_group_matters_only_where_the_dense_one_holds_the_block() -> None:
    assert said(but(**lost(), sparse_gap=HOLE)) == (Cause.EVICTED, Reason.CAPACITY)


def test_a_replay_needs_a_draft_model_and_a_block_that_is_there() -> None:
    assert said(but(**resident(1))) == (Cause.LOOKUP_FAILURE, Reason.NONE)
    assert said(but(speculative=True)) == (Cause.NO_RECENT_MATCH, Reason.FIRST_SEEN)


def test_a_tier_that_found_nothing_failed_nobody() -> None:
    assert judged(but(**tier("failed", 0))).cause is Cause.NO_RECENT_MATCH
    assert judged(but(**tier("timeout", 0))).cause is Cause.NO_RECENT_MATCH
    assert judged(but(**tier("hit", 8, 8))).cause is Cause.NO_RECENT_MATCH


def test_a_stale_index_is_no_failed_transfer_although_some_of_it_came() -> None:
    assert judged(but(**tier("stale", 8, 2))).cause is Cause.STALE_INDEX


def test_a_promise_of_what_is_here_was_no_stale_one() -> None:
    assert said(but(**resident(), **promised())) == (Cause.LOOKUP_FAILURE, Reason.NONE)


def test_a_promise_of_what_may_have_been_here_is_undecided() -> None:
    assert said(but(**promised(), record_gap=HOLE)) == (Cause.UNKNOWN, HOLE)


@pytest.mark.parametrize("missing", ["promised_at", "lost_at"])
def test_a_promise_and_a_loss_without_times_have_no_order(missing: str) -> None:
    facts = but(**{**lost(), **promised(), missing: None})
    assert said(facts) == (Cause.UNKNOWN, Reason.PARTIAL_TRACE)


def test_a_router_knew_of_a_better_worker_only_if_that_is_another_one() -> None:
    best: Changes = {**HELD, **promised(0, best_blocks=9, best_worker="here")}
    assert judged(but(**best)).reason is Reason.HOLDER_KNOWN
    assert judged(but(**best, best_is_elsewhere=False)).reason is Reason.HOLDER_UNKNOWN


@pytest.mark.parametrize(
    ("aware", "reason"), [(False, Reason.HOLDER_UNKNOWN), (True, Reason.NONE), (None, Reason.NONE)]
)
def test_a_router_that_says_that_it_is_blind_did_not_know(aware: bool | None, reason: Reason) -> None:
    assert judged(but(**HELD, route=RouteDecision(worker="here", prefix_aware=aware))).reason is reason


def test_an_eviction_has_no_reason_where_the_record_has_none() -> None:
    anytime = Moment(earliest_unix_nanos=0, latest_unix_nanos=NOW)
    assert said(but(**lost(None))) == (Cause.EVICTED, Reason.NONE)
    assert said(but(**{**lost(None), **promised(), "lost_at": anytime})) == (Cause.UNKNOWN, Reason.AMBIGUOUS_COPIES)


def test_only_a_promised_block_is_lost_after_its_route() -> None:
    later: Changes = lost(seconds=1.0)
    assert judged(but(**later, **promised(12, seconds=2.0))).reason is Reason.AFTER_ROUTE
    assert judged(but(**later, **promised(4, seconds=2.0))).reason is Reason.CAPACITY
    unclear = but(**later, **promised(12, seconds=2.0), route_gap=Reason.NO_WORKER)
    assert said(unclear) == (Cause.EVICTED, Reason.CAPACITY)


@pytest.mark.parametrize("first", [0, 4])
def test_unlike_identities_differ_wherever_the_miss_begins(first: int) -> None:
    assert judged(but(same_identity=True, first=first)).cause is Cause.IDENTITY_MISMATCH


def test_tokens_that_are_the_templates_diverge_from_nothing() -> None:
    likeness = Likeness(name="support", version="v1", differs=False)
    assert judged(but(template=likeness, reconverging=3)).cause is Cause.NO_RECENT_MATCH


@pytest.mark.parametrize(("again", "lost_blocks"), [(None, None), (0, 1), (5, 6)])
def test_a_divergence_from_a_template_costs_what_is_the_templates_again(
    again: int | None, lost_blocks: int | None
) -> None:
    verdict = judged(but(template=Likeness(name="support", version="v1", differs=True, again=again)))
    assert verdict.cause is Cause.TOKEN_DIVERGENCE
    assert verdict.lost_tokens == (None if lost_blocks is None else 16 * lost_blocks)


@pytest.mark.parametrize("gap", ["tail_gap", "siblings_gap"])
def test_a_tail_that_was_not_compared_is_no_new_content_and_has_no_price(gap: str) -> None:
    assert said(but(extends=True, **{gap: HOLE})) == (Cause.UNKNOWN, HOLE)
    verdict = judged(but(has_siblings=True, reconverging=3, **{gap: HOLE}))
    assert (verdict.cause, verdict.lost_tokens) == (Cause.TOKEN_DIVERGENCE, None)


def test_a_declared_view_passes_over_siblings_elsewhere_and_not_over_the_own_tail() -> None:
    assert judged(but(extends=True, siblings_gap=HOLE), DECLARED).cause is Cause.NEW_CONTENT
    assert judged(but(extends=True, tail_gap=HOLE), DECLARED).cause is Cause.UNKNOWN


def test_no_loss_is_negative() -> None:
    assert judged(but(**tier("timeout", 2, 8))).lost_tokens == 0


def test_a_holder_that_is_not_confirmed_marks_the_view() -> None:
    verdict = judged(but(**HELD, holder_gap=Reason.EVIDENCE_LATE))
    assert (verdict.cause, verdict.fleet_view_complete) == (Cause.ROUTING_MISS, False)
    assert judged(but(**HELD)).fleet_view_complete is True


def test_what_was_not_asked_is_not_counted() -> None:
    assert judged(but(**SHOWS[Cause.NONE, Reason.NONE])).holders_count is None
    assert judged(but()).holders_count == 0


def test_a_verdict_says_whether_its_record_is_whole() -> None:
    assert judged(but()).history_complete is True
    assert judged(but(record_gap=HOLE)).history_complete is False


def test_readings_of_different_causes_share_no_reason_and_no_price() -> None:
    one, other = judged(but(**SHOWS[Cause.NONE, Reason.NONE])), judged(but(extends=True))
    assert (one.lost_tokens, other.lost_tokens) == (0, 0)
    verdict = agree([one, other])
    assert (verdict.cause, verdict.owner, verdict.reason) == (
        Cause.UNKNOWN,
        Owner.OBSERVABILITY,
        Reason.AMBIGUOUS_CHAIN,
    )
    assert (verdict.grade, verdict.lost_tokens) == (Grade.NONE, None)


def test_readings_that_are_unknown_for_one_reason_keep_it() -> None:
    unknown = Verdict(cause=Cause.UNKNOWN, owner=Owner.OBSERVABILITY, reason=HOLE)
    assert agree([unknown, unknown]).reason is HOLE
    assert agree([unknown, Verdict(cause=Cause.UNKNOWN, owner=Owner.OBSERVABILITY)]).reason is Reason.AMBIGUOUS_CHAIN


def test_copies_that_are_unclear_are_never_promised_away() -> None:
    ambiguous = but(**promised(), record_gap=Reason.AMBIGUOUS_COPIES)
    fact = lost()["here"]
    facts = but(ambiguous, here=type(fact)(state=Residency.AMBIGUOUS))
    assert said(facts) == (Cause.UNKNOWN, Reason.AMBIGUOUS_COPIES)


def test_the_block_of_the_last_token_is_no_miss_and_no_part_of_a_unit_is_one() -> None:
    hit: Changes = {"here": None, "prompt_tokens": 192}
    assert said(but(**hit, first=11, cached_tokens=176)) == (Cause.NONE, Reason.NONE)
    assert judged(but(**hit, first=10, cached_tokens=160)).cause is not Cause.NONE
    # In units of eight blocks 200 tokens have a single one that can match.
    assert said(but(here=None, match_unit=128, first=8, cached_tokens=128)) == (Cause.NONE, Reason.NONE)


def test_a_tier_that_has_been_idle_may_be_declared_and_a_hole_in_its_record_may_not() -> None:
    late = but(**lost(), tier_gap=Reason.EVIDENCE_LATE)
    assert said(late) == (Cause.UNKNOWN, Reason.EVIDENCE_LATE)
    assert judged(late, DECLARED).cause is Cause.EVICTED
    holed = judged(but(**lost(), tier_gap=HOLE), DECLARED)
    assert (holed.cause, holed.reason) == (Cause.UNKNOWN, HOLE)


def test_at_block_0_a_block_is_no_branch_by_itself() -> None:
    assert said(but(first=0, cached_tokens=0, has_siblings=True)) == (Cause.NO_RECENT_MATCH, Reason.FIRST_SEEN)
    assert said(but(first=4, has_siblings=True)) == (Cause.NO_RECENT_MATCH, Reason.BRANCH)
