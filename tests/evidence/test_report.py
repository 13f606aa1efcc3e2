"""What must be known of a record before a count, a cost or a choice among readings is said."""

from __future__ import annotations

import pytest

from tests.evidence.test_grouping import span
from whymiss.evidence.hypotheses import Reading
from whymiss.evidence.missed import HELD, gap_after, leading, matchable
from whymiss.evidence.requests.report import RequestReport, lookup_bounds, offload_of, request_end
from whymiss.model import EngineRequest, Fact, GatewayUsage, OffloadOutcome, Reason, Request, Residency

HOLE = Reason.EVENTS_DROPPED


def facts_of(*states: Residency) -> list[Fact]:
    return [Fact(state=state) for state in states]


@pytest.mark.parametrize(
    ("state", "whole", "holed"),
    [
        (Residency.AMBIGUOUS, Reason.AMBIGUOUS_COPIES, Reason.AMBIGUOUS_COPIES),
        (Residency.UNKNOWN, Reason.EVENTS_DROPPED, Reason.HISTORY_SHORT),
        (Residency.NEVER_SEEN, Reason.NONE, Reason.HISTORY_SHORT),
        (Residency.EVICTED, Reason.NONE, Reason.NONE),
        (Residency.RESIDENT, Reason.NONE, Reason.NONE),
    ],
)
def test_what_ends_a_row_of_held_blocks_may_hide_a_further_one(state: Residency, whole: Reason, holed: Reason) -> None:
    states = facts_of(Residency.RESIDENT, state)
    assert gap_after(states, 1, Reason.NONE) is whole
    assert gap_after(states, 1, Reason.HISTORY_SHORT) is holed
    assert gap_after(states, 2, Reason.HISTORY_SHORT) is Reason.NONE


def test_only_the_first_blocks_are_counted() -> None:
    assert leading(facts_of(Residency.RESIDENT, Residency.EVICTED, Residency.RESIDENT), HELD) == 1


@pytest.mark.parametrize(
    ("prompt_tokens", "chain", "kept", "complete"),
    [
        (64, 3, 3, True),
        (65, 4, 4, True),
        (64, 4, 3, True),
        (80, 3, 3, False),
        (10, 2, 1, True),
    ],
)
def test_the_block_of_the_last_token_cannot_match(prompt_tokens: int, chain: int, kept: int, complete: bool) -> None:
    reading = Reading(
        stream=None, cached_tokens=0, block_size=16, first=0, chain=tuple(range(chain)), earliest=0, latest=0
    )
    assert matchable(reading, prompt_tokens) == (tuple(range(kept)), complete)


def gateways(*counts: int | None) -> Request:
    spans = tuple(span(10 + at, GatewayUsage(cached_tokens=count)) for at, count in enumerate(counts))
    return Request(engine=span(1, EngineRequest()), lookup=None, routes=(), offloads=(), gateways=spans)


def test_gateways_that_disagree_report_no_count() -> None:
    assert RequestReport.of(gateways(32, None, 32)).reported_cached == 32
    assert RequestReport.of(gateways(32, 48)).reported_cached is None
    assert RequestReport.of(gateways(None)).reported_cached is None


def test_the_worst_that_a_tier_says_is_what_counts() -> None:
    hit = OffloadOutcome(status="hit", found_blocks=8, loaded_blocks=8)
    short = OffloadOutcome(status="hit", found_blocks=8, loaded_blocks=2)
    failed, slow = OffloadOutcome(status="failed"), OffloadOutcome(status="timeout")
    for worst, others in ((short, [hit]), (failed, [hit, short]), (slow, [hit, short, failed])):
        for said in ([worst, *others], [*others, worst]):
            assert offload_of([span(at, one) for at, one in enumerate(said, 1)]) == worst
    assert offload_of([]) is None


def test_a_span_that_ends_at_its_set_up_bounds_neither_the_first_token_nor_the_request() -> None:
    said = EngineRequest(first_token_seconds=2.0, first_token_after_end=True, decode_seconds=3.0)
    one = span(1, said, start=1, end=4)
    second = 1_000_000_000
    start, end = one.start_unix_nanos, one.end_unix_nanos
    assert lookup_bounds(one, said) == (start, end + 2 * second, end + 2 * second)
    assert request_end(one, said) == end + 5 * second
    assert request_end(one, EngineRequest(first_token_seconds=2.0, decode_seconds=3.0)) == end
