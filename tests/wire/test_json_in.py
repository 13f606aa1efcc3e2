from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.wire.messages import as_json, encoded, messages
from whymiss.errors import BadInput
from whymiss.wire.fields import is_readable, read_span, valid_ids
from whymiss.wire.json_in import logs_from_json, metrics_from_json, traces_from_json
from whymiss.wire.json_schema import encoder, shape
from whymiss.wire.split import span_count, split

DATA = Path(__file__).parent / "data"
SECRET = "the prompt"

Reader = Callable[[bytes], bytes]
SIGNALS: list[tuple[Reader, type[Message]]] = [
    (traces_from_json, ExportTraceServiceRequest),
    (metrics_from_json, ExportMetricsServiceRequest),
    (logs_from_json, ExportLogsServiceRequest),
]


def read(path: str) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(traces_from_json((DATA / path).read_bytes()))


def one_span(**fields: object) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]}).encode()


def span_of(**fields: object) -> Span:
    return (
        ExportTraceServiceRequest.FromString(traces_from_json(one_span(**fields)))
        .resource_spans[0]
        .scope_spans[0]
        .spans[0]
    )


def value_of(written: object) -> AnyValue:
    return span_of(attributes=[{"key": "k", "value": written}]).attributes[0].value


@pytest.mark.parametrize(("from_json", "kind"), SIGNALS)
@given(drawn=st.data())
def test_json_and_protobuf_agree(from_json: Reader, kind: type[Message], drawn: st.DataObject) -> None:
    made = drawn.draw(messages(kind))
    assert encoded(kind.FromString(from_json(as_json(made)))) == encoded(made)


@pytest.mark.parametrize(
    ("path", "from_json", "kind"),
    [
        ("opentelemetry-proto/trace.json", traces_from_json, ExportTraceServiceRequest),
        ("opentelemetry-proto/metrics.json", metrics_from_json, ExportMetricsServiceRequest),
        ("opentelemetry-proto/logs.json", logs_from_json, ExportLogsServiceRequest),
        ("opentelemetry-proto/events.json", logs_from_json, ExportLogsServiceRequest),
        ("jaeger/cassandra_otel_traces_01.json", traces_from_json, ExportTraceServiceRequest),
        ("jaeger/memory_otel_traces_01.json", traces_from_json, ExportTraceServiceRequest),
        ("jaeger/otlp2jaeger-in.json", traces_from_json, ExportTraceServiceRequest),
    ],
)
def test_what_others_write_says_the_same_in_protobuf(path: str, from_json: Reader, kind: type[Message]) -> None:
    body = (DATA / path).read_bytes()
    made = kind.FromString(from_json(body))
    assert subset(json.loads(body), json.loads(as_json(made)))


def subset(written: object, read_back: object) -> bool:
    """Tell whether all that was written was read; spelling and what is zero may differ."""
    match written, read_back:
        case dict(), dict():
            return all(
                subset(value, read_back[key]) if key in read_back else value in ({}, [], "", 0, "0", False)
                for key, value in written.items()
            )
        case list(), list():
            return len(written) == len(read_back) and all(map(subset, written, read_back))
        case _:
            return str(written).lower() == str(read_back).lower() or float(str(written)) == float(str(read_back))


def test_ids_are_hexadecimal_in_either_case() -> None:
    span = span_of(traceId="5B8EFFF798038103D269B633813FC60C", spanId="eee19b7ec3c1b174", parentSpanId="")
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert span.span_id.hex() == "eee19b7ec3c1b174"
    assert span.parent_span_id == b""


@pytest.mark.parametrize(
    "trace_id",
    [
        "W47/95gDgQPSabYzgT/GDA==",
        "W47/95gDgQPSabYzgT/GDA",
        "5b8e",
        "5b8efff798038103d269b633813fc60",
        "5b 8e fff798038103d269b633813fc6",
        "é" * 32,
    ],
)
def test_ids_in_base64_or_of_another_size_are_refused(trace_id: str) -> None:
    with pytest.raises(
        BadInput, match=r"32 hexadecimal digits - at `\$.resourceSpans\[0\].scopeSpans\[0\].spans\[0\].traceId`"
    ):
        traces_from_json(one_span(traceId=trace_id))


