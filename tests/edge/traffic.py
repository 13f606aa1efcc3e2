"""Requests to send: spans whose ids are their numbers."""

from __future__ import annotations

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from whymiss.redaction import Redacted, Signal, untouched

RESOURCE = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="sender"))])
SCOPE = InstrumentationScope(name="test")


def span(number: int, *, padding: int = 0) -> Span:
    attributes = [KeyValue(key="padding", value=AnyValue(string_value="x" * padding))] if padding else []
    return Span(
        trace_id=(number + 1).to_bytes(16, "big"),
        span_id=(number + 1).to_bytes(8, "big"),
        name=f"span {number}",
        start_time_unix_nano=1,
        end_time_unix_nano=2,
        attributes=attributes,
    )


def traces(*numbers: int, padding: int = 0) -> bytes:
    """An encoded trace request with a span for each number."""
    scope = ScopeSpans(scope=SCOPE, spans=[span(number, padding=padding) for number in numbers], schema_url="s")
    request = ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=RESOURCE, scope_spans=[scope], schema_url="r")]
    )
    return request.SerializeToString()


def metrics() -> bytes:
    """An encoded metrics request."""
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)]))
    scope = ScopeMetrics(scope=SCOPE, metrics=[metric])
    request = ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=RESOURCE, scope_metrics=[scope])])
    return request.SerializeToString()


def logs() -> bytes:
    """An encoded logs request."""
    scope = ScopeLogs(scope=SCOPE, log_records=[LogRecord(body=AnyValue(string_value="l"))])
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=RESOURCE, scope_logs=[scope])])
    return request.SerializeToString()


BODIES = {Signal.TRACES: traces(0), Signal.METRICS: metrics(), Signal.LOGS: logs()}


def redacted(*numbers: int, padding: int = 0) -> Redacted:
    """What the core would hand to an exporter."""
    return untouched(Signal.TRACES, traces(*numbers, padding=padding), len(numbers))


def numbers(*bodies: bytes) -> list[int]:
    """The numbers of the spans in encoded trace requests."""
    return [
        int.from_bytes(one.span_id, "big") - 1
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for one in scope.spans
    ]
