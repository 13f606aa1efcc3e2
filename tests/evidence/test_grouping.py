"""Which of the joined spans are about one lookup, and which half of a pair is judged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.dialects.vllm import request_ids
from whymiss.evidence.requests.grouping import group
from whymiss.model import (
    HALVES,
    EngineRequest,
    Envelope,
    Evidenced,
    GatewayUsage,
    Lookup,
    OffloadOutcome,
    Request,
    ResourceIdentity,
    Role,
    RouteDecision,
    Span,
)

SECOND = 1_000_000_000


def span(
    number: int,
    *says: Evidenced,
    trace: int = 1,
    parent: int = 0,
    start: float = 0.0,
    end: float = 10.0,
    dialect: str = "test",
    links: tuple[int, ...] = (),
) -> Span:
    return Span(
        raw=b"",
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=trace.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big"),
        start_unix_nanos=round(start * SECOND),
        end_unix_nanos=round(end * SECOND),
        flags=0,
        trace_state="",
        role=Role.ENGINE if any(isinstance(said, EngineRequest) for said in says) else Role.ROUTER,
        dialect=dialect,
        says=says,
        resource=ResourceIdentity(),
        spellings=request_ids,
        linked_trace_ids=tuple(link.to_bytes(16, "big") for link in links),
    )


def only(spans: list[Span]) -> Request:
    (request,) = group(spans)[0]
    return request


def numbers(spans: tuple[Span, ...]) -> list[int]:
    return [int.from_bytes(one.span_id, "big") for one in spans]


def owners(spans: list[Span], companion: Span) -> list[int]:
    """The numbers of the engine spans whose request a span is part of."""
    return [
        int.from_bytes(request.subject.span_id, "big")
        for request in group(spans)[0]
        if companion.span_id in {one.span_id for one in request.spans}
    ]


ROUTE = RouteDecision(worker="a")


# --- whose a companion is -----------------------------------------------------------------------


def test_the_only_lookup_of_a_trace_has_all_that_is_there() -> None:
    router, tier = span(2, ROUTE), span(3, OffloadOutcome(status="hit"))
    request = only([span(1, EngineRequest()), router, tier])
    assert (numbers(request.routes), numbers(request.offloads)) == ([2], [3])


def test_a_request_id_goes_before_the_trace() -> None:
    # The inherited context of unrelated requests: one trace, two engine spans.
    mine, other = span(1, EngineRequest(request_id="a")), span(2, EngineRequest(request_id="b"))
    tier = span(3, OffloadOutcome(request_id="a-0123abcd", status="miss"), trace=9)
    assert owners([mine, other, tier], tier) == [1]


def test_an_id_that_ends_in_eight_hex_digits_is_matched_exactly_first() -> None:
    long, short = span(1, EngineRequest(request_id="a-0123abcd")), span(2, EngineRequest(request_id="a"))
    tier = span(3, OffloadOutcome(request_id="a-0123abcd-ffffffff", status="miss"), trace=9)
    assert owners([long, short, tier], tier) == [1]


def test_one_router_span_is_about_all_prompts_of_a_list() -> None:
    engines = [
        span(one, EngineRequest(request_id=f"cmpl-x-{one}"), trace=one) for one in (1, 2, 3)
    ]  # no traceparent: a trace each
    router = span(9, RouteDecision(request_id="x", worker="a"), trace=7)
    assert owners([*engines, router], router) == [1, 2, 3]


def test_a_callers_id_used_twice_is_settled_by_time_or_not_at_all() -> None:
    first = span(1, EngineRequest(request_id="chatcmpl-x"), trace=1, start=0, end=2)
    again = span(2, EngineRequest(request_id="chatcmpl-x"), trace=2, start=5, end=7)
    router = span(9, RouteDecision(request_id="x", worker="a"), trace=7, start=5, end=6)
    whole = span(8, RouteDecision(request_id="x", worker="a"), trace=8, start=0, end=9)
    assert owners([first, again, router], router) == [2]
    assert owners([first, again, whole], whole) == []


def test_of_several_lookups_the_parent_is_about_its_child() -> None:
    engines = [span(1, EngineRequest(), parent=8), span(2, EngineRequest(), parent=9)]
    router = span(9, ROUTE)
    assert owners([*engines, router], router) == [2]


def test_of_several_lookups_a_child_is_about_its_parent() -> None:
    engines = [span(1, EngineRequest()), span(2, EngineRequest())]
    tier = span(9, OffloadOutcome(status="miss"), parent=1)
    assert owners([*engines, tier], tier) == [1]


def test_what_encloses_two_lookups_is_about_neither() -> None:
    engines = [span(1, EngineRequest(), start=1), span(2, EngineRequest(), start=2)]
    wide, narrow = span(8, ROUTE, start=0, end=9), span(9, ROUTE, start=0, end=1.5)
    assert owners([*engines, wide, narrow], wide) == []
    assert owners([*engines, wide, narrow], narrow) == [1]


def test_a_linked_span_is_about_the_request_of_that_trace() -> None:
    tier = span(9, OffloadOutcome(status="timeout"), trace=5, links=(1,))
    assert owners([span(1, EngineRequest()), tier], tier) == [1]


def test_a_count_for_another_prompt_is_not_this_lookups() -> None:
    same = span(8, GatewayUsage(prompt_tokens=100, cached_tokens=64))
    summed = span(9, GatewayUsage(prompt_tokens=300, cached_tokens=64))
    request = only([span(1, EngineRequest(prompt_tokens=100)), same, summed])
    assert numbers(request.gateways) == [8]


# --- what a tier's spans say together -------------------------------------------------------------


def test_a_load_of_nothing_after_a_hit_failed() -> None:
    looked, loaded = span(8, OffloadOutcome(status="hit")), span(9, OffloadOutcome(loaded_blocks=0))
    request = only([span(1, EngineRequest()), looked, loaded])
    assert {said.status for one in request.offloads for said in one.says if isinstance(said, OffloadOutcome)} == {
        "hit",
        "failed",
    }


def test_a_load_of_nothing_after_a_miss_is_nothing() -> None:
    looked, loaded = span(8, OffloadOutcome(status="miss")), span(9, OffloadOutcome(loaded_blocks=0))
    request = only([span(1, EngineRequest()), looked, loaded])
    assert "failed" not in {said.status for one in request.offloads for said in one.says}  # type: ignore[union-attr]


# --- disaggregated pairs ---------------------------------------------------------------------------


def pair(*, told: bool = False) -> tuple[Span, Span]:
    prefill = span(
        1, EngineRequest(request_id="r", prompt_tokens=9, completion_tokens=1, prefill_only=told), start=1, end=2
    )
    decode = span(
        2,
        EngineRequest(request_id="r", prompt_tokens=9, completion_tokens=7, decode_only=told),
        start=3,
        end=9,
    )
    return prefill, decode


def test_of_a_pair_that_says_so_the_prefill_half_is_judged() -> None:
    prefill, decode = pair(told=True)
    requests, loose = group([prefill, decode])
    assert [request.subject for request in requests] == [prefill]
    assert loose == [decode]


def test_a_vllm_pair_is_told_apart_by_its_sidecar() -> None:
    prefill, decode = pair()
    sidecar = [
        span(8, RouteDecision(worker="p", phase="prefill"), start=0.5, end=2.5),
        span(9, RouteDecision(worker="d", phase="decode"), start=2.6, end=9.5),
    ]
    request = only([prefill, decode, *sidecar])
    assert numbers((request.subject,)) == [1]
    assert numbers(request.routes) == [8]
    said = request.subject.says[0]
    assert isinstance(said, EngineRequest)
    assert said.prefill_only


def test_halves_that_run_at_once_are_both_judged() -> None:
    prefill, decode = pair()
    sidecar = [span(number, RouteDecision(phase=phase)) for number, phase in zip((8, 9), HALVES, strict=True)]
    # The second one makes seven tokens, so it is no prefill; the first may be either.
    requests, _ = group([prefill, decode, *sidecar])
    assert len(requests) == 2


def test_the_decode_half_is_judged_where_the_prefill_half_is_missing() -> None:
    _, decode = pair(told=True)
    failed = span(9, OffloadOutcome(status="failed", tier="prefill_worker"))
    request = only([decode, failed])
    assert numbers(request.offloads) == [9]


def test_a_transfer_between_the_halves_is_no_evidence_for_the_prefills_lookup() -> None:
    prefill, decode = pair(told=True)
    failed = span(9, OffloadOutcome(status="failed", tier="prefill_worker"))
    usage = span(8, GatewayUsage(request_id="r", prompt_tokens=9, cached_tokens=8))
    request = only([prefill, decode, failed, usage])
    assert request.offloads == ()
    assert request.gateways == ()


def test_a_framework_around_an_engine_is_not_a_second_lookup() -> None:
    engine = span(1, EngineRequest(prompt_tokens=9), parent=7, start=2, end=3, dialect="vllm")
    outer = span(7, EngineRequest(prompt_tokens=9), start=1, end=4, dialect="dynamo_engine")
    requests, loose = group([outer, engine])
    assert [request.subject for request in requests] == [engine]
    assert loose == [outer]


def test_n_lookups_of_one_request_are_judged_each() -> None:
    engine = span(1, EngineRequest(request_id="r"), start=0, end=9)
    lookups = [span(number, Lookup(request_id=f"{number}_r"), start=1, end=1) for number in (2, 3, 4)]
    requests, _ = group([engine, *lookups])
    assert len(requests) == 3


# --- properties -------------------------------------------------------------------------------------

ids = st.sampled_from([None, "x", "chatcmpl-x", "cmpl-x-0", "cmpl-x-1", "cmpl-x-0-0123abcd"])
saids: st.SearchStrategy[Evidenced] = st.one_of(
    st.builds(EngineRequest, request_id=ids, prompt_tokens=st.sampled_from([None, 9]), prefill_only=st.booleans()),
    st.builds(Lookup, request_id=ids),
    st.builds(RouteDecision, request_id=ids, phase=st.sampled_from([None, "prefill", "decode"])),
    st.builds(OffloadOutcome, request_id=ids, status=st.sampled_from([None, "hit"]), loaded_blocks=st.just(0)),
    st.builds(GatewayUsage, request_id=ids, prompt_tokens=st.sampled_from([None, 8, 9])),
)


@st.composite
def traces(draw: st.DrawFn) -> list[Span]:
    said = draw(st.lists(saids, max_size=9))
    return [
        span(
            number,
            one,
            trace=draw(st.integers(1, 3)),
            parent=draw(st.integers(0, 9)),
            start=draw(st.integers(0, 4)),
            end=draw(st.integers(4, 9)),
            dialect=draw(st.sampled_from(["vllm", "dynamo_engine"])),
        )
        for number, one in enumerate(said, 1)
    ]


@given(traces())
def test_every_span_is_placed_or_loose_and_every_lookup_is_judged_once(spans: list[Span]) -> None:
    requests, loose = group(spans)
    placed = [one.span_id for request in requests for one in request.spans]
    assert {*placed, *(one.span_id for one in loose)} == {one.span_id for one in spans}
    assert not {one.span_id for one in loose} & set(placed)
    subjects = [request.subject.span_id for request in requests]
    assert len(subjects) == len(set(subjects))


def shape(spans: list[Span]) -> set[tuple[bytes, frozenset[bytes]]]:
    return {(request.subject.span_id, frozenset(one.span_id for one in request.spans)) for request in group(spans)[0]}


@given(traces(), st.randoms(use_true_random=False))
def test_companions_do_not_depend_on_the_order_of_spans(spans: list[Span], random: object) -> None:
    # Lookups without an engine span of their own apart: the pairing of equals is free.
    spans = [one for one in spans if not isinstance(one.says[0], Lookup)]
    mixed = list(spans)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert shape(mixed) == shape(spans)


@pytest.mark.parametrize("count", [400])
def test_a_flood_in_one_trace_is_grouped_in_time(count: int) -> None:
    engines = [span(number, EngineRequest(request_id=f"chatcmpl-{number}")) for number in range(1, count)]
    tiers = [
        span(number + count, OffloadOutcome(request_id=f"chatcmpl-{number}", status="miss"), trace=2)
        for number in range(1, count)
    ]
    requests, loose = group([*engines, *tiers])
    assert len(requests) == count - 1
    assert not loose
    assert all(len(request.offloads) == 1 for request in requests)


def test_spans_are_changed_for_a_request_but_never_their_bytes() -> None:
    sidecar = span(9, RouteDecision(phase="decode"), OffloadOutcome(status="failed", tier="prefill_worker"))
    sidecar = msgspec.structs.replace(sidecar, raw=b"bytes")
    request = only([span(1, EngineRequest(decode_only=True)), sidecar])
    assert [one.raw for one in request.routes] == [b"bytes"]
