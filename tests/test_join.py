"""The joiner: what waits for what, and that nothing is lost, kept too long or released twice."""

from __future__ import annotations

import tracemalloc

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.timeline import Timeline, late, left, span_of, summary
from whymiss.config import JoinConfig
from whymiss.join import REMEMBERED_BYTES, SERVICES_MAX, SPAN_OVERHEAD_BYTES, Joiner
from whymiss.model import Half, Late, Released, ReleaseReason, ResourceIdentity, Role, RouteDecision, Span

COMPLETE, HOLD, DRAIN, SHED = ReleaseReason.COMPLETE, ReleaseReason.HOLD, ReleaseReason.DRAIN, ReleaseReason.SHED
CONFIG = JoinConfig(hold_seconds=8, linger_seconds=2, remembered_seconds=60)


def timeline(**changes: float) -> Timeline:
    return Timeline(Joiner(msgspec.structs.replace(CONFIG, **changes)))


def learned() -> Timeline:
    """A joiner that has seen a router and an engine, and whose first hold is over."""
    return (
        timeline()
        .at(0)
        .arrive(span_of(Role.ROUTER, 99, 901), span_of(Role.ENGINE, 99, 902))
        .at(10)
        .expect(left(HOLD, span_of(Role.ROUTER, 99, 901), span_of(Role.ENGINE, 99, 902)))
    )


router, engine, offload = span_of(Role.ROUTER, 1, 11), span_of(Role.ENGINE, 1, 12), span_of(Role.OFFLOAD, 1, 13)


def test_a_complete_request_lingers_and_leaves() -> None:
    learned().at(20).arrive(router).at(21).arrive(engine).at(22.9).expect().at(23).expect(
        left(COMPLETE, router, engine)
    )


def test_the_order_of_arrival_does_not_matter() -> None:
    learned().at(20).arrive(engine).at(21).arrive(router).at(23).expect(left(COMPLETE, router, engine))


def test_a_companion_that_requests_here_have_is_waited_for_until_the_hold_ends() -> None:
    learned().at(20).arrive(engine).at(27.9).expect().at(28).expect(left(HOLD, engine))


def test_nobody_lingers_before_a_first_hold_has_shown_who_comes() -> None:
    timeline().at(0).arrive(engine).at(7.9).expect().at(8).expect(left(HOLD, engine))


def half(trace: int, number: int, phase: Half) -> Span:
    """A sidecar's span around one half of a disaggregated request."""
    return msgspec.structs.replace(span_of(Role.ROUTER, trace, number), says=(RouteDecision(phase=phase),))


def test_both_halves_of_a_disaggregated_request_are_waited_for() -> None:
    prefill, decode, sidecar = span_of(Role.ENGINE, 1, 12), span_of(Role.ENGINE, 1, 14), half(1, 15, "decode")
    learned().at(20).arrive(prefill, sidecar).at(24).arrive(decode).at(25.9).expect().at(26).expect(
        left(COMPLETE, prefill, decode, sidecar)
    )


def test_who_says_which_half_is_whose_is_waited_for_once_seen() -> None:
    first = (span_of(Role.ENGINE, 98, 912), span_of(Role.ENGINE, 98, 913), half(98, 914, "prefill"))
    prefill, decode, sidecar = span_of(Role.ENGINE, 1, 12), span_of(Role.ENGINE, 1, 14), half(1, 15, "decode")
    flow = timeline().at(0).arrive(*first).at(8).expect(left(HOLD, *first))
    flow.at(20).arrive(prefill, decode, router).at(25).expect().arrive(sidecar).at(27).expect(
        left(COMPLETE, router, prefill, decode, sidecar)
    )


def test_a_span_after_release_is_late_not_lost() -> None:
    learned().at(20).arrive(router, engine).at(22).expect(left(COMPLETE, router, engine)).at(24).arrive(offload).expect(
        late(offload)
    )


def test_a_repeated_span_after_release_is_late_too() -> None:
    learned().at(20).arrive(router, engine).at(22).expect(left(COMPLETE, router, engine)).arrive(engine).expect(
        late(engine)
    )


def test_another_request_of_the_same_trace_is_not_late() -> None:
    # An agent's trace holds many requests, minutes apart.
    second = span_of(Role.ENGINE, 1, 14, start=40, end=41)
    (
        learned()
        .at(20)
        .arrive(router, engine)
        .at(22)
        .expect(left(COMPLETE, router, engine))
        .at(45)
        .arrive(second)
        .at(53)
        .expect(left(HOLD, second))
    )