@pytest.mark.parametrize("path", sorted((DATA / "langwatch" / "tolerate").iterdir()), ids=lambda path: path.stem)
def test_ids_in_base64_of_odd_exporters_are_refused(path: Path) -> None:
    body = path.read_bytes()
    if path.stem == "spring_ai":  # its ids are hexadecimal; odd is only that enums are names
        assert {span.kind for span in spans_in(ExportTraceServiceRequest.FromString(traces_from_json(body)))} == {1}
        return
    with pytest.raises(BadInput, match=r"traceId`$"):
        traces_from_json(body)


def spans_in(request: ExportTraceServiceRequest) -> list[Span]:
    return [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]


@pytest.mark.parametrize(("from_json", "kind"), SIGNALS)
@given(drawn=st.data())
def test_names_of_the_proto_files_and_of_enums_say_the_same(
    from_json: Reader, kind: type[Message], drawn: st.DataObject
) -> None:
    made = drawn.draw(messages(kind))
    camel = json.loads(as_json(made))
    snake = renamed(camel, made.DESCRIPTOR, drawn)
    assert encoded(kind.FromString(from_json(json.dumps(snake).encode()))) == encoded(made)


def renamed(value: object, message: object, drawn: st.DataObject) -> object:
    """Each field under its original name, and each enum by its name, as chance has it."""
    if isinstance(value, list):
        return [renamed(item, message, drawn) for item in value]
    if not isinstance(value, dict):
        return value
    assert isinstance(message, Descriptor)
    fields = {field.json_name: field for field in message.fields}
    result: dict[str, object] = {}
    for key, held in value.items():
        field = fields[key]
        name = field.name if drawn.draw(st.booleans()) else key
        if field.message_type is not None:
            result[name] = renamed(held, field.message_type, drawn)
        elif field.enum_type is not None and (one := field.enum_type.values_by_number.get(int(str(held)))):
            result[name] = one.name if drawn.draw(st.booleans()) else held
        else:
            result[name] = held
    return result


def test_of_two_spellings_the_specified_one_counts() -> None:
    for fields in ({"name": "n", "trace_state": "a", "traceState": "b"}, {"traceState": "b", "trace_state": "a"}):
        assert span_of(**fields).trace_state == "b"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"resource_span": [1]}, "$.resource_span"),
        ({"spans": [{"name": SECRET}]}, "$.spans"),
        ({SECRET: [1]}, "$.(no name of a field)"),
        (
            {"resourceSpans": [{}, {"instrumentationLibrarySpans": [{"spans": [{}]}]}]},
            "$.resourceSpans[1].instrumentationLibrarySpans",
        ),
        ({"resource_spans": [{"scope_spans": [{"span": [{}]}]}]}, "$.resource_spans[0].scope_spans[0].span"),
        ({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{}]}]}]}, "$.resourceMetrics"),
    ],
)
def test_a_body_of_which_nothing_is_understood_is_refused(body: dict[str, object], place: str) -> None:
    with pytest.raises(BadInput, match="nothing in it is understood") as caught:
        traces_from_json(json.dumps(body).encode())
    assert str(caught.value).endswith(f"`{place}`")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"resourceSpans": []},
        {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": []}]},
        {"resourceSpans": [{"resource": {"attributes": [{"key": "a", "value": {"intValue": 1}}]}}], "new": {}},
    ],
)
def test_an_empty_request_is_none_to_refuse(body: dict[str, object]) -> None:
    traces_from_json(json.dumps(body).encode())


