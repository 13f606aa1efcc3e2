"""Work grows with what a sender sends and not with its square: operations are counted while the input doubles.

An operation is a call, of Python or of C, as the interpreter tells a profiler. What one call costs in C is bounded by the
bytes it is given; where it matters how often such a call is made, that call is counted by name.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from whymiss.config import parse
from whymiss.pipeline import KvSource, Pipeline
from whymiss.redaction import Redacted

RATIO_MAX = 2.3
SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND


class Calls:
    """How often what was called."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.by_name.total()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.by_name[frame.f_code.co_name] += 1
        elif event == "c_call":
            self.by_name[getattr(argument, "__name__", "")] += 1


@contextmanager
def counting() -> Iterator[Calls]:
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def flow(config: str = "{}") -> Pipeline:
    return Pipeline(parse(config, {}), process_key=bytes(32), start_unix_nanos=0)


def span_in(inner: ScopeSpans, trace: int, number: int, name: str = "llm_request") -> WireSpan:
    span = inner.spans.add(
        name=name, trace_id=trace.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), flags=0x101
    )
    span.start_time_unix_nano, span.end_time_unix_nano = NOW, NOW + SECOND
    return span


def engine_in(inner: ScopeSpans, trace: int, number: int, request_id: str = "") -> None:
    span = span_in(inner, trace, number)
    span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 100
    if request_id:
        span.attributes.add(key="gen_ai.request.id").value.string_value = request_id


def route_in(inner: ScopeSpans, trace: int, number: int, request_id: str = "") -> None:
    span = span_in(inner, trace, number, "route")
    span.attributes.add(key="prefix_cache.route.worker").value.string_value = "w"
    if request_id:
        span.attributes.add(key="request_id").value.string_value = request_id


def lookup_in(inner: ScopeSpans, trace: int, number: int, request_id: str = "") -> None:
    span = span_in(inner, trace, number, "lookup")
    span.attributes.add(key="prefix_cache.lookup.prompt_tokens").value.int_value = 100
    if request_id:
        span.attributes.add(key="request_id").value.string_value = request_id


def tier_in(inner: ScopeSpans, trace: int, number: int, links: tuple[int, ...] = (), request_id: str = "") -> None:
    span = span_in(inner, trace, number, "load")
    span.attributes.add(key="prefix_cache.offload.found_blocks").value.int_value = 1
    for linked in links:
        span.links.add(trace_id=linked.to_bytes(16, "big"), span_id=bytes(8))
    if request_id:
        span.attributes.add(key="request_id").value.string_value = request_id


def one_scope() -> tuple[ExportTraceServiceRequest, ScopeSpans]:
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "engine"
    inner = group.scope_spans.add()
    inner.scope.name = "vllm.tracing.otel"
    return made, inner


Sent = ExportTraceServiceRequest


def one_trace(count: int) -> Sent:
    made, inner = one_scope()
    for number in range(count):
        engine_in(inner, 1, number + 1, f"r{number}")
    return made


def many_traces(count: int) -> Sent:
    made, inner = one_scope()
    for number in range(count):
        engine_in(inner, number + 1, number + 1)
    return made


def routers_of_one_request(count: int) -> Sent:
    made, inner = one_scope()
    engine_in(inner, 1, 1, "r")
    for number in range(count):
        route_in(inner, 1, number + 2, "r")
    return made


def one_request_id(count: int) -> Sent:
    made, inner = one_scope()
    for number in range(count):
        engine_in(inner, 1, 3 * number + 1, "r")
        lookup_in(inner, 1, 3 * number + 2, "r")
        route_in(inner, 1, 3 * number + 3, "r")
    return made


def lookups_without_ids(count: int) -> Sent:
    made, inner = one_scope()
    for number in range(count):
        engine_in(inner, 1, 2 * number + 1)
        lookup_in(inner, 1, 2 * number + 2)
    return made


def merged_one_by_one(count: int) -> Sent:
    """One large group, which tiers' links then join to one small group after the other, the small one's trace first."""
    made, inner = one_scope()
    for number in range(count):
        engine_in(inner, 1, number + 1)
    for number in range(count):
        engine_in(inner, number + 2, count + number + 1)
    for number in range(count):
        tier_in(inner, number + 2, 2 * count + number + 1, links=(1,))
    return made


def engines_of_many_services(count: int) -> Sent:
    made = Sent()
    for number in range(count):
        group = made.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = f"s{number}"
        inner = group.scope_spans.add()
        inner.scope.name = "vllm.tracing.otel"
        engine_in(inner, 1, number + 1)
    return made


