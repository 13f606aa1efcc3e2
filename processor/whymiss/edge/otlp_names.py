"""OTLP's names on the wire, by signal."""

from __future__ import annotations

from ..redaction import Signal

SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}
METHODS = {signal: f"/{service}/Export" for signal, service in SERVICES.items()}
PATHS = {signal: f"/v1/{signal}" for signal in Signal}
