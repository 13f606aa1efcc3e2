"""What has to be known before something is called absent, held elsewhere, or earlier."""

from __future__ import annotations

import pytest

from tests.cases.scene import STEP, Scene, prompt, removed, stored, text
from whymiss.model import Cause, Verdict

WHAT = prompt(text(200))


def said(verdict: Verdict) -> tuple[str, str]:
    return verdict.cause.value, verdict.reason.value


# --- negative statements ------------------------------------------------------------------------------


def test_never_seen_needs_a_record_over_the_whole_window() -> None:
    for window, expected in (("2s", "no_recent_match"), ("10s", "unknown")):
        scene = Scene("w", config=f"{{ledger: {{window_seconds: {window[:-1]}}}}}")
        scene["w"].stirs(1.0)
        scene["w"].dropped()
        scene["w"].stirs(2.0)
        scene.serve("asked", "w", 6.0, WHAT)
        assert scene.verdict("asked").cause.value == expected, window


def test_an_eviction_needs_no_record_before_it() -> None:
    scene = Scene("w")
    scene["w"].dropped()
    scene["w"].stored(2.0, WHAT)
    scene["w"].cleared(3.0)
    scene.observed("asked", "w", 6.0, WHAT, 0)
    assert said(scene.verdict("asked")) == ("evicted", "cleared")


def test_a_reset_is_no_reason_for_what_may_have_been_gone_before_it() -> None:
    scene = Scene("w")
    scene["w"].stored(1.0, WHAT)
    scene["w"].dropped()
    scene["w"].removed(2.0, WHAT, *range(12))
    scene["w"].cleared(3.0)
    scene.observed("asked", "w", 6.0, WHAT, 0)
    verdict = scene.verdict("asked")
    assert said(verdict) == ("evicted", "")
    assert (verdict.eviction_reason, verdict.eviction_age_ms) == (None, None)


def test_a_hole_in_another_workers_record_leaves_the_view_partial() -> None:
    for view, expected in (("complete", ("unknown", "fleet_view_partial")), ("declared", ("evicted", "capacity"))):
        scene = Scene("w", "other", config=f"{{attribution: {{fleet_view: {view}}}}}")
        scene["other"].stirs(0.5)
        scene["other"].dropped()
        scene["other"].stirs(1.5)
        scene.serve("warm", "w", 1.0, WHAT)
        scene["w"].removed(2.0, WHAT, *range(12))
        scene.serve("asked", "w", 5.0, WHAT)
        verdict = scene.verdict("asked")
        assert said(verdict) == expected
        assert verdict.fleet_view_complete is (None if view == "complete" else False) or view == "complete"


def test_a_hole_elsewhere_does_not_matter_once_a_holder_is_certain() -> None:
    scene = Scene("w", "other", "third")
    scene["third"].stirs(0.5)
    scene["third"].dropped()
    scene["third"].stirs(1.5)
    scene.serve("warm", "other", 1.0, WHAT)
    scene.serve("asked", "w", 5.0, WHAT)
    assert scene.verdict("asked").cause is Cause.ROUTING_MISS


# --- confirmation -------------------------------------------------------------------------------------


def test_an_idle_holder_is_named_only_once_it_speaks_again() -> None:
    scene = Scene("w", "other", confirmed=False)
    scene.serve("warm", "other", 1.0, WHAT)
    scene.serve("asked", "w", 5.0, WHAT)
    scene["w"].stirs(6.0)  # Only the holder is still idle.
    assert said(scene.verdict("asked")) == ("unknown", "evidence_late")
    scene["other"].stirs(6.0)
    assert scene.verdict("asked").cause is Cause.ROUTING_MISS


def test_a_holder_whose_next_batch_is_a_reset_is_undecided() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, WHAT)
    scene.serve("asked", "w", 5.0, WHAT)
    scene["other"].batch(9.0, {"type": "AllBlocksCleared"}, stored(prompt(text(16, "next"))))
    assert said(scene.verdict("asked")) == ("unknown", "clock_skew")


def test_an_idle_worker_whose_last_batch_may_be_lost_hides_a_holder() -> None:
    scene = Scene("w", "other", confirmed=False)
    scene["other"].stirs(1.0)
    # The store of the block on "other" is lost, and nothing after it shows the gap yet.
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(12))
    scene.serve("asked", "w", 5.0, WHAT)
    scene["w"].stirs(6.0)
    assert said(scene.verdict("asked")) == ("unknown", "evidence_late")


# --- clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (4.0, ("evicted_elsewhere", "")),
        (4.98, ("unknown", "clock_skew")),
        (5.03, ("unknown", "clock_skew")),
        (5.5, ("routing_miss", "")),
    ],
)
def test_inside_the_tolerance_between_clocks_nothing_is_earlier(gone: float, expected: tuple[str, str]) -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "other", 1.0, WHAT)
    scene["other"].stirs(5.2)
    scene["other"].removed(gone, WHAT, *range(12))
    scene["other"].said.sort()
    scene["other"].said = [(at, number, body) for number, (at, _, body) in enumerate(scene["other"].said)]
    scene.serve("asked", "w", 5.0, WHAT)
    assert said(scene.verdict("asked")) == expected