@pytest.mark.parametrize("path", sorted((DATA / "langwatch" / "reject").iterdir()), ids=lambda path: path.stem)
def test_ids_of_zeros_are_read_and_told_invalid(path: Path) -> None:
    body = path.read_bytes()
    reader = traces_from_json if b"resourceSpans" in body else logs_from_json
    groups = split(reader(body)) if reader is traces_from_json else []
    for raw in [raw for group in groups for raw in group.spans]:
        span = read_span(raw)
        assert not valid_ids(span.trace_id, span.span_id)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"stringValue": ""}, AnyValue(string_value="")),
        ({"boolValue": False}, AnyValue(bool_value=False)),
        ({"intValue": "-9223372036854775808"}, AnyValue(int_value=-(1 << 63))),
        ({"intValue": 0}, AnyValue(int_value=0)),
        ({"intValue": 5.0}, AnyValue(int_value=5)),
        ({"doubleValue": 3}, AnyValue(double_value=3.0)),
        ({"doubleValue": "1.5"}, AnyValue(double_value=1.5)),
        ({"doubleValue": "Infinity"}, AnyValue(double_value=float("inf"))),
        ({"doubleValue": "-Infinity"}, AnyValue(double_value=float("-inf"))),
        ({"bytesValue": "+/8="}, AnyValue(bytes_value=b"\xfb\xff")),
        ({"bytesValue": "-_8"}, AnyValue(bytes_value=b"\xfb\xff")),
        ({"arrayValue": {}}, AnyValue(array_value=ArrayValue())),
        ({"kvlistValue": {"values": []}}, AnyValue(kvlist_value=KeyValueList())),
        ({"stringValue": None, "intValue": 1}, AnyValue(int_value=1)),
        ({"string_value": "as in the proto file"}, AnyValue(string_value="as in the proto file")),
        ({"stringvalue": "unknown"}, AnyValue()),
        ({}, AnyValue()),
    ],
)
def test_values_are_read(written: object, expected: AnyValue) -> None:
    assert value_of(written) == expected


def test_nan_is_read() -> None:
    number = value_of({"doubleValue": "NaN"}).double_value
    assert number != number  # noqa: PLR0124 - nothing else is unequal to itself


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"kind": "SPAN_KIND_NEW"}, "kind"),
        ({"kind": 1 << 31}, "kind"),
        ({"startTimeUnixNano": "-1"}, "startTimeUnixNano"),
        ({"startTimeUnixNano": "soon"}, "startTimeUnixNano"),
        ({"startTimeUnixNano": 1.5}, "startTimeUnixNano"),
        ({"startTimeUnixNano": True}, "startTimeUnixNano"),
        ({"flags": 1 << 32}, "flags"),
        ({"name": 7}, "name"),
        ({"attributes": {}}, "attributes"),
        ({"attributes": [None]}, "attributes[0]"),
        ({"attributes": [{"key": SECRET}, {"value": {"intValue": 1 << 63}}]}, "attributes[1].value.intValue"),
        ({"attributes": [{"value": {"bytesValue": SECRET}}]}, "attributes[0].value.bytesValue"),
        ({"attributes": [{"value": {"bytesValue": "a"}}]}, "attributes[0].value.bytesValue"),
        (
            {"events": [{}, {"attributes": [{"value": {"arrayValue": {"values": [{}, {"intValue": 1 << 63}]}}}]}]},
            "events[1].attributes[0].value.arrayValue.values[1].intValue",
        ),
        (
            {"links": [{"attributes": [{"value": {"kvlistValue": {"values": [{"value": {"intValue": 1 << 63}}]}}}]}]},
            "links[0].attributes[0].value.kvlistValue.values[0].value.intValue",
        ),
        ({"status": {"code": 1 << 40}}, "status.code"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_path(fields: dict[str, object], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        traces_from_json(one_span(name=fields.pop("name", SECRET), **fields))
    assert str(caught.value).endswith(f"`$.resourceSpans[0].scopeSpans[0].spans[0].{place}`")
    assert SECRET not in str(caught.value)


def test_unknown_and_null_fields_are_ignored() -> None:
    assert span_of(name="n", kind=None, unknown={"deep": [1, {"er": None}]}) == Span(name="n")


def test_metrics_keep_zero_where_zero_is_not_absence() -> None:
    point = {"sum": 0, "min": 0, "bucketCounts": ["1", 2], "explicitBounds": [0.5], "count": 0}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"histogram": {"dataPoints": [point]}}]}]}]}
    made = ExportMetricsServiceRequest.FromString(metrics_from_json(json.dumps(body).encode()))
    read_back = made.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0]
    assert read_back.HasField("sum")
    assert read_back.HasField("min")
    assert not read_back.HasField("max")
    assert list(read_back.bucket_counts) == [1, 2]


