"""Spans that look as if they belonged to a lookup and do not, and those that do although they look strange."""

from __future__ import annotations

import msgspec
import pytest

from tests.evidence.test_grouping import only, owners, span
from whymiss.evidence.requests.disaggregation import halves_of
from whymiss.evidence.requests.grouping import group
from whymiss.evidence.requests.report import engine_says, lookup_bounds
from whymiss.model import SECOND, EngineRequest, Lookup, OffloadOutcome, RouteDecision, Span

PREFILL, DECODE = RouteDecision(worker="a", phase="prefill"), RouteDecision(worker="a", phase="decode")


def pairs(*spans: Span) -> dict[int, int | None]:
    """Which lookup each engine span has, by number; a lookup alone is its own."""
    requests, _ = group(list(spans))
    found: dict[int, int | None] = {}
    for request in requests:
        looked = None if request.lookup is None else int.from_bytes(request.lookup.span_id, "big")
        found[int.from_bytes(request.subject.span_id, "big")] = looked
    return found


# --- bounds ----------------------------------------------------------------------------------------


def bounds(said: EngineRequest, *, end: float = 10.0) -> tuple[float, float, float]:
    earliest, latest, first_token = lookup_bounds(span(1, said, end=end), said)
    return earliest / SECOND, latest / SECOND, first_token / SECOND


def test_a_lookup_is_after_the_queue_and_before_the_prefill() -> None:
    said = EngineRequest(queue_seconds=1.0, prefill_seconds=2.0, first_token_seconds=4.0)
    assert bounds(said) == (1.0, 2.0, 4.0)


def test_a_first_token_is_not_after_the_end() -> None:
    assert bounds(EngineRequest(first_token_seconds=12.0)) == (0.0, 10.0, 10.0)
    assert bounds(EngineRequest()) == (0.0, 10.0, 10.0)


def test_latencies_that_contradict_each_other_leave_a_moment_and_no_negative_interval() -> None:
    said = EngineRequest(queue_seconds=3.0, prefill_seconds=3.0, first_token_seconds=4.0)
    assert bounds(said) == (3.0, 3.0, 4.0)


# --- lookups and engine spans ----------------------------------------------------------------------

FAST = EngineRequest(queue_seconds=0.0, prefill_seconds=1.0, first_token_seconds=2.0)


def test_a_lookup_of_another_id_is_another_requests_though_time_and_trace_fit() -> None:
    engine = span(1, EngineRequest(request_id="a"))
    assert pairs(engine, span(2, Lookup(request_id="b"), start=1)) == {1: None, 2: 2}


def test_without_ids_another_trace_is_another_request() -> None:
    assert pairs(span(1, EngineRequest()), span(2, Lookup(), start=1, trace=9)) == {1: None, 2: 2}


@pytest.mark.parametrize(("start", "fits"), [(-1.0, False), (0.5, True), (1.5, True), (2.5, False)])
def test_a_lookup_fits_between_the_arrival_and_the_first_token(start: float, fits: bool) -> None:
    engine, lookup = span(1, FAST, start=10, end=20), span(2, Lookup(), start=start + 10)
    assert pairs(engine, lookup) == ({1: 2} if fits else {1: None, 2: 2})


def test_of_two_requests_with_one_id_the_bounds_choose() -> None:
    early = span(1, EngineRequest(request_id="a", prefill_seconds=1.0, first_token_seconds=2.0), start=0)
    late = span(2, EngineRequest(request_id="a", prefill_seconds=1.0, first_token_seconds=5.0), start=0)
    lookup = span(3, Lookup(request_id="a"), start=3.0)
    assert pairs(early, late, lookup) == {1: None, 2: 3}


def test_a_step_that_looks_up_many_may_begin_before_a_lookup() -> None:
    # The lookup comes after the latest moment that the latencies give, and before the first token.
    assert pairs(span(1, FAST), span(2, Lookup(), start=1.5)) == {1: 2}