def engines_of_many_workers(count: int) -> Sent:
    made = Sent()
    for number in range(count):
        group = made.resource_spans.add()
        group.resource.attributes.add(key="prefix_cache.worker").value.string_value = f"w{number}"
        inner = group.scope_spans.add()
        inner.scope.name = "vllm.tracing.otel"
        engine_in(inner, number + 1, number + 1)
    return made


def resources_without_claims(count: int) -> Sent:
    made = Sent()
    for number in range(count):
        group = made.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = f"s{number}"
        span_in(group.scope_spans.add(), number + 1, number + 1, "http")
    return made


def attributes_of_a_span(count: int) -> Sent:
    made, inner = one_scope()
    engine_in(inner, 1, 1)
    for number in range(count):
        inner.spans[0].attributes.add(key=f"k{number}").value.int_value = number
    return made


def attributes_of_a_resource(count: int) -> Sent:
    made, inner = one_scope()
    for number in range(count):
        made.resource_spans[0].resource.attributes.add(key=f"k{number}").value.string_value = "v"
    for number in range(50):
        engine_in(inner, number + 1, number + 1)
    return made


def events_and_links(count: int) -> Sent:
    made, inner = one_scope()
    engine_in(inner, 1, 1)
    for number in range(count):
        inner.spans[0].events.add(name="e").attributes.add(key=f"k{number}").value.int_value = number
        inner.spans[0].links.add(trace_id=number.to_bytes(16, "big"), span_id=bytes(8))
    return made


def secrets_of_a_span(count: int) -> Sent:
    made, inner = one_scope()
    engine_in(inner, 1, 1)
    for _ in range(count):
        inner.spans[0].attributes.add(key="cache_salt").value.string_value = "cache_salt cache_salt"
    return made


def deep_values(count: int) -> Sent:
    made, inner = one_scope()
    engine_in(inner, 1, 1)
    for _ in range(count // 50):
        value = inner.spans[0].attributes.add(key="k").value
        for _ in range(20):
            value = value.kvlist_value.values.add(key="cache_salt").value
    return made


def trace_states(count: int) -> Sent:
    made, inner = one_scope()
    for number in range(count):
        engine_in(inner, number + 1, number + 1)
        inner.spans[number].trace_state = f"ot=th:{number:x}"
    return made


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (one_trace, 400),
        (many_traces, 300),
        (routers_of_one_request, 1600),
        (one_request_id, 200),
        (lookups_without_ids, 250),
        (merged_one_by_one, 250),
        (engines_of_many_services, 350),
        (engines_of_many_workers, 300),
        (resources_without_claims, 400),
        (attributes_of_a_span, 400),
        (attributes_of_a_resource, 300),
        (events_and_links, 200),
        (secrets_of_a_span, 150),
        (deep_values, 500),
        (trace_states, 300),
    ],
)
def test_twice_the_input_is_twice_the_work(build: Callable[[int], Sent], count: int) -> None:
    costs: list[int] = []
    for size in (count, count, 2 * count):  # what is made once, in caches, is made in the first of them
        body, one = build(size).SerializeToString(), flow()
        with counting() as calls:
            taken = one.traces(body, 0.0)
            left = one.advance(100.0)
        assert sum(item.items for item in (*taken.outgoing, *left)) + taken.rejected > 0
        costs.append(calls.total)
    assert costs[2] < RATIO_MAX * costs[1], costs


@pytest.mark.parametrize("build", [one_request_id, lookups_without_ids, one_trace])
def test_no_group_takes_more_work_than_the_bound_on_comparisons_allows(build: Callable[[int], Sent]) -> None:
    """The largest group whose spans are compared: its work is bounded, whatever it is made of."""
    most = 50_000
    worst = 0
    for count in (40, 60, 80, 90, 100, 150, 220):
        one = flow(f"attribution: {{comparisons_max: {most}}}")
        one.traces(build(count).SerializeToString(), 0.0)
        with counting() as calls:
            one.advance(100.0)
        worst = max(worst, calls.total)
    assert 0 < worst < 30 * most


def spans_at_once(count: int, size: int, traces: int) -> tuple[Calls, list[Redacted]]:
    made, inner = one_scope()
    made.resource_spans[0].resource.attributes.add(key="padding").value.string_value = "x" * size
    for number in range(count):
        engine_in(inner, number % traces + 1, number + 1)
    one = flow()
    with counting() as calls:
        left = [*one.traces(made.SerializeToString(), 0.0).outgoing, *one.advance(100.0)]
    return calls, left


