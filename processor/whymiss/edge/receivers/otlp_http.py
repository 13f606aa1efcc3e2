"""OTLP over HTTP: protobuf and JSON, plain or compressed, with every answer in the request's own encoding."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from ...redaction import Signal
from ...wire.json_in import logs_from_json, metrics_from_json, traces_from_json
from ...wire.json_out import export_response, status_body
from ..otlp_names import PATHS
from ..security import OPEN, Doorkeeper, server_context
from . import refusals
from .http_bodies import LIMIT_KEY, Budget, Held
from .http_connection import connections
from .inflate import CODINGS, inflate
from .listener import Listener

if TYPE_CHECKING:
    from ...config import HttpReceiverConfig
    from .refusals import Refusal
    from .request_intake import RequestIntake

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_SIGNALS = {path: signal for signal, path in PATHS.items()}
_FROM_JSON = {Signal.TRACES: traces_from_json, Signal.METRICS: metrics_from_json, Signal.LOGS: logs_from_json}

_BODIES_MAX = 4
"""How many bodies of the largest size may be in memory at once, over all connections."""

_THREADED_JSON_BYTES = 1 << 17
"""So much JSON takes some 5 ms to read, and 60 MiB take 3 s: in a thread others have their turn."""

_YIELD_BYTES = 1 << 20  # inflating this much takes a millisecond or two; then others have their turn


class _RefusedRequest(Exception):
    def __init__(self, answer: Refusal) -> None:
        super().__init__(answer.message)
        self.answer = answer


class HttpReceiver:
    """Serves ``POST /v1/{traces,metrics,logs}`` on one address."""

    def __init__(
        self,
        endpoint: str,
        settings: HttpReceiverConfig,
        intake: RequestIntake,
        *,
        grace_seconds: float = 1.0,
        doorkeeper: Doorkeeper = OPEN,
    ) -> None:
        self._doorkeeper = doorkeeper
        self._bytes_max = settings.max_body_bytes
        self._budget = Budget(_BODIES_MAX * settings.max_body_bytes)
        self._intake = intake
        self._reading_json = asyncio.Lock()
        self._grace_seconds = grace_seconds
        self._server, connection = connections(self._serve)
        self._listener = Listener(
            endpoint,
            connection,
            lambda reason: intake.count_refused_connection("http", reason),
            connections_max=settings.connections_max,
            context=None if settings.tls is None else server_context(settings.tls, "receivers.http.tls"),
        )

    async def start(self) -> None:
        """Listen. Raises `OSError` where the address cannot be had."""
        await self._listener.start()

    @property
    def port(self) -> int:
        """The port that is listened on, after `start`."""
        return self._listener.port

    @property
    def bytes_left(self) -> int:
        """What bodies may still take of the memory for all of them."""
        return self._budget.bytes_left

    async def stop(self) -> None:
        """Take no new requests, and let those under way finish within the grace."""
        await self._listener.stop()
        await asyncio.sleep(0)  # requests that have come begin to be served
        self._server.pre_shutdown()
        await self._server.shutdown(self._grace_seconds)
        await self._listener.abort_all()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        signal = _SIGNALS.get(request.path)
        as_json = request.content_type == _JSON
        if signal is None:
            return _refused(refusals.NOT_FOUND, as_json=as_json)
        try:
            return await self._accept(request, signal, as_json=as_json)
        except ConnectionError:
            raise  # the client has left: there is nobody to answer
        except _RefusedRequest as refusal:
            answer = refusal.answer
        except Exception as error:
            answer = refusals.refusal_of(error)
        self._intake.count_refused("http", signal, answer.reason)
        return _refused(answer, as_json=as_json)

    async def _accept(self, request: web.BaseRequest, signal: Signal, *, as_json: bool) -> web.StreamResponse:
        if not self._doorkeeper.admits(request.headers.get("Authorization")):
            raise _RefusedRequest(refusals.UNAUTHENTICATED)
        if request.method != "POST":
            raise _RefusedRequest(refusals.WRONG_METHOD)
        if not as_json and request.content_type != _PROTOBUF:
            raise _RefusedRequest(refusals.WRONG_MEDIA_TYPE)
        coding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in CODINGS:
            raise _RefusedRequest(refusals.WRONG_CODING)
        held = Held(self._budget)
        try:
            body = await self._read(request, held)
            if coding != "identity" and body:
                body = await self._inflate(body, coding, held)
            if as_json and body:
                body = await self._from_json(signal, body)
            accepted = await self._intake.accept("http", signal, body)
        finally:
            held.give_back()
        content = export_response(accepted.rejected, accepted.message, as_json=as_json, signal=signal)
        return web.Response(body=content, content_type=_JSON if as_json else _PROTOBUF)

    async def _read(self, request: web.BaseRequest, held: Held) -> bytes:
        if (request.content_length or 0) > self._bytes_max:
            raise _RefusedRequest(refusals.too_large(LIMIT_KEY, self._bytes_max))
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = bytearray()
        try:
            async with held.arriving():
                async for piece in request.content.iter_any():
                    self._grow(body, piece, held)
        except TimeoutError:
            raise _RefusedRequest(refusals.TOO_SLOW) from None
        return bytes(body)

    async def _inflate(self, body: bytes, coding: str, held: Held) -> bytes:
        plain = bytearray()
        turn = _YIELD_BYTES
        for piece in inflate(body, coding):
            self._grow(plain, piece, held)
            if len(plain) > turn:
                turn += _YIELD_BYTES
                await asyncio.sleep(0)
        return bytes(plain)

    async def _from_json(self, signal: Signal, body: bytes) -> bytes:
        if len(body) < _THREADED_JSON_BYTES:
            return _FROM_JSON[signal](body)
        # One at a time: what is read of a body takes ten times its bytes until it is encoded.
        async with self._reading_json:
            return await asyncio.to_thread(_FROM_JSON[signal], body)

    def _grow(self, body: bytearray, piece: bytes, held: Held) -> None:
        """Add to a body while it is within the limit, and all bodies together within theirs."""
        if len(body) + len(piece) > self._bytes_max:
            raise _RefusedRequest(refusals.too_large(LIMIT_KEY, self._bytes_max))
        held.take(len(piece))
        body += piece


def _refused(answer: Refusal, *, as_json: bool) -> web.Response:
    headers = {"Content-Type": _JSON if as_json else _PROTOBUF}
    if answer.retry_seconds is not None:
        headers["Retry-After"] = str(max(1, round(answer.retry_seconds)))
    if answer is refusals.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    if answer is refusals.WRONG_METHOD:
        headers["Allow"] = "POST"
    body = status_body(answer.number, answer.message, retry_seconds=answer.retry_seconds, as_json=as_json)
    return web.Response(status=answer.status, headers=headers, body=body)
