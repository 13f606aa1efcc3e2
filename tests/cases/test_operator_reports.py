"""The acceptance cases: public operator reports, retold as the evidence that their operators would have had."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.scene import STEP, Scene, changed, prompt, removed, stored, text
from whymiss.model import Cause, Grade, Reason, Residency, Verdict

SPARSE: dict[str, Any] = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 64}
DENSE: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}


def said(verdict: Verdict) -> tuple[str, str]:
    return verdict.cause.value, verdict.reason.value


def test_01_a_nonce_in_the_first_system_block_is_divergence_at_its_block() -> None:
    """anthropics/claude-code#68900: 0 % cache on every turn; token 40 changes with each request."""
    scene = Scene("w")
    turns = [prompt(changed(text(640), 40) if turn else text(640)) for turn in range(2)]
    scene.serve("first", "w", 1.0, turns[0])
    scene.serve("second", "w", 5.0, turns[1], hit=2)
    verdict = scene.verdict("second")
    assert said(verdict) == ("token_divergence", "")
    assert verdict.block_index == 2
    # Blocks 2 to 38 of 39 that can match, the last token being computed anyway.
    assert verdict.lost_tokens == 16 * 37
    assert verdict.eviction_reason is None


def test_02_a_line_in_one_mode_shifts_everything_and_is_no_divergence_without_a_reference() -> None:
    """GLM-5.3-Flash kit#63: toggling "thinking" puts one line at about token 2."""
    scene = Scene("w")
    plain = text(640)
    scene.serve("plain", "w", 1.0, prompt(plain))
    scene.serve("thinking", "w", 5.0, prompt([*plain[:2], *text(7, "line"), *plain[2:]]))
    verdict = scene.verdict("thinking")
    assert verdict.cause is Cause.NO_RECENT_MATCH
    assert verdict.block_index == 0
    assert verdict.extra_key_kinds == ()


def test_03_one_retokenised_block_is_divergence_not_eviction() -> None:
    """kekzl/imp#2037: turn 2 misses at block 13 of 80; other ids in one block, the same number of tokens."""
    scene = Scene("w")
    first = text(80 * 16)
    scene.serve("turn1", "w", 1.0, prompt(first))
    scene.serve("turn2", "w", 5.0, prompt(changed(first, 13 * 16 + 3, 13 * 16 + 4)), hit=13)
    verdict = scene.verdict("turn2")
    assert said(verdict) == ("token_divergence", "")
    assert verdict.block_index == 13
    assert verdict.residency is Residency.NEVER_SEEN


def test_04_a_shared_prefix_shorter_than_the_match_unit_has_no_legal_boundary() -> None:
    """vllm-project/vllm#54607: 240 shared tokens, match unit 784: hits exactly 0."""
    scene = Scene("w", config="{attribution: {match_unit: 784}}")
    shared = text(240)
    scene.serve("first", "w", 1.0, prompt(shared + text(800, "a")))
    scene.observed("second", "w", 5.0, prompt(shared + text(800, "b")), 0)
    verdict = scene.verdict("second")
    assert said(verdict) == ("below_match_unit", "")
    assert verdict.lost_tokens == 0


def hybrid(scene: Scene, at: float, tokens: list[int], checkpoint: int | None, first: int = 0) -> None:
    """Stores of a hybrid engine: dense blocks, and a Mamba state at one boundary (in blocks)."""
    what = prompt(tokens)
    events = [stored(what, first, **DENSE)]
    if checkpoint is not None:
        mamba: dict[str, Any] = {
            "group_idx": 1,
            "kv_cache_spec_kind": "mamba",
            "parent_block_hash": None,
            "block_size": 544,
        }
        events.append({**stored(what, 0), "block_hashes": [what.keys[checkpoint - 1]], "extra_keys": None, **mamba})
    scene["w"].batch(at + STEP, *events)