def test_a_large_resource_is_read_redacted_and_sent_once_for_all_traces() -> None:
    size = 100_000
    for count in (50, 100):
        calls, left = spans_at_once(count, size, traces=count)
        assert sum(item.items for item in left) == count
        assert sum(len(item.body) for item in left) < 2 * size
        assert calls.by_name["splice_resource"] == 1
        assert calls.by_name["resource_attributes"] == 1


def test_a_small_resource_leaves_with_each_trace() -> None:
    _, left = spans_at_once(20, 100, traces=20)
    assert [item.items for item in left] == [1] * 20


def test_a_large_resource_counts_as_held_once_and_is_let_go() -> None:
    made, inner = one_scope()
    made.resource_spans[0].resource.attributes.add(key="padding").value.string_value = "x" * 100_000
    for number in range(10):
        engine_in(inner, number + 1, number + 1)
    one = flow()
    one.traces(made.SerializeToString(), 0.0)
    assert 100_000 < one.held_bytes < 130_000
    one.advance(100.0)
    assert one.held_bytes == 0


@pytest.mark.parametrize("build", [attributes_of_a_span, attributes_of_a_resource, events_and_links, secrets_of_a_span])
def test_a_span_of_too_many_parts_is_refused_by_the_keys_name(build: Callable[[int], Sent]) -> None:
    one = flow("join: {parts_max: 2000}")
    body = build(4000).SerializeToString()
    with counting() as calls:
        taken = one.traces(body, 0.0)
    assert taken.rejected
    assert "join.parts_max" in taken.message
    assert calls.total < 60 * 2000
    assert not one.advance(100.0)


def test_a_crowd_is_judged_span_by_span_as_unknown() -> None:
    one = flow("attribution: {comparisons_max: 100}")
    one.judged = []
    one.traces(one_trace(20).SerializeToString(), 0.0)
    left = one.advance(100.0)
    assert sum(item.items for item in left) == 20
    assert {(judged.verdict.cause.value, judged.verdict.reason.value) for judged in one.judged} == {
        ("unknown", "partial_trace")
    }
    assert len(one.judged) == 20


def test_late_spans_of_a_request_of_many_services_teach_in_constant_work() -> None:
    costs: list[int] = []
    for count in (300, 300, 600):
        one = flow()
        one.traces(engines_of_many_services(count).SerializeToString(), 0.0)
        one.advance(10.0)
        made, inner = one_scope()
        for number in range(count):
            route_in(inner, 1, 10_000 + number)
        with counting() as calls:
            one.traces(made.SerializeToString(), 11.0)
        costs.append(calls.total)
    assert costs[2] < RATIO_MAX * costs[1], costs


def test_a_trace_that_comes_again_and_again_does_not_copy_its_past() -> None:
    costs: list[int] = []
    for rounds in (100, 100, 200):
        one = flow("join: {hold_seconds: 0.1, linger_seconds: 0}")
        calls_of = Counter[str]()
        for turn in range(rounds):
            made, inner = one_scope()
            engine_in(inner, 1, turn + 1)
            body = made.SerializeToString()
            with counting() as calls:
                one.traces(body, float(turn))
                one.advance(turn + 0.5)
            calls_of += calls.by_name
        costs.append(calls_of.total())
    assert costs[2] < RATIO_MAX * costs[1], costs


def test_a_span_costs_the_same_however_many_workers_and_ranks_publish() -> None:
    for name, rank in (("w{}", 0), ("w", 1)):
        costs: list[int] = []
        for workers in (100, 100, 200):
            one = flow()
            for number in range(workers):
                source = KvSource(name=f"s{number}", worker=name.format(number), rank=number if rank else 0, model="m")
                payload = msgspec.msgpack.encode([1.0, [], number if rank else 0])
                one.kv_frames(source, (b"", bytes(8), payload), NOW)
            one.traces(many_traces(1).SerializeToString(), 0.0)
            made, inner = one_scope()
            made.resource_spans[0].resource.attributes.add(key="prefix_cache.worker").value.string_value = "w"
            for number in range(50):
                engine_in(inner, number + 10, number + 10)
            with counting() as calls:
                one.traces(made.SerializeToString(), 0.0)
            costs.append(calls.total)
        assert costs[2] < 1.1 * costs[1], (name, costs)