def test_spans_of_two_traces_meet_by_request_id() -> None:
    served = span_of(Role.ENGINE, 2, 21, request_id="cmpl-7-0")
    loaded = span_of(Role.OFFLOAD, 3, 22, request_id="1_cmpl-7-0-0123abcd")
    timeline().at(0).arrive(served).at(3).arrive(loaded).at(8).expect(left(HOLD, served, loaded))


def test_two_groups_that_turn_out_to_be_one_are_merged() -> None:
    one = span_of(Role.ROUTER, 4, 31, request_id="a")
    other = span_of(Role.OFFLOAD, 5, 32, request_id="b")
    link = msgspec.structs.replace(
        span_of(Role.ENGINE, 4, 33, request_id="b"),
    )
    timeline().at(0).arrive(one, other).at(1).arrive(link).at(8).expect(left(HOLD, one, other, link))


def test_a_repeated_span_is_held_once_and_counted() -> None:
    script = timeline().at(0).arrive(engine).at(1).arrive(engine)
    assert script.joiner.duplicates == 1
    script.at(8).expect(left(HOLD, engine))


def test_over_the_limit_the_oldest_leave_first() -> None:
    first, second, third = (span_of(Role.ENGINE, trace, trace) for trace in (1, 2, 3))
    timeline(open_spans_max=2).at(0).arrive(first).at(1).arrive(second).at(2).arrive(third).expect(left(SHED, first))


def test_bytes_are_bounded_as_spans_are() -> None:
    first, second = span_of(Role.ENGINE, 1, 500), span_of(Role.ENGINE, 2, 500)
    limit = 500 + SPAN_OVERHEAD_BYTES + 1
    timeline(open_bytes_max=limit).at(0).arrive(first).expect().arrive(second).expect(left(SHED, first))


def test_drain_lets_everything_go_oldest_first() -> None:
    first, second = span_of(Role.ENGINE, 1, 1), span_of(Role.ENGINE, 2, 2)
    timeline().at(0).arrive(first).at(1).arrive(second).drain().expect(left(DRAIN, first), left(DRAIN, second))


def test_a_request_whose_evidence_is_late_may_wait_out_its_hold() -> None:
    script = learned().at(20).arrive(router, engine).at(22)
    (released,) = script.seen
    assert isinstance(released, Released)
    script.expect(left(COMPLETE, router, engine))
    assert script.joiner.hold_on(released, released.arrived, 22)
    script.at(27.9).expect().at(28).expect(left(HOLD, router, engine))


def test_a_hold_that_is_over_is_not_extended() -> None:
    script = timeline().at(0).arrive(engine).at(8)
    (released,) = script.seen
    assert isinstance(released, Released)
    script.expect(left(HOLD, engine))
    assert not script.joiner.hold_on(released, released.arrived, 8)


def test_a_flood_in_one_trace_is_held_once_each() -> None:
    spans = [span_of(Role.OFFLOAD, 1, number) for number in range(1, 500)]
    script = timeline().at(0).arrive(*spans, *spans)
    assert (script.joiner.held_spans, script.joiner.duplicates) == (499, 499)
    script.at(8).expect(left(HOLD, *spans))


def test_a_repeated_span_that_brings_other_names_leaves_no_trace_of_them() -> None:
    first, again = span_of(Role.ENGINE, 1, 1), span_of(Role.ENGINE, 1, 1, request_id="a")
    other = span_of(Role.ENGINE, 2, 2, request_id="a", start=30, end=31)
    script = timeline().at(0).arrive(first, again).at(8).expect(left(HOLD, first))
    script.at(30).arrive(other).at(38).expect(left(HOLD, other))
    assert not script.joiner._by_request


# --- who is waited for, and for whom one comes too late ---------------------------------------------


def of_service(span: Span, name: str) -> Span:
    return msgspec.structs.replace(span, resource=ResourceIdentity(service_name=name))


def test_companions_are_learned_for_each_service() -> None:
    # One service sits behind a router, the other does not: nobody waits for a router that never comes.
    routed, alone = of_service(engine, "routed"), of_service(span_of(Role.ENGINE, 2, 22), "alone")
    first = (router, routed), (of_service(span_of(Role.ENGINE, 9, 92), "alone"),)
    script = timeline().at(0).arrive(*first[0], *first[1]).at(8).expect(left(HOLD, *first[0]), left(HOLD, *first[1]))
    later = of_service(span_of(Role.ENGINE, 3, 33, start=19, end=20), "routed")
    script.at(20).arrive(alone, later).at(22).expect(left(COMPLETE, alone)).at(28).expect(left(HOLD, later))


