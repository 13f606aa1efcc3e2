"""One attempt to deliver a request, by gRPC or by HTTP."""

from __future__ import annotations

import asyncio
import io
import time
import zlib
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import aiohttp
import grpc
import grpc.aio
import opentelemetry.sdk.version
import zstandard

from ... import __version__
from ..otlp_names import METHODS, PATHS
from ..security import client_context, grpc_channel_credentials
from .delivery import Deferred, Delivered, Refused
from .replies import read_bare_delay_seconds, read_partial_success, read_status_delay_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...config import ExporterConfig
    from ...redaction import Signal
    from .delivery import Reply, Transport

USER_AGENT = f"whymiss/{__version__} OTel-OTLP-Exporter-Python/{opentelemetry.sdk.version.__version__}"

_RESPONSE_BYTES_MAX = 4 << 20  # OTLP: the most of a response that a client reads
_THREADED_BYTES = 1 << 15  # gzip takes longer than a change of threads costs from about here

_RETRYABLE_CODES = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})

_CHANNEL_OPTIONS: Sequence[tuple[str, str | int]] = (
    ("grpc.primary_user_agent", USER_AGENT),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
    # Retries are ours: gRPC's own would hide a hint, and double the traffic of an outage.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", _RESPONSE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    # After an outage gRPC waits up to 2 min between connects; the retry's own wait decides here.
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


def connect(settings: ExporterConfig) -> Transport:
    """Make the transport that an exporter's settings ask for; it connects when it sends."""
    return GrpcTransport(settings) if settings.protocol == "grpc" else HttpTransport(settings)


class GrpcTransport:
    """OTLP/gRPC on one channel. gRPC's gzip is level 6 and cannot be changed: it costs most of an export."""

    def __init__(self, settings: ExporterConfig) -> None:
        compression = grpc.Compression.Gzip if settings.compression == "gzip" else grpc.Compression.NoCompression
        if settings.insecure:
            self._channel = grpc.aio.insecure_channel(settings.target, _CHANNEL_OPTIONS, compression)
        else:
            credentials = (
                grpc.ssl_channel_credentials()
                if settings.tls is None
                else grpc_channel_credentials(settings.tls, "exporters.*.tls")
            )
            self._channel = grpc.aio.secure_channel(settings.target, credentials, _CHANNEL_OPTIONS, compression)
        self._calls: Mapping[Signal, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {
            signal: self._channel.unary_unary(method) for signal, method in METHODS.items()
        }
        self._metadata = tuple((name.lower(), value.reveal()) for name, value in settings.headers.items())
        self._timeout_seconds = settings.timeout_seconds

    async def send(self, signal: Signal, body: bytes) -> Reply:
        """Make one attempt."""
        try:
            response = await self._calls[signal](body, timeout=self._timeout_seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return _grpc_failure(error)
        return Delivered(*read_partial_success(response))

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


def _grpc_failure(error: grpc.aio.AioRpcError) -> Reply:
    trailers = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, bytes)}
    hint = None
    if (bare := trailers.get("google.rpc.retryinfo-bin")) is not None:
        hint = read_bare_delay_seconds(bare)
    elif (status := trailers.get("grpc-status-details-bin")) is not None:
        hint = read_status_delay_seconds(status)
    code = error.code()
    if code in _RETRYABLE_CODES or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and hint is not None):
        return Deferred(code.name, hint)
    return Refused(code.name)


class HttpTransport:
    """OTLP/HTTP with protobuf bodies on kept-alive connections."""

    def __init__(self, settings: ExporterConfig) -> None:
        self._urls = {signal: settings.endpoint.rstrip("/") + path for signal, path in PATHS.items()}
        self._pack = _PACKINGS.get(settings.compression)
        headers = {name: value.reveal() for name, value in settings.headers.items()}
        headers |= {"Content-Type": "application/x-protobuf", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
        if self._pack is not None:
            headers["Content-Encoding"] = settings.compression
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=settings.timeout_seconds),
            connector=aiohttp.TCPConnector(
                limit=0, ssl=True if settings.tls is None else client_context(settings.tls, "exporters.*.tls")
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def send(self, signal: Signal, body: bytes) -> Reply:
        """Make one attempt; 4xx and 500 are final, a broken connection is not."""
        content = body if self._pack is None else await _packed(self._pack, body)
        try:
            async with self._session.post(
                self._urls[signal], data=io.BytesIO(content), allow_redirects=False
            ) as response:
                if 200 <= response.status < 300:
                    return Delivered(*read_partial_success(await _read(response)))
                code = str(response.status)
                if response.status not in _RETRYABLE_STATUSES:
                    return Refused(code)
                return Deferred(code, _retry_after_seconds(response.headers.get("Retry-After")))
        except TimeoutError:
            return Deferred("timeout")
        except aiohttp.ClientError as error:
            return Deferred(type(error).__name__)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


async def _packed(pack: Callable[[bytes], bytes], body: bytes) -> bytes:
    if len(body) < _THREADED_BYTES:
        return pack(body)
    return await asyncio.to_thread(pack, body)


def _gzip(body: bytes) -> bytes:
    # Level 1: level 6 costs more than all the rest of the service (reference figures in the docs).
    return zlib.compress(body, level=1, wbits=zlib.MAX_WBITS | 16)


def _zstd(body: bytes) -> bytes:
    # Level 1 for the same reason. A compressor of its own for each call: one must not be shared by threads.
    return zstandard.ZstdCompressor(level=1).compress(body)


_PACKINGS: Mapping[str, Callable[[bytes], bytes]] = {"gzip": _gzip, "zstd": _zstd}


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read a response that has been accepted; one that breaks off or is too long says nothing more."""
    body = bytearray()
    try:
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > _RESPONSE_BYTES_MAX:
                return b""
    except (aiohttp.ClientError, TimeoutError):
        return b""
    return bytes(body)


def _retry_after_seconds(value: str | None) -> float | None:
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
