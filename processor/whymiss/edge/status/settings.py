"""The facts of a configuration that decide what the service can know and promise; no paths, no secrets."""

from __future__ import annotations

from collections.abc import Iterator

from ...config import Config
from .markup import clean
from .snapshot import Setting
from .wording import percent, size, span


def settings_of(config: Config) -> tuple[Setting, ...]:
    """Name what was chosen, in words."""
    return tuple(Setting(name, clean(value)) for name, value in _settings(config))


def _settings(config: Config) -> Iterator[tuple[str, str]]:
    receivers = config.receivers
    tokens = f"{len(receivers.bearer_tokens)} bearer token(s)" if receivers.bearer_tokens else "no bearer token"
    for name, endpoint, tls in (
        ("OTLP/gRPC", receivers.grpc.endpoint, receivers.grpc.tls),
        ("OTLP/HTTP", receivers.http.endpoint, receivers.http.tls),
    ):
        if endpoint is None:
            yield name, "off"
            continue
        clients = ", client certificates" if tls is not None and tls.client_ca_file is not None else ""
        yield name, f"{'TLS' if tls is not None else 'plain text'}{clients}, {tokens}"
    yield (
        "KV-event sources",
        f"{len(config.kv_events.sources)} configured, {len(config.kv_events.discovery)} discoveries",
    )
    yield "History", f"{span(config.ledger.window_seconds)}, at most {size(config.ledger.bytes_max)}"
    yield "Hold", f"{span(config.join.hold_seconds)}, lingering {span(config.join.linger_seconds)}"
    yield "Fleet view", config.attribution.fleet_view
    yield "Digest key", _key(config)
    yield "Digests on", f"{percent(config.redaction.sample_ratio, 1)} of sampled traces"
    spool = config.spool
    yield "Spool", "off: a crash loses what is held" if spool.directory is None else f"on, fsync {spool.fsync}"
    yield "Metrics by OTLP", "off" if config.telemetry.otlp_endpoint is None else "on"
    yield "Log level", config.telemetry.log_level
    yield "Shutdown", f"drains for at most {span(config.shutdown.deadline_seconds)}"


def _key(config: Config) -> str:
    redaction = config.redaction
    return (
        f"configured, id {redaction.digest_key_id}" if redaction.digest_key is not None else "random, of this process"
    )
