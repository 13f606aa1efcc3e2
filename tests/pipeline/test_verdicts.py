"""What is remembered of a request after it has left."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tests.timeline import span_of
from whymiss.config import JoinConfig
from whymiss.model import Cause, Grade, Owner, Role, Verdict
from whymiss.pipeline.verdicts import VERDICT_BYTES, Verdicts


def verdict(number: int) -> Verdict:
    return Verdict(
        cause=Cause.EVICTED,
        owner=Owner.ENGINE,
        grade=Grade.DERIVED,
        worker="engine",
        prompt_tokens=100_000 + number,
        cached_tokens=50_000 + number,
        recomputed_tokens=60_000 + number,
        block_index=1000 + number,
        eviction_age_ms=70_000 + number,
    )


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(0, 10))
def test_a_verdict_is_known_while_its_time_lasts_and_costs_nothing_afterwards(pauses: list[float], most: int) -> None:
    verdicts = Verdicts(JoinConfig(remembered_seconds=60, remembered_max=most))
    now, left = 0.0, list[tuple[float, int]]()
    for number, pause in enumerate(pauses):
        now += pause
        span = span_of(Role.ENGINE, number + 1, number + 1)
        verdicts.remember([span], span, verdict(number), now)
        left.append((now, number))
        kept = [one for at, one in left if at + 60 >= now][-most:] if most else []
        assert verdicts.nbytes == len(kept) * VERDICT_BYTES
        for _, one in left:
            found = verdicts.of(span_of(Role.OFFLOAD, one + 1, 99), now)
            assert found == (verdict(one) if one in kept else None)


def test_a_verdict_is_found_by_the_request_id_from_another_trace() -> None:
    verdicts = Verdicts(JoinConfig())
    engine = span_of(Role.ENGINE, 1, 1, request_id="r")
    verdicts.remember([engine], engine, verdict(1), 0.0)
    assert verdicts.of(span_of(Role.OFFLOAD, 2, 2, request_id="r"), 1.0) == verdict(1)
    assert verdicts.of(span_of(Role.OFFLOAD, 2, 2, request_id="other"), 1.0) is None


def test_a_verdict_is_counted_as_no_less_than_it_takes() -> None:
    spans = [span_of(Role.ENGINE, number + 1, number + 1) for number in range(2000)]
    verdicts = Verdicts(JoinConfig())
    tracemalloc.start()
    try:
        for number, span in enumerate(spans):
            verdicts.remember([span], span, verdict(number), 0.0)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < verdicts.nbytes