def test_05_the_attention_prefix_matched_and_the_mamba_checkpoint_did_not() -> None:
    """vllm-project/vllm#45238: the checkpoint fell into request-unique tokens; miss, miss, hit."""
    scene = Scene("w")
    shared = text(1500)
    first, second = shared + text(700, "a"), shared + text(700, "b")
    scene.engine("first", "w", 1.0, len(first))
    hybrid(scene, 1.0, first, checkpoint=136)
    scene.engine("second", "w", 5.0, len(second))
    hybrid(scene, 5.0, second, checkpoint=136)
    scene.lookup("second", "w", 5.0, prompt(second), 0)
    scene.engine("third", "w", 9.0, len(second))
    hybrid(scene, 9.0, second, checkpoint=None, first=136)
    scene.lookup("third", "w", 9.0, prompt(second), 136 * 16)
    verdicts = scene.verdicts()
    assert said(verdicts["second"]) == ("sparse_retention", "")
    # Of 1,500 shared tokens two whole units of 544 could have matched.
    assert verdicts["second"].lost_tokens == 1088
    assert verdicts["second"].match_unit == 544
    assert verdicts["third"].cause is Cause.NONE


def test_06_an_evicted_window_group_is_named_and_pool_usage_proves_nothing() -> None:
    """vllm-project/vllm#48435, #42948: a byte-identical resend hits 0; the window's blocks had gone."""
    scene = Scene("w")
    what = prompt(text(200))
    scene.engine("first", "w", 1.0, 200)
    scene["w"].batch(1.0 + STEP, stored(what, **DENSE), stored(what, **SPARSE))
    scene["w"].batch(3.0, *(removed(key, group_idx=1) for key in reversed(what.keys)))
    scene.engine("again", "w", 5.0, 200)
    scene["w"].batch(5.0 + STEP, stored(what, **DENSE), stored(what, **SPARSE))
    scene.lookup("again", "w", 5.0, what, 0)
    verdict = scene.verdict("again")
    assert said(verdict) == ("sparse_retention", "")
    assert verdict.lost_tokens == 12 * 16
    assert verdict.residency is Residency.RESIDENT


def test_07_a_router_that_missed_a_restart_is_stale() -> None:
    """llm-d/llm-d-router#2853: sequence back to 0, index kept the old blocks."""
    scene = Scene("w")
    what = prompt(text(200))
    scene.serve("before", "w", 1.0, what)
    scene["w"].restarted()
    scene["w"].stirs(20.0)
    scene.route("after", 29.9, worker="w", predicted_blocks=12, index_version="v7")
    scene.serve("after", "w", 30.0, what)
    verdict = scene.verdict("after")
    assert said(verdict) == ("stale_index", "")
    assert verdict.lost_tokens == 12 * 16
    assert (verdict.predicted_blocks, verdict.index_version) == (12, "v7")


def test_08_a_clear_that_the_router_ignored_is_stale_only_where_it_had_promised() -> None:
    """vllm-project/aibrix#2287: after a reset, traffic goes to the wiped pod."""
    verdicts = {}
    for promised in (True, False):
        scene = Scene("w")
        what = prompt(text(200))
        scene.serve("before", "w", 1.0, what)
        scene["w"].cleared(10.0)
        if promised:
            scene.route("after", 29.9, worker="w", predicted_blocks=12)
        scene.serve("after", "w", 30.0, what)
        verdicts[promised] = said(scene.verdict("after"))
    assert verdicts == {True: ("stale_index", ""), False: ("evicted", "cleared")}


def test_08_a_clear_published_with_the_next_step_came_before_that_steps_own_stores() -> None:
    scene = Scene("w")
    what = prompt(text(200))
    scene.serve("before", "w", 1.0, what)
    scene.serve("after", "w", 30.0, what, stores=False)
    scene["w"].batch(30.0 + STEP, {"type": "AllBlocksCleared"}, stored(what))
    assert said(scene.verdict("after")) == ("evicted", "cleared")
    # Whether it came before the router's decision cannot be seen.
    scene.route("after", 29.9, worker="w", predicted_blocks=12)
    assert said(scene.verdict("after")) == ("unknown", "evidence_late")


