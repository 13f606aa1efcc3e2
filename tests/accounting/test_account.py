from __future__ import annotations

import pytest

from tests.accounting.script import ENGINE, MILLIS, Script, key
from whymiss.accounting import Habits, Limits, Said, Support, Why
from whymiss.model import StreamId

OTHER = StreamId("engine", 1)


def counts(script: Script, *names: str) -> list[int | None]:
    return [script.ask(name).cached_tokens for name in names]


# --- chains, chunks, hits ---------------------------------------------------------------------------------


def test_a_chain_is_the_requests_and_says_where_its_reuse_ended() -> None:
    script = Script().batch(10, "abcd").batch(110, "ab|ef").confirmed(1000)
    script.request("cold", 70, at=5, first=11).request("branch", 70, at=105, first=111)
    (result,) = script.ask("branch").results
    assert (result.cached_tokens, result.first_key, result.last_hit_key) == (32, key("abe"), key("ab"))
    assert result.chain == (key("abe"), key("abef"))
    assert result.stored_unix_nanos == 110 * MILLIS


def test_chunks_of_a_prefill_are_one_chain() -> None:
    script = Script().batch(10, "ab").batch(20, "ab|cd").batch(30, "abcd|e").confirmed(1000)
    script.request("long", 85, at=5, first=31)
    assert counts(script, "long") == [0]


def test_a_store_that_continues_another_one_of_its_batch_is_another_requests() -> None:
    script = Script().batch(10, "x").batch(50, "abc", "abc|de").confirmed(1000)
    script.request("warm", 20, 5, at=5, first=11, end=90)
    script.request("turn1", 50, at=45, first=51).request("turn2", 85, at=45, first=51)
    assert counts(script, "turn1", "turn2") == [0, 48]


def test_prompts_that_continue_one_another_from_idle_are_not_two_rounds_of_one() -> None:
    script = Script().batch(20, "abc", "abc|de").confirmed(1000)
    script.request("turn1", 50, at=1, first=21, slack=0.9).request("turn2", 85, at=2, first=22, slack=0.9)
    assert counts(script, "turn1", "turn2") == [0, 48]


def test_two_rounds_of_one_request_can_share_the_batch_of_a_pipeline_that_starts() -> None:
    script = Script(limits=Limits(round_tokens_min=48)).batch(20, "abc", "abc|de").confirmed(1000)
    script.request("alone", 85, at=1, first=21)
    assert script.ask("alone").results[0].cached_tokens == 0


def test_no_store_is_a_full_hit_where_such_a_chain_was_resident() -> None:
    script = Script().batch(10, "abcd").batch(200, "x").confirmed(1000)
    script.request("cold", 70, at=5, first=11).request("again", 70, at=105, first=111).request(
        "other", 20, at=195, first=201
    )
    outcome = script.ask("again")
    assert outcome.cached_tokens == 64
    assert outcome.results[0].first_key is None


def test_no_store_is_no_hit_of_a_chain_longer_than_any_that_was_there() -> None:
    script = Script().batch(10, "ab").batch(200, "x").confirmed(1000)
    script.request("cold", 40, at=5, first=11).request("lost", 170, at=105, first=111)
    assert script.ask("lost").why is Why.NO_PATH


def test_a_prompt_of_whole_blocks_stores_its_last_block_again() -> None:
    script = Script().batch(10, "abcd").batch(110, "abc|d").confirmed(1000)
    script.request("cold", 64, at=5, first=11).request("again", 64, at=105, first=111)
    assert counts(script, "cold", "again") == [0, 48]
    assert script.ask("again").results[0].first_key is None


def test_a_hit_cannot_be_of_a_chain_that_is_stored_later() -> None:
    script = Script().batch(10, "abcd").confirmed(1000)
    script.request("cold", 70, at=5, first=11).request("second", 70, at=8, first=11, slack=0.2)
    assert counts(script, "cold", "second") == [0, 64]


# --- several that fit --------------------------------------------------------------------------------------


