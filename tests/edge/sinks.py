"""Next hops for tests: real servers that keep what arrives and answer as they are told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

import grpc
from aiohttp import web

from whymiss.config import Config, parse
from whymiss.edge.otlp_names import METHODS
from whymiss.edge.service import Service, serving
from whymiss.redaction import Signal
from whymiss.wire.fields import SpanFields, read_span
from whymiss.wire.split import split

PATIENCE_SECONDS = 20.0


class Kept:
    """Bodies by signal, in the order of arrival."""

    def __init__(self) -> None:
        self.bodies: dict[Signal, list[bytes]] = {signal: [] for signal in Signal}
        self.attempts = 0
        self._arrived = asyncio.Condition()

    async def keep(self, signal: Signal, body: bytes) -> None:
        async with self._arrived:
            self.bodies[signal].append(body)
            self._arrived.notify_all()

    def spans(self) -> list[SpanFields]:
        bodies = self.bodies[Signal.TRACES]
        return [read_span(raw) for body in bodies for group in split(body) for raw in group.spans]

    async def wait_for_spans(self, count: int) -> list[SpanFields]:
        async with asyncio.timeout(PATIENCE_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: len(self.spans()) >= count)
        return self.spans()

    async def wait_for_bodies(self, signal: Signal, count: int) -> Sequence[bytes]:
        async with asyncio.timeout(PATIENCE_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: len(self.bodies[signal]) >= count)
        return self.bodies[signal]


class GrpcSink(Kept):
    """An OTLP/gRPC next hop. ``refusals`` are answered first, one an attempt."""

    def __init__(self, refusals: Sequence[grpc.StatusCode] = ()) -> None:
        super().__init__()
        self.refusals = deque(refusals)
        self._server = grpc.aio.server()
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        for signal, path in METHODS.items():
            service, _, method = path.strip("/").partition("/")
            handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._handler(signal))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    def _handler(self, signal: Signal):  # type: ignore[no-untyped-def]  # noqa: ANN202 - grpc's own handler type
        async def export(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            self.attempts += 1
            if self.refusals:
                await context.abort(self.refusals.popleft(), "told to")
            await self.keep(signal, body)
            return b""

        return export

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)


class HttpSink(Kept):
    """An OTLP/HTTP next hop. ``answers`` are (status, headers), one an attempt, then 200."""

    def __init__(self, answers: Sequence[tuple[int, dict[str, str]]] = ()) -> None:
        super().__init__()
        self.answers = deque(answers)
        self.headers: list[dict[str, str]] = []
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for signal in Signal:
            app.router.add_post(f"/v1/{signal.value}", self._handler(signal))
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0

    def _handler(self, signal: Signal):  # type: ignore[no-untyped-def]  # noqa: ANN202 - aiohttp's own handler type
        async def export(request: web.Request) -> web.Response:
            self.attempts += 1
            self.headers.append(dict(request.headers))
            body = await request.read()
            status, headers = self.answers.popleft() if self.answers else (200, {})
            if status < 300:
                await self.keep(signal, body)
            return web.Response(status=status, headers=headers, content_type="application/x-protobuf")

        return export

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def config_for(port: int, *, more: str = "", exporter: str = "") -> Config:
    """A service on free loopback ports that sends to a gRPC sink."""
    text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0", max_body_bytes: 1MiB}}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{port}", insecure: true, retry: {{initial_seconds: 0.01}} {exporter}}}}}
telemetry: {{metrics_endpoint: "127.0.0.1:0"}}
health: {{endpoint: "127.0.0.1:0"}}
join: {{hold_seconds: 0.2, linger_seconds: 0.1}}
{more}
"""
    return parse(text, {})


@asynccontextmanager
async def running(sink: GrpcSink, *, more: str = "", exporter: str = "") -> AsyncIterator[Service]:
    """A service in front of a sink."""
    async with sink, serving(config_for(sink.port, more=more, exporter=exporter)) as service:
        yield service
