"""What a miss cost: recomputed tokens always, lost tokens only where the fix and the chain are known."""

from __future__ import annotations

import pytest

from tests.attribution.known import HELD, OTHER, SHOWS, but, judged, lost, resident, tier
from whymiss.attribution import agree
from whymiss.model import Cause, Grade, Holder, Owner, Reason, Residency, Verdict

LOST: dict[Cause, int | None] = {
    Cause.NONE: 0,
    Cause.CACHE_DISABLED: 0,
    Cause.BELOW_MATCH_UNIT: 0,
    Cause.SPARSE_RETENTION: 64,
    Cause.SPECULATIVE_REPLAY: 16,
    Cause.TRANSFER_TIMEOUT: 6 * 16,
    Cause.TRANSFER_FAILED: 6 * 16,
    Cause.STALE_INDEX: 8 * 16,
    Cause.LOOKUP_FAILURE: 8 * 16,
    Cause.TIER_UNREACHABLE: 3 * 16,
    Cause.ROUTING_MISS: 5 * 16,
    Cause.EVICTED: 8 * 16,
    Cause.EVICTED_ELSEWHERE: 6 * 16,
    Cause.EXTRA_KEY_MISMATCH: 8 * 16,
    Cause.IDENTITY_MISMATCH: 8 * 16,
    Cause.TOKEN_DIVERGENCE: 7 * 16,
    Cause.NEW_CONTENT: 0,
    Cause.NO_RECENT_MATCH: 0,
    Cause.UNKNOWN: None,
}


@pytest.mark.parametrize("said", SHOWS, ids="/".join)
def test_lost_tokens_are_what_the_named_fix_would_have_saved(said: tuple[Cause, Reason]) -> None:
    assert judged(but(**SHOWS[said])).lost_tokens == LOST[said[0]]


def test_nothing_past_the_last_matchable_block_is_lost() -> None:
    assert judged(but(**lost(), first=9, cached_tokens=144)).lost_tokens == 3 * 16


def test_without_the_chain_the_loss_is_absent_and_not_guessed() -> None:
    assert judged(but(**lost(), chain_known=False)).lost_tokens is None
    assert judged(but(**{**lost(), "recoverable": None})).lost_tokens is None
    assert judged(but(**resident(), ahead_gap=Reason.EVENTS_DROPPED)).lost_tokens is None


def test_a_holder_of_unknown_depth_leaves_the_loss_open() -> None:
    unclear = Holder(stream=OTHER, leading_blocks=None)
    assert judged(but(holders=(*HELD["holders"], unclear))).lost_tokens is None


def test_recomputed_tokens_need_a_count() -> None:
    assert judged(but()).recomputed_tokens == 136
    assert judged(but(cached_tokens=None, first=None, gap=Reason.NO_CACHED_TOKENS)).recomputed_tokens is None


def test_a_count_that_a_failed_tier_contradicts_has_no_price() -> None:
    facts = but(first=12, cached_tokens=192, **tier("failed", 8, 2))
    assert (judged(facts).cause, judged(facts).lost_tokens) == (Cause.TRANSFER_FAILED, None)
    assert judged(but(facts, local_hit_tokens=192)).cause is Cause.NONE


def test_all_true_facts_travel_with_the_verdict() -> None:
    verdict = judged(but(**lost(), **HELD, eviction_age_nanos=41_000_000_000))
    assert verdict.cause is Cause.ROUTING_MISS
    assert (verdict.residency, verdict.eviction_age_ms, verdict.eviction_reason) == (
        Residency.EVICTED,
        41_000,
        "removed",
    )
    assert verdict.holders == ("other",)


# --- several readings ---------------------------------------------------------------------------------

EVICTED = judged(but(**lost()))
ROUTED = judged(but(**HELD))


def test_one_reading_speaks_for_itself() -> None:
    assert agree([EVICTED]) is EVICTED


def test_readings_of_one_cause_keep_what_they_share() -> None:
    other = judged(but(**lost(), first=6, cached_tokens=96))
    both = agree([EVICTED, other])
    assert (both.cause, both.owner, both.reason) == (Cause.EVICTED, Owner.PLATFORM, Reason.CAPACITY)
    assert (both.cached_tokens, both.block_index, both.lost_tokens) == (None, None, None)
    assert both.prompt_tokens == 200


def test_readings_of_several_causes_are_unknown() -> None:
    for readings in ([EVICTED, ROUTED], [ROUTED, EVICTED], [EVICTED, EVICTED, ROUTED]):
        both = agree(readings)
        assert (both.cause, both.reason) == (Cause.UNKNOWN, Reason.AMBIGUOUS_CHAIN)
        assert (both.owner, both.lost_tokens, both.grade) == (Owner.OBSERVABILITY, None, Grade.NONE)


def test_readings_that_share_a_hole_say_which() -> None:
    hole = judged(but(record_gap=Reason.EVENTS_DROPPED))
    assert agree([hole, hole]).reason is Reason.EVENTS_DROPPED
    other = judged(but(record_gap=Reason.HISTORY_SHORT))
    assert agree([hole, other]).reason is Reason.AMBIGUOUS_CHAIN


def test_reasons_that_differ_are_left_out_of_a_shared_cause() -> None:
    cleared = judged(but(**SHOWS[Cause.EVICTED, Reason.CLEARED]))
    both: Verdict = agree([EVICTED, cleared])
    assert (both.cause, both.reason) == (Cause.EVICTED, Reason.NONE)
