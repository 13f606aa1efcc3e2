"""A downstream that speaks OTLP for real, keeps all it took, and fails as its script says."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import grpc
import grpc.aio
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from google.protobuf.message import Message
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

REQUESTS: dict[str, type[Message]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}
SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}


@dataclass(frozen=True)
class GrpcFault:
    code: grpc.StatusCode
    trailers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class HttpFault:
    """An answer other than an empty 200; a status of 0 drops the connection."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True)
class Taken:
    signal: str
    body: bytes
    headers: dict[str, str]

    def message(self) -> Message:
        message = REQUESTS[self.signal]()
        message.ParseFromString(self.body)
        return message


@dataclass
class Sink:
    """Listens on two loopback ports of its own. ``gate`` holds every answer back while it is clear."""

    grpc_script: deque[GrpcFault | bytes] = field(default_factory=deque)
    """What to answer next, oldest first; bytes are an OK with that body. An empty script takes everything."""
    http_script: deque[HttpFault] = field(default_factory=deque)
    attempts: list[Taken] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    raw: bool = False
    """Whether HTTP bodies are kept as they were sent; else aiohttp undoes their coding."""
    grpc_port: int = 0
    http_port: int = 0

    async def __aenter__(self) -> Self:
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Condition()
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.vanish()

    async def listen(self) -> None:
        """Start both servers, on the ports of the last time where there was one."""
        self._grpc = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 << 20)])
        self._grpc.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    service, {"Export": grpc.unary_unary_rpc_method_handler(self._export(signal))}
                )
                for signal, service in SERVICES.items()
            ]
        )
        self.grpc_port = self._grpc.add_insecure_port(f"127.0.0.1:{self.grpc_port}")
        await self._grpc.start()
        self._http = web.ServerRunner(
            web.Server(self._post, access_log=None, auto_decompress=not self.raw), shutdown_timeout=0.1
        )
        await self._http.setup()
        site = web.TCPSite(self._http, "127.0.0.1", self.http_port, reuse_address=True)
        await site.start()
        self.http_port = self._http.addresses[0][1]

    async def vanish(self) -> None:
        """Close both servers; what was taken stays."""
        self.gate.set()
        await self._grpc.stop(None)
        await self._http.cleanup()

    async def until_attempts(self, count: int, *, within_seconds: float = 10.0) -> None:
        await self._until(lambda: len(self.attempts) >= count, within_seconds)

    async def until_taken(self, count: int, *, within_seconds: float = 10.0) -> None:
        await self._until(lambda: len(self.taken) >= count, within_seconds)

    async def until_spans(self, count: int, *, within_seconds: float = 10.0) -> list[Span]:
        await self._until(lambda: len(self.spans()) >= count, within_seconds)
        return self.spans()

    def spans(self) -> list[Span]:
        return [
            span
            for taken in self.taken
            if isinstance(message := taken.message(), ExportTraceServiceRequest)
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    async def _until(self, happened: Callable[[], bool], within_seconds: float) -> None:
        async with asyncio.timeout(within_seconds), self._changed:
            await self._changed.wait_for(happened)

    async def _note(self, taken: Taken, *, kept: bool) -> None:
        async with self._changed:
            self.attempts.append(taken)
            if kept:
                self.taken.append(taken)
            self._changed.notify_all()

    def _export(self, signal: str) -> Callable[[bytes, grpc.aio.ServicerContext[bytes, bytes]], Awaitable[bytes]]:
        async def export(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            headers = {key: str(value) for key, value in context.invocation_metadata() or ()}
            answer = self.grpc_script.popleft() if self.grpc_script else b""
            await self._note(Taken(signal, body, headers), kept=isinstance(answer, bytes))
            await self.gate.wait()
            if isinstance(answer, GrpcFault):
                await context.abort(answer.code, "as the script says", answer.trailers)
            assert isinstance(answer, bytes)
            return answer

        return export

    async def _post(self, request: web.BaseRequest) -> web.StreamResponse:
        signal = request.path.rpartition("/")[2]
        body = await request.read()
        answer = self.http_script.popleft() if self.http_script else HttpFault(200)
        await self._note(Taken(signal, body, dict(request.headers)), kept=200 <= answer.status < 300)
        await self.gate.wait()
        if answer.status == 0:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=answer.status or 500, headers=dict(answer.headers), body=answer.body)
