from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from whymiss.edge.exporters.replies import read_bare_delay_seconds, read_partial_success, read_status_delay_seconds


@given(rejected=st.integers(0, (1 << 63) - 1), message=st.text(max_size=50))
def test_a_partial_success_is_read_as_it_was_written(rejected: int, message: str) -> None:
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message=message)
    response = ExportTraceServiceResponse(partial_success=partial)
    assert read_partial_success(response.SerializeToString()) == (rejected, message)


def test_the_other_signals_use_the_same_fields() -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 7
    assert read_partial_success(response.SerializeToString()) == (7, "")


def test_an_empty_or_negative_partial_success_rejects_nothing() -> None:
    assert read_partial_success(b"") == (0, "")
    negative = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=-1))
    assert read_partial_success(negative.SerializeToString()) == (0, "")


@given(seconds=st.integers(0, 10**9), nanos=st.integers(0, 999_999_999))
def test_a_retry_hint_is_read_bare_and_within_a_status(seconds: int, nanos: int) -> None:
    info = RetryInfo(retry_delay=Duration(seconds=seconds, nanos=nanos))
    detail, other = Any(), Any()
    detail.Pack(info)
    other.Pack(BadRequest())
    status = Status(code=14, message="later", details=[other, detail])
    expected = pytest.approx(seconds + nanos / 1e9)
    assert read_bare_delay_seconds(info.SerializeToString()) == expected
    assert read_status_delay_seconds(status.SerializeToString()) == expected


def test_a_status_without_a_hint_gives_none_and_a_negative_hint_is_no_time() -> None:
    assert read_status_delay_seconds(Status(code=8, message="no").SerializeToString()) is None
    assert read_bare_delay_seconds(RetryInfo(retry_delay=Duration(seconds=-5, nanos=-1)).SerializeToString()) == 0


@given(st.binary(max_size=60))
def test_garbage_says_nothing_and_raises_nothing(garbage: bytes) -> None:
    rejected, _ = read_partial_success(garbage)
    assert 0 <= rejected < 1 << 63
    for hint in (read_status_delay_seconds(garbage), read_bare_delay_seconds(garbage)):
        assert hint is None or hint >= 0
