"""OTLP over HTTP: the receiver, protobuf and JSON on one port."""

from __future__ import annotations

import math
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import grpc
import zstandard
from aiohttp import web

from ..config import HttpReceiverConfig
from ..errors import BadInput, Overloaded
from ..redaction import Signal
from ..wire.json_in import logs_from_json, metrics_from_json, traces_from_json
from ..wire.json_out import export_response, status_body
from .intake import Intake, Transported
from .logs import Log

log = Log("otlp_http")

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
CHUNK: Final = 64 * 1024
TO_PROTOBUF: Final[dict[Signal, Callable[[bytes], bytes]]] = {
    Signal.TRACES: traces_from_json,
    Signal.METRICS: metrics_from_json,
    Signal.LOGS: logs_from_json,
}


class _Refusal(Exception):
    """An answer other than 200, decided while a request is read."""

    def __init__(self, status: int, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code: int = code.value[0]
        self.message = message


class HttpReceiver:
    """Listens on ``receivers.http.endpoint``."""

    def __init__(self, config: HttpReceiverConfig, intake: Intake) -> None:
        assert config.endpoint is not None, "a receiver that is off is not made"
        self._config = config
        self._intake = intake
        app = web.Application(client_max_size=config.max_body_bytes)
        for signal in Signal:
            app.router.add_route("*", f"/v1/{signal.value}", self._answer(signal))
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False)
        self._host, _, port = config.endpoint.rpartition(":")
        self._port = int(port)

    async def start(self) -> None:
        """Listen. Raises ``OSError`` where the address cannot be had."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host.strip("[]"), self._port).start()

    async def stop(self) -> None:
        """Take no new requests and let those under way end."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that is listened on, after ``start``."""
        port: int = self._runner.addresses[0][1]
        return port

    def _answer(self, signal: Signal) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            as_json = request.content_type == JSON
            try:
                return await self._take(signal, request, as_json=as_json)
            except _Refusal as refusal:
                return _error(refusal.status, refusal.code, refusal.message, as_json=as_json)
            except BadInput as problem:
                code: int = grpc.StatusCode.INVALID_ARGUMENT.value[0]
                return _error(400, code, str(problem), as_json=as_json)
            except Overloaded as problem:
                code = grpc.StatusCode.UNAVAILABLE.value[0]
                after = problem.retry_after_seconds
                return _error(503, code, str(problem), as_json=as_json, retry_seconds=after)
            except (web.HTTPException, ConnectionError):
                raise
            except Exception as error:
                log.error("request failed", error=error, signal=signal.value)
                return _error(500, grpc.StatusCode.INTERNAL.value[0], "internal error", as_json=as_json)

        return answer

    async def _take(self, signal: Signal, request: web.Request, *, as_json: bool) -> web.Response:
        if request.method != "POST":
            raise _Refusal(405, grpc.StatusCode.UNIMPLEMENTED, "only POST is served here")
        if request.content_type not in {PROTOBUF, JSON}:
            raise _Refusal(415, grpc.StatusCode.UNIMPLEMENTED, f"the content type must be {PROTOBUF} or {JSON}")
        body = await self._read(request)
        if as_json:
            body = TO_PROTOBUF[signal](body)
        accepted = self._intake.take(signal, body, Transported.HTTP)
        content = export_response(accepted.rejected, accepted.message, as_json=as_json, signal=signal.value)
        return web.Response(body=content, content_type=JSON if as_json else PROTOBUF)

    async def _read(self, request: web.Request) -> bytes:
        """The body, inflated, with the limit kept while it grows and not after."""
        limit = self._config.max_body_bytes
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        inflate = _inflater(request.headers.get("Content-Encoding", "identity").strip().lower())
        parts: list[bytes] = []
        size = received = 0
        async for chunk in request.content.iter_chunked(CHUNK):
            received += len(chunk)
            for part in inflate(chunk):
                size += len(part)
                if size > limit or received > limit:
                    raise _too_large(limit)
                parts.append(part)
        return b"".join(parts)


def _too_large(limit: int) -> _Refusal:
    message = f"the body is larger than {limit} bytes (raise receivers.http.max_body_bytes)"
    return _Refusal(413, grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def _inflater(encoding: str) -> Callable[[bytes], Iterable[bytes]]:
    """A function that inflates chunk by chunk, never producing more than a piece at a time."""
    if encoding in {"", "identity"}:
        return lambda chunk: (chunk,)
    if encoding in {"gzip", "deflate"}:
        return _zlib_inflater(zlib.decompressobj(wbits=47 if encoding == "gzip" else 15))
    if encoding == "zstd":
        return _zstd_inflater()
    raise _Refusal(
        400, grpc.StatusCode.INVALID_ARGUMENT, "the content encoding must be gzip, deflate, zstd or identity"
    )


def _zlib_inflater(stream: zlib._Decompress) -> Callable[[bytes], Iterator[bytes]]:
    def inflate(chunk: bytes) -> Iterator[bytes]:
        try:
            while chunk and not stream.eof:
                yield stream.decompress(chunk, CHUNK)
                chunk = stream.unconsumed_tail
        except zlib.error as error:
            raise BadInput("the body cannot be inflated") from error

    return inflate


def _zstd_inflater() -> Callable[[bytes], Iterator[bytes]]:
    # A frame may ask for a window of gigabytes; 8 MiB is what encoders use up to level 19.
    stream = zstandard.ZstdDecompressor(max_window_size=8 * 1024 * 1024).decompressobj(write_size=CHUNK)

    def inflate(chunk: bytes) -> Iterator[bytes]:
        # One kilobyte of zstd can become 32 MB, and the library returns it whole: feed it little by little.
        try:
            for at in range(0, len(chunk), 256):
                yield stream.decompress(chunk[at : at + 256])
        except zstandard.ZstdError as error:
            raise BadInput("the body cannot be inflated") from error

    return inflate


def _error(status: int, code: int, message: str, *, as_json: bool, retry_seconds: float | None = None) -> web.Response:
    headers = {} if retry_seconds is None else {"Retry-After": str(math.ceil(retry_seconds))}
    if status == 405:
        headers["Allow"] = "POST"
    body = status_body(code, message, retry_seconds=retry_seconds, as_json=as_json)
    return web.Response(status=status, body=body, content_type=JSON if as_json else PROTOBUF, headers=headers)
