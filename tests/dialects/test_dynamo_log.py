"""Dynamo's request-trace record: dynamo lib/llm/src/request_trace/, docs/observability request tracing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from whymiss.dialects.dynamo_log import SCOPE, SENSITIVE, read_log_record, take_records
from whymiss.dialects.secrets import GUARDED
from whymiss.errors import BadInput
from whymiss.model import GatewayUsage, Lookup, RouteDecision, Span, request_ids
from whymiss.wire.logs import LogFields, assemble_logs, read_log, split_logs
from whymiss.wire.splice import splice_log

CHAIN = [2**64 - 1, 17, 4]
REQUEST = {
    "request_id": "r-1",
    "x_request_id": "x-1",
    "model": "m",
    "input_tokens": 160,
    "cached_tokens": 64,
    "kv_hit_rate": 0.5,
    "request_received_ms": 1_700_000_000_000,
    "worker": {"prefill_worker_id": 7, "prefill_dp_rank": 1, "decode_worker_id": 8, "decode_dp_rank": 0},
    "replay": {"trace_block_size": 16, "input_length": 160, "input_sequence_hashes": CHAIN},
}


def record(request: object = REQUEST, **attributes: str) -> bytes:
    message = LogRecord(time_unix_nano=5, observed_time_unix_nano=9, severity_text="INFO")
    message.body.string_value = "request_end"
    pairs = {
        "schema": "dynamo.request.trace.v1",
        "rid": "r-1",
        "payload": json.dumps({"request": request}),
        **attributes,
    }
    for key, value in pairs.items():
        message.attributes.add(key=key).value.string_value = value
    return message.SerializeToString()


def read(raw: bytes, *, chain_comparable: bool = False) -> Span | None:
    return read_log_record(SCOPE, read_log(raw), chain_comparable=chain_comparable)


ROUND_ROBIN = {**REQUEST, "kv_hit_rate": None}
"""Where no KV router wrote its promise into the record, the engine's own count is there."""


def test_a_record_tells_the_workers_and_the_promise() -> None:
    span = read(record())
    assert span is not None
    assert span.says == (
        GatewayUsage(request_id="r-1", prompt_tokens=160, model="m"),
        RouteDecision(
            request_id="x-1", worker="7", rank=1, predicted_blocks=5, prefix_aware=True, phase="prefill", model="m"
        ),
        RouteDecision(request_id="x-1", worker="8", rank=0, prefix_aware=True, phase="decode", model="m"),
    )
    assert request_ids(span) == ("r-1", "x-1")
    assert span.start_unix_nanos == 1_700_000_000_000_000_000


def test_a_record_never_leaves_as_a_span() -> None:
    span = read(record())
    assert span is not None
    assert span.raw == b""


def test_a_chain_of_another_hash_family_is_not_told() -> None:
    kinds = [type(one) for one in (read(record(ROUND_ROBIN)) or pytest.fail("read")).says]
    assert Lookup not in kinds
    span = read(record(ROUND_ROBIN), chain_comparable=True)
    assert span is not None
    (lookup,) = (one for one in span.says if isinstance(one, Lookup))
    assert (lookup.expected_keys, lookup.block_size) == ((2**64 - 1, 17, 4), 16)


def test_a_rate_that_is_no_whole_number_of_blocks_promises_nothing() -> None:
    span = read(record({**REQUEST, "kv_hit_rate": 0.333}))
    assert span is not None
    assert all(one.predicted_blocks is None for one in span.says if isinstance(one, RouteDecision))


def test_an_absent_count_is_not_zero() -> None:
    span = read(record({key: value for key, value in ROUND_ROBIN.items() if key != "cached_tokens"}))
    assert span is not None
    assert not any(isinstance(one, GatewayUsage) for one in span.says)