def test_elimination_settles_what_fits_two() -> None:
    both, one = span(1, EngineRequest(first_token_seconds=9.0)), span(2, EngineRequest(first_token_seconds=2.0))
    early, late = span(3, Lookup(), start=1.0), span(4, Lookup(), start=5.0)
    assert pairs(both, one, early, late) == {1: 4, 2: 3}


# --- what tiers say --------------------------------------------------------------------------------


def test_a_load_of_nothing_of_what_was_just_found_failed() -> None:
    engine = span(1, EngineRequest())
    found = span(2, OffloadOutcome(status="hit", found_blocks=8))

    def status(loaded: OffloadOutcome, first: OffloadOutcome | None = None) -> list[str | None]:
        other = found if first is None else span(2, first)
        request = only([engine, other, span(3, loaded)])
        said = [said for one in request.offloads for said in one.says if isinstance(said, OffloadOutcome)]
        return [one.status for one in said]

    assert status(OffloadOutcome(loaded_blocks=0)) == ["hit", "failed"]
    assert status(OffloadOutcome(loaded_blocks=2)) == ["hit", None]
    assert status(OffloadOutcome(status="failed", loaded_blocks=0)) == ["hit", "failed"]
    assert status(OffloadOutcome(loaded_blocks=0), OffloadOutcome(status="hit", tier="prefill_worker"))[1] is None


# --- halves and wrappers ---------------------------------------------------------------------------


def side(*spans: Span) -> dict[int, str]:
    listed = list(spans)
    engines = [one for one in listed if engine_says(one) is not None]
    found = halves_of(engines, listed)
    return {int.from_bytes(span_id, "big"): half for (_, span_id), half in found.of.items()}


def test_a_parent_of_both_phases_says_neither() -> None:
    router = span(9, PREFILL, DECODE, start=-1, end=-0.5)
    assert side(router, span(1, EngineRequest(), parent=9)) == {}
    assert side(span(9, PREFILL, start=-1, end=-0.5), span(1, EngineRequest(), parent=9)) == {1: "prefill"}


def test_two_phases_around_an_engine_say_neither() -> None:
    engine = span(1, EngineRequest(), start=1, end=2)
    assert side(span(8, PREFILL), span(9, DECODE), engine) == {}
    assert side(span(8, PREFILL), span(9, DECODE, start=5), engine) == {1: "prefill"}


def test_a_prefill_half_makes_one_token() -> None:
    assert side(span(8, PREFILL), span(1, EngineRequest(completion_tokens=1), start=1, end=2)) == {1: "prefill"}
    assert side(span(8, PREFILL), span(1, EngineRequest(completion_tokens=20), start=1, end=2)) == {}


def wrapped(outer: Span, inner: Span) -> list[int]:
    return sorted(int.from_bytes(one.subject.span_id, "big") for one in group([outer, inner])[0])


def test_a_framework_around_an_engine_is_no_lookup_of_its_own() -> None:
    inner = span(2, EngineRequest(prompt_tokens=64), start=1, end=9, dialect="engine")
    assert wrapped(span(1, EngineRequest(prompt_tokens=64), dialect="frame"), inner) == [2]
    assert wrapped(span(1, EngineRequest(prompt_tokens=80), dialect="frame"), inner) == [1, 2]
    assert wrapped(span(1, EngineRequest(prompt_tokens=64), dialect="engine"), inner) == [1, 2]


# --- companions ------------------------------------------------------------------------------------


def test_of_lookups_with_one_id_that_of_the_own_trace_is_meant() -> None:
    here = span(1, EngineRequest(request_id="a"), trace=1)
    there = span(2, EngineRequest(request_id="a"), trace=2)
    router = span(9, RouteDecision(request_id="a", worker="w"), trace=2)
    assert owners([here, there, router], router) == [2]


def test_what_an_engine_says_of_its_tier_is_about_its_own_request() -> None:
    one = span(1, EngineRequest(request_id="a"), OffloadOutcome(status="miss"))
    other = span(2, EngineRequest(request_id="a"))
    assert owners([one, other], one) == [1]


