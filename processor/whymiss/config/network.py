"""The sections about sockets: receivers, exporters, telemetry, health.

The name of a field is the key in the file. A rule between the fields of one section is in its
``__post_init__`` and names the key inside the section; the reader puts the path in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..errors import ConfigError
from .endpoints import OtlpProtocol, check_listener, check_otlp
from .headers import check_headers
from .kinds import MIB, Bytes, Count, Seconds, SecondsAboveZero, Secret, Section
from .security import ClientTlsConfig, ServerTlsConfig, check_tokens


class GrpcReceiverConfig(Section, frozen=True, kw_only=True):
    """OTLP over gRPC."""

    endpoint: str | None = "127.0.0.1:4317"
    """Where to listen, ``host:port``. Default ``127.0.0.1:4317``; port 0 takes a free one; null is off."""
    max_receive_bytes: Bytes = 4 * MIB
    """Largest request, in bytes. Default 4 MiB, the most that OTLP asks a server to take; not zero."""
    connections_max: Count = 4096
    """Open connections with ``tls``; beyond it the one that is idle longest makes room. Default 4096; not zero. Without
    ``tls`` gRPC accepts for itself, and the process's limit of open files is what bounds it."""
    tls: ServerTlsConfig | None = None
    """Certificates. Default null: plain text."""

    def __post_init__(self) -> None:
        check_listener("endpoint", self.endpoint)


class HttpReceiverConfig(Section, frozen=True, kw_only=True):
    """OTLP over HTTP, protobuf and JSON."""

    endpoint: str | None = "127.0.0.1:4318"
    """Where to listen, ``host:port``. Default ``127.0.0.1:4318``; port 0 takes a free one; null is off."""
    max_body_bytes: Bytes = 64 * MIB
    """Largest body, in bytes, both as sent and after decompression. Default 64 MiB; not zero."""
    connections_max: Count = 4096
    """Open connections; beyond it the one that is idle longest makes room. Default 4096; not zero."""
    tls: ServerTlsConfig | None = None
    """Certificates. Default null: plain text."""

    def __post_init__(self) -> None:
        check_listener("endpoint", self.endpoint)


class ReceiversConfig(Section, frozen=True, kw_only=True):
    """Where spans come in."""

    grpc: GrpcReceiverConfig = GrpcReceiverConfig()
    """OTLP over gRPC."""
    http: HttpReceiverConfig = HttpReceiverConfig()
    """OTLP over HTTP."""
    bearer_tokens: tuple[Secret, ...] = ()
    """Tokens that senders may show as ``Authorization: Bearer …``, over both; several while one is being rotated.
    Default none: every client that reaches the port may send."""

    def __post_init__(self) -> None:
        check_tokens(self.bearer_tokens)
        if self.grpc.endpoint is None and self.http.endpoint is None:
            raise ConfigError("http.endpoint", "is null like grpc.endpoint; one of them must listen")


class RetryConfig(Section, frozen=True, kw_only=True):
    """How an exporter tries again: exponential waits with jitter, within bounds."""

    initial_seconds: SecondsAboveZero = 0.5
    """First wait, in seconds. Default 0.5; not zero."""
    max_seconds: SecondsAboveZero = 30.0
    """Longest wait, in seconds. Default 30; not below ``initial_seconds``."""
    max_elapsed_seconds: Seconds = 300.0
    """Give a request up after this long, in seconds. Default 300; zero never gives up."""

    def __post_init__(self) -> None:
        if self.max_seconds < self.initial_seconds:
            raise ConfigError("max_seconds", "must not be below initial_seconds")
        if 0 < self.max_elapsed_seconds < self.initial_seconds:
            raise ConfigError("max_elapsed_seconds", "must be 0 (never give up) or not below initial_seconds")


