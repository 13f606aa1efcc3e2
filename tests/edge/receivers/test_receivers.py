"""What senders get to hear, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import tracemalloc
import zlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import grpc
import pytest
import zstandard
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.edge.sinks import GrpcSink, running
from whymiss.edge.otlp_names import METHODS
from whymiss.edge.service import Service, serving
from whymiss.redaction import Signal

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json; charset=utf-8"}
CAPTURE = Path(__file__).resolve().parents[2] / "captures" / "01-vanilla-sha256-bytes" / "otlp"


def foreign(name: str = "db.query") -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.spans.add(name=name, trace_id=b"t" * 16, span_id=b"s" * 8)
    return request.SerializeToString()


def engine_with_zero_ids() -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    scope.spans.add(name="llm_request", trace_id=bytes(16), span_id=bytes(8))
    scope.spans.add(name="db.query", trace_id=b"t" * 16, span_id=b"s" * 8)
    return request.SerializeToString()


async def post(service: Service, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"http://127.0.0.1:{service.http_port}{path}", data=io.BytesIO(body), headers=headers) as answer,
    ):
        return answer.status, {key.lower(): value for key, value in answer.headers.items()}, await answer.read()


async def call(service: Service, signal: Signal, body: bytes) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHODS[signal])
        return await export(body)


ENCODINGS = {
    "identity": lambda body: body,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_http_takes_every_encoding(encoding: str) -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            body = ENCODINGS[encoding](foreign())
            status, _, answer = await post(service, "/v1/traces", body, {**PROTOBUF, "Content-Encoding": encoding})
            assert (status, answer) == (200, b"")
            (span,) = await sink.wait_for_spans(1)
            assert span.name == "db.query"

    asyncio.run(scene())


def test_http_takes_json_and_answers_in_json() -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            document = {
                "resourceSpans": [
                    {"scopeSpans": [{"spans": [{"name": "j", "traceId": "ab" * 16, "spanId": "CD" * 8}]}]}
                ]
            }
            status, headers, answer = await post(service, "/v1/traces", json.dumps(document).encode(), JSON)
            assert (status, json.loads(answer)) == (200, {})
            assert headers["content-type"].startswith("application/json")
            (span,) = await sink.wait_for_spans(1)
            assert (span.trace_id.hex(), span.span_id.hex()) == ("ab" * 16, "cd" * 8)

    asyncio.run(scene())


REFUSALS = [
    ("PUT is not POST", "PUT", "/v1/traces", PROTOBUF, b"", 405),
    ("an unknown media type", "POST", "/v1/traces", {"Content-Type": "text/plain"}, b"x", 415),
    ("an unknown encoding", "POST", "/v1/traces", {**PROTOBUF, "Content-Encoding": "snappy"}, b"x", 400),
    ("bytes that are no protobuf", "POST", "/v1/traces", PROTOBUF, b"\xff\xff\xff", 400),
    ("bytes that are no JSON", "POST", "/v1/traces", JSON, b"{", 400),
    ("bytes that are no gzip", "POST", "/v1/traces", {**PROTOBUF, "Content-Encoding": "gzip"}, b"plain", 400),
    ("bytes that are no zstd", "POST", "/v1/traces", {**PROTOBUF, "Content-Encoding": "zstd"}, b"plain", 400),
    ("a body over the limit", "POST", "/v1/traces", PROTOBUF, b"\x00" * (1024 * 1024 + 1), 413),
    ("a path that is not ours", "POST", "/v1/profiles", PROTOBUF, b"", 404),
]


@pytest.mark.parametrize(
    ("claim", "method", "path", "headers", "body", "expected"), REFUSALS, ids=lambda value: str(value)[:24]
)
def test_http_refuses_by_the_specification(
    claim: str, method: str, path: str, headers: dict[str, str], body: bytes, expected: int
) -> None:
    async def scene() -> None:
        async with running(GrpcSink()) as service, aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{service.http_port}{path}"
            async with client.request(method, url, data=io.BytesIO(body), headers=headers) as answer:
                assert answer.status == expected, claim
                content = await answer.read()
                if expected != 404 and answer.content_type == "application/x-protobuf":
                    assert Status.FromString(content).message
                elif expected != 404:
                    assert json.loads(content)["message"]

    asyncio.run(scene())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_decompression_bomb_is_refused_in_bounded_memory(encoding: str) -> None:
    bomb = ENCODINGS[encoding](bytes(200 * 1024 * 1024))

    async def scene() -> int:
        async with running(GrpcSink()) as service:
            tracemalloc.start()
            status, _, _ = await post(service, "/v1/traces", bomb, {**PROTOBUF, "Content-Encoding": encoding})
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert status == 413
            return peak

    assert asyncio.run(scene()) < 48 * 1024 * 1024


def test_partly_bad_requests_are_accepted_in_part_over_both_transports() -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            over_grpc = await call(service, Signal.TRACES, engine_with_zero_ids())
            _, _, over_http = await post(service, "/v1/traces", engine_with_zero_ids(), PROTOBUF)
            for answer in (over_grpc, over_http):
                partial = ExportTraceServiceResponse.FromString(answer).partial_success
                assert partial.rejected_spans == 1
                assert "trace id" in partial.error_message
            assert {span.name for span in await sink.wait_for_spans(2)} == {"db.query"}

    asyncio.run(scene())


def test_grpc_answers_garbage_with_invalid_argument() -> None:
    async def scene() -> None:
        async with running(GrpcSink()) as service:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(service, Signal.TRACES, b"\xff\xff\xff")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(scene())


def test_a_full_queue_refuses_with_a_hint_that_every_client_reads() -> None:
    async def scene() -> None:
        # The next hop never takes anything, and one request fills the queue.
        sink = GrpcSink([grpc.StatusCode.UNAVAILABLE] * 10_000)
        exporter = ", queue_requests_max: 1"
        async with running(sink, exporter=exporter, more="shutdown: {deadline_seconds: 0.1}") as service:
            await call(service, Signal.TRACES, foreign("first"))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(service, Signal.TRACES, foreign("second"))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "queue_requests_max" in (refused.value.details() or "")
            trailers = dict(refused.value.trailing_metadata() or ())
            bare = trailers["google.rpc.retryinfo-bin"]
            assert isinstance(bare, bytes)
            assert 1 <= RetryInfo.FromString(bare).retry_delay.seconds <= 3
            detailed = trailers["grpc-status-details-bin"]
            assert isinstance(detailed, bytes)
            assert Status.FromString(detailed).details[0].Is(RetryInfo.DESCRIPTOR)
            status, headers, _ = await post(service, "/v1/traces", foreign(), PROTOBUF)
            assert (status, headers["retry-after"]) == (503, "1")

    asyncio.run(scene())


def test_metrics_and_logs_go_through_byte_for_byte() -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            # A field that no schema knows must survive.
            for signal in (Signal.METRICS, Signal.LOGS):
                body = b"\x0a\x04\xfa\x3f\x01x"
                await call(service, signal, body)
                assert list(await sink.wait_for_bodies(signal, 1)) == [body]

    asyncio.run(scene())


def test_an_empty_request_is_a_success_and_sends_nothing() -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            assert await call(service, Signal.TRACES, b"") == b""
            await call(service, Signal.TRACES, foreign())
            await sink.wait_for_spans(1)
            assert sink.attempts == 1

    asyncio.run(scene())


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_a_real_sdk_sends_and_its_spans_come_out(transport: str) -> None:
    def send(service: Service) -> None:
        exporter = (
            GrpcSpanExporter(endpoint=f"127.0.0.1:{service.grpc_port}", insecure=True)
            if transport == "grpc"
            else HttpSpanExporter(endpoint=f"http://127.0.0.1:{service.http_port}/v1/traces")
        )
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("a test")
        for number in range(3):
            with tracer.start_as_current_span(f"work {number}"):
                pass
        provider.shutdown()

    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            await asyncio.to_thread(send, service)
            assert {span.name for span in await sink.wait_for_spans(3)} == {"work 0", "work 1", "work 2"}

    asyncio.run(scene())


def test_what_is_held_leaves_at_shutdown() -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with sink:
            async with running_with_long_hold(sink) as service:
                await call(service, Signal.TRACES, (CAPTURE / "00002.pb").read_bytes())
                assert all(span.name != "llm_request" for span in sink.spans())
            (span,) = [span for span in sink.spans() if span.name == "llm_request"]
            assert span.attributes["prefix_cache.miss.cause"] == "unknown"

    asyncio.run(scene())


def running_with_long_hold(sink: GrpcSink) -> AbstractAsyncContextManager[Service]:
    import msgspec  # noqa: PLC0415

    from tests.edge.sinks import config_for  # noqa: PLC0415 - beside its only use

    config = config_for(sink.port)
    held = msgspec.structs.replace(config.join, hold_seconds=600.0, linger_seconds=600.0)
    return serving(msgspec.structs.replace(config, join=held))
