"""What is late although nothing says so at once, and what only looks late."""

from __future__ import annotations

import msgspec

from tests.test_join import COMPLETE, HOLD, engine, learned, router, timeline
from tests.timeline import Timeline, left, span_of
from whymiss.model import Role


def released_at_22() -> Timeline:
    return learned().at(20).arrive(router, engine).at(22).expect(left(COMPLETE, router, engine))


def test_an_engine_span_that_ran_with_a_released_one_is_another_request() -> None:
    second = span_of(Role.ENGINE, 1, 14)
    released_at_22().at(24).arrive(second).expect().at(32).expect(left(HOLD, second))


def test_a_companion_that_did_not_run_with_the_released_request_is_not_late() -> None:
    later = span_of(Role.ROUTER, 1, 15, start=40, end=41)
    released_at_22().at(45).arrive(later).expect().at(53).expect(left(HOLD, later))


def test_a_request_that_is_open_takes_what_a_released_one_of_the_same_name_would_miss() -> None:
    first, again = (span_of(Role.ENGINE, trace, 20 + trace, request_id="cmpl-7-0") for trace in (2, 5))
    loaded = span_of(Role.OFFLOAD, 3, 22, request_id="1_cmpl-7-0-0123abcd")
    flow = timeline().at(0).arrive(first).at(8).expect(left(HOLD, first))
    flow.at(10).arrive(again).at(11).arrive(loaded).expect().at(18).expect(left(HOLD, loaded, again))


def test_a_linger_does_not_make_a_hold_longer() -> None:
    learned().at(20).arrive(router).at(27).arrive(engine).at(28).expect(left(HOLD, router, engine))


def test_only_a_tiers_links_name_its_requests() -> None:
    linked = msgspec.structs.replace(span_of(Role.ROUTER, 4, 16), linked_trace_ids=(engine.trace_id,))
    timeline().at(0).arrive(engine).at(1).arrive(linked).at(8).expect(left(HOLD, engine)).at(9).expect(
        left(HOLD, linked)
    )
    tier = msgspec.structs.replace(span_of(Role.OFFLOAD, 4, 16), linked_trace_ids=(engine.trace_id,))
    timeline().at(0).arrive(engine).at(1).arrive(tier).at(8).expect(left(HOLD, engine, tier))