def test_a_router_whose_clock_is_after_the_lookup_promises_at_no_known_time() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(12))
    scene.route("asked", 6.0, worker="w", predicted_blocks=12)
    scene.serve("asked", "w", 5.0, WHAT)
    assert said(scene.verdict("asked")) == ("unknown", "clock_skew")


# --- promises and companions ----------------------------------------------------------------------------


def routed(scene: Scene, name: str, at: float, **more: object) -> None:
    scene.route(name, at - 0.1, **{"worker": "w", "predicted_blocks": 0, **more})
    scene.serve(name, "w", at, prompt(text(200, name)))


def test_where_routers_promise_a_missing_promise_is_lost_evidence() -> None:
    scene = Scene("w")
    routed(scene, "before", 1.0)
    scene.serve("warm", "w", 2.0, WHAT)
    scene["w"].removed(3.0, WHAT, *range(12))
    scene.serve("asked", "w", 9.0, WHAT)
    assert said(scene.verdict("asked")) == ("unknown", "partial_trace")


def test_a_request_that_nobody_called_in_a_trace_had_no_router() -> None:
    scene = Scene("w")
    routed(scene, "before", 1.0)
    scene.serve("warm", "w", 2.0, WHAT)
    scene["w"].removed(3.0, WHAT, *range(12))
    scene.engine("asked", "w", 9.0, 200, parent=False)
    scene["w"].stored(9.0 + STEP, WHAT)
    assert said(scene.verdict("asked")) == ("evicted", "capacity")


def test_a_promise_of_another_worker_is_none_of_this_ones() -> None:
    scene = Scene("w", "other")
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].removed(2.0, WHAT, *range(12))
    scene.route("asked", 8.9, worker="other", predicted_blocks=12)
    scene.serve("asked", "w", 9.0, WHAT)
    assert said(scene.verdict("asked")) == ("evicted", "capacity")
    scene.route("asked", 8.95, worker="nobody-knows", predicted_blocks=12)
    assert said(scene.verdict("asked")) == ("unknown", "no_worker")


def test_an_eviction_after_the_decision_is_not_the_indexs_fault() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.route("asked", 8.0, worker="w", predicted_blocks=12)
    scene["w"].removed(8.5, WHAT, *range(12))
    scene.serve("asked", "w", 9.0, WHAT)
    assert said(scene.verdict("asked")) == ("evicted", "after_route")


def test_where_engines_report_lookups_a_missing_report_may_have_been_an_opt_out() -> None:
    scene = Scene("w")
    scene.observed("before", "w", 1.0, prompt(text(200, "x")), 0)
    scene.serve("asked", "w", 5.0, WHAT)
    assert said(scene.verdict("asked")) == ("unknown", "partial_trace")


def test_where_tiers_report_a_missing_report_may_have_been_a_failure() -> None:
    scene = Scene("w")
    scene.serve("before", "w", 1.0, prompt(text(200, "x")))
    scene.offload("before", 1.0, found_blocks=0, loaded_blocks=0, status="miss")
    scene.serve("asked", "w", 5.0, WHAT)
    verdicts = scene.verdicts()
    assert said(verdicts["before"]) == ("no_recent_match", "first_seen")
    assert said(verdicts["asked"]) == ("unknown", "partial_trace")


# --- blocks that are alike ------------------------------------------------------------------------------------------


def test_without_token_digests_nothing_is_called_new_or_changed() -> None:
    scene = Scene("w", config="{ledger: {token_digests: false}}")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.serve("asked", "w", 5.0, prompt(text(200)[:64] + text(136, "x")), hit=4)
    assert said(scene.verdict("asked")) == ("unknown", "no_first_miss_key")


def test_keys_of_a_family_that_the_stream_does_not_speak_are_no_evidence() -> None:
    scene = Scene("w")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.serve("asked", "w", 5.0, WHAT, hit=12)
    scene.lookup("asked", "w", 5.0, prompt(text(200), seed=9), 0)
    assert scene.verdict("asked").cause is Cause.UNKNOWN


def test_a_second_child_of_a_hit_parent_is_a_branch() -> None:
    scene = Scene("w")
    scene.serve("one", "w", 1.0, prompt(text(64) + text(64, "one")))
    scene.serve("two", "w", 5.0, prompt(text(64) + text(64, "two")), hit=4)
    assert said(scene.verdict("two")) == ("no_recent_match", "branch")