def test_twins_of_one_step_are_ambiguous_and_both_covers_are_shown() -> None:
    script = Script().batch(10, "abcd").confirmed(1000)
    script.request("one", 70, at=5, first=11).request("two", 70, at=5, first=11)
    outcome = script.ask("one")
    assert (outcome.said, outcome.why) == (Said.AMBIGUOUS, Why.TWO_COVERS)
    assert {result.cached_tokens for result in outcome.results} == {0, 64}
    first, second = outcome.covers
    assert {share.request: share.ordinals for share in first} != {share.request: share.ordinals for share in second}


def test_one_count_under_two_keys_is_said_without_the_key() -> None:
    script = Script().batch(10, "abcd", "efgh").confirmed(1000)
    script.request("one", 70, at=5, first=11).request("two", 70, at=5, first=11)
    outcome = script.ask("one")
    assert (outcome.said, outcome.cached_tokens) == (Said.COUNT, 0)
    assert {result.first_key for result in outcome.results} == {key("a"), key("e")}


def test_a_single_block_is_a_decode_fill_while_any_request_that_is_alive_could_own_its_tail() -> None:
    script = Script().batch(10, "ab").batch(110, "ab|c").confirmed(1000)
    script.request("alive", 40, 8, at=5, first=11, end=300)
    script.request("asked", 50, at=105, first=111)
    outcome = script.ask("asked")
    assert outcome.why is Why.TWO_COVERS
    assert {result.cached_tokens for result in outcome.results} == {32, 48}


def test_a_single_block_is_a_prefill_once_nobody_alive_could_own_its_tail() -> None:
    script = Script().batch(10, "ab").batch(110, "ab|c").confirmed(1000)
    script.request("ended", 40, 8, at=5, first=11, end=60)
    script.request("asked", 50, at=105, first=111)
    assert script.ask("asked").cached_tokens == 32


# --- preemption --------------------------------------------------------------------------------------------


def test_a_preempted_prefill_stores_its_chain_again_and_keeps_its_first_count() -> None:
    script = Script().batch(10, "abc").batch(20, "-abc", "-ab", "-a").batch(40, "abcd").confirmed(1000)
    script.request("long", 70, at=5, first=41)
    assert counts(script, "long") == [0]


def test_a_decode_that_is_admitted_again_stores_again_in_chunks() -> None:
    script = Script().batch(10, "abcd").batch(60, "-abcd", "-abc", "-ab", "-a").batch(80, "ab").batch(90, "ab|cde")
    script.confirmed(1000).request("long", 70, 12, at=5, first=11, end=100)
    assert counts(script, "long") == [0]


def test_who_is_told_not_to_have_been_preempted_was_not() -> None:
    script = (
        Script().batch(10, "abc").batch(106, "xy").batch(120, "-abc", "-ab", "-a").batch(140, "abcd").confirmed(1000)
    )
    script.request("cold", 50, at=5, first=11).request("other", 40, at=105, first=107)
    script.request("long", 70, at=105, first=141)
    assert {result.cached_tokens for result in script.ask("long").results} >= {0, 48}
    script.request("long", 70, at=105, first=141, preempted=False)
    assert script.ask("long").cached_tokens == 0


# --- habits of engines -------------------------------------------------------------------------------------


def test_where_the_last_matched_block_is_stored_again_no_hit_is_without_a_store() -> None:
    script = Script(Habits(replays_last=True)).batch(10, "abcd").batch(110, "abc|d").confirmed(1000)
    script.request("cold", 70, at=5, first=11).request("again", 70, at=105, first=111)
    outcome = script.ask("again")
    assert (outcome.cached_tokens, outcome.support) == (48, Support.OWN)


def test_chains_of_pairs_end_a_token_earlier() -> None:
    script = Script(Habits(pairs=True)).batch(10, "abc").confirmed(1000)
    script.request("exact", 64, at=5, first=11)
    assert counts(script, "exact") == [0]


def test_a_loaded_part_and_a_computed_part_are_two_stores_of_one_batch() -> None:
    script = Script(Habits(connector=True)).batch(10, "x").batch(50, "abcd", "abcd|e").confirmed(1000)
    script.request("warm", 20, 5, at=5, first=11, end=90)
    script.request("loaded", 85, at=45, first=51)
    (result,) = script.ask("loaded").results
    assert (result.cached_blocks, result.loaded_blocks, result.loaded_blocks_max) == (0, 4, 4)


