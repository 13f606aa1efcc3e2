"""One attempt to hand a request to the next hop, over gRPC or HTTP. Retrying is somebody else's work."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

import aiohttp
import grpc
import msgspec
from opentelemetry.sdk.version import __version__ as sdk_version

from .. import __version__
from ..config import ExporterConfig
from ..errors import BadInput
from ..redaction import Signal
from ..wire.responses import read_partial_success, read_retry_delay

USER_AGENT: Final = f"whymiss/{__version__} OTel-OTLP-Exporter-Python/{sdk_version}"
GZIP_LEVEL: Final = 1
"""gzip 6 costs more than everything else together (measured, otlp exporters of the SDK)."""
GRPC_RESPONSE_BYTES_MAX: Final = 4 * 1024 * 1024

METHODS: Final[Mapping[Signal, str]] = {
    Signal.TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    Signal.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    Signal.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}

# OTLP specification, "Failures": all others are permanent. RESOURCE_EXHAUSTED counts with RetryInfo only.
RETRYABLE_CODES: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})


class Delivered(msgspec.Struct, frozen=True):
    """The next hop has it. What it rejected of it must not be sent again."""

    rejected: int = 0
    message: str = ""


class Again(msgspec.Struct, frozen=True):
    """It may work later; ``after_seconds`` is the next hop's own hint."""

    error: str
    after_seconds: float | None = None


class Refused(msgspec.Struct, frozen=True):
    """It will never work."""

    error: str


Answer: TypeAlias = Delivered | Again | Refused


class Transport(Protocol):
    """How an exporter reaches its next hop."""

    async def start(self) -> None:
        """Open what stays open."""
        ...

    async def send(self, signal: Signal, body: bytes) -> Answer:
        """Make one attempt."""
        ...

    async def stop(self) -> None:
        """Close it."""
        ...


def partial_success(signal: Signal, body: bytes) -> Delivered:
    """Read an ``Export…ServiceResponse``. One that cannot be read was a success all the same."""
    try:
        return Delivered(*read_partial_success(signal.value, body))
    except BadInput as problem:
        return Delivered(0, problem.problem)


class GrpcTransport:
    """OTLP over gRPC. Bodies go out as they are."""

    def __init__(self, config: ExporterConfig) -> None:
        self._config = config
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[Signal, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._metadata = tuple((name.lower(), value.reveal()) for name, value in config.headers.items())
        self._compression = grpc.Compression.Gzip if config.compression == "gzip" else grpc.Compression.NoCompression

    async def start(self) -> None:
        """Open the channel; it connects by itself, now and later."""
        options = [
            ("grpc.primary_user_agent", USER_AGENT),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.lb_policy_name", "round_robin"),
            ("grpc.max_receive_message_length", GRPC_RESPONSE_BYTES_MAX),
            ("grpc.max_reconnect_backoff_ms", 5_000),
        ]
        target = self._config.target
        if self._config.insecure:
            self._channel = grpc.aio.insecure_channel(target, options=options, compression=self._compression)
        else:
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.aio.secure_channel(target, credentials, options=options, compression=self._compression)
        for signal, method in METHODS.items():
            self._calls[signal] = self._channel.unary_unary(method)

    async def send(self, signal: Signal, body: bytes) -> Answer:
        """Make one attempt."""
        try:
            answer = await self._calls[signal](body, timeout=self._config.timeout_seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return self._answer_of(error)
        return partial_success(signal, answer)

    def _answer_of(self, error: grpc.aio.AioRpcError) -> Answer:
        code = error.code()
        hint = _hint_of(error)
        if code in RETRYABLE_CODES or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and hint is not None):
            return Again(code.name, hint)
        return Refused(code.name)

    async def stop(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()


def _hint_of(error: grpc.aio.AioRpcError) -> float | None:
    for key, value in error.trailing_metadata() or ():
        delay = read_retry_delay(key, value) if isinstance(value, bytes) else None
        if delay is not None:
            return delay
    return None


class HttpTransport:
    """OTLP over HTTP, protobuf bodies."""

    def __init__(self, config: ExporterConfig) -> None:
        self._config = config
        self._client: aiohttp.ClientSession | None = None
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": USER_AGENT,
            **{name: value.reveal() for name, value in config.headers.items()},
        }
        if config.compression == "gzip":
            self._headers["Content-Encoding"] = "gzip"

    async def start(self) -> None:
        """Open the session that keeps connections alive."""
        timeout = aiohttp.ClientTimeout(total=self._config.timeout_seconds)
        self._client = aiohttp.ClientSession(headers=self._headers, timeout=timeout)

    async def send(self, signal: Signal, body: bytes) -> Answer:
        """Make one attempt."""
        assert self._client is not None, "start first"
        url = f"{self._config.endpoint.rstrip('/')}/v1/{signal.value}"
        if self._config.compression == "gzip":
            body = await asyncio.to_thread(gzip.compress, body, GZIP_LEVEL, mtime=0)
        try:
            async with self._client.post(url, data=body, allow_redirects=False) as response:
                answer = await response.content.read(GRPC_RESPONSE_BYTES_MAX)
                return self._answer_of(signal, response, answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Again(type(error).__name__)

    def _answer_of(self, signal: Signal, response: aiohttp.ClientResponse, body: bytes) -> Answer:
        if 200 <= response.status < 300:
            is_protobuf = response.content_type == "application/x-protobuf"
            return partial_success(signal, body) if is_protobuf else Delivered()
        if response.status in RETRYABLE_STATUSES:
            after = response.headers.get("Retry-After", "")
            return Again(str(response.status), float(after) if after.isdecimal() else None)
        return Refused(str(response.status))

    async def stop(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
