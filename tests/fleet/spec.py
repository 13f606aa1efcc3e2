"""What a simulated fleet is like, what it emits, and what is true of each of its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from tests.fleet.prompts import Injection
from tests.fleet.tier import TierSpec

SECOND = 1_000_000_000
MILLI = 1_000_000
EPOCH = 1_796_000_000 * SECOND
"""Where virtual time begins."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong; all rates are shares from 0 to 1, all moments are seconds of the trace."""

    drop_batches: float = 0.0
    """Event batches that never arrive, though their sequence number was used."""
    replay: bool = False
    """Publishers keep their batches, so that one which never arrived can be asked for."""
    duplicate_batches: float = 0.0
    """Event batches that arrive twice."""
    restarts: tuple[tuple[float, int], ...] = ()
    """(when, worker): its cache is empty and its sequence begins at 0 again."""
    clears: tuple[tuple[float, int], ...] = ()
    """(when, worker): its cache is reset, which is published with its next step."""
    skew_seconds: float = 0.0
    """Worker i's clock is fast or slow by up to this much, worker 0's is right."""
    late_spans: float = 0.0
    """Spans that arrive a minute late."""
    lost_spans: float = 0.0
    """Lookup spans (or, where there are none, engine spans) that never arrive."""
    lost_routes: float = 0.0
    """Router spans that a sampler drops."""
    duplicate_spans: float = 0.0
    reannounced: float = 0.0
    """Requests whose reused prefix is announced again, with a session, as if it were stored."""


@dataclass(frozen=True, kw_only=True)
class FleetSpec:
    """A fleet. The default is serial: no step overlaps another, so evidence leaves no order open."""

    workers: int = 4
    decoders: int = 0
    """Engines that only decode what the workers have prefilled; 0: each worker does both."""
    capacity: int | None = 5859
    """Blocks of one worker; None: without end."""
    block_size: int = 16
    routing: Literal["rr", "sticky", "pa", "pa_greedy", "load"] = "rr"
    index_lag_seconds: float = 0.0
    """How far the router's index trails what the workers published."""
    index_ignores_clears: bool = False
    lanes: Literal["fleet", "worker"] = "fleet"
    """What works on one request at a time: the whole fleet, or each worker."""
    running_max: int = 1
    """Requests that a worker admits in one step; more than one needs ``lanes="worker"``."""
    chunk_blocks: int | None = None
    """Blocks prefilled in one step; None: all."""
    lookup_spans: bool = False
    router_spans: bool = False
    answer_tokens_max: int = 1
    """Generated tokens of a request at most; the blocks that they fill are stored one by one."""
    sparse: bool = False
    """A second group whose state is kept at few places only."""
    window_blocks: int = 0
    """The second group is a sliding window of so many blocks; 0: it keeps states. Needs ``sparse``."""
    unit_blocks: int = 1
    """Blocks of one match unit."""
    tier: TierSpec | None = None
    """A host tier of each worker."""
    opted_out: float = 0.0
    """Share of the requests that do not read the cache, and say so."""
    blind: float = 0.0
    """Share of the lookups that find nothing, whatever is there: an engine's fault. Needs ``lookup_spans``."""
    eagle: bool = False
    """The engine gives up the last block that it matched, for its draft model."""
    clock_tolerance_seconds: float = 0.05
    """Moments of two hosts closer than this have no order: the service's setting."""
    window_seconds: float | None = None
    """How far back the service remembers; None: to the beginning."""
    heartbeats: bool = True
    """Idle workers publish an empty batch within a second of any lookup: the traffic of a busy fleet."""
    injection: Injection = field(default_factory=Injection)
    faults: Faults = field(default_factory=Faults)
    hash_seeds: int = 1
    """How many seeds of the blocks' hashes the engines take in turn; a router knows the first. Needs ``decoders=0``."""
    seed: int = 1

    @property
    def engines(self) -> int:
        """All that have a cache."""
        return self.workers + self.decoders

    def name(self, worker: int) -> str:
        """A worker's name, as in its topic and resource."""
        return f"engine-{worker}"

    def hash_seed(self, worker: int) -> int:
        """The seed of a worker's hashes; workers of unlike seeds give unlike keys to all blocks."""
        return worker % self.hash_seeds


class KvFrames(NamedTuple):
    """One message of a publisher."""

    received_unix_nanos: int
    worker: str
    frames: tuple[bytes, bytes, bytes]
    lost: bool = False
    """It never arrives by itself; its publisher has it still."""


class OtlpRequest(NamedTuple):
    """One encoded ``ExportTraceServiceRequest``."""

    received_unix_nanos: int
    body: bytes


@dataclass(kw_only=True)
class Truth:
    """What is true of one lookup, from the simulator's own state at its moment."""

    number: int
    """Index of the request in its trace."""
    request_id: str
    worker: str
    at_unix_nanos: int
    prompt_tokens: int
    cached_tokens: int
    cause: str
    in_window: str = ""
    """The cause as far as the service's window shows it, where that is another one."""
    reason: str = ""
    label: str = ""
    """The letter of the published tables."""
    block_index: int = 0
    """Index of the first missed block."""
    lost_tokens: int | None = None
    first_key: int | None = None
    recomputed_blocks: int = 0
    undecided: bool = False
    """The state changed inside a step that overlaps this lookup: its order cannot be seen from outside."""
    touched: set[str] = field(default_factory=set)
    """Faults that took away evidence which this verdict needs."""


SimEvent: TypeAlias = KvFrames | OtlpRequest | Truth
