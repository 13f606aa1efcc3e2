"""The sections about the stages: join, ledger, attribution, redaction, measures.

The name of a field is the key in the file. A rule between the fields of one section is in its
``__post_init__`` and names the key inside the section; the reader puts the path in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..errors import ConfigError
from .dimensions import DIMENSIONS
from .endpoints import check_text
from .kinds import GIB, MIB, Bytes, Count, CountOrZero, Ratio, Seconds, SecondsAboveZero, Secret, Section


class JoinConfig(Section, frozen=True, kw_only=True):
    """How long the spans of one request are held for each other."""

    hold_seconds: Seconds = 8.0
    """Longest time that a span is held, in seconds. Default 8; zero lets every span go at once, unjoined."""
    linger_seconds: Seconds = 2.0
    """Time held on once the engine's span is there, in seconds. Default 2; zero does not wait for companions."""
    open_spans_max: Count = 100_000
    """Spans held at once; beyond it the oldest request is released early. Default 100000; not zero."""
    open_bytes_max: Bytes = 256 * MIB
    """Bytes of spans held at once; beyond it the oldest request is released early. Default 256 MiB; not zero."""
    parts_max: Count = 10_000
    """Attributes, events, links and the parts of their values that a claimed span may have, and its resource and scope;
    one with more is rejected. Default 10000; not zero."""
    remembered_max: CountOrZero = 100_000
    """Released requests remembered, so that a late span is known to be late. Default 100000; zero remembers none."""
    remembered_seconds: Seconds = 60.0
    """How long a released request is remembered, in seconds. Default 60; zero remembers none."""

    def __post_init__(self) -> None:
        if self.linger_seconds > self.hold_seconds:
            problem = f"is {self.linger_seconds:g}, which exceeds hold_seconds ({self.hold_seconds:g})"
            raise ConfigError("linger_seconds", problem)


class LedgerConfig(Section, frozen=True, kw_only=True):
    """What is remembered of the workers' caches."""

    window_seconds: SecondsAboveZero = 3600.0
    """How far back a verdict may look, in seconds. Default 3600; not zero."""
    bytes_max: Bytes = GIB
    """Memory for the record; beyond it the oldest history goes early. Default 1 GiB; not zero."""
    token_digests: bool = True
    """Whether keyed digests of token ids are kept. Default true; false ends the causes that compare tokens."""
    checkpoint_path: str | None = None
    """File of its own for each process, in which the record survives a restart; the key of its digests is kept beside it,
    in ``<path>.key``. Only this user can read them. Default null: a restart begins with an empty record."""
    checkpoint_seconds: SecondsAboveZero = 60.0
    """How often that file is written, in seconds. Default 60; not zero. What was said since then is asked for again."""

    def __post_init__(self) -> None:
        check_text("checkpoint_path", self.checkpoint_path)


class WorkerRuleConfig(Section, frozen=True, kw_only=True):
    """Says which worker emitted a span, by its resource."""

    match: Mapping[str, str]
    """Resource attributes and the values that they must all have. No default; not empty."""
    worker: str
    """Name of the worker, as in the KV-cache events. No default."""
    rank: CountOrZero | None = None
    """Its data-parallel rank, from 0. Default null: taken from the span, else from the only chain that fits."""

    def __post_init__(self) -> None:
        if not self.match:
            raise ConfigError("match", "must name at least one resource attribute")
        check_text("worker", self.worker)


class WorkersConfig(Section, frozen=True, kw_only=True):
    """How the spans of a worker are tied to its KV-cache events."""

    sole_source: str | bool | None = None
    """The one worker behind all spans: its name, or true for the only source. Default null: spans name their worker."""
    map: tuple[WorkerRuleConfig, ...] = ()
    """Rules tried in order before the spans' own attributes; the first that fits wins. Default none."""
    aliases: Mapping[str, tuple[str, ...]] = {}
    """Other names under which routers and spans know a worker. Default none."""

    def __post_init__(self) -> None:
        if self.sole_source is not None and self.map:
            raise ConfigError("map", "has no use beside sole_source")
        if self.sole_source is False:
            raise ConfigError("sole_source", "must be true, a worker's name or null")
        if isinstance(self.sole_source, str):
            check_text("sole_source", self.sole_source)
        owner_of: dict[str, str] = {}
        for worker, names in self.aliases.items():
            for name in names:
                if owner_of.setdefault(name, worker) != worker:
                    raise ConfigError(f"aliases.{worker}", f"shares a name with aliases.{owner_of[name]}")
                if name != worker and name in self.aliases:
                    raise ConfigError(f"aliases.{worker}", "holds a name that is a worker of its own")


