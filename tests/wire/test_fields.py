from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from tests.wire.messages import any_value, encoded, messages, request, span
from whymiss.errors import BadInput
from whymiss.model import Attribute, Envelope
from whymiss.wire.encode import delimited
from whymiss.wire.fields import (
    is_readable,
    read_span,
    resource_attributes,
    scope_name,
    scope_version,
    span_ids,
    valid_ids,
)
from whymiss.wire.split import split


def plain(value: AnyValue) -> Attribute:
    """What the attribute of a value is, said as slowly as possible."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        items = [plain(item) for item in value.array_value.values]
        return (
            [item for item in items if isinstance(item, str)] if all(isinstance(item, str) for item in items) else None
        )
    if kind is None or kind == "kvlist_value":
        return None
    attribute: Attribute = getattr(value, kind)
    return attribute


def plain_attributes(pairs: Iterable[KeyValue]) -> dict[str, Attribute]:
    return {pair.key: plain(pair.value) for pair in pairs}


@given(messages(Span))
def test_all_fields_are_read_as_protobuf_reads_them(made: Span) -> None:
    read = read_span(encoded(made))
    assert (read.trace_id, read.span_id, read.parent_span_id) == (made.trace_id, made.span_id, made.parent_span_id)
    assert (read.trace_state, read.name, read.kind, read.flags) == (made.trace_state, made.name, made.kind, made.flags)
    assert (read.start_unix_nanos, read.end_unix_nanos) == (made.start_time_unix_nano, made.end_time_unix_nano)
    assert read.status_code == made.status.code
    # NaN is not equal to itself, but its text is.
    assert repr(read.attributes) == repr(plain_attributes(made.attributes))
    assert [(one.name, one.time_unix_nanos) for one in read.events] == [
        (one.name, one.time_unix_nano) for one in made.events
    ]
    assert [(one.trace_id, one.span_id) for one in read.links] == [(one.trace_id, one.span_id) for one in made.links]


def test_events_and_links_are_read_with_their_attributes() -> None:
    made = span()
    made.events.add(name="first_token", time_unix_nano=7).attributes.add(key="n", value=any_value(1))
    made.links.add(trace_id=b"t" * 16, span_id=b"s" * 8).attributes.add(key="m", value=any_value("x"))
    read = read_span(encoded(made))
    assert read.events == (("first_token", 7, {"n": 1}),)
    assert read.links == ((b"t" * 16, b"s" * 8, {"m": "x"}),)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (AnyValue(string_value=""), ""),
        (AnyValue(bool_value=False), False),
        (AnyValue(int_value=0), 0),
        (AnyValue(double_value=0.5), 0.5),
        (AnyValue(bytes_value=b"\xff"), b"\xff"),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a"), AnyValue(string_value="b")])), ["a", "b"]),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=-1), AnyValue(int_value=2)])), [-1, 2]),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(bytes_value=b"\xff")])), [b"\xff"]),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)])), None),
        (AnyValue(array_value=ArrayValue()), []),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a"), AnyValue(int_value=1)])), None),
        (AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a")])), None),
        (AnyValue(), None),
    ],
)
def test_attribute_has_the_type_of_its_value(value: AnyValue, read: Attribute) -> None:
    made = Span(attributes=[KeyValue(key="k", value=value)])
    attribute = read_span(encoded(made)).attributes["k"]
    assert attribute == read
    assert type(attribute) is type(read)


def test_text_that_is_no_utf8_does_not_hide_the_span() -> None:
    raw = delimited(b"\x2a", b"n\xff") + delimited(
        b"\x4a", delimited(b"\x0a", b"k") + delimited(b"\x12", b"\x0a\x01\xff")
    )
    read = read_span(raw)
    assert read.name == "n\ufffd"
    assert read.attributes == {"k": "\ufffd"}


def test_absent_fields_hold_the_default() -> None:
    read = read_span(b"")
    assert (read.trace_id, read.name, read.kind, read.status_code, read.attributes, read.events) == (
        b"",
        "",
        0,
        0,
        {},
        (),
    )


def test_error_status_is_read() -> None:
    assert read_span(encoded(Span(status=Status(code=Status.STATUS_CODE_ERROR)))).status_code == 2


@given(messages(Span))
def test_ids_are_read_without_the_rest(made: Span) -> None:
    assert span_ids(encoded(made)) == (made.trace_id, made.span_id)


def test_the_last_of_two_ids_counts_as_in_protobuf() -> None:
    raw = encoded(span()) + delimited(b"\x0a", b"z" * 16)
    assert span_ids(raw)[0] == read_span(raw).trace_id == Span.FromString(raw).trace_id


@pytest.mark.parametrize(
    ("trace_id", "span_id", "valid"),
    [
        (b"t" * 16, b"s" * 8, True),
        (bytes(15) + b"\x01", bytes(7) + b"\x01", True),
        (bytes(16), b"s" * 8, False),
        (b"t" * 16, bytes(8), False),
        (b"t" * 15, b"s" * 8, False),
        (b"t" * 24, b"s" * 8, False),
        (b"t" * 16, b"s" * 12, False),
        (b"", b"", False),
    ],
)
def test_ids_are_valid_by_length_and_content(trace_id: bytes, span_id: bytes, *, valid: bool) -> None:
    assert valid_ids(trace_id, span_id) == valid


@given(messages(Resource), messages(InstrumentationScope))
def test_envelope_is_read_as_protobuf_reads_it(resource: Resource, scope: InstrumentationScope) -> None:
    envelope = Envelope(
        resource=encoded(ResourceSpans(resource=resource, schema_url="u")),
        scope=encoded(ScopeSpans(scope=scope, schema_url="u")),
    )
    assert repr(dict(resource_attributes(envelope))) == repr(plain_attributes(resource.attributes))
    assert (scope_name(envelope), scope_version(envelope)) == (scope.name, scope.version)


def test_an_envelope_may_be_empty() -> None:
    envelope = Envelope(resource=b"", scope=b"")
    assert (dict(resource_attributes(envelope)), scope_name(envelope), scope_version(envelope)) == ({}, "", "")


def test_a_resource_is_read_once() -> None:
    envelope = split(encoded(request(span(), service="once")))[0].envelope
    again = split(encoded(request(span(), service="once")))[0].envelope
    assert resource_attributes(envelope) is resource_attributes(again)


def test_a_huge_envelope_is_read_but_not_kept() -> None:
    envelope = split(encoded(request(span(), service="s" * 9000, scope="n" * 9000)))[0].envelope
    assert resource_attributes(envelope) == {"service.name": "s" * 9000}
    assert resource_attributes(envelope) is not resource_attributes(envelope)
    assert scope_name(envelope) == "n" * 9000


def read_resource(raw: bytes) -> object:
    return resource_attributes(Envelope(resource=raw, scope=b""))


def read_scope(raw: bytes) -> object:
    return scope_name(Envelope(resource=b"", scope=raw)) + scope_version(Envelope(resource=b"", scope=raw))


READERS: list[Callable[[bytes], object]] = [read_span, span_ids, read_resource, read_scope]


@pytest.mark.parametrize("read", READERS)
@given(raw=st.binary(max_size=60))
def test_garbage_is_bad_input_or_a_result(read: Callable[[bytes], object], raw: bytes) -> None:
    with suppress(BadInput):
        read(raw)


@given(st.binary(max_size=60) | messages(Span).map(encoded))
def test_a_readable_span_is_one_that_is_read(raw: bytes) -> None:
    try:
        read_span(raw)
    except BadInput:
        assert not is_readable(raw)
    else:
        assert is_readable(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x4a\x05abc",
        delimited(b"\x4a", delimited(b"\x12", b"\x2a\x01\xff")),
        delimited(b"\x4a", delimited(b"\x12", b"\x32\x01\xff")),
    ],
    ids=["cut off", "bad list", "bad map"],
)
def test_a_malformed_span_is_not_readable(raw: bytes) -> None:
    assert not is_readable(raw)