def test_a_load_of_everything_looks_like_a_prefill_and_is_not_ruled_out() -> None:
    script = Script(Habits(connector=True)).batch(50, "abcd").confirmed(1000)
    script.request("loaded", 70, at=45, first=51)
    (result,) = script.ask("loaded").results
    assert (result.cached_blocks, result.loaded_blocks, result.loaded_blocks_max) == (0, 0, 4)


def test_a_tree_cache_stores_what_is_not_there_when_the_prefill_is_done() -> None:
    script = Script(Habits(deferred=True)).batch(20, "abcd").batch(50, "abcd|ef").confirmed(1000)
    script.request("one", 70, at=5, first=21)
    script.request("two", 100, at=40, first=51)
    assert counts(script, "one", "two") == [0, 64]
    script.request("two", 100, at=8, first=51)  # looked up before the first one's blocks were stored
    assert script.ask("two").cached_tokens is None


def test_a_tree_caches_answer_is_one_store() -> None:
    script = (
        Script(Habits(deferred=True)).batch(20, "abcd").batch(60, "abcd|efg").batch(120, "abcdefg|h").confirmed(1000)
    )
    script.request("turn1", 70, 60, at=5, first=21, end=61).request("turn2", 130, at=105, first=121)
    assert counts(script, "turn1", "turn2") == [0, 112]


def test_stores_of_another_size_are_no_chains_and_leave_the_count_inexact() -> None:
    script = Script().batch(10, "abcd").batch(11, "?abcd|e", size=4).batch(110, "ef").confirmed(1000)
    script.request("cold", 70, at=5, first=11).request("second", 40, at=105, first=111)
    (result,) = script.ask("second").results
    assert (result.cached_tokens, result.exact) == (0, False)


def test_a_reannouncement_is_cut_to_what_was_not_resident() -> None:
    script = Script().batch(10, "ab").batch(110, "abcd", session=True).confirmed(1000)
    script.request("cold", 40, at=5, first=11).request("session", 70, at=105, first=111)
    assert counts(script, "cold", "session") == [0, 32]


# --- who is known ------------------------------------------------------------------------------------------


def test_an_orphan_store_in_its_life_leaves_a_request_undecided() -> None:
    script = Script().batch(10, "abcd").batch(11, "xyz").confirmed(1000)
    script.request("one", 70, at=5, first=12)
    outcome = script.ask("one")
    assert (outcome.said, outcome.why) == (Said.AMBIGUOUS, Why.INCOMPLETE)
    assert outcome.completeness is not None
    assert outcome.completeness.unexplained == (1,)
    assert {result.cached_tokens for result in outcome.results} == {0, 64}


def test_orphan_stores_shortly_before_leave_it_undecided_and_old_ones_do_not() -> None:
    near = Script().batch(10, "xyz").batch(110, "abcd").confirmed(1000).request("one", 70, at=105, first=111)
    assert near.ask("one").why is Why.INCOMPLETE
    old = Script().batch(10, "xyz").batch(700_010, "abcd").confirmed(800_000)
    old.request("one", 70, at=700_005, first=700_011)
    assert old.ask("one").cached_tokens == 0


def test_siblings_that_were_not_seen_may_own_its_store() -> None:
    script = Script().batch(10, "abcd").confirmed(1000).request("n2", 70, at=5, first=11, unseen=1)
    assert script.ask("n2").said is Said.AMBIGUOUS


def test_who_may_have_been_elsewhere_explains_a_store_only_if_nobody_else_does() -> None:
    script = Script().batch(10, "abcd").confirmed(1000)
    script.request("perhaps", 70, at=5, first=11, elsewhere=True)
    assert script.ask("perhaps").results[0].cached_tokens == 0
    script.request("surely", 70, at=5, first=11)
    assert script.ask("perhaps").all_known is False


def test_a_count_by_who_counts_it_decides_between_twins() -> None:
    script = Script().batch(10, "abcd").confirmed(1000)
    script.request("one", 70, at=5, first=11, told_tokens=64).request("two", 70, at=5, first=11)
    assert counts(script, "one", "two") == [64, 0]