def test_a_companion_that_came_late_is_waited_for_the_next_time() -> None:
    script = learned().at(20).arrive(router, engine).at(22).expect(left(COMPLETE, router, engine))
    script.at(23).arrive(offload).expect(late(offload))
    pair = span_of(Role.ROUTER, 2, 21), span_of(Role.ENGINE, 2, 22)
    script.at(30).arrive(*pair).at(37.9).expect().at(38).expect(left(HOLD, *pair))


def test_a_companion_that_comes_no_more_is_forgotten() -> None:
    pair = span_of(Role.ROUTER, 2, 21), span_of(Role.ENGINE, 2, 22)
    script = learned().at(20).arrive(offload, engine).at(28).expect(left(HOLD, offload, engine))
    script.at(100).arrive(*pair).at(102).expect(left(COMPLETE, *pair))


def test_an_offload_span_is_joined_by_its_link_to_the_request() -> None:
    linked = msgspec.structs.replace(span_of(Role.OFFLOAD, 7, 71), linked_trace_ids=(engine.trace_id,))
    timeline().at(0).arrive(engine).at(1).arrive(linked).at(8).expect(left(HOLD, engine, linked))
    timeline().at(0).arrive(linked).at(1).arrive(engine).at(8).expect(left(HOLD, engine, linked))


def test_a_span_with_many_links_is_joined_to_none() -> None:
    # A batch that worked for a hundred requests would make one group of all of them.
    links = tuple(number.to_bytes(16, "big") for number in range(1, 101))
    linked = msgspec.structs.replace(span_of(Role.OFFLOAD, 7, 71), linked_trace_ids=links)
    timeline().at(0).arrive(engine, linked).at(8).expect(left(HOLD, engine), left(HOLD, linked))


def test_a_routers_id_meets_the_id_that_the_engine_made_of_it() -> None:
    served = span_of(Role.ENGINE, 2, 21, request_id="chatcmpl-x")
    prompted = span_of(Role.ENGINE, 3, 31, request_id="cmpl-y-0")
    chat, completion = span_of(Role.ROUTER, 4, 41, request_id="x"), span_of(Role.ROUTER, 5, 51, request_id="y")
    script = timeline().at(0).arrive(served, completion).at(1).arrive(chat, prompted)
    script.at(8).expect(left(HOLD, served, chat), left(HOLD, prompted, completion))


def test_a_late_span_of_another_trace_is_known_by_its_request_id_and_not_held() -> None:
    served = span_of(Role.ENGINE, 2, 21, request_id="chatcmpl-x")
    closed = span_of(Role.OFFLOAD, 3, 31, request_id="chatcmpl-x-0123abcd", end=20)
    timeline().at(0).arrive(served).at(8).expect(left(HOLD, served)).at(20).arrive(closed).expect(late(closed))


def test_a_request_id_that_is_used_again_later_makes_nobody_late() -> None:
    served = span_of(Role.ENGINE, 2, 21, request_id="chatcmpl-x")
    again = span_of(Role.OFFLOAD, 3, 31, request_id="chatcmpl-x-0123abcd", start=15, end=16)
    script = timeline().at(0).arrive(served).at(8).expect(left(HOLD, served))
    script.at(20).arrive(again).expect().at(28).expect(left(HOLD, again))


def test_services_are_forgotten_rather_than_kept_without_end() -> None:
    joiner = Joiner(CONFIG)
    joiner.accept([of_service(span_of(Role.ENGINE, 1, number), str(number)) for number in range(1, 3000)], 0.0)
    joiner.expire(8.0)
    assert len(joiner._habits) == SERVICES_MAX


# --- properties ---------------------------------------------------------------------------------

ROLES = [Role.ENGINE, Role.ROUTER, Role.OFFLOAD]
spans = st.builds(
    span_of,
    st.sampled_from(ROLES),
    st.integers(1, 6),
    st.integers(1, 40),
    request_id=st.sampled_from([None, "a", "b", "a-0123abcd"]),
    start=st.floats(0, 50),
    end=st.floats(50, 100),
)
steps = st.lists(st.tuples(st.floats(0, 5), st.lists(spans, max_size=4)), max_size=25)


