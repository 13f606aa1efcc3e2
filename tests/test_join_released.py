"""What was released: who is late for it, who is not, and what it teaches."""

from __future__ import annotations

import msgspec
import pytest

from tests.test_join import COMPLETE, HOLD, SHED, engine, learned, of_service, offload, router, timeline
from tests.timeline import Timeline, late, left, span_of
from whymiss.model import Released, Role, Span


def released_at_22() -> Timeline:
    return learned().at(20).arrive(router, engine).at(22).expect(left(COMPLETE, router, engine))


def linked_to(span: Span) -> Span:
    return msgspec.structs.replace(span_of(Role.OFFLOAD, 7, 71), linked_trace_ids=(span.trace_id,))


def last_of(script: Timeline) -> Released:
    (released,) = script.seen
    script.seen = []
    assert isinstance(released, Released)
    return released


def test_a_late_span_of_another_trace_is_known_by_its_link() -> None:
    span = linked_to(engine)
    released_at_22().at(24).arrive(span).expect(late(span))


def test_for_a_request_that_is_forgotten_nobody_is_late() -> None:
    # Nothing was released since, so nothing swept the memory.
    for span in (engine, linked_to(engine)):
        script = timeline().at(0).arrive(engine).at(8).expect(left(HOLD, engine))
        script.at(69).arrive(span).expect().at(77).expect(left(HOLD, span))


def test_a_span_of_a_request_that_is_held_again_is_not_late() -> None:
    linked = linked_to(engine)
    script = learned().at(20).arrive(router, engine).at(22)
    released = last_of(script)
    assert script.joiner.hold_on(released, released.arrived, 22)
    script.at(24).arrive(offload, linked).expect().at(28).expect(left(HOLD, router, engine, offload, linked))


@pytest.mark.parametrize("now", [28, 29])
def test_a_hold_is_no_longer_because_evidence_is_late(now: float) -> None:
    script = learned().at(20).arrive(router, engine).at(22)
    released = last_of(script)
    assert not script.joiner.hold_on(released, released.arrived, now)
    assert script.joiner.held_spans == 0


def test_what_was_shed_is_not_held_again() -> None:
    script = timeline(open_spans_max=1).at(0).arrive(engine, span_of(Role.ENGINE, 2, 21))
    released = last_of(script)
    assert released.reason is SHED
    assert not script.joiner.hold_on(released, released.arrived, 0)
    assert script.joiner.held_spans == 1


def test_where_two_engines_serve_a_request_both_must_have_their_companions() -> None:
    alone, tiered = (of_service(span_of(Role.ENGINE, 90, number), str(number)) for number in (91, 92))
    before = (
        (alone, span_of(Role.ROUTER, 90, 93)),
        (
            msgspec.structs.replace(tiered, trace_id=bytes(15) + b"\x5b"),
            span_of(Role.OFFLOAD, 91, 94),
        ),
    )
    script = timeline().at(0).arrive(*before[0], *before[1]).at(8).expect(*(left(HOLD, *group) for group in before))
    again = (
        of_service(span_of(Role.ENGINE, 1, 12), "91"),
        of_service(span_of(Role.ENGINE, 1, 13), "92"),
        span_of(Role.ROUTER, 1, 14),
    )
    script.at(20).arrive(*again).at(27.9).expect().at(28).expect(left(HOLD, *again))


def test_a_span_that_says_nothing_is_waited_for_by_nobody() -> None:
    silent = msgspec.structs.replace(span_of(Role.ROUTER, 99, 901), says=())
    served = span_of(Role.ENGINE, 99, 902)
    script = timeline().at(0).arrive(silent, served).at(8).expect(left(HOLD, silent, served))
    script.at(20).arrive(engine).at(22).expect(left(COMPLETE, engine))


def test_the_spans_of_a_request_leave_in_their_own_order() -> None:
    began = span_of(Role.ROUTER, 1, 13, start=-1.0)
    for arriving in ((router, began, engine), (engine, router, began)):
        script = timeline().at(0).arrive(*arriving).at(8)
        assert last_of(script).spans == (began, router, engine)