@pytest.mark.parametrize(
    ("identity", "kinds"),
    [
        pytest.param({"salt": "tenant-1"}, ("cache_salt",), id="09 llm-d/llm-d-router#1389: keys ignore the salt"),
        pytest.param({"lora": "ad-1"}, ("lora",), id="10 llm-d/llm-d-router#2927: adapter read as an image hash"),
    ],
)
def test_09_10_a_blind_router_is_a_routing_miss(identity: dict[str, Any], kinds: tuple[str, ...]) -> None:
    scene = Scene("w", "other")
    what = prompt(text(200), **identity)
    scene.serve("warm", "other", 1.0, what)
    scene.route("cold", 4.9, worker="w", predicted_blocks=0, best_blocks=0)
    scene.serve("cold", "w", 5.0, what)
    verdict = scene.verdict("cold")
    assert said(verdict) == ("routing_miss", "holder_unknown")
    assert verdict.lost_tokens == 12 * 16
    assert verdict.extra_key_kinds == kinds
    assert verdict.holders == ("other",)


def test_11_another_rank_of_the_same_pod_is_another_holder() -> None:
    """vllm-project/vllm#52463: tie-break rotation moves each turn to another rank."""
    scene = Scene("w", ranks=2)
    what = prompt(text(200))
    scene.serve("turn1", "w", 1.0, what, rank=0)
    scene.serve("turn2", "w", 5.0, what, rank=1)
    verdict = scene.verdict("turn2")
    assert verdict.cause is Cause.ROUTING_MISS
    assert verdict.holders == ("w",)
    assert verdict.rank == 1


@pytest.mark.parametrize(
    ("loaded", "cause"), [(0, "stale_index"), (20, "transfer_failed")], ids=["none of 32", "20 of 32"]
)
def test_12_a_tier_that_found_and_did_not_deliver_is_never_a_silent_recompute(loaded: int, cause: str) -> None:
    """kvcache-ai/Mooncake#888, LMCache/LMCache#1690: lookup finds 32, retrieves 0 of 32."""
    scene = Scene("w")
    what = prompt(text(33 * 16))
    scene.offload("cold", 5.0, found_blocks=32, loaded_blocks=loaded, status="hit")
    scene.observed("cold", "w", 5.0, what, 0)
    verdict = scene.verdict("cold")
    assert verdict.cause.value == cause
    assert verdict.lost_tokens == (32 - loaded) * 16


def test_12_the_same_without_any_events_and_without_a_count() -> None:
    scene = Scene()
    scene.offload("cold", 5.0, found_blocks=32, loaded_blocks=0)
    scene.engine("cold", "w", 5.0, 528)
    assert said(scene.verdict("cold")) == ("stale_index", "")


def test_12_a_count_that_includes_what_never_arrived_hides_nothing() -> None:
    scene = Scene()
    scene.offload("cold", 5.0, found_blocks=32, loaded_blocks=10, status="failed")
    scene.lookup("cold", "w", 5.0, prompt(text(33 * 16)), 512)
    scene.engine("cold", "w", 5.0, 528)
    assert said(scene.verdict("cold")) == ("transfer_failed", "")


def test_13_stored_remotely_and_never_read_is_unknown() -> None:
    """sgl-project/sglang#12092: three candidate causes, none proven."""
    scene = Scene("w")
    what, gone = prompt(text(200)), prompt(text(16, "gone"))
    scene["w"].batch(0.5, stored(gone, medium="EXTERNAL"), removed(gone.keys[0], "EXTERNAL"))
    scene.serve("first", "w", 1.0, what)
    scene["w"].batch(2.0, {**stored(what), "medium": "EXTERNAL"})
    scene["w"].removed(3.0, what, *range(12))
    scene.serve("again", "w", 5.0, what)
    scene.lookup("again", "w", 5.0, what, 0, external_hit_tokens=0)
    assert scene.verdict("again").cause is Cause.UNKNOWN
    scene.offload("again", 5.0, status="none", found_blocks=0)
    verdict = scene.verdict("again")
    assert said(verdict) == ("tier_unreachable", "")
    assert verdict.lost_tokens == 12 * 16
    assert verdict.holders_tiers == ("remote",)


def test_14_no_events_from_that_worker_is_not_no_match() -> None:
    """ai-dynamo/dynamo#4249, #11984: 0 cached blocks in the router, hits exist."""
    scene = Scene("other")
    what = prompt(text(200))
    scene.serve("elsewhere", "other", 1.0, what)
    scene.route("here", 4.9, worker="w", predicted_blocks=0, best_blocks=0)
    scene.engine("here", "w", 5.0, 200)
    assert said(scene.verdict("here")) == ("unknown", "no_event_source")


