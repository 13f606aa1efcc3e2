"""Who else could have stored a chain: what is remembered of requests."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from whymiss.evidence.requests.companions import BUCKETS, Companion, Companions
from whymiss.evidence.requests.request_log import LIFE_BYTES, RequestLog
from whymiss.model import (
    SECOND,
    EngineRequest,
    Envelope,
    Lookup,
    OffloadOutcome,
    ResourceIdentity,
    Role,
    RouteDecision,
    Span,
)

KEEP = 600 * SECOND


def span(number: int, start: float, end: float, says: EngineRequest | Lookup | RouteDecision | OffloadOutcome) -> Span:
    return Span(
        raw=b"",
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=bytes(16),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=b"",
        start_unix_nanos=round(start * SECOND),
        end_unix_nanos=round(end * SECOND),
        flags=0,
        trace_state="",
        role=Role.ENGINE,
        dialect="vllm",
        says=(says,),
        resource=ResourceIdentity(),
    )


def noted(*lives: tuple[float, float, int, int]) -> RequestLog:
    """Requests by (arrival, first token after it, prompt tokens, generated tokens), alive a second longer."""
    recent = RequestLog(KEEP)
    for number, (start, first, prompt, generated) in enumerate(lives):
        said = EngineRequest(
            prompt_tokens=prompt, completion_tokens=generated, first_token_seconds=first, prefill_seconds=first
        )
        recent.note("w", span(number, start, start + first + 1, said), said)
    return recent


def at(seconds: float) -> int:
    return round(seconds * SECOND)


SUBJECT = span(99, 0, 1, EngineRequest())


def test_prefills_at_a_moment_are_known_by_their_bounds() -> None:
    recent = noted((10.0, 1.0, 100, 1), (10.5, 1.0, 100, 1))
    assert recent.prefilling("w", at(10.7)) == [at(11.0), at(11.5)]
    assert recent.prefilling("w", at(11.2)) == [at(11.5)], "the first has its token"
    assert recent.prefills_began("w", at(11.3)) == at(10.5)
    assert recent.prefills_began("w", at(10.9)) == at(10.0)
    assert recent.prefills_began("w", at(50.0)) is None


@given(st.permutations([(10.0, 1.0, 170, 1), (10.2, 1.0, 175, 1), (10.4, 9.0, 170, 1), (9.0, 2.0, 171, 1)]))
def test_the_order_of_arrival_does_not_matter(lives: list[tuple[float, float, int, int]]) -> None:
    assert noted(*lives).prefilling("w", at(10.5)) == [at(11.0), at(11.0), at(11.2), at(19.4)]


def test_a_span_that_comes_twice_is_one_request() -> None:
    said = EngineRequest(prompt_tokens=170, first_token_seconds=1.0, prefill_seconds=1.0)
    recent = RequestLog(KEEP)
    for _ in range(2):
        recent.note("w", span(1, 10.0, 12.0, said), said)
    assert recent.prefilling("w", at(10.5)) == [at(11.0)]


def test_requests_of_a_day_do_not_stay() -> None:
    recent = noted(*[(10.0 * number, 1.0, 100, 1) for number in range(1000)])
    assert len(recent._lives["w"]) < 3 * KEEP // (10 * SECOND)


# --- companions -----------------------------------------------------------------------------------


def test_a_companion_is_expected_while_others_have_it() -> None:
    companions = Companions(KEEP)
    assert not companions.expected(Companion.PROMISE, "w", at(10.0))
    companions.note(span(1, 10.0, 10.1, RouteDecision(predicted_blocks=0)), None)
    assert companions.expected(Companion.PROMISE, "w", at(11.0))
    assert companions.expected(Companion.PROMISE, "w", at(9.0)), "whichever came first"
    assert not companions.expected(Companion.PROMISE, "w", at(10.0 + 3 * 600))
    assert not companions.expected(Companion.OFFLOAD, "w", at(11.0))


def test_a_router_that_promises_nothing_lets_nothing_be_expected() -> None:
    companions = Companions(KEEP)
    companions.note(span(1, 10.0, 10.1, RouteDecision(worker="w")), None)
    assert not companions.expected(Companion.PROMISE, "w", at(11.0))


def test_lookups_are_expected_of_their_own_worker_only() -> None:
    companions = Companions(KEEP)
    companions.note(span(1, 10.0, 10.1, Lookup(prompt_tokens=1)), "w")
    assert companions.expected(Companion.LOOKUP, "w", at(11.0))
    assert not companions.expected(Companion.LOOKUP, "other", at(11.0))


def test_what_is_remembered_of_companions_is_bounded() -> None:
    companions = Companions(KEEP)
    for second in range(0, 100_000, 5):
        companions.note(span(1, second, second + 0.1, OffloadOutcome(status="hit")), None)
    assert len(companions._seen[Companion.OFFLOAD, None]) <= 2 * BUCKETS + 1
    assert companions.expected(Companion.OFFLOAD, None, at(99_999.0))


def test_lives_are_counted_as_no_less_than_they_take_and_the_oldest_go_beyond_the_most() -> None:
    said = EngineRequest(prompt_tokens=100, completion_tokens=10, first_token_seconds=0.1, prefill_seconds=0.1)
    spans = [span(number, number / 1000, number / 1000 + 1, said) for number in range(3000)]
    recent = RequestLog(KEEP, lives_max=2000)
    tracemalloc.start()
    try:
        for one in spans[:2000]:
            recent.note("w", one, said)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < recent.nbytes == 2000 * LIFE_BYTES
    for number, one in enumerate(spans[2000:]):
        recent.note("w" if number % 2 else "v", one, said)
        assert recent.nbytes <= 2000 * LIFE_BYTES
    # Of the newest nothing is forgotten.
    assert recent.prefilling("w", spans[-1].start_unix_nanos)[-1] > spans[-1].start_unix_nanos
    assert recent.prefills_began("w", round(0.05 * SECOND)) is None


def test_who_had_come_and_had_no_token_yet_may_have_stored() -> None:
    # Looked up at the latest at 10.5, at 12 and at 13: the second waits, the third has not come.
    said = [
        EngineRequest(prompt_tokens=64, first_token_seconds=first, prefill_seconds=prefill)
        for first, prefill in ((1.0, 0.5), (3.0, 1.0), (1.0, 1.0))
    ]
    recent = RequestLog(KEEP)
    for number, (start, one) in enumerate(zip((10.0, 10.0, 13.0), said, strict=True)):
        recent.note("w", span(number, start, start + 9, one), one)
    stored = [[life.span_id[-1] for life in recent.may_have_stored("w", at(when))] for when in (9.9, 10.9, 11.5, 13.0)]
    assert stored == [[], [0, 1], [1], [1, 2]]


def test_room_is_made_in_work_that_the_number_of_workers_does_not_change() -> None:
    said = EngineRequest(prompt_tokens=100, completion_tokens=10, first_token_seconds=0.1, prefill_seconds=0.1)
    one, sorts = span(1, 0, 1, said), []
    for workers in (1000, 2000):
        recent, cuts = RequestLog(KEEP, lives_max=workers), 0
        for number in range(4 * workers):
            before = recent.nbytes
            recent.note(f"w{number}", one, said)
            cuts += recent.nbytes < before
        assert recent.nbytes <= workers * LIFE_BYTES
        sorts.append(cuts)
    # How often all rows are looked at grows with what comes for each that may stay, and with nothing else.
    assert sorts[0] == sorts[1] <= 4 * 8
