"""Figures with a known answer: the seed figures and the fixed vectors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.scene import STEP, Scene, changed, prompt, removed, stored, text
from whymiss.measures import Dimensions, Measures
from whymiss.model import Cause, Owner, Residency, Verdict

SCAFFOLD = text(2048)
"""2,048 tokens in blocks of 16, of which 640 are cached: the first missed block is number 40."""


def scaffold(scene: Scene) -> Verdict:
    verdict = scene.verdict("asked")
    assert (verdict.prompt_tokens, verdict.cached_tokens, verdict.block_size) == (2048, 640, 16)
    assert verdict.block_index == 40
    return verdict


def test_scaffold_with_a_changed_token_is_divergence() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "w", 1.0, prompt(changed(SCAFFOLD, 645)))
    scene.serve("asked", "w", 5.0, prompt(SCAFFOLD), hit=40)
    verdict = scaffold(scene)
    assert (verdict.cause, verdict.owner) == (Cause.TOKEN_DIVERGENCE, Owner.APPLICATION)
    assert verdict.residency is Residency.NEVER_SEEN


def test_scaffold_with_a_removal_is_an_eviction() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "w", 1.0, prompt(SCAFFOLD))
    scene["w"].removed(3.0, prompt(SCAFFOLD), *range(40, 128))
    scene.serve("asked", "w", 5.0, prompt(SCAFFOLD), hit=40)
    verdict = scaffold(scene)
    assert (verdict.cause, verdict.owner) == (Cause.EVICTED, Owner.PLATFORM)
    assert verdict.lost_tokens == (127 - 40) * 16


def test_scaffold_on_another_worker_is_a_routing_miss() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, prompt(SCAFFOLD))
    scene.serve("part", "w", 1.0, prompt(SCAFFOLD[:640]))
    scene.serve("asked", "w", 5.0, prompt(SCAFFOLD), hit=40)
    verdict = scaffold(scene)
    assert (verdict.cause, verdict.owner) == (Cause.ROUTING_MISS, Owner.ROUTING)


def test_all_three_at_once_is_the_nearest_fix_and_the_rest_travels_as_evidence() -> None:
    scene = Scene("w", "other")
    scene.serve("elsewhere", "other", 1.0, prompt(SCAFFOLD))
    scene.serve("warm", "w", 1.5, prompt(SCAFFOLD))
    scene["w"].removed(3.0, prompt(SCAFFOLD), *range(40, 128))
    scene.serve("asked", "w", 5.0, prompt(SCAFFOLD), hit=40)
    verdict = scaffold(scene)
    assert verdict.cause is Cause.ROUTING_MISS
    assert (verdict.residency, verdict.eviction_reason, verdict.holders_count) == (Residency.EVICTED, "removed", 1)


def test_hybrid_sequence_hits_and_loses_what_the_unit_of_544_allows() -> None:
    """Cold, second and third request of one prompt: hit and lost tokens 0/0, 0/1,088 and 1,088/0."""
    scene = Scene("w")
    what = prompt(text(1200))
    dense: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    mamba: dict[str, Any] = {"group_idx": 1, "kv_cache_spec_kind": "mamba", "block_size": 544, "extra_keys": None}
    # The first request leaves a state in the middle of nowhere, the second one at the boundary.
    state = {**stored(what), **mamba, "parent_block_hash": None}
    for number, (name, first, hit) in enumerate([("cold", 0, 0), ("second", 0, 0), ("third", 68, 1088)]):
        at = 1.0 + 4 * number
        scene.engine(name, "w", at, 1200)
        states = [{**state, "block_hashes": [what.keys[67 if name == "second" else 74]]}]
        scene["w"].batch(at + STEP, stored(what, first, **dense), *([] if name == "third" else states))
        scene.lookup(name, "w", at, what, hit)
    verdicts = scene.verdicts()
    pairs = [(verdicts[name].cached_tokens, verdicts[name].lost_tokens) for name in ("cold", "second", "third")]
    assert pairs == [(0, 0), (0, 1088), (1088, 0)]
    assert verdicts["second"].cause is Cause.SPARSE_RETENTION
    assert verdicts["third"].cause is Cause.NONE


def test_hit_ratio_and_sparse_loss_ratio_are_read_together() -> None:
    """70,400 queried, 17,952 hit, 8,448 lost: 25.5 % and 12 %."""
    measures = Measures(dimensions=(), values_max=1, series_max=100, start_unix_nanos=0)
    for queried, hit, lost in [(30_000, 10_000, 4_000), (40_400, 7_952, 4_448)]:
        verdict = Verdict(
            cause=Cause.SPARSE_RETENTION,
            owner=Owner.ENGINE,
            prompt_tokens=queried,
            cached_tokens=hit,
            recomputed_tokens=queried - hit,
            sparse_lost_tokens=lost,
        )
        measures.observe(verdict, Dimensions(), first_token_seconds=None, weight=1.0, exemplar=None)
    total = {metric.instrument.name: sum(point.value for point in metric.points) for metric in measures.snapshot()}
    assert total["prefix_cache.queried_tokens"] == 70_400
    assert total["prefix_cache.hit_tokens"] / 70_400 == pytest.approx(0.255)
    assert total["prefix_cache.sparse_lost_tokens"] / 70_400 == pytest.approx(0.12)


@pytest.mark.parametrize(("cached", "cause"), [(64, "none"), (0, "speculative_replay")])
def test_usable_tokens_under_a_draft_model_that_costs_one_unit(cached: int, cause: str) -> None:
    """vllm-project/vllm#57444: 95 tokens, block 64, unit 16, drop 16: usable 64. A whole dropped block is a miss."""
    scene = Scene("w")
    what = prompt(text(95), block=64)
    scene.serve("first", "w", 1.0, what)
    scene.serve("again", "w", 5.0, what, hit=cached // 64)
    scene.lookup("again", "w", 5.0, what, cached, speculative=True, match_unit=16)
    assert scene.verdict("again").cause.value == cause


def test_a_prompt_of_exactly_eight_blocks_hits_seven_and_misses_nothing() -> None:
    scene = Scene("w")
    what = prompt(text(256), block=32)
    scene.serve("first", "w", 1.0, what)
    scene.serve("again", "w", 5.0, what, hit=7)
    verdict = scene.verdict("again")
    assert (verdict.cause, verdict.cached_tokens) == (Cause.NONE, 224)


def test_of_two_cold_children_the_first_missed_and_the_seconds_hit_is_real() -> None:
    scene = Scene("w")
    what = prompt(text(100), block=32)
    scene.serve("first", "w", 1.0, what)
    scene.lookup("first", "w", 1.0, what, 0)
    scene.engine("second", "w", 1.0 + STEP, 100)
    scene.lookup("second", "w", 1.0 + STEP, what, 96)
    verdicts = scene.verdicts()
    assert (verdicts["first"].cause, verdicts["first"].cached_tokens) == (Cause.NO_RECENT_MATCH, 0)
    assert (verdicts["second"].cause, verdicts["second"].cached_tokens) == (Cause.NONE, 96)


def test_removing_the_key_again_after_a_store_of_another_group_changes_nothing() -> None:
    scene = Scene("w")
    what = prompt(text(200))
    scene.serve("first", "w", 1.0, what)
    scene["w"].batch(2.0, removed(what.keys[11], group_idx=7))
    scene.observed("again", "w", 5.0, what, 176)
    assert scene.verdict("again").residency is Residency.RESIDENT