def test_a_block_that_another_worker_was_computing_is_a_concurrent_prefill() -> None:
    scene = Scene("w", "other")
    # The other worker works on the same long prompt in chunks; the shared block's chunk comes after the lookup.
    scene.engine("elsewhere", "other", 5.0, 200)
    scene["other"].stored(5.03, WHAT, 0, 4)
    scene["other"].batch(5.075, stored(prompt(text(16, "between"))))
    scene["other"].stored(5.098, WHAT, 4, 12)
    scene.serve("part", "w", 1.0, prompt(text(64)))
    scene["other"].said.sort()
    scene.serve("asked", "w", 5.005, prompt(text(200)[:64] + text(200)[64:]), hit=4)
    assert scene.verdict("asked").cause in {Cause.NEW_CONTENT, Cause.UNKNOWN}


# --- tiers ----------------------------------------------------------------------------------------------


GONE = prompt(text(16, "gone"))


@pytest.mark.parametrize("released", [True, False])
def test_a_tier_on_another_workers_host_makes_that_worker_a_holder_where_it_says_what_leaves(released: bool) -> None:
    scene = Scene("w", "other")
    if released:
        scene["other"].batch(0.5, stored(GONE, medium="CPU"), removed(GONE.keys[0], "CPU"))
    scene.serve("warm", "other", 1.0, WHAT)
    scene["other"].batch(2.0, {**stored(WHAT), "medium": "CPU"}, *(removed(key) for key in reversed(WHAT.keys)))
    scene.serve("asked", "w", 5.0, WHAT)
    verdict = scene.verdict("asked")
    if released:
        assert verdict.cause is Cause.ROUTING_MISS
        assert verdict.holders_tiers == ("host",)
    else:
        assert said(verdict) == ("unknown", "ambiguous_copies")


def test_what_a_tier_may_have_loaded_is_never_called_a_miss() -> None:
    scene = Scene("w")
    scene["w"].batch(0.5, stored(GONE, medium="CPU"), removed(GONE.keys[0], "CPU"))
    scene.serve("warm", "w", 1.0, WHAT)
    scene["w"].batch(2.0, {**stored(WHAT), "medium": "CPU"}, *(removed(key) for key in reversed(WHAT.keys)))
    # Loaded from the host, or computed: the stores look the same.
    scene.serve("asked", "w", 5.0, WHAT)
    assert said(scene.verdict("asked")) == ("unknown", "lookup_unseen")
    assert scene.verdict("asked").recomputed_tokens is None


# --- siblings wherever they are -----------------------------------------------------------------------


def test_a_sibling_on_another_worker_makes_a_block_a_branch() -> None:
    shared = text(32)
    first, other = (prompt([*shared, *text(20, whose)]) for whose in ("mine", "theirs"))
    for sibling, expected in ((None, "new_content"), (0.9, "no_recent_match"), (3.0, "unknown"), (3.5, "new_content")):
        scene = Scene("w", "other")
        scene.serve("base", "w", 0.2, prompt(shared))
        scene.serve("base there", "other", 0.3, prompt(shared))
        if sibling is not None:
            scene.serve("sibling", "other", sibling, other, 2)
        scene.serve("asked", "w", 3.0, first, 2)
        assert scene.verdict("asked").cause.value == expected, sibling


# --- storage that workers share --------------------------------------------------------------------------


def storage(scene: Scene) -> None:
    """A block that was evicted here lies in storage that llm-d's file-system backend publishes of."""
    scene.serve("first", "w", 1.0, WHAT)
    let_go = stored(GONE, medium="SHARED_STORAGE"), removed(GONE.keys[0], "SHARED_STORAGE")
    scene["SHARED_STORAGE"].batch(2.0, *let_go, stored(WHAT, medium="SHARED_STORAGE"))
    scene["w"].removed(3.0, WHAT, *range(12))
    scene.serve("again", "w", 5.0, WHAT)


def test_shared_storage_is_a_tier_and_no_worker_to_route_to() -> None:
    scene = Scene("w", "SHARED_STORAGE")
    storage(scene)
    verdict = scene.verdict("again")
    assert said(verdict) == ("unknown", "lookup_unseen")
    assert verdict.holders == ()
    assert verdict.holders_tiers == ("remote",)


def test_shared_storage_that_nobody_asked_is_named() -> None:
    scene = Scene("w", "SHARED_STORAGE")
    storage(scene)
    scene.offload("again", 5.0, status="none", found_blocks=0)
    verdict = scene.verdict("again")
    assert said(verdict) == ("tier_unreachable", "")
    assert verdict.lost_tokens == 12 * 16


def test_storage_that_has_been_idle_since_leaves_an_eviction_open() -> None:
    for view, expected in (("complete", ("unknown", "evidence_late")), ("declared", ("evicted", "capacity"))):
        scene = Scene("w", "SHARED_STORAGE", config=f"{{attribution: {{fleet_view: {view}}}}}")
        scene.confirmed = False
        scene.serve("first", "w", 1.0, WHAT)
        scene["SHARED_STORAGE"].batch(2.0, stored(prompt(text(64, "else")), medium="SHARED_STORAGE"))
        scene["w"].removed(3.0, WHAT, *range(12))
        scene.serve("again", "w", 5.0, WHAT)
        scene["w"].stirs(9.0)
        assert said(scene.verdict("again")) == expected
