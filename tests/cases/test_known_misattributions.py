"""What other attribution tools got wrong once: P1 to P18."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.cases.scene import STEP, Scene, changed, prompt, removed, stored, text
from whymiss.attribution import agree
from whymiss.measures import Dimensions, Measures
from whymiss.model import Cause, Owner, Reason, Residency, Verdict
from whymiss.wire.fields import read_span
from whymiss.wire.split import split

WHAT = prompt(text(200))


def said(verdict: Verdict) -> tuple[str, str]:
    return verdict.cause.value, verdict.reason.value


def test_p01_an_absent_count_is_unknown_and_a_reported_zero_is_judged() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, WHAT)
    scene.engine("absent", "w", 5.0, 200)
    scene.engine("zero", "w", 9.0, 200, cached=0)
    scene["w"].stored(9.0 + STEP, WHAT)
    verdicts = scene.verdicts()
    # No chain, no count: a full hit in an unbroken record. Not a routing miss, and not zero cached tokens.
    assert verdicts["absent"].cause is not Cause.ROUTING_MISS
    assert verdicts["zero"].cause is Cause.ROUTING_MISS
    assert verdicts["zero"].cached_tokens == 0


def test_p01_absent_and_zero_differ_on_the_wire() -> None:
    seen = {}
    for count in (None, 0):
        scene = Scene()
        scene.engine("asked", "w", 5.0, 200, cached=count)
        scene.verdicts()
        assert scene.outgoing
        (raw,) = (raw for item in scene.outgoing for group in split(item.body) for raw in group.spans)
        seen[count] = read_span(raw).attributes.get("prefix_cache.cached_tokens")
    assert seen == {None: None, 0: 0}


def test_p02_a_pinned_worker_is_no_fault_of_the_router() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, WHAT)
    scene.route("asked", 4.9, worker="w", pinned=True, predicted_blocks=0, best_worker="other", best_blocks=12)
    scene.serve("asked", "w", 5.0, WHAT)
    assert said(scene.verdict("asked")) == ("routing_miss", "pinned")


def test_a_router_that_scored_the_holder_and_passed_it_over_knew_it() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, WHAT)
    scene.route("asked", 4.9, worker="w", predicted_blocks=0, best_worker="other", best_blocks=12)
    scene.serve("asked", "w", 5.0, WHAT)
    assert said(scene.verdict("asked")) == ("routing_miss", "holder_known")


def test_p03_a_cache_that_is_off_is_said_once_and_events_that_are_off_are_not_cold() -> None:
    scene = Scene()
    for turn in range(2):
        scene.engine(f"off{turn}", "w", 5.0 + turn, 200)
        scene.lookup(f"off{turn}", "w", 5.0 + turn, WHAT, 0, disabled=True)
    scene.engine("no-events", "v", 9.0, 200, cached=0)
    verdicts = scene.verdicts()
    assert {said(verdicts[f"off{turn}"]) for turn in range(2)} == {("cache_disabled", "")}
    assert said(verdicts["no-events"]) == ("unknown", "no_event_source")


def test_p04_a_count_alone_never_names_a_tier() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(12))
    scene.engine("again", "w", 5.0, 200, cached=192)
    scene["w"].stored(5.0 + STEP, WHAT)
    verdict = scene.verdict("again")
    assert verdict.holders_tiers == ()
    assert verdict.remote_lookup is None
    assert verdict.cause in {Cause.NONE, Cause.UNKNOWN}


def test_p05_back_to_an_earlier_prompt_is_compared_with_what_is_resident() -> None:
    scene = Scene("w")
    first, other = prompt(text(200, "a")), prompt(text(200, "b"))
    scene.serve("a", "w", 1.0, first)
    scene.serve("b", "w", 3.0, other)
    scene.serve("back", "w", 5.0, first, hit=12)
    assert scene.verdict("back").cause is Cause.NONE


def test_p06_the_shortfall_of_a_partly_hit_request_has_a_cause() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(3.0, WHAT, 11)
    scene.serve("again", "w", 5.0, WHAT, hit=11)
    verdict = scene.verdict("again")
    assert said(verdict) == ("evicted", "capacity")
    assert (verdict.cached_tokens, verdict.recomputed_tokens, verdict.lost_tokens) == (176, 24, 16)


def test_p07_one_cold_request_is_cold_and_not_diagnosed() -> None:
    scene = Scene("w")
    scene.serve("only", "w", 1.0, WHAT)
    verdict = scene.verdict("only")
    assert said(verdict) == ("no_recent_match", "first_seen")
    assert verdict.lost_tokens == 0


def test_p08_the_trailing_partial_block_is_no_miss() -> None:
    scene = Scene("w")
    what = prompt(text(40))
    scene.serve("first", "w", 1.0, what)
    scene.serve("again", "w", 5.0, what, hit=2)
    verdict = scene.verdict("again")
    assert (verdict.cause, verdict.cached_tokens, verdict.lost_tokens) == (Cause.NONE, 32, 0)


def test_p09_recomputation_after_preemption_is_not_the_clients_eviction() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    # Admitted with everything cached; preempted while it decodes, its blocks evicted and computed again.
    scene.engine("asked", "w", 5.0, 200)
    scene["w"].removed(5.5, WHAT, *range(12))
    scene["w"].stored(6.0, WHAT)
    assert scene.verdict("asked").cause is Cause.NONE


def arrivals() -> list[tuple[float, ...]]:
    return list(permutations((6.1, 6.2, 6.3)))


@pytest.mark.parametrize("order", arrivals())
def test_p10_any_order_of_arrival_gives_the_same_verdicts(order: tuple[float, ...]) -> None:
    scene = Scene("w")
    turns = [prompt(text(64 * turn)) for turn in (1, 2, 3)]
    for number, (turn, arrives) in enumerate(zip(turns, order, strict=True)):
        at = 1.0 + number
        scene.engine(f"turn{number}", "w", at, len(turn.tokens), arrives=arrives)
        scene["w"].stored(at + STEP, turn, 4 * number)
    verdicts = scene.verdicts()
    assert [verdicts[f"turn{number}"].cause.value for number in range(3)] == [
        "no_recent_match",
        "new_content",
        "new_content",
    ]


def test_p11_a_disk_hit_is_a_hit_and_no_eviction() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].batch(2.0, {**stored(WHAT), "medium": "DISK"}, *(removed(key) for key in reversed(WHAT.keys)))
    scene.engine("again", "w", 5.0, 200)
    scene["w"].stored(5.0 + STEP, WHAT)
    scene.lookup("again", "w", 5.0, WHAT, 192, local_hit_tokens=0, external_hit_tokens=192)
    scene.offload("again", 5.0, found_blocks=12, loaded_blocks=12, status="hit", tier="disk")
    verdict = scene.verdict("again")
    assert (verdict.cause, verdict.remote_lookup) == (Cause.NONE, "hit")


def test_p12_a_store_clears_the_tombstone() -> None:
    scene = Scene("w")
    scene.serve("first", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(12))
    scene.serve("second", "w", 3.0, WHAT)
    scene.observed("third", "w", 5.0, WHAT, 0)
    assert scene.verdict("third").residency is Residency.RESIDENT


def test_p12_lost_history_turns_evicted_into_unknown_and_never_the_reverse() -> None:
    evicted = Scene("w")
    evicted.serve("first", "w", 1.0, WHAT)
    evicted["w"].removed(2.0, WHAT, *range(12))
    evicted.serve("again", "w", 5.0, WHAT)
    assert evicted.verdict("again").cause is Cause.EVICTED
    # The same, but the first store was lost: nothing says that the block had ever been here.
    lost = Scene("w")
    lost.engine("first", "w", 1.0, 200)
    lost["w"].stirs(0.5)
    lost["w"].dropped()
    lost["w"].stirs(2.5)
    lost.serve("again", "w", 5.0, WHAT)
    assert said(lost.verdict("again")) == ("unknown", "events_dropped")


def test_p13_blocks_on_other_nodes_are_not_new() -> None:
    held = Scene("w", "other")
    held.serve("warm", "other", 1.0, WHAT)
    held.serve("asked", "w", 5.0, WHAT)
    assert held.verdict("asked").cause is Cause.ROUTING_MISS
    lost = Scene("w", "other")
    lost.serve("warm", "other", 1.0, WHAT)
    lost["other"].removed(2.0, WHAT, *range(12))
    lost.serve("asked", "w", 5.0, WHAT)
    verdict = lost.verdict("asked")
    assert said(verdict) == ("evicted_elsewhere", "")
    assert verdict.lost_tokens == 12 * 16


def test_p14_what_fits_no_row_is_unknown_and_bears_no_causes_name() -> None:
    scene = Scene("w")
    # The response says 16 tokens, the events say none: one of them is about something else.
    scene.engine("asked", "w", 5.0, 200, cached=16)
    scene["w"].stored(5.0 + STEP, WHAT)
    verdict = scene.verdict("asked")
    assert said(verdict) == ("unknown", "ambiguous_chain")
    assert (verdict.owner, verdict.lost_tokens) == (Owner.OBSERVABILITY, None)


def observed(*verdicts: Verdict) -> dict[str, float]:
    measures = Measures(dimensions=(), values_max=1, series_max=100, start_unix_nanos=0)
    for verdict in verdicts:
        measures.observe(verdict, Dimensions(), first_token_seconds=None)
    return {
        f"{metric.instrument.name} {dict(point.labels).get('cause', '')}".strip(): point.value
        for metric in measures.snapshot()
        for point in metric.points
        if metric.instrument.name.startswith("prefix_cache.")
    }


def test_p16_a_sum_says_what_share_it_covers() -> None:
    priced = Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM, prompt_tokens=200, cached_tokens=0, lost_tokens=192)
    partial = Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM)
    sums = observed(priced, partial)
    # Two misses of which one has a price: the sum of tokens is shown beside the count of lookups.
    assert sums["prefix_cache.lost_tokens evicted"] == 192
    assert sums["prefix_cache.misses evicted"] == 2
    assert sums["prefix_cache.queried_tokens"] == 200


def test_p17_no_traffic_is_no_zero() -> None:
    assert observed() == {}


def test_p18_an_abstention_is_no_agreement() -> None:
    named = Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM, reason=Reason.CAPACITY)
    abstained = Verdict(cause=Cause.UNKNOWN, owner=Owner.OBSERVABILITY, reason=Reason.EVENTS_DROPPED)
    assert agree([named, abstained]).cause is Cause.UNKNOWN
    assert agree([abstained, named]).cause is Cause.UNKNOWN
    sums = observed(named, abstained)
    # Two lookups, one of them named: the share that is unknown is a figure of its own.
    assert sums["prefix_cache.requests evicted"] == 1
    assert sums["prefix_cache.unknown"] == 1


def test_a_changed_token_under_another_salt_is_isolation_before_divergence() -> None:
    scene = Scene("w")
    scene.serve("tenant-a", "w", 1.0, prompt(text(200), salt="a"))
    scene.serve("tenant-b", "w", 3.0, prompt(changed(text(200), 40), salt="b"))
    scene.serve("asked", "w", 5.0, prompt(text(200), salt="b"), hit=2)
    verdict = scene.verdict("asked")
    assert said(verdict) == ("extra_key_mismatch", "")
    assert verdict.extra_key_kinds == ("cache_salt",)


def test_processes_with_other_hash_seeds_are_an_identity_mismatch_and_no_divergence() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, prompt(text(200), seed=1))
    scene.serve("asked", "w", 5.0, prompt(text(200), seed=2))
    verdict = scene.verdict("asked")
    assert said(verdict) == ("identity_mismatch", "")
    assert verdict.lost_tokens == 12 * 16


def test_unlike_hash_seeds_are_one_wherever_the_miss_begins() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, prompt(text(200), seed=1))
    scene.serve("shorter", "w", 2.0, prompt(text(96), seed=2))
    scene.serve("asked", "w", 5.0, prompt(text(200), seed=2), hit=6)
    verdict = scene.verdict("asked")
    assert said(verdict) == ("identity_mismatch", "")
    assert verdict.lost_tokens == 6 * 16


def test_unlike_hash_seeds_cost_what_the_best_of_the_others_holds_of_the_same_tenant() -> None:
    scene = Scene("w", "most", "some")
    scene.serve("most", "most", 1.0, prompt(text(150), seed=1))
    scene.serve("another tenant's", "most", 1.5, prompt(text(200), seed=1, salt="a"))
    scene.serve("some", "some", 2.0, prompt(text(96), seed=3))
    scene.serve("asked", "w", 5.0, prompt(text(200), seed=2))
    verdict = scene.verdict("asked")
    assert said(verdict) == ("identity_mismatch", "")
    assert verdict.lost_tokens == 9 * 16


def test_the_same_prompt_of_another_tenant_elsewhere_is_no_identity_mismatch() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, prompt(text(200), salt="a"))
    scene.serve("asked", "w", 5.0, prompt(text(200), salt="b"))
    assert said(scene.verdict("asked")) == ("no_recent_match", "first_seen")


def test_an_adapter_of_one_name_may_have_two_paths_and_decides_nothing() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, prompt(text(200), lora="ad", seed=1))
    scene.serve("asked", "w", 5.0, prompt(text(200), lora="ad", seed=2))
    assert scene.verdict("asked").cause is Cause.UNKNOWN


def test_a_preempted_lookup_is_no_lookup_of_its_own() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.observed("asked", "w", 5.0, WHAT, 192)
    scene["w"].removed(5.05, WHAT, *range(12))
    scene.preempted("asked", "w", 5.06, 200)
    verdicts = scene.verdicts()
    assert set(verdicts) == {"warm", "asked"}
    assert verdicts["asked"].cause is Cause.NONE