def test_an_exact_id_is_better_than_one_that_an_engine_made_of_it() -> None:
    served = span(1, EngineRequest(request_id="chatcmpl-r"), trace=1)
    exact = span(2, EngineRequest(request_id="r"), trace=2)
    router = span(9, RouteDecision(request_id="r", worker="w"), trace=9)
    assert owners([served, exact, router], router) == [2]
    assert owners([served, router], router) == [1]


def test_a_lookup_that_fits_two_requests_belongs_to_neither_although_no_other_fits_them() -> None:
    # One of them has lost its own.
    engines = span(1, EngineRequest()), span(2, EngineRequest())
    assert pairs(*engines, span(3, Lookup(), start=1)) == {1: None, 2: None, 3: 3}


@pytest.mark.parametrize("first", ["outer", "inner"])
def test_a_lookup_inside_a_wrapper_is_that_of_the_engine_that_it_wraps(first: str) -> None:
    outer = span(1, EngineRequest(prompt_tokens=64), dialect="frame")
    inner = span(2, EngineRequest(prompt_tokens=64), start=1, end=9, dialect="engine")
    lookup = span(3, Lookup(), start=2)
    assert pairs(*((outer, inner) if first == "outer" else (inner, outer)), lookup) == {2: 3}


def test_a_lookup_that_goes_by_a_wrappers_id_is_no_request_of_its_own() -> None:
    outer = span(1, EngineRequest(request_id="a", prompt_tokens=64), dialect="frame")
    inner = span(2, EngineRequest(request_id="b", prompt_tokens=64), start=1, end=9, dialect="engine")
    assert pairs(outer, inner, span(3, Lookup(request_id="a"), start=2)) == {2: None}


def test_a_lookup_that_may_be_the_decode_halfs_is_not_the_prefill_halfs() -> None:
    prefill = span(1, EngineRequest(prefill_only=True))
    decode = span(2, EngineRequest(decode_only=True))
    assert pairs(prefill, decode, span(3, Lookup(), start=5), span(4, Lookup(), start=1)) == {1: None, 3: 3, 4: 4}
    short = span(1, EngineRequest(prefill_only=True), end=2)
    assert pairs(short, decode, span(3, Lookup(), start=5), span(4, Lookup(), start=1)) == {1: 4}


def test_of_two_requests_with_one_id_that_is_meant_whose_prefill_had_not_begun() -> None:
    waits = span(1, EngineRequest(request_id="a", prefill_seconds=1.0, first_token_seconds=5.0))
    computes = span(2, EngineRequest(request_id="a", prefill_seconds=4.0, first_token_seconds=5.0))
    assert pairs(waits, computes, span(3, Lookup(request_id="a"), start=3.0)) == {1: 3, 2: None}


def test_a_span_that_says_both_has_its_lookup_and_takes_no_other() -> None:
    assert pairs(span(1, EngineRequest(), Lookup()), span(2, Lookup(), start=1)) == {1: 1, 2: 2}


def test_only_the_lookup_that_admitted_a_request_is_one() -> None:
    assert pairs(span(1, EngineRequest()), span(2, Lookup(preempted=True), start=1)) == {1: None}


def test_a_decode_half_without_its_own_prefill_half_is_judged() -> None:
    prefill, decode = span(1, EngineRequest(prefill_only=True)), span(2, EngineRequest(decode_only=True), trace=2)
    assert pairs(prefill, decode) == {1: None, 2: None}
    assert pairs(prefill, msgspec.structs.replace(decode, trace_id=prefill.trace_id)) == {1: None}


def test_without_ids_two_decode_halves_of_one_trace_have_no_prefill_half_for_sure() -> None:
    prefill = span(1, EngineRequest(prefill_only=True))
    decodes = [span(number, EngineRequest(decode_only=True)) for number in (2, 3)]
    assert pairs(prefill, *decodes) == {1: None, 2: None, 3: None}