class ExporterConfig(Section, frozen=True, kw_only=True):
    """One place that spans, metrics and logs go to."""

    protocol: OtlpProtocol = "grpc"
    """OTLP's transport. Default ``grpc``."""
    endpoint: str
    """With gRPC ``host:port``, with or without a scheme; with HTTP a URL to which ``/v1/traces`` is added. No default."""
    insecure: bool = False
    """Whether gRPC goes without TLS. Default false. With HTTP the URL's scheme decides, and this stays false."""
    tls: ClientTlsConfig | None = None
    """Certificates towards the next hop. Default null: with TLS the system's authorities are trusted."""
    headers: Mapping[str, Secret] = {}
    """Headers (gRPC: metadata) sent with each request; their values are secrets. Default none."""
    compression: Literal["none", "gzip", "zstd"] = "gzip"
    """How requests are compressed. Default ``gzip``; ``zstd`` is for HTTP only: gRPC's library does not have it."""
    timeout_seconds: SecondsAboveZero = 10.0
    """Longest wait for one answer, in seconds. Default 10; not zero."""
    queue_requests_max: Count = 1000
    """Requests that may wait to be sent; beyond it senders are asked to retry. Default 1000; not zero."""
    queue_bytes_max: Bytes = 256 * MIB
    """Bytes that may wait to be sent; beyond it senders are asked to retry. Default 256 MiB; not zero."""
    retry: RetryConfig = RetryConfig()
    """What happens when a request fails and may be sent again."""

    def __post_init__(self) -> None:
        scheme = check_otlp("endpoint", self.endpoint, self.protocol)
        if self.protocol == "http/protobuf" and self.insecure:
            raise ConfigError("insecure", "is for grpc; with http/protobuf the endpoint's scheme decides")
        if self.protocol == "grpc" and scheme == "http" and not self.insecure:
            raise ConfigError("insecure", "must be true for an http:// endpoint; without it gRPC uses TLS")
        if self.tls is not None and (self.insecure or scheme == "http"):
            raise ConfigError("tls", "is for an endpoint with TLS: https://, or gRPC with insecure false")
        if self.compression == "zstd" and self.protocol == "grpc":
            raise ConfigError("compression", "is zstd, which gRPC's library does not have; take http/protobuf or gzip")
        if scheme == "https" and self.insecure:
            raise ConfigError("insecure", "must be false for an https:// endpoint")
        check_headers(self.headers, self.protocol)

    @property
    def target(self) -> str:
        """The endpoint's host and port alone, as gRPC wants them."""
        return self.endpoint.rpartition("://")[2].partition("/")[0]


class TelemetryConfig(Section, frozen=True, kw_only=True):
    """What the service says of itself, and where the class metrics go."""

    metrics_endpoint: str | None = "127.0.0.1:8888"
    """Where Prometheus may scrape, ``host:port``. Default ``127.0.0.1:8888``; port 0 takes a free one; null is off."""
    otlp_endpoint: str | None = None
    """Where metrics are pushed by OTLP: as an exporter's endpoint; ``http://`` sends plain text, else TLS. Default
    null: not pushed."""
    otlp_protocol: OtlpProtocol = "grpc"
    """OTLP's transport for them. Default ``grpc``."""
    otlp_interval_seconds: SecondsAboveZero = 60.0
    """Time between two pushes, in seconds. Default 60; not zero."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log line written. Default ``info``."""

    def __post_init__(self) -> None:
        check_listener("metrics_endpoint", self.metrics_endpoint)
        if self.otlp_endpoint is not None:
            check_otlp("otlp_endpoint", self.otlp_endpoint, self.otlp_protocol)


class HealthConfig(Section, frozen=True, kw_only=True):
    """Liveness, readiness and a page for humans."""

    endpoint: str | None = "127.0.0.1:13133"
    """Where probes are answered, ``host:port``. Default ``127.0.0.1:13133``; port 0 takes a free one; null is off."""
    status_page: bool = True
    """Whether a page for humans is served there too (``/status``, ``/status.json``). It names workers, sources of
    events and next hops, and holds nothing of a prompt. Default true."""

    def __post_init__(self) -> None:
        check_listener("endpoint", self.endpoint)
