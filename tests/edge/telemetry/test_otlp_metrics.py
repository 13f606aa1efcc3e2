"""What is pushed adds up to what was counted, whichever pushes fail."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.sdk.resources import Resource

from whymiss.edge.telemetry.otlp_metrics import Sent, batches, metrics_of
from whymiss.measures import FIRST_TOKEN_BOUNDS, Dimensions, Exemplar, Measures
from whymiss.model import Cause, Owner, Verdict

START, NOW = 1_000, 5_000
RESOURCE = Resource({"service.name": "whymiss"})
MISS = Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM, lost_tokens=64)
SPAN = Exemplar(trace_id="1" * 32, span_id="2" * 16, unix_nanos=7)


def measures(series_max: int = 2000) -> Measures:
    return Measures(dimensions=("model",), values_max=100, series_max=series_max, start_unix_nanos=START)


def push(seen: Measures, sent: Sent, now: int = NOW, *, delivered: bool = True) -> dict[str, pb.Metric]:
    snapshot = seen.snapshot("test")
    metrics = metrics_of(snapshot, sent, RESOURCE, now)
    if delivered:
        sent.acknowledge(snapshot, now)
    if metrics is None:
        return {}
    ((scope,),) = (resource.scope_metrics for resource in encode_metrics(metrics).resource_metrics)
    return {metric.name: metric for metric in scope.metrics}


def test_encoder_of_the_sdk_takes_all_kinds() -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=0.3, exemplar=SPAN)
    seen.gauge("whymiss.ledger.lag", 0.25, source="tcp://engine:5557")
    metrics = push(seen, Sent(delta=False))

    lost = metrics["prefix_cache.lost_tokens"]
    (number,) = lost.sum.data_points
    assert (lost.unit, lost.sum.is_monotonic) == ("{token}", True)
    assert lost.sum.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert (number.as_int, number.start_time_unix_nano, number.time_unix_nano) == (64, START, NOW)
    assert {pair.key: pair.value.string_value for pair in number.attributes} == {
        "cause": "evicted",
        "owner": "platform",
        "model": "m",
    }

    (timed,) = metrics["prefix_cache.time_to_first_token"].histogram.data_points
    assert (timed.count, timed.sum, tuple(timed.explicit_bounds)) == (1, 0.3, FIRST_TOKEN_BOUNDS)
    assert (sum(timed.bucket_counts), timed.HasField("min")) == (1, False)
    (exemplar,) = timed.exemplars
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex()) == (SPAN.trace_id, SPAN.span_id)
    assert (exemplar.as_double, exemplar.time_unix_nano) == (0.3, 7)

    (lag,) = metrics["whymiss.ledger.lag"].gauge.data_points
    assert lag.as_double == 0.25


def test_overflow_is_a_boolean_as_the_specification_has_it() -> None:
    seen = measures(series_max=1)
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=None)
    (point,) = push(seen, Sent(delta=False))["prefix_cache.requests"].sum.data_points
    (pair,) = point.attributes
    assert (pair.key, pair.value.bool_value) == ("otel.metric.overflow", True)


def test_cumulative_push_tells_the_total_again() -> None:
    seen, sent = measures(), Sent(delta=False)
    seen.observe(MISS, Dimensions(), first_token_seconds=None)
    for now in (NOW, NOW + 1):
        (point,) = push(seen, sent, now)["prefix_cache.misses"].sum.data_points
        assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (1, START, now)


def test_delta_push_tells_what_is_new_since_the_last_one() -> None:
    seen, sent = measures(), Sent(delta=True)
    seen.observe(MISS, Dimensions(), first_token_seconds=0.3)
    push(seen, sent, NOW)
    assert push(seen, sent, NOW + 1) == {}
    seen.observe(MISS, Dimensions(), first_token_seconds=30.0)
    metrics = push(seen, sent, NOW + 2)
    misses = metrics["prefix_cache.misses"].sum
    assert misses.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_DELTA
    assert (misses.data_points[0].as_int, misses.data_points[0].start_time_unix_nano) == (1, NOW + 1)
    (timed,) = metrics["prefix_cache.time_to_first_token"].histogram.data_points
    assert (timed.count, timed.sum) == (1, 30.0)


def test_failed_delta_is_part_of_the_next() -> None:
    seen, sent = measures(), Sent(delta=True)
    seen.observe(MISS, Dimensions(), first_token_seconds=None)
    push(seen, sent, NOW, delivered=False)
    seen.observe(MISS, Dimensions(), first_token_seconds=None)
    (point,) = push(seen, sent, NOW + 1)["prefix_cache.misses"].sum.data_points
    assert (point.as_int, point.start_time_unix_nano) == (2, START)


@given(steps=st.lists(st.tuples(st.floats(1, 50), st.floats(0, 200), st.booleans()), min_size=1, max_size=15))
def test_delivered_deltas_add_up_to_the_total(steps: list[tuple[float, float, bool]]) -> None:
    seen, sent = measures(), Sent(delta=True)
    lost, buckets = 0, Counter[int]()
    for now, (weight, seconds, delivered) in enumerate([*steps, (1.0, 1.0, True)]):
        seen.observe(MISS, Dimensions(), first_token_seconds=seconds, weight=weight)
        metrics = push(seen, sent, NOW + now, delivered=delivered)
        if delivered and "prefix_cache.lost_tokens" in metrics:
            lost += metrics["prefix_cache.lost_tokens"].sum.data_points[0].as_int
        if delivered and "prefix_cache.time_to_first_token" in metrics:
            (point,) = metrics["prefix_cache.time_to_first_token"].histogram.data_points
            assert point.count == sum(point.bucket_counts)
            buckets.update(dict(enumerate(point.bucket_counts)))
    totals = {metric.instrument.name: metric.points[0] for metric in seen.snapshot()}
    assert lost == round(totals["prefix_cache.lost_tokens"].value)
    counts = totals["prefix_cache.time_to_first_token"].counts
    assert [buckets[index] for index in range(len(counts))] == [round(count) for count in counts]


@pytest.mark.parametrize("points_max", [1, 3, 7, 10_000])
def test_batches_are_small_and_leave_nothing_out(points_max: int) -> None:
    seen = measures()
    for model in "abcdefgh":
        seen.observe(MISS, Dimensions(model=model), first_token_seconds=0.1)
    snapshot = seen.snapshot()
    pieces = [*batches(snapshot, points_max)]
    assert all(0 < sum(len(metric.points) for metric in batch) <= points_max for batch in pieces)
    parts = [(metric.instrument.name, point) for batch in pieces for metric in batch for point in metric.points]
    assert parts == [(metric.instrument.name, point) for metric in snapshot for point in metric.points]