def identity(span: Span) -> tuple[bytes, bytes]:
    return span.trace_id, span.span_id


@given(steps, st.integers(1, 12))
def test_every_span_leaves_and_none_of_a_group_leaves_twice(script: list[tuple[float, list[Span]]], limit: int) -> None:
    joiner = Joiner(msgspec.structs.replace(CONFIG, open_spans_max=limit))
    now = 0.0
    outcomes = []
    came: set[tuple[bytes, bytes]] = set()
    for pause, arriving in script:
        now += pause
        outcomes += joiner.expire(now)
        deadline = joiner.next_deadline
        assert deadline is None or deadline > now, "no overdue deadline after expire"
        outcomes += joiner.accept(arriving, now)
        came.update(identity(span) for span in arriving)
        assert joiner.held_spans <= limit
    outcomes += joiner.drain()
    assert (joiner.held_spans, joiner.held_bytes, joiner.open_groups, joiner.next_deadline) == (0, 0, 0, None)
    gone: list[tuple[bytes, bytes]] = []
    for outcome in outcomes:
        if isinstance(outcome, Released):
            members = [identity(span) for span in outcome.spans]
            assert len(members) == len(set(members))
            gone += members
        else:
            gone.append(identity(outcome.span))
    assert set(gone) == came


@given(
    st.permutations([router, engine, offload, span_of(Role.OFFLOAD, 1, 15)]),
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
    st.data(),
)
def test_any_order_split_and_repetition_within_the_hold_releases_the_same(
    order: list[Span], pauses: list[float], data: st.DataObject
) -> None:
    script = timeline().at(0)
    for pause, span in zip(pauses, order, strict=True):
        script.at(script.now + pause).arrive(*[span] * data.draw(st.integers(1, 3)))
    outcomes = script.joiner.drain()
    assert summary(outcomes) == [left(DRAIN, *order)]


@given(steps)
def test_late_spans_are_handed_back_at_once(script: list[tuple[float, list[Span]]]) -> None:
    joiner = Joiner(CONFIG)
    now = 0.0
    for pause, arriving in script:
        now += pause
        joiner.expire(now)
        held = joiner.held_spans + joiner.duplicates
        outcomes = joiner.accept(arriving, now)
        returned = sum(isinstance(outcome, Late) for outcome in outcomes)
        assert joiner.held_spans + joiner.duplicates == held + len(arriving) - returned


def test_the_oldest_group_is_the_one_that_began_first_and_is_still_held() -> None:
    joiner = Joiner(CONFIG)
    assert joiner.oldest_arrived is None
    joiner.accept([span_of(Role.ENGINE, 1, 12)], 3)
    joiner.accept([span_of(Role.ENGINE, 2, 22)], 5)
    assert joiner.oldest_arrived == 3
    joiner.expire(11)
    assert joiner.oldest_arrived == 5
    joiner.drain()
    assert joiner.oldest_arrived is None


def test_what_is_remembered_goes_when_its_time_is_over_and_is_counted_meanwhile() -> None:
    joiner = Joiner(CONFIG)
    for number in range(300):
        at = float(number)
        joiner.expire(at)
        joiner.accept([span_of(Role.ENGINE, number + 1, number + 1)], at)
    held = 8 + 60 + 1  # those released in the last minute, at the end of their hold
    assert 60 * REMEMBERED_BYTES <= joiner.remembered_bytes <= 2 * held * REMEMBERED_BYTES


def test_the_memory_of_a_request_is_counted_as_no_less_than_it_takes() -> None:
    spans = [span_of(Role.ENGINE, number + 1, number + 1) for number in range(2000)]
    joiner = Joiner(msgspec.structs.replace(CONFIG, hold_seconds=0, linger_seconds=0))
    joiner.accept(spans, 0.0)
    tracemalloc.start()
    try:
        released = len(joiner.expire(1.0))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert released == len(spans)
    assert taken < joiner.remembered_bytes


def test_a_late_span_that_says_nothing_is_not_waited_for_from_then_on() -> None:
    mute = msgspec.structs.replace(offload, says=())
    flow = learned().at(20).arrive(router, engine).at(22).expect(left(COMPLETE, router, engine)).arrive(mute)
    second = (span_of(Role.ROUTER, 2, 21, start=30, end=31), span_of(Role.ENGINE, 2, 22, start=30, end=31))
    flow.expect(late(mute)).at(30).arrive(*second).at(32).expect(left(COMPLETE, *second))