@pytest.mark.parametrize("request_", [ROUND_ROBIN, {key: REQUEST[key] for key in REQUEST if key != "kv_hit_rate"}])
def test_the_count_is_the_engines_only_where_no_router_promised(request_: dict[str, object]) -> None:
    span = read(record(request_))
    assert span is not None
    assert span.says[0] == GatewayUsage(request_id="r-1", prompt_tokens=160, cached_tokens=64, model="m")
    assert all(one.predicted_blocks is None for one in span.says if isinstance(one, RouteDecision))
    promising = read(record(), chain_comparable=True)
    assert promising is not None
    assert [one.cached_tokens for one in promising.says if isinstance(one, GatewayUsage | Lookup)] == [None]


@pytest.mark.parametrize("payload", ["", "{", "[]", '{"request": 5}', '{"request": {}}', "[" * 100_000])
def test_a_payload_that_is_cut_off_says_nothing(payload: str) -> None:
    assert read(record(payload=payload)) is None


def test_other_logs_say_nothing() -> None:
    assert read_log_record("app", LogFields(attributes={"payload": "{}"})) is None


# --- the wire --------------------------------------------------------------------------------------


def request_of(*records: bytes) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    resource = made.resource_logs.add(schema_url="r")
    resource.resource.attributes.add(key="service.name").value.string_value = "dynamo"
    scope = resource.scope_logs.add(schema_url="s")
    scope.scope.name = SCOPE
    scope.log_records.extend([LogRecord.FromString(raw) for raw in records])
    return made


def test_a_log_request_is_put_together_as_it_was() -> None:
    made = request_of(record(), record({}))
    groups = split_logs(made.SerializeToString())
    assert ExportLogsServiceRequest.FromString(assemble_logs(groups)) == made


def test_what_identifies_a_prompt_is_taken_out_and_nothing_else() -> None:
    raw = record()
    left = LogRecord.FromString(splice_log(raw, SENSITIVE))
    assert "payload" not in {pair.key for pair in left.attributes}
    assert left.dropped_attributes_count == 1
    expected = LogRecord.FromString(raw)
    del expected.attributes[2]
    expected.dropped_attributes_count = 1
    assert left == expected


def test_a_record_without_it_keeps_its_bytes() -> None:
    raw = LogRecord(severity_text="payload-like").SerializeToString()
    assert splice_log(raw, SENSITIVE) == raw


def test_a_request_leaves_without_its_payloads_and_gives_its_evidence() -> None:
    body = request_of(record(), record({})).SerializeToString()
    taken = take_records(body, GUARDED)
    assert [one.dialect for one in taken.evidence] == ["dynamo_log"]
    assert taken.rejected == ()
    assert b"payload" not in taken.rest
    left = ExportLogsServiceRequest.FromString(taken.rest)
    assert len(left.resource_logs[0].scope_logs[0].log_records) == 2


def test_other_logs_leave_as_the_bytes_that_came() -> None:
    made = request_of(record())
    made.resource_logs[0].scope_logs[0].scope.name = "app"
    made.resource_logs[0].scope_logs[0].log_records[0].attributes[0].value.string_value = "app.v1"
    body = made.SerializeToString()
    assert take_records(body, GUARDED).rest is body


def test_a_record_that_cannot_be_read_is_rejected_alone() -> None:
    ((envelope, (raw,)),) = split_logs(request_of(record()).SerializeToString())
    taken = take_records(assemble_logs([(envelope, [b"\x32\x7f", raw])]), GUARDED)
    assert (len(taken.evidence), len(taken.rejected)) == (1, 1)
    assert len(split_logs(taken.rest)[0].spans) == 1


def test_garbage_is_bad_input() -> None:
    with pytest.raises(BadInput, match="log"):
        split_logs(b"\xff\xff\xff")
    with pytest.raises(BadInput):
        read_log(b"\x0a\x7f")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*REQUEST, "x"]), inner, max_size=4),
    max_leaves=9,
)


@given(st.dictionaries(st.sampled_from([*REQUEST]), json_values), st.booleans())
def test_any_json_is_read_or_says_nothing(request: dict[str, object], comparable: bool) -> None:
    read(record({**REQUEST, **request}), chain_comparable=comparable)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_bad_input(raw: bytes) -> None:
    for attempt in (read_log, lambda one: splice_log(one, SENSITIVE), split_logs):
        try:
            attempt(raw)
        except BadInput:
            continue