def test_a_lookup_that_was_skipped_found_nothing() -> None:
    script = Script().batch(10, "abcd").batch(110, "abcd").confirmed(1000)
    script.request("cold", 70, at=5, first=11).request("skips", 70, at=105, first=111, skipped=True)
    assert counts(script, "skips") == [0]


def test_of_two_ranks_the_one_that_stored_is_its_own_though_the_other_is_idle() -> None:
    script = Script().batch(10, "abcd").batch(200, "x")
    Script(name=OTHER, account=script.account).batch(1, "y")
    script.request("w", 20, at=195, first=201).request("v", 20, at=0.5, first=1.2, streams=(OTHER,))
    script.request("one", 70, at=5, first=11, streams=(ENGINE, OTHER))
    assert script.ask("one").results[0].stream == ENGINE
    assert script.ask("one").cached_tokens == 0


# --- gaps and bounds ---------------------------------------------------------------------------------------


def test_what_a_record_does_not_show_is_said() -> None:
    assert Script().request("none", 70, at=5, first=11, streams=()).ask("none").why is Why.NO_STREAM
    assert Script().batch(10, "abcd").request("one", 70, at=25, first=36).ask("one").why is Why.LATE
    short = Script(from_birth=False).batch(10, "abcd").confirmed(1000).request("one", 70, at=1, first=11)
    assert short.ask("one").why is Why.SHORT
    unknown = Script().batch(10, "?ab|cd").confirmed(1000).request("one", 70, at=5, first=11)
    assert unknown.ask("one").why is Why.SHORT


def test_a_hole_in_its_life_is_said_and_one_long_before_is_not() -> None:
    script = Script().batch(10, "abcd")
    script.stream.lost()
    script.batch(20, "x").batch(500, "ef").confirmed(1000)
    script.request("one", 70, at=5, first=21).request("later", 40, at=495, first=501)
    assert script.ask("one").why is Why.HOLE
    assert script.ask("later").why is not Why.HOLE


def test_a_request_whose_stores_have_not_come_forces_nobody() -> None:
    script = Script().batch(1, "x").batch(10, "abcd").batch(30, "y")
    script.request("w", 20, at=0.5, first=1.2).request("one", 70, at=5, first=11)
    script.request("running", 70, at=6, first=40, end=60)
    assert script.ask("one").cached_tokens is None


def test_more_requests_than_are_looked_at_are_left_open() -> None:
    script = Script(limits=Limits(requests_max=4)).batch(10, *(f"{letter}bcd" for letter in "efghij")).confirmed(1000)
    for number in range(6):
        script.request(f"r{number}", 70, at=5, first=11)
    assert {script.ask(f"r{number}").why for number in range(6)} == {Why.BOUNDED}


def test_more_paths_than_are_looked_at_are_left_open() -> None:
    script = Script(limits=Limits(paths_max=3)).batch(10, *(f"{letter}bcd" for letter in "efghij")).confirmed(1000)
    script.request("one", 70, at=5, first=11)
    assert script.ask("one").why is Why.BOUNDED


def test_what_is_forgotten_is_short_and_what_stays_is_answered() -> None:
    script = Script().batch(10, "abcd").batch(5010, "ab|ef").confirmed(9000)
    script.request("cold", 70, at=5, first=11).request("branch", 70, at=5005, first=5011)
    script.account.forget(4000 * MILLIS)
    with pytest.raises(KeyError):
        script.ask("cold")
    assert script.ask("branch").results[0].cached_tokens == 32


# --- cost --------------------------------------------------------------------------------------------------


def test_many_alike_cost_what_the_bounds_allow_and_no_more() -> None:
    """What a sender chooses (lengths, times) makes requests bounded, not slow: counted in paths that are kept."""
    script = Script(limits=Limits(paths_max=20, steps_max=500))
    for number in range(400):
        script.batch(10 + number, f"{chr(300 + number)}bcd")
    script.confirmed(10_000)
    for number in range(400):
        script.request(f"r{number}", 70, 4, at=5, first=9000, end=9500, prefill=False)
    assert script.ask("r0").why is Why.BOUNDED
    kept = script.account._ownership.paths
    assert max(map(len, kept.values())) <= 20
