"""Spans through the pipeline: foreign ones untouched, ours with a verdict, bad ones alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from whymiss.config import parse
from whymiss.errors import BadInput
from whymiss.pipeline import Pipeline
from whymiss.redaction import Redacted
from whymiss.wire.fields import read_span
from whymiss.wire.split import assemble, split

CAPTURE = Path(__file__).resolve().parent.parent / "captures" / "01-vanilla-sha256-bytes"


def pipeline(text: str = "{}") -> Pipeline:
    return Pipeline(parse(text, {}), process_key=bytes(32), start_unix_nanos=0)


def spans_of(outgoing: Sequence[Redacted]) -> list[bytes]:
    return [raw for item in outgoing for group in split(item.body) for raw in group.spans]


def request_with_engine_span_among(count: int) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    request.ParseFromString((CAPTURE / "otlp" / "00002.pb").read_bytes())
    scope = request.resource_spans[0].scope_spans[-1]
    assert scope.spans[-1].name == "llm_request"
    for number in range(count):
        span = scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=b"12345678", name=f"db.query {number}")
        span.attributes.add(key="db.statement").value.string_value = "select 1" * number
        span.flags = 0x301
    return request


def test_five_hundred_unrelated_spans_pass_through_byte_identical() -> None:
    body = request_with_engine_span_among(500).SerializeToString()
    flow = pipeline()
    outgoing = [*flow.traces(body, 0.0).outgoing, *flow.drain()]
    came = [raw for group in split(body) for raw in group.spans]
    left = spans_of(outgoing)
    assert len(left) == len(came)
    foreign = [raw for raw in came if b"llm_request" not in raw]
    assert foreign == [raw for raw in left if b"llm_request" not in raw]


def test_unrelated_spans_never_reach_a_full_parse() -> None:
    body = request_with_engine_span_among(0).SerializeToString()
    envelope, engine = split(body)[-1]
    # No parser reads these: a field that claims more bytes than the span has.
    unreadable = [b"\x0a\x7f" + number.to_bytes(4, "big") for number in range(500)]
    for raw in unreadable:
        with pytest.raises(BadInput):
            read_span(raw)
    flow = pipeline()
    accepted = flow.traces(assemble([(envelope, [*unreadable[:250], *engine, *unreadable[250:]])]), 0.0)
    assert accepted.rejected == 0
    assert spans_of(accepted.outgoing) == unreadable
    assert len(spans_of(flow.drain())) == 1


def test_a_request_without_anything_of_ours_leaves_as_the_same_bytes() -> None:
    body = (CAPTURE / "otlp" / "00001.pb").read_bytes()
    (item,) = pipeline().traces(body, 0.0).outgoing
    assert item.body == body


def test_a_claimed_span_keeps_all_that_it_had() -> None:
    request = request_with_engine_span_among(0)
    flow = pipeline()
    flow.traces(request.SerializeToString(), 0.0)
    (raw,) = spans_of(flow.drain())
    before = request.resource_spans[0].scope_spans[-1].spans[-1]
    after = Span.FromString(raw)
    added = {pair.key for pair in after.attributes} - {pair.key for pair in before.attributes}
    assert "prefix_cache.miss.cause" in added
    assert all(key.startswith("prefix_cache.") for key in added)
    del after.attributes[len(before.attributes) :]
    assert after == before


def test_all_zero_ids_are_rejected_alone() -> None:
    request = request_with_engine_span_among(3)
    spans = request.resource_spans[0].scope_spans[-1].spans
    bad = spans.add()
    bad.CopyFrom(next(span for span in spans if span.name == "llm_request"))
    bad.trace_id = bytes(16)
    flow = pipeline()
    accepted = flow.traces(request.SerializeToString(), 0.0)
    assert accepted.rejected == 1
    assert "trace id" in accepted.message
    assert len(spans_of([*accepted.outgoing, *flow.drain()])) == 6


def test_a_malformed_claimed_span_is_rejected_alone() -> None:
    request = request_with_engine_span_among(2)
    body = request.SerializeToString()
    broken = bytearray(body)
    at = body.index(b"llm_request")
    # The length of the name now runs past the end of its span.
    broken[at - 1] = 0x7F
    flow = pipeline()
    accepted = flow.traces(bytes(broken), 0.0)
    assert accepted.rejected <= 1
    names = [read_span(raw).name for raw in spans_of([*accepted.outgoing, *flow.drain()])]
    assert {"db.query 0", "db.query 1"} <= set(names)


def test_garbage_is_bad_input() -> None:
    with pytest.raises(BadInput):
        pipeline().traces(b"\xff\xff\xff not protobuf", 0.0)


def test_an_empty_request_sends_nothing() -> None:
    assert pipeline().traces(b"", 0.0).outgoing == ()


def test_metrics_and_logs_leave_byte_for_byte() -> None:
    flow = pipeline()
    assert [item.body for item in flow.metrics(b"\x0a\x00", 0.0).outgoing] == [b"\x0a\x00"]
    assert flow.metrics(b"", 0.0).outgoing == ()


def test_a_span_leaves_once_even_if_it_came_twice() -> None:
    body = request_with_engine_span_among(0).SerializeToString()
    flow = pipeline()
    flow.traces(body, 0.0)
    flow.traces(body, 1.0)
    assert sum(b"llm_request" in raw for raw in spans_of(flow.drain())) == 1


def test_nothing_is_known_without_events_and_it_says_so() -> None:
    flow = pipeline()
    flow.judged = []
    flow.traces(request_with_engine_span_among(0).SerializeToString(), 0.0)
    flow.drain()
    (judged,) = flow.judged
    assert (judged.verdict.cause, judged.verdict.reason) == ("unknown", "no_event_source")
