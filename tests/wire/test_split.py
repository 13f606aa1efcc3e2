from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from tests.wire.messages import any_value, encoded, messages, request, span, unknown
from whymiss.errors import BadInput
from whymiss.model import Envelope
from whymiss.wire.encode import delimited
from whymiss.wire.scan import fields
from whymiss.wire.split import assemble, span_count, split

CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*/otlp/*.pb"))

Placed = tuple[bytes, str, bytes, str, bytes]


def placed(body: bytes) -> Counter[Placed]:
    """Each span with all that its envelope says, as protobuf reads it."""
    return Counter(
        (encoded(outer.resource), outer.schema_url, encoded(inner.scope), inner.schema_url, encoded(one))
        for outer in ExportTraceServiceRequest.FromString(body).resource_spans
        for inner in outer.scope_spans
        for one in inner.spans
    )


def reversed_fields(raw: bytes) -> bytes:
    return b"".join([raw[start:end] for _, start, _, end in reversed(fields(raw))])


@given(messages(ExportTraceServiceRequest))
def test_what_is_split_is_put_together_again(made: ExportTraceServiceRequest) -> None:
    body = encoded(made)
    assert placed(assemble(split(body))) == placed(body)


@given(messages(ExportTraceServiceRequest))
def test_putting_together_is_stable(made: ExportTraceServiceRequest) -> None:
    once = assemble(split(encoded(made)))
    assert assemble(split(once)) == once


@given(messages(ExportTraceServiceRequest))
def test_spans_are_the_bytes_that_came(made: ExportTraceServiceRequest) -> None:
    theirs = [encoded(one) for outer in made.resource_spans for inner in outer.scope_spans for one in inner.spans]
    assert [raw for group in split(encoded(made)) for raw in group.spans] == theirs


@given(messages(ExportTraceServiceRequest))
def test_span_count_counts_the_spans(made: ExportTraceServiceRequest) -> None:
    body = encoded(made)
    assert span_count(body) == sum(len(group.spans) for group in split(body)) == placed(body).total()


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_recorded_requests_come_back_byte_for_byte(path: Path) -> None:
    body = path.read_bytes()
    assert assemble(split(body)) == body


@given(st.binary(max_size=60))
def test_garbage_is_bad_input_or_a_request(body: bytes) -> None:
    try:
        groups = split(body)
    except BadInput:
        with pytest.raises(BadInput):
            span_count(body)
    else:
        assert span_count(body) == sum(len(group.spans) for group in groups)
        assert split(assemble(groups)) == split(assemble(split(assemble(groups))))


def test_equal_resources_and_scopes_become_one() -> None:
    one, two, three = span(n=1), span(n=2), span(n=3)
    made = request(one)
    made.MergeFrom(request(two, scope="other"))
    made.MergeFrom(request(three))
    merged = ExportTraceServiceRequest.FromString(assemble(split(encoded(made))))
    assert [[list(inner.spans) for inner in outer.scope_spans] for outer in merged.resource_spans] == [
        [[one, three], [two]]
    ]


def test_spans_that_are_no_spans_are_carried_all_the_same() -> None:
    body = assemble([(Envelope(resource=b"", scope=b""), [b"not a span"])])
    assert split(body)[0].spans == [b"not a span"]


def test_groups_without_spans_are_left_out() -> None:
    assert split(encoded(request())) == []
    assert assemble([(Envelope(resource=b"\x0a\x00", scope=b"\x0a\x00"), [])]) == b""


def test_unknown_fields_survive_at_every_level() -> None:
    strange = [unknown(1000 + level, f"level {level}".encode()) for level in range(5)]
    made = request()
    resource = encoded(made.resource_spans[0].resource) + strange[0]
    scope = encoded(made.resource_spans[0].scope_spans[0].scope) + strange[1]
    raw = encoded(span()) + strange[2]
    scope_spans = strange[3] + delimited(b"\x12", raw) + delimited(b"\x0a", scope)
    resource_spans = delimited(b"\x12", scope_spans) + strange[4] + delimited(b"\x0a", resource)
    body = assemble(split(delimited(b"\x0a", resource_spans)))
    assert split(body)[0].spans == [raw]
    theirs = ExportTraceServiceRequest.FromString(body).resource_spans[0]
    assert encoded(theirs.resource) == resource
    assert encoded(theirs.scope_spans[0].scope) == scope
    assert all(body.count(one) == 1 for one in strange)


def test_several_occurrences_of_one_resource_are_merged_as_protobuf_does() -> None:
    halves = [Resource(dropped_attributes_count=1), Resource(dropped_attributes_count=2)]
    for half, key in zip(halves, ("a", "b"), strict=True):
        half.attributes.add(key=key, value=any_value("x"))
    scope_spans = encoded(ScopeSpans(spans=[span()]))
    raw = b"".join(
        (
            delimited(b"\x0a", encoded(halves[0])),
            delimited(b"\x12", scope_spans),
            delimited(b"\x0a", encoded(halves[1])),
        )
    )
    (merged,) = ExportTraceServiceRequest.FromString(assemble(split(delimited(b"\x0a", raw)))).resource_spans
    assert merged.resource == ResourceSpans.FromString(raw).resource
    assert [pair.key for pair in merged.resource.attributes] == ["a", "b"]


@given(messages(ExportTraceServiceRequest))
def test_order_of_fields_does_not_matter(made: ExportTraceServiceRequest) -> None:
    body = b""
    for outer in made.resource_spans:
        scopes = [delimited(b"\x12", reversed_fields(encoded(inner))) for inner in outer.scope_spans]
        outer.ClearField("scope_spans")
        body += delimited(b"\x0a", b"".join(scopes) + reversed_fields(encoded(outer)))
    assert placed(assemble(split(body))) == placed(body)
