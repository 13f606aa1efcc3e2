"""Recorded requests as a routed fleet would send them: a router's promise, then the engine's span, each by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from whymiss.tools.recording import KvMessage, OtlpRequest, Recording
from whymiss.tools.replay import Replay, default_config

WORKER = "vllm-replica-0"
BLOCK_TOKENS = 32
ROUTER_NANOS = 5_000_000
EXPORT_NANOS = 50_000_000


class Promised(msgspec.Struct, kw_only=True):
    """One request of the engine, and the router's span that promised it all of its blocks."""

    request_id: str
    resource: Resource
    scope: str
    span: Span

    @property
    def routed_nanos(self) -> int:
        return self.span.start_time_unix_nano - ROUTER_NANOS

    @property
    def exported_nanos(self) -> int:
        return self.span.end_time_unix_nano + EXPORT_NANOS

    def route(self) -> bytes:
        """The router's export."""
        request, tokens = ExportTraceServiceRequest(), int(text_of(self.span, "gen_ai.usage.prompt_tokens"))
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "router"
        scope = resource.scope_spans.add()
        scope.scope.name = "router"
        span = scope.spans.add(name="route", trace_id=self.span.trace_id, span_id=b"route" + self.span.span_id[:3])
        span.start_time_unix_nano = self.routed_nanos
        span.end_time_unix_nano = self.routed_nanos + ROUTER_NANOS // 5
        span.flags = 0x101
        span.attributes.add(key="prefix_cache.route.worker").value.string_value = WORKER
        span.attributes.add(key="prefix_cache.route.predicted_blocks").value.int_value = tokens // BLOCK_TOKENS
        span.attributes.add(key="gen_ai.request.id").value.string_value = self.request_id
        return request.SerializeToString()

    def engine(self) -> bytes:
        """The engine's export."""
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        resource.resource.CopyFrom(self.resource)
        scope = resource.scope_spans.add()
        scope.scope.name = self.scope
        scope.spans.add().CopyFrom(self.span)
        return request.SerializeToString()


def text_of(span: Span, name: str) -> str:
    """An attribute of a span as text."""
    value = next(one.value for one in span.attributes if one.key == name)
    return str(getattr(value, value.WhichOneof("value") or "string_value"))


def promised(recording: Recording) -> list[Promised]:
    """The requests of a recording in the order of their arrival, each in a trace of its own."""
    found = [
        Promised(
            request_id=text_of(span, "gen_ai.request.id"), resource=group.resource, scope=scope.scope.name, span=span
        )
        for export in recording.otlp
        for group in ExportTraceServiceRequest.FromString(export.body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
        if span.name == "llm_request"
    ]
    for one in found:
        # Those of one trace, too: were they left out, their stores would be nobody's.
        one.span.trace_id = hashlib.blake2b(one.span.span_id, digest_size=16).digest()
    return sorted(found, key=lambda one: one.span.start_time_unix_nano)


def timeline(requests: Sequence[Promised], events: Sequence[KvMessage]) -> Iterator[tuple[int, Promised | KvMessage]]:
    """Events and engines' exports by the time at which they arrive."""
    arrivals: list[tuple[int, Promised | KvMessage]] = [(one.received_unix_nanos, one) for one in events]
    arrivals += [(one.exported_nanos, one) for one in requests]
    yield from sorted(arrivals, key=lambda pair: pair[0])


def truth(folder: Path, requests: Sequence[Promised]) -> dict[str, str]:
    """The cause of each request, judged from all of its spans and all events, by one process."""
    recording = Recording(folder)
    recording.otlp = sorted(
        (
            OtlpRequest(received_unix_nanos=at, body=body)
            for one in requests
            for at, body in ((one.routed_nanos + ROUTER_NANOS, one.route()), (one.exported_nanos, one.engine()))
        ),
        key=lambda one: one.received_unix_nanos,
    )
    return {str(row["request_id"]): str(row["cause"]) for row in Replay(recording, default_config()).play()}
