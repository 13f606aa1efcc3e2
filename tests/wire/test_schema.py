"""The private schema reads the bytes that opentelemetry-proto writes."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from whymiss.wire import json_values, shallow_pb2
from whymiss.wire.json_schema import shape
from whymiss.wire.split import upb_in_use

F = FieldDescriptor

# A string may be read as bytes, and so may a message; an enum is an integer.
READABLE_AS = {
    F.TYPE_STRING: {F.TYPE_BYTES},
    F.TYPE_MESSAGE: {F.TYPE_BYTES, F.TYPE_MESSAGE},
    F.TYPE_ENUM: {F.TYPE_INT32},
}

THEIRS: dict[str, Descriptor] = {
    "ExportTraceServiceRequest": trace_service_pb2.ExportTraceServiceRequest.DESCRIPTOR,
    "ResourceSpans": trace_pb2.ResourceSpans.DESCRIPTOR,
    "ResourceEnvelope": trace_pb2.ResourceSpans.DESCRIPTOR,
    "ScopeSpans": trace_pb2.ScopeSpans.DESCRIPTOR,
    "ScopeEnvelope": trace_pb2.ScopeSpans.DESCRIPTOR,
    "SpanIds": trace_pb2.Span.DESCRIPTOR,
    "Span": trace_pb2.Span.DESCRIPTOR,
    "Span.Event": trace_pb2.Span.Event.DESCRIPTOR,
    "Span.Link": trace_pb2.Span.Link.DESCRIPTOR,
    "Status": trace_pb2.Status.DESCRIPTOR,
    "Resource": resource_pb2.Resource.DESCRIPTOR,
    "InstrumentationScope": common_pb2.InstrumentationScope.DESCRIPTOR,
    "KeyValue": common_pb2.KeyValue.DESCRIPTOR,
    "AnyValue": common_pb2.AnyValue.DESCRIPTOR,
    "ArrayValue": common_pb2.ArrayValue.DESCRIPTOR,
    "KeyValueList": common_pb2.KeyValueList.DESCRIPTOR,
}


def ours() -> dict[str, Descriptor]:
    found = dict(shallow_pb2.DESCRIPTOR.message_types_by_name)
    nested = {f"{name}.{inner.name}": inner for name, message in found.items() for inner in message.nested_types}
    return found | nested


def test_every_message_of_the_schema_has_its_counterpart() -> None:
    assert set(ours()) == set(THEIRS)


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_fields_agree_in_number_name_and_wire_type(name: str) -> None:
    for field in ours()[name].fields:
        theirs = THEIRS[name].fields_by_number[field.number]
        assert field.name == theirs.name
        assert field.type in READABLE_AS.get(theirs.type, {theirs.type})
        if field.type == F.TYPE_MESSAGE:
            assert theirs.type == F.TYPE_MESSAGE
        # Repeated bytes keep all occurrences of what protobuf would merge.
        assert field.is_repeated == theirs.is_repeated or (field.type == F.TYPE_BYTES and field.is_repeated)


@pytest.mark.parametrize("name", ["AnyValue", "KeyValue", "ArrayValue", "KeyValueList"])
def test_handwritten_json_shapes_have_all_fields(name: str) -> None:
    shaped = getattr(json_values, name)
    theirs = common_pb2.DESCRIPTOR.message_types_by_name[name]
    fields = {field.name: field.json_name for field in theirs.fields if not field.name.endswith("_strindex")}
    assert dict(zip(shaped.__struct_fields__, shaped.__struct_encode_fields__, strict=True)) == fields


def test_shape_is_made_once_for_each_message() -> None:
    request = shape(trace_service_pb2.ExportTraceServiceRequest.DESCRIPTOR)
    assert isinstance(request, type)


def test_upb_is_in_use() -> None:
    assert upb_in_use()
