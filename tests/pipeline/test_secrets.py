"""Secrets wherever an attribute can stand: none leaves on what is ours, and what is not ours leaves as it came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from whymiss.config import parse
from whymiss.dialects import contract
from whymiss.dialects.secrets import CONTRACT, SECRETS
from whymiss.pipeline import Pipeline
from whymiss.wire.fields import SpanFields
from whymiss.wire.split import split

PLANTED = "planted-9f3c5e0a7b1d"
UNKNOWN = tuple(f"{prefix}{name}" for prefix in CONTRACT.prefixes for name in ("hash", "prompt", "worker.token", ""))
OPERATORS = "tenant.key"
SPELLINGS = (*SECRETS, *UNKNOWN, OPERATORS)
PLACES = ("resource", "scope", "span", "event", "link")
Holder = Resource | InstrumentationScope | WireSpan | WireSpan.Event | WireSpan.Link | LogRecord


def pipeline() -> Pipeline:
    text = f"{{redaction: {{drop_attributes: [{OPERATORS}]}}, attribution: {{block_size: 16}}}}"
    return Pipeline(parse(text, {}), process_key=bytes(32), start_unix_nanos=0)


def plain() -> AnyValue:
    return AnyValue(string_value=PLANTED)


def in_bytes() -> AnyValue:
    return AnyValue(bytes_value=PLANTED.encode())


def in_list() -> AnyValue:
    made = AnyValue()
    made.array_value.values.add(string_value=PLANTED)
    return made


def in_map() -> AnyValue:
    made = AnyValue()
    made.kvlist_value.values.add(key="k").value.string_value = PLANTED
    return made


def nested(name: str, value: AnyValue, shape: tuple[str, ...]) -> KeyValue:
    """An attribute that holds ``name`` below lists and maps; no shape: the attribute itself."""
    pair = KeyValue(key=name, value=value)
    for kind in shape:
        outer = KeyValue(key="outer")
        if kind == "map":
            outer.value.kvlist_value.values.append(pair)
        else:
            outer.value.array_value.values.add().kvlist_value.values.append(pair)
        pair = outer
    return pair


def span_of(kind: str, number: int) -> tuple[str, WireSpan]:
    """A span that a dialect claims (``foreign``: none), and its scope."""
    span = WireSpan(trace_id=bytes([number] * 16), span_id=bytes([number] * 8), flags=0x101, name="llm_request")
    span.start_time_unix_nano, span.end_time_unix_nano = 1_000, 2_000
    scope = "vllm.tracing.otel"
    if kind == "contract":
        scope, span.name = "any", "lookup"
        span.attributes.add(key="prefix_cache.lookup.prompt_tokens").value.int_value = 64
    elif kind == "gateway":
        scope, span.name = "gateway", "chat"
        span.attributes.add(key="gen_ai.usage.cached_tokens").value.int_value = 16
        span.attributes.add(key="gen_ai.usage.cache_read.input_tokens").value.int_value = 16
        span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = 64
    elif kind == "foreign":
        scope, span.name = "other", "http"
    else:
        span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 64
    return scope, span


def request(kinds: list[str], planted: list[tuple[str, KeyValue]]) -> ExportTraceServiceRequest:
    """One resource with a scope for each span; the resource's and the scopes' secrets are shared."""
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    for number, kind in enumerate(kinds, 1):
        name, span = span_of(kind, number)
        inner = group.scope_spans.add()
        inner.scope.name = name
        event, link = span.events.add(name="e"), span.links.add(trace_id=b"l" * 16, span_id=b"l" * 8)
        for place, pair in planted:
            targets: dict[str, Holder] = {"scope": inner.scope, "span": span, "event": event, "link": link}
            if place in targets and (kind != "foreign" or place == "scope"):
                targets[place].attributes.append(pair)
        inner.spans.append(span)
    group.resource.attributes.extend(pair for place, pair in planted if place == "resource")
    return made


pairs = st.builds(
    nested,
    st.sampled_from(SPELLINGS),
    st.sampled_from([plain, in_bytes, in_list, in_map]).map(lambda make: make()),
    st.lists(st.sampled_from(["map", "list"]), max_size=4).map(tuple),
)
planted_pairs = st.lists(st.tuples(st.sampled_from(PLACES), pairs), min_size=1, max_size=6)
ours = st.lists(st.sampled_from(["engine", "contract", "gateway"]), min_size=1, max_size=3)


def leaving(flow: Pipeline, body: bytes) -> list[bytes]:
    return [one.body for one in (*flow.traces(body, 0.0).outgoing, *flow.advance(100.0), *flow.drain())]


@given(ours, planted_pairs)
def test_a_planted_secret_leaves_on_no_claimed_span(kinds: list[str], planted: list[tuple[str, KeyValue]]) -> None:
    flow = pipeline()
    left = leaving(flow, request(kinds, planted).SerializeToString())
    assert sum(len(group.spans) for body in left for group in split(body)) == len(kinds)
    assert not any(PLANTED.encode() in body for body in left)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("kind", ["engine", "contract", "gateway"])
def test_every_spelling_is_taken_out_of_every_place(place: str, name: str, kind: str) -> None:
    body = request([kind], [(place, nested(name, plain(), ())), (place, nested(name, plain(), ("map",)))])
    left = leaving(pipeline(), body.SerializeToString())
    assert len(left) == 1
    assert PLANTED.encode() not in left[0]


@given(ours, st.lists(st.tuples(st.sampled_from(["resource", "scope"]), pairs), max_size=4))
def test_a_foreign_span_of_the_same_resource_leaves_as_it_came(
    kinds: list[str], planted: list[tuple[str, KeyValue]]
) -> None:
    made = request([*kinds, "foreign"], planted)
    flow = pipeline()
    (passed,) = flow.traces(made.SerializeToString(), 0.0).outgoing
    del made.resource_spans[0].scope_spans[: len(kinds)]
    assert ExportTraceServiceRequest.FromString(passed.body) == made
    assert not any(PLANTED.encode() in one.body for one in flow.advance(100.0))


@pytest.mark.parametrize("place", ["resource", "scope", "record", "body"])
@pytest.mark.parametrize("name", [*SECRETS, *UNKNOWN])
@pytest.mark.parametrize("shape", [(), ("map",), ("list", "map")])
def test_a_log_record_that_we_take_leaves_without_secrets(place: str, name: str, shape: tuple[str, ...]) -> None:
    made = ExportLogsServiceRequest()
    group = made.resource_logs.add()
    inner = group.scope_logs.add()
    inner.scope.name = "dynamo.request_trace"
    record = inner.log_records.add()
    record.attributes.add(key="schema").value.string_value = "dynamo.request.trace.v1"
    pair = nested(name, plain(), shape)
    if place == "body":
        record.body.kvlist_value.values.append(pair)
    else:
        holders: dict[str, Holder] = {"resource": group.resource, "scope": inner.scope, "record": record}
        holders[place].attributes.append(pair)
    # A record of somebody else, of another scope, leaves as it came.
    other = group.scope_logs.add()
    other.scope.name = "other"
    other.log_records.add().attributes.append(pair)
    (left,) = pipeline().logs(made.SerializeToString(), 0.0).outgoing
    found = ExportLogsServiceRequest.FromString(left.body)
    taken, kept = (
        [
            one
            for one in found.resource_logs
            for scoped in one.scope_logs
            if scoped.scope.name.startswith("dynamo") is is_ours
        ]
        for is_ours in (True, False)
    )
    if taken != kept:
        assert all(PLANTED.encode() not in one.SerializeToString() for one in taken)
    else:
        (same,) = taken
        assert all(
            PLANTED.encode() not in one.SerializeToString()
            for one in same.scope_logs
            if one.scope.name == "dynamo.request_trace"
        )
    assert any(other in one.scope_logs for one in kept)


class Asked(dict[str, None]):
    """Attributes that remember what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: object = None) -> None:
        self.names.add(key)
        del default

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return key in {"prefix_cache.lookup.disabled", "prefix_cache.route.worker"}


def test_the_known_names_are_those_that_the_contract_reads() -> None:
    asked = Asked()
    span = SpanFields(
        trace_id=b"",
        span_id=b"",
        trace_state="",
        parent_span_id=b"",
        name="",
        kind=0,
        start_unix_nanos=0,
        end_unix_nanos=0,
        flags=0,
        status_code=0,
        attributes=asked,  # type: ignore[arg-type]  # holds nothing
    )
    for dialect in (contract.LOOKUP, contract.ROUTE, contract.OFFLOAD):
        dialect.read(span)
    read = {name for name in asked.names if name.startswith(CONTRACT.prefixes)}
    # What a route needs is told before the rest is read; `chosen` is written by us, and read by nobody.
    assert CONTRACT.known - read <= {
        f"prefix_cache.route.{name}"
        for name in ("best_worker", "best_blocks", "index_version", "reason", "pinned", "chosen")
    }
    assert read <= CONTRACT.known
