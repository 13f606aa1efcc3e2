"""Where reuse ended, read from events: one's own chain, somebody else's, or none."""

from __future__ import annotations

import pytest

from tests.cases.scene import STEP, Scene, prompt, stored, text
from whymiss.model import Cause, Grade, Reason

WHAT = prompt(text(200))
OTHER = prompt(text(200, "other"))


def test_the_chain_that_ends_at_the_prompts_last_block_is_its_own() -> None:
    scene = Scene("w")
    scene.serve("asked", "w", 5.0, WHAT)
    scene.serve("beside", "w", 5.0, prompt(text(64, "somebody")))
    verdict = scene.verdict("asked")
    assert (verdict.grade, verdict.cached_tokens, verdict.block_index) == (Grade.DERIVED, 0, 0)


def test_beside_a_store_of_a_request_that_nobody_saw_a_chain_may_be_anybodys() -> None:
    scene = Scene("w")
    scene.serve("asked", "w", 5.0, WHAT)
    scene["w"].stored(5.0 + STEP, prompt(text(64, "somebody")))
    assert scene.verdict("asked").reason is Reason.AMBIGUOUS_CHAIN


def test_chunks_of_one_prefill_are_one_chain() -> None:
    scene = Scene("w")
    scene.engine("asked", "w", 5.0, 200)
    scene["w"].stored(5.03, WHAT, 0, 5)
    scene["w"].stored(5.06, WHAT, 5, 12)
    verdict = scene.verdict("asked")
    assert (verdict.grade, verdict.block_index) == (Grade.DERIVED, 0)


def test_two_chains_of_the_same_length_decide_only_what_both_mean() -> None:
    scene = Scene("w")
    scene.engine("one", "w", 5.0, 200)
    scene.engine("two", "w", 5.001, 200)
    scene["w"].batch(5.0 + STEP, stored(WHAT), stored(OTHER))
    verdicts = scene.verdicts()
    assert {verdict.grade for verdict in verdicts.values()} == {Grade.CONSENSUS}
    assert {verdict.cause for verdict in verdicts.values()} == {Cause.NO_RECENT_MATCH}


def test_two_chains_of_two_causes_are_ambiguous() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(12))
    scene.engine("one", "w", 5.0, 200)
    scene.engine("two", "w", 5.001, 200)
    scene["w"].batch(5.0 + STEP, stored(WHAT), stored(OTHER))
    verdicts = scene.verdicts()
    for name in ("one", "two"):
        assert (verdicts[name].cause, verdicts[name].reason) == (Cause.UNKNOWN, Reason.AMBIGUOUS_CHAIN)


def test_a_rival_that_may_own_the_only_chain_leaves_a_full_hit_open() -> None:
    scene = Scene("w")
    scene.engine("one", "w", 5.0, 200)
    scene.engine("two", "w", 5.001, 200)
    scene["w"].stored(5.0 + STEP, WHAT)
    assert {verdict.cause for verdict in scene.verdicts().values()} == {Cause.UNKNOWN}


def test_no_chain_in_an_unbroken_record_is_a_full_hit() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.engine("asked", "w", 5.0, 200)
    verdict = scene.verdict("asked")
    assert (verdict.cause, verdict.cached_tokens, verdict.lost_tokens) == (Cause.NONE, 192, 0)


def test_no_chain_in_a_record_that_goes_no_further_is_late() -> None:
    scene = Scene("w", confirmed=False)
    scene.serve("warm", "w", 1.0, WHAT)
    scene.engine("asked", "w", 5.0, 200)
    assert scene.verdict("asked").reason is Reason.EVIDENCE_LATE


def test_a_block_that_another_request_fills_while_it_decodes_is_no_chain_of_this_one() -> None:
    scene = Scene("w")
    # "writer" is still generating when "asked" arrives: its next block ends where the prompt of "asked" does.
    scene.engine("writer", "w", 4.9, 200)
    scene["w"].stored(4.9 + STEP, WHAT)
    scene.engine("asked", "w", 5.0, 208)
    scene["w"].stored(5.0 + STEP, prompt(text(208)), 12)
    assert scene.verdict("asked").cause in {Cause.UNKNOWN, Cause.NONE}


def test_a_reported_count_chooses_among_the_chains() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, prompt(text(64)))
    scene.engine("asked", "w", 5.0, 200, cached=64)
    scene.engine("rival", "w", 5.001, 200)
    scene["w"].batch(5.0 + STEP, stored(WHAT, 4), stored(OTHER))
    verdict = scene.verdict("asked")
    assert (verdict.cause, verdict.cached_tokens, verdict.block_index) == (Cause.NEW_CONTENT, 64, 4)


def test_a_full_reannouncement_and_a_skipped_lookup_look_the_same() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.engine("asked", "w", 5.0, 200)
    scene["w"].batch(5.0 + STEP, stored(WHAT, session_id="s"))
    assert scene.verdict("asked").reason is Reason.LOOKUP_UNSEEN


def test_a_record_that_was_joined_late_shows_chains_and_proves_no_absence() -> None:
    scene = Scene("w")
    scene["w"].dropped(100)
    scene["w"].stirs(4.0)
    scene.serve("asked", "w", 5.0, WHAT)
    scene.engine("nothing", "w", 9.0, 264)
    verdicts = scene.verdicts()
    assert (verdicts["asked"].cause, verdicts["asked"].reason) == (Cause.UNKNOWN, Reason.HISTORY_SHORT)
    assert verdicts["asked"].cached_tokens == 0


def test_a_hole_over_the_prefill_hides_the_chain() -> None:
    scene = Scene("w")
    scene.serve("before", "w", 4.0, OTHER)
    scene.engine("asked", "w", 5.0, 200)
    scene["w"].dropped()
    verdict = scene.verdict("asked")
    assert (verdict.cause, verdict.reason) == (Cause.UNKNOWN, Reason.EVENTS_DROPPED)
    assert verdict.cached_tokens is None


def test_a_rank_that_no_span_names_is_that_of_the_only_chain() -> None:
    scene = Scene("w", ranks=2)
    scene.engine("asked", "w", 5.0, 200)
    scene.publishers["w", 1].stored(5.0 + STEP, WHAT)
    scene.publishers["w", 0].stirs(4.0)
    verdict = scene.verdict("asked")
    assert (verdict.worker, verdict.rank, verdict.cause) == ("w", 1, Cause.NO_RECENT_MATCH)


def test_a_prompt_below_one_block_needs_no_chain() -> None:
    scene = Scene("w")
    scene.serve("before", "w", 1.0, OTHER)
    scene.engine("asked", "w", 5.0, 9)
    assert scene.verdict("asked").cause is Cause.BELOW_MATCH_UNIT


@pytest.mark.parametrize("late", [False, True])
def test_the_engines_own_word_needs_no_chain_to_say_where_reuse_ended(late: bool) -> None:
    scene = Scene("w", confirmed=not late)
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(6, 12))
    scene.engine("asked", "w", 5.0, 200)
    scene.lookup("asked", "w", 5.0, WHAT, 96)
    verdict = scene.verdict("asked")
    assert (verdict.grade, verdict.block_index) == (Grade.DIRECT, 6)
    # Its own store never came, so only a later batch can tell that nothing happened to the block in between.
    expected = (Cause.UNKNOWN, Reason.EVIDENCE_LATE) if late else (Cause.EVICTED, Reason.CAPACITY)
    assert (verdict.cause, verdict.reason) == expected