@pytest.mark.parametrize("opened", ["arrayValue", "kvlistValue"])
def test_nesting_is_limited_to_what_others_can_read(opened: str) -> None:
    def nested(depth: int) -> object:
        value: object = {"stringValue": SECRET}
        for _ in range(depth):
            value = {opened: {"values": [value if opened == "arrayValue" else {"key": "k", "value": value}]}}
        return value

    deepest = one_span(attributes=[{"key": "k", "value": nested(24)}])
    assert all(is_readable(raw) for raw in split(traces_from_json(deepest))[0].spans)
    with pytest.raises(BadInput, match="Nested too deeply") as caught:
        traces_from_json(one_span(attributes=[{"key": "k", "value": nested(25)}]))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"resourceSpans":', b'{"resourceSpans":[{"x":['])
def test_a_flood_of_brackets_is_bad_input(opening: bytes) -> None:
    with pytest.raises(BadInput):
        traces_from_json(opening * 100_000)


def test_values_nested_a_hundred_thousand_deep_are_bad_input() -> None:
    start = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"value":'
    with pytest.raises(BadInput, match="nested too deeply"):
        traces_from_json(start + b'{"arrayValue":{"values":[' * 100_000)


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"a":tru}', b'{} {"a": "' + SECRET.encode(), b'"\xff"'])
def test_what_is_no_json_is_told_by_its_offset(body: bytes) -> None:
    with pytest.raises(BadInput, match=r"malformed JSON|Expected `object`") as caught:
        traces_from_json(body)
    assert caught.value.offset is None or 0 <= caught.value.offset <= len(body)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("body", [b"[]", b"null", b"7", b'"text"'])
def test_a_request_is_an_object(body: bytes) -> None:
    with pytest.raises(BadInput, match="Expected `object`"):
        traces_from_json(body)


@pytest.mark.parametrize(("from_json", "kind"), SIGNALS)
def test_an_empty_request_is_empty(from_json: Reader, kind: type[Message]) -> None:
    assert from_json(b"{}") == kind().SerializeToString() == b""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resourceSpans",
                    "resource",
                    "scopeSpans",
                    "spans",
                    "attributes",
                    "key",
                    "value",
                    "values",
                    "arrayValue",
                    "intValue",
                    "bytesValue",
                    "kind",
                    "traceId",
                    "events",
                    "status",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("from_json", [traces_from_json, metrics_from_json, logs_from_json])
@given(body=st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_is_bad_input_or_a_request(from_json: Reader, body: bytes) -> None:
    with suppress(BadInput):
        from_json(body)


@given(JSON)
def test_what_is_read_from_json_is_a_request(value: object) -> None:
    with suppress(BadInput):
        body = traces_from_json(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]}).encode())
        assert span_count(body) == 1
        assert is_readable(split(body)[0].spans[0])


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"', '"\\udc00\\ud800"'])
def test_half_a_surrogate_pair_is_bad_input_or_text(text: str) -> None:
    with suppress(BadInput):
        body = traces_from_json(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":%b}]}]}]}' % text.encode())
        assert span_count(body) == 1


def test_bytes_that_are_no_id_are_base64() -> None:
    decoder = msgspec.json.Decoder(shape(BytesValue.DESCRIPTOR))
    encode = encoder(BytesValue.DESCRIPTOR)
    assert encode(decoder.decode(b'{"value": "+/8="}')) == BytesValue(value=b"\xfb\xff").SerializeToString()
