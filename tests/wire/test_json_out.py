from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import Parse
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.wire.messages import TEXTS
from whymiss.wire.json_out import export_response, retry_delay_bytes, status_body, status_details_bytes

RESPONSES: dict[str, type[Message]] = {
    "traces": ExportTraceServiceResponse,
    "metrics": ExportMetricsServiceResponse,
    "logs": ExportLogsServiceResponse,
}
UNAVAILABLE = 14


@pytest.mark.parametrize("signal", RESPONSES)
@given(rejected=st.integers(0, 1 << 40), message=TEXTS)
def test_protobuf_and_json_response_say_the_same(signal: str, rejected: int, message: str) -> None:
    kind = RESPONSES[signal]
    from_protobuf = kind.FromString(export_response(rejected, message, as_json=False, signal=signal))
    from_json = Parse(export_response(rejected, message, as_json=True, signal=signal), kind())
    assert from_protobuf == from_json


def test_rejection_has_its_number_and_reason() -> None:
    body = export_response(3, "ids are invalid", as_json=False, signal="traces")
    partial = ExportTraceServiceResponse.FromString(body).partial_success
    assert (partial.rejected_spans, partial.error_message) == (3, "ids are invalid")
    assert json.loads(export_response(3, "why", as_json=True, signal="logs")) == {
        "partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "why"}
    }


@pytest.mark.parametrize("signal", RESPONSES)
def test_full_success_leaves_partial_success_unset(signal: str) -> None:
    assert export_response(0, "", as_json=False, signal=signal) == b""
    assert export_response(0, "", as_json=True, signal=signal) == b"{}"


@given(st.integers(1, 16), TEXTS, st.none() | st.floats(0, 1e6))
def test_protobuf_and_json_status_say_the_same(code: int, message: str, retry_seconds: float | None) -> None:
    from_protobuf = Status.FromString(status_body(code, message, retry_seconds=retry_seconds, as_json=False))
    from_json = Parse(status_body(code, message, retry_seconds=retry_seconds, as_json=True), Status())
    assert from_protobuf == from_json
    assert (from_protobuf.code, from_protobuf.message) == (code, message)
    assert len(from_protobuf.details) == (retry_seconds is not None)


def test_status_tells_when_to_retry() -> None:
    status = Status.FromString(status_details_bytes(UNAVAILABLE, "full", 1.5))
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    assert (info.retry_delay.seconds, info.retry_delay.nanos) == (1, 500_000_000)


@pytest.mark.parametrize(
    ("seconds", "delay"),
    [(0, "0s"), (2, "2s"), (1.5, "1.5s"), (10, "10s"), (100.25, "100.25s"), (1e-9, "0.000000001s")],
)
def test_delay_is_written_as_protobuf_durations_are(seconds: float, delay: str) -> None:
    status = json.loads(status_body(UNAVAILABLE, "full", retry_seconds=seconds, as_json=True))
    assert status["details"][0]["retryDelay"] == delay


@given(st.floats(0, 1e6))
def test_bare_retry_info_is_one(seconds: float) -> None:
    delay = RetryInfo.FromString(retry_delay_bytes(seconds)).retry_delay
    assert delay.seconds + delay.nanos / 1e9 == pytest.approx(seconds, abs=1e-8)


def test_a_negative_delay_is_none_at_all() -> None:
    assert RetryInfo.FromString(retry_delay_bytes(-1.0)) == RetryInfo(retry_delay={})