def test_15_dropped_batches_over_the_removal_are_unknown() -> None:
    """vllm-project/vllm#53859, llm-d-router#1737: 4 of 5 batches dropped."""
    scene = Scene("w")
    what = prompt(text(200))
    scene.serve("first", "w", 1.0, what)
    scene["w"].dropped(4)
    scene["w"].stirs(3.0)
    scene.serve("again", "w", 5.0, what)
    verdict = scene.verdict("again")
    assert said(verdict) == ("unknown", "events_dropped")
    assert verdict.lost_tokens is None


def test_16_one_of_two_copies_removed_is_not_gone() -> None:
    """vllm-project/vllm#55092: one of two physical copies of block 3 was removed."""
    scene = Scene("w")
    what = prompt(text(200))
    scene.serve("first", "w", 1.0, what)
    scene["w"].stored(1.5, what, 3, 4)
    scene["w"].removed(2.0, what, 3)
    scene.observed("again", "w", 5.0, what, 48)
    verdict = scene.verdict("again")
    assert verdict.cause is Cause.LOOKUP_FAILURE
    assert verdict.residency is Residency.RESIDENT
    assert verdict.eviction_reason is None


def test_17_a_missing_count_is_not_zero_and_events_can_give_it() -> None:
    """oh-my-pi#5022, vllm-ascend#13040: client shows 0 cached, engine 92 %."""
    scene = Scene()
    scene.engine("asked", "w", 5.0, 200)
    scene.lookup("asked", "w", 5.0, prompt(text(200)), None)
    verdict = scene.verdict("asked")
    assert said(verdict) == ("unknown", "no_cached_tokens")
    assert (verdict.cached_tokens, verdict.recomputed_tokens) == (None, None)
    scene = Scene("w")
    scene.serve("first", "w", 1.0, prompt(text(200)))
    scene.serve("asked", "w", 5.0, prompt(text(200)), hit=12)
    verdict = scene.verdict("asked")
    assert (verdict.cause, verdict.cached_tokens, verdict.grade) == (Cause.NONE, 192, Grade.DERIVED)


def test_18_a_prefix_pushed_out_by_other_prompts_is_capacity() -> None:
    """vllm-project/vllm#42656: partial blocks pushed cached ones out although memory was abundant."""
    scene = Scene("w")
    what = prompt(text(200))
    scene.serve("first", "w", 1.0, what)
    scene["w"].removed(3.0, what, 11, 10, 9)
    scene.serve("again", "w", 5.0, what, hit=9)
    verdict = scene.verdict("again")
    assert said(verdict) == ("evicted", "capacity")
    assert verdict.block_index == 9
    assert verdict.lost_tokens == 3 * 16
    assert verdict.eviction_age_ms is not None
    assert 1990 <= verdict.eviction_age_ms <= 2010


def test_19_nothing_cached_and_nothing_proven_is_never_divergence() -> None:
    """DeepSeek-V4-Flash kit#144: reasoning effort high: 0 cached."""
    scene = Scene("w")
    scene.serve("low", "w", 1.0, prompt(text(200, "low")))
    scene.serve("high", "w", 5.0, prompt(text(200, "high")))
    assert said(scene.verdict("high")) == ("no_recent_match", "first_seen")
    broken = Scene("w")
    broken.serve("low", "w", 1.0, prompt(text(200, "low")))
    broken["w"].dropped()
    broken["w"].stirs(3.0)
    broken.serve("high", "w", 5.0, prompt(text(200, "high")))
    assert said(broken.verdict("high")) == ("unknown", "events_dropped")


def test_20_a_wrong_hit_is_no_miss_and_nothing_advises_to_widen_identity() -> None:
    """vllm-project/vllm#42125, #30931: a hit after reloading an adapter of the same name."""
    scene = Scene("w")
    what = prompt(text(200), lora="ad")
    scene.serve("old", "w", 1.0, what)
    scene.serve("reloaded", "w", 5.0, what, hit=12)
    verdict = scene.verdict("reloaded")
    assert verdict.cause is Cause.NONE
    assert verdict.reason is Reason.NONE
