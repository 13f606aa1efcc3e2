"""Any OTLP message, made from its descriptor, and the same message in OTLP/JSON."""

from __future__ import annotations

import json
import math
from typing import TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

M = TypeVar("M", bound=Message)
F = FieldDescriptor

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
ID_SIZES = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
PROFILES_ONLY = {"string_value_strindex", "key_strindex"}
SCALARS: dict[int, st.SearchStrategy[object]] = {
    F.TYPE_DOUBLE: st.floats(allow_nan=False) | st.just(math.nan),  # JSON has no sign for NaN
    F.TYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    F.TYPE_SFIXED64: st.integers(-(1 << 63), (1 << 63) - 1),
    F.TYPE_UINT64: st.integers(0, (1 << 64) - 1),
    F.TYPE_FIXED64: st.integers(0, (1 << 64) - 1),
    F.TYPE_UINT32: st.integers(0, (1 << 32) - 1),
    F.TYPE_FIXED32: st.integers(0, (1 << 32) - 1),
    F.TYPE_SINT32: st.integers(-(1 << 31), (1 << 31) - 1),
    F.TYPE_ENUM: st.integers(-(1 << 31), (1 << 31) - 1),
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: TEXTS,
    F.TYPE_BYTES: st.binary(max_size=12),
}


def messages(kind: type[M], depth: int = 3) -> st.SearchStrategy[M]:
    """Messages of a type with any of their fields set; ids have their size, or are absent."""
    return st.fixed_dictionaries({}, optional=_fields(cast("Descriptor", kind.DESCRIPTOR), depth)).map(
        lambda values: kind(**values)
    )


def _fields(message: Descriptor, depth: int) -> dict[str, st.SearchStrategy[object]]:
    return {
        field.name: _many(field, depth) if field.is_repeated else _one(field, depth)
        for field in message.fields
        if field.name not in PROFILES_ONLY and (depth or message.name != "AnyValue" or field.message_type is None)
    }


def _many(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    return st.lists(_one(field, depth), max_size=3)


def _one(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    if field.message_type is not None:
        deeper = depth - (field.message_type.name == "AnyValue")
        kind = GetMessageClass(field.message_type)
        return st.deferred(lambda: messages(kind, deeper))
    if field.name in ID_SIZES and field.type == F.TYPE_BYTES:
        return st.binary(min_size=ID_SIZES[field.name], max_size=ID_SIZES[field.name])
    return SCALARS[field.type]


def as_json(message: Message) -> bytes:
    """Write a message as OTLP/JSON: protobuf's JSON, but ids in hexadecimal and enums as integers."""
    return json.dumps(_hexadecimal(MessageToDict(message, use_integers_for_enums=True), message)).encode()


def _hexadecimal(written: dict[str, object], message: Message) -> dict[str, object]:
    for field, value in message.ListFields():
        name = field.json_name
        if field.type == F.TYPE_BYTES and field.name in ID_SIZES:
            written[name] = value.hex()
        elif field.message_type is not None:
            inner = written[name]
            if isinstance(inner, list):
                written[name] = [_hexadecimal(item, part) for item, part in zip(inner, value, strict=True)]
            elif isinstance(inner, dict):
                written[name] = _hexadecimal(inner, value)
    return written


def encoded(message: Message) -> bytes:
    """Encode a message so that equal messages have equal bytes; NaN is not equal to itself."""
    return message.SerializeToString(deterministic=True)


def span(**attributes: str | bool | float) -> Span:
    """A span with valid ids and some attributes."""
    made = Span(trace_id=bytes(range(1, 17)), span_id=bytes(range(1, 9)), name="llm_request", flags=0x300)
    for key, value in attributes.items():
        made.attributes.add(key=key, value=any_value(value))
    return made


def any_value(value: str | bool | float) -> AnyValue:
    """An ``AnyValue`` with the member for a Python value."""
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value)


def request(*spans: Span, service: str = "vllm", scope: str = "engine") -> ExportTraceServiceRequest:
    """A request with one resource and one scope."""
    made = ExportTraceServiceRequest()
    resource_spans = made.resource_spans.add(schema_url="https://example.org/resource")
    resource_spans.resource.attributes.add(key="service.name", value=any_value(service))
    scope_spans = resource_spans.scope_spans.add(schema_url="https://example.org/scope")
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return made


def unknown(number: int, content: bytes) -> bytes:
    """An encoded field of wire type 2 with a number of two or three bytes that no OTLP message has."""
    assert 1000 <= number < 1 << 18
    assert len(content) < 128
    tag = number << 3 | 2
    head = (tag & 127 | 128, tag >> 7) if tag < 1 << 14 else (tag & 127 | 128, tag >> 7 & 127 | 128, tag >> 14)
    return bytes((*head, len(content))) + content
