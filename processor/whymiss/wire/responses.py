"""What a next hop answers: partial success, and when to try again."""

from __future__ import annotations

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ..errors import BadInput


def read_partial_success(signal: str, body: bytes) -> tuple[int, str]:
    """How many items of an accepted request were rejected, and the message. Raises ``BadInput``."""
    try:
        if signal == "traces":
            traces = ExportTraceServiceResponse.FromString(body).partial_success
            return traces.rejected_spans, traces.error_message
        if signal == "metrics":
            metrics = ExportMetricsServiceResponse.FromString(body).partial_success
            return metrics.rejected_data_points, metrics.error_message
        logs = ExportLogsServiceResponse.FromString(body).partial_success
    except DecodeError as problem:
        raise BadInput("the answer is no export response") from problem
    return logs.rejected_log_records, logs.error_message


def read_retry_delay(trailer: str, value: bytes) -> float | None:
    """Seconds that a gRPC trailer asks to wait: a bare ``RetryInfo``, or a ``Status`` with one in its details."""
    try:
        if trailer == "google.rpc.retryinfo-bin":
            return _seconds(RetryInfo.FromString(value))
        if trailer != "grpc-status-details-bin":
            return None
        for detail in Status.FromString(value).details:
            delay = RetryInfo()
            if detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(delay):
                return _seconds(delay)
    except DecodeError:
        return None
    return None


def _seconds(delay: RetryInfo) -> float:
    seconds: int = delay.retry_delay.seconds
    nanos: int = delay.retry_delay.nanos
    return seconds + nanos / 1e9
