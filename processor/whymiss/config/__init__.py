"""The configuration: ``parse(text, environ)`` reads a file into a frozen tree of sections.

Nothing here reads a file or the environment; both are handed in. A value of the configuration never
appears in an error, because it may be a secret: the key and the line do.
"""

from .kinds import Secret
from .kv_events import KvDiscoveryConfig, KvEventsConfig, KvSourceConfig, expand, sources_at
from .memory import MemoryConfig
from .network import (
    ExporterConfig,
    GrpcReceiverConfig,
    HealthConfig,
    HttpReceiverConfig,
    ReceiversConfig,
    RetryConfig,
    TelemetryConfig,
)
from .reading import parse, parse_sources
from .security import ClientTlsConfig, ServerTlsConfig
from .spool import SpoolConfig
from .stages import (
    AttributionConfig,
    JoinConfig,
    LedgerConfig,
    MeasuresConfig,
    RedactionConfig,
    ReferencesConfig,
    ShutdownConfig,
    WorkerRuleConfig,
    WorkersConfig,
)
from .tree import Config, render

__all__ = [
    "AttributionConfig",
    "ClientTlsConfig",
    "Config",
    "ExporterConfig",
    "GrpcReceiverConfig",
    "HealthConfig",
    "HttpReceiverConfig",
    "JoinConfig",
    "KvDiscoveryConfig",
    "KvEventsConfig",
    "KvSourceConfig",
    "LedgerConfig",
    "MeasuresConfig",
    "MemoryConfig",
    "ReceiversConfig",
    "RedactionConfig",
    "ReferencesConfig",
    "RetryConfig",
    "Secret",
    "ServerTlsConfig",
    "ShutdownConfig",
    "SpoolConfig",
    "TelemetryConfig",
    "WorkerRuleConfig",
    "WorkersConfig",
    "expand",
    "parse",
    "parse_sources",
    "render",
    "sources_at",
]
