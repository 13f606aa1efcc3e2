"""What one observation costs, and a push of as many series as the default caps allow (a scrape: bench_exposition.py).

Run it by itself (``python tests/bench/bench_measures.py``) or with ``make bench``.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from whymiss.edge.telemetry.otlp_metrics import Sent, batches, metrics_of
from whymiss.measures import DIMENSIONS, Dimensions, Exemplar, Measures
from whymiss.model import Cause, Owner, Reason, Verdict

CALLS, ROUNDS = 10_000, 7
MISS = Verdict(
    cause=Cause.ROUTING_MISS,
    owner=Owner.ROUTING,
    reason=Reason.HOLDER_KNOWN,
    prompt_tokens=2048,
    cached_tokens=640,
    recomputed_tokens=1408,
    lost_tokens=1200,
    sparse_lost_tokens=0,
)
HIT = Verdict(cause=Cause.NONE, owner=Owner.NONE, prompt_tokens=2048, cached_tokens=2032, recomputed_tokens=16)
SPAN = Exemplar(trace_id="1" * 32, span_id="2" * 16, unix_nanos=1)


def dimensions(number: int) -> Dimensions:
    return Dimensions(
        route=f"route-{number % 50}",
        isolation_policy="tenant",
        adapter="base",
        model=f"model-{number // 50}",
        model_revision="abcdef",
        template_version="v3",
        speculative_method="eagle",
        block_geometry="16/16",
        prompt_family="agent",
        sampling_method="counted",
    )


def measures() -> Measures:
    return Measures(dimensions=DIMENSIONS, values_max=100, series_max=2000, start_unix_nanos=1)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def observations() -> Iterator[tuple[str, float]]:
    """The cheapest round of each, in microseconds a call: a busy machine only adds."""
    seen, shown = measures(), dimensions(1)
    calls: dict[str, Callable[[], object]] = {
        "observe a miss, 10 dimensions, exemplar": partial(
            seen.observe, MISS, shown, first_token_seconds=0.2, exemplar=SPAN
        ),
        "observe a hit, 10 dimensions": partial(seen.observe, HIT, shown, first_token_seconds=0.2),
        "count, 1 label": partial(seen.count, "whymiss.spans.claimed", dialect="vllm"),
    }
    for name, call in calls.items():

        def repeat(call: Callable[[], object] = call) -> None:
            for _ in range(CALLS):
                call()

        yield name, min(seconds(repeat) for _ in range(ROUNDS)) / CALLS * 1e6


def full() -> Measures:
    seen = measures()
    for number in range(2500):
        seen.observe(MISS, dimensions(number), first_token_seconds=0.1, exemplar=SPAN)
    return seen


def push(seen: Measures) -> None:
    for batch in batches(seen.snapshot()):
        metrics = metrics_of(batch, Sent(delta=False), Resource({}), 5)
        assert metrics is not None
        encode_metrics(metrics).SerializeToString()


@pytest.mark.bench
def test_cost_of_measuring() -> None:
    print(f"\nPython {platform.python_version()}, {platform.machine()}")
    for name, microseconds in observations():
        print(f"{name:45} {microseconds:8.2f} us")
    seen = full()
    snapshot = seen.snapshot()
    points = sum(len(metric.points) for metric in snapshot)
    print(f"{'series at the default caps':45} {points:8}")
    calls: dict[str, Callable[[], object]] = {
        "snapshot": seen.snapshot,
        "OTLP": partial(push, seen),
    }
    for name, call in calls.items():
        print(f"{name:45} {min(seconds(call) for _ in range(3)) * 1e3:8.1f} ms")


if __name__ == "__main__":
    test_cost_of_measuring()
