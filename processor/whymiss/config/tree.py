"""The whole configuration, and the rules between its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec
import yaml

from ..errors import ConfigError
from .endpoints import check_text
from .kinds import Secret, Section
from .kv_events import KvEventsConfig
from .memory import MemoryConfig
from .network import ExporterConfig, HealthConfig, ReceiversConfig, TelemetryConfig
from .spool import SpoolConfig
from .stages import (
    AttributionConfig,
    JoinConfig,
    LedgerConfig,
    MeasuresConfig,
    RedactionConfig,
    ReferencesConfig,
    ShutdownConfig,
    WorkersConfig,
)


def _collector_beside_us() -> Mapping[str, ExporterConfig]:
    return {"default": ExporterConfig(endpoint="127.0.0.1:14317", insecure=True)}


class Config(Section, frozen=True, kw_only=True):
    """What a configuration file says, with defaults for what it leaves out."""

    receivers: ReceiversConfig = ReceiversConfig()
    """Where spans come in."""
    exporters: Mapping[str, ExporterConfig] = msgspec.field(default_factory=_collector_beside_us)
    """Where they go, by a name of your choice; each gets everything. Default: ``default``, as the variables
    ``OTEL_EXPORTER_OTLP_*`` say where they name an endpoint, else gRPC without TLS to ``127.0.0.1:14317``. Not empty."""
    join: JoinConfig = JoinConfig()
    """How long the spans of one request are held for each other."""
    kv_events: KvEventsConfig = KvEventsConfig()
    """Where KV-cache events come from."""
    ledger: LedgerConfig = LedgerConfig()
    """What is remembered of the workers' caches."""
    workers: WorkersConfig = WorkersConfig()
    """How the spans of a worker are tied to its events."""
    attribution: AttributionConfig = AttributionConfig()
    """How careful a verdict is."""
    redaction: RedactionConfig = RedactionConfig()
    """What leaves, and under which key it is digested."""
    references: ReferencesConfig = ReferencesConfig()
    """Known-good templates that misses are compared with."""
    measures: MeasuresConfig = MeasuresConfig()
    """The class metrics and their cardinality."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """What the service says of itself."""
    health: HealthConfig = HealthConfig()
    """Liveness and readiness."""
    shutdown: ShutdownConfig = ShutdownConfig()
    """How the service stops."""
    spool: SpoolConfig = SpoolConfig()
    """What is on disk before it is acknowledged."""
    memory: MemoryConfig = MemoryConfig()
    """What is held by all parts together."""

    @classmethod
    def default(cls) -> Self:
        """Return what an empty file means."""
        return cls()

    def __post_init__(self) -> None:
        self._check_listeners()
        self._check_references()
        self._check_exporters()
        self._check_spool()
        self._check_workers()
        self.memory.check(self.ledger.bytes_max, self.request_bytes_max)

    @property
    def request_bytes_max(self) -> int:
        """The largest request that a receiver takes."""
        grpc, http = self.receivers.grpc, self.receivers.http
        sizes = (grpc.max_receive_bytes if grpc.endpoint else 0, http.max_body_bytes if http.endpoint else 0)
        return max(sizes)

    def _check_listeners(self) -> None:
        seen: dict[str, str] = {}
        for key, endpoint in (
            ("receivers.grpc.endpoint", self.receivers.grpc.endpoint),
            ("receivers.http.endpoint", self.receivers.http.endpoint),
            ("telemetry.metrics_endpoint", self.telemetry.metrics_endpoint),
            ("health.endpoint", self.health.endpoint),
        ):
            if endpoint is None or endpoint.endswith(":0"):
                continue
            if endpoint in seen:
                raise ConfigError(key, f"is the same address as {seen[endpoint]}")
            seen[endpoint] = key

    def _check_exporters(self) -> None:
        if not self.exporters:
            raise ConfigError("exporters", "must name at least one exporter")
        receivers = self.receivers
        for name, exporter in self.exporters.items():
            key = f"exporters.{name}"
            check_text("exporters", name)
            # A request that never fits into the queue would be refused, and sent again, for ever.
            if receivers.grpc.endpoint and exporter.queue_bytes_max < receivers.grpc.max_receive_bytes:
                raise ConfigError(f"{key}.queue_bytes_max", "must not be below receivers.grpc.max_receive_bytes")
            if receivers.http.endpoint and exporter.queue_bytes_max < receivers.http.max_body_bytes:
                raise ConfigError(f"{key}.queue_bytes_max", "must not be below receivers.http.max_body_bytes")
            if exporter.target in {receivers.grpc.endpoint, receivers.http.endpoint}:
                raise ConfigError(f"{key}.endpoint", "is a receiver of this service: spans would go round")

    def _check_references(self) -> None:
        if self.references.files and self.redaction.digest_key is None and self.redaction.digest_key_file is None:
            raise ConfigError("redaction.digest_key", "must be set: references.files were digested with it")

    def _check_spool(self) -> None:
        if self.spool.directory is None:
            return
        receivers = self.receivers
        # A request that never fits would be refused, and sent again, for ever.
        if receivers.grpc.endpoint and self.spool.bytes_max <= receivers.grpc.max_receive_bytes:
            raise ConfigError("spool.bytes_max", "must exceed receivers.grpc.max_receive_bytes")
        if receivers.http.endpoint and self.spool.bytes_max <= receivers.http.max_body_bytes:
            raise ConfigError("spool.bytes_max", "must exceed receivers.http.max_body_bytes")

    def _check_workers(self) -> None:
        sole = self.workers.sole_source
        if sole is None:
            return
        named = {source.worker for source in self.kv_events.sources if source.worker is not None}
        if isinstance(sole, str):
            named.add(sole)
        if len(named) > 1:
            raise ConfigError("workers.sole_source", "must not be set: kv_events.sources name another worker")
        publishers = {source.worker or source.default_worker or source.endpoint for source in self.kv_events.sources}
        if len(publishers) > 1:
            raise ConfigError("workers.sole_source", "must not be set: kv_events.sources are several workers")
        if sole is True and not self.kv_events.sources and not self.kv_events.discovery:
            raise ConfigError("workers.sole_source", "is true, but kv_events.sources is empty")


def render(config: Config) -> str:
    """Write a configuration as a file that says all of it, secrets hidden."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case tuple():
            return [_plain(item) for item in value]
        case Secret():
            return repr(value)
        case _:
            return value