class AttributionConfig(Section, frozen=True, kw_only=True):
    """How careful a verdict is."""

    fleet_view: Literal["complete", "declared"] = "complete"
    """Whether a hole in another worker's record makes a verdict on the fleet unknown (``complete``, the default) or
    only marks it (``declared``)."""
    clock_tolerance_seconds: Seconds = 0.05
    """How far the hosts' clocks may differ, in seconds; closer comparisons are undecided. Default 0.05; zero trusts them."""
    index_lag_seconds: Seconds = 1.0
    """How old a router's index may be without being stale, in seconds. Default 1; zero allows no lag."""
    match_unit: Count | None = None
    """Tokens in one match unit. Default null: taken from spans and events."""
    block_size: Count | None = None
    """Tokens in one block. Default null: taken from spans and events."""
    comparisons_max: Count = 50_000
    """Engine requests and lookups, at least 64, times spans of one group up to which its spans are told apart; beyond it
    each is judged alone, ``unknown`` (``partial_trace``). Default 50000, which is 220 requests alone; not zero."""
    decode_step_seconds_max: SecondsAboveZero = 1.0
    """Longest engine step, in seconds: how far an event may trail its request. Default 1; not zero."""

    def __post_init__(self) -> None:
        if self.match_unit is not None and self.match_unit % (self.block_size or 1):
            raise ConfigError("match_unit", "must be a multiple of block_size")


class RedactionConfig(Section, frozen=True, kw_only=True):
    """What leaves, and under which key it is digested."""

    digest_key: Secret | None = None
    """Key of the digests, at least 16 characters, the same on all replicas. Default null: a random one each start."""
    digest_key_file: str | None = None
    """File that holds the key instead, less the white space around it; read again with the configuration (SIGHUP), so
    that a mounted secret can be rotated. Default null; not beside ``digest_key``."""
    digest_key_id: str = "0"
    """Name of the key, written beside each digest; change it with the key. Default ``0``."""
    unknown_sampling: Literal["treat_as_sampled", "treat_as_unsampled"] = "treat_as_sampled"
    """Whether digests go on a span that does not say whether it is sampled. Default ``treat_as_sampled``."""
    sample_ratio: Ratio = 1.0
    """Share of the traces that digests and names may leave on, chosen by trace id. Default 1; zero keeps them all back."""
    drop_attributes: tuple[str, ...] = ()
    """Further attributes removed from claimed spans, by key. Default none."""

    def __post_init__(self) -> None:
        # A short key can be guessed from one digest of a known prompt.
        if self.digest_key is not None and len(self.digest_key.reveal()) < 16:
            raise ConfigError("digest_key", "must have at least 16 characters")
        check_text("digest_key_file", self.digest_key_file)
        if self.digest_key is not None and self.digest_key_file is not None:
            raise ConfigError("digest_key_file", "has no use beside digest_key")
        check_text("digest_key_id", self.digest_key_id)


class ReferencesConfig(Section, frozen=True, kw_only=True):
    """Known-good templates that misses are compared with."""

    files: tuple[str, ...] = ()
    """Files that ``whymiss reference`` wrote with ``redaction.digest_key``; read again with the configuration (SIGHUP).
    Default none: changed tokens are only noticed where later ones are the same again."""
    scope: Literal["begun", "model"] = "begun"
    """Which prompts are held to a reference of their model: those that begin with a block of it (``begun``, the
    default), or all of them (``model``), where there is no other template."""

    def __post_init__(self) -> None:
        for at, file in enumerate(self.files):
            check_text(f"files[{at}]", file)
            if file in self.files[:at]:
                raise ConfigError(f"files[{at}]", f"the same file as files[{self.files.index(file)}]")


class MeasuresConfig(Section, frozen=True, kw_only=True):
    """The class metrics and their cardinality."""

    dimensions: tuple[str, ...] = DIMENSIONS
    """Labels that the class metrics carry. Default all; an empty list leaves cause, owner and reason."""
    values_max: Count = 100
    """Distinct values of one dimension; further ones become ``_other``. Default 100; not zero."""
    series_max: Count = 2000
    """Series of one metric; further ones go to ``otel.metric.overflow``. Default 2000; not zero."""

    def __post_init__(self) -> None:
        for at, name in enumerate(self.dimensions):
            if name not in DIMENSIONS:
                raise ConfigError(f"dimensions[{at}]", f"must be one of {', '.join(DIMENSIONS)}")
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ConfigError("dimensions", "names a dimension twice")


class ShutdownConfig(Section, frozen=True, kw_only=True):
    """How the service stops."""

    deadline_seconds: SecondsAboveZero = 20.0
    """Time to send what was accepted, in seconds, before giving up. Default 20; keep it below the orchestrator's; not zero."""
