"""What the status page says, as data. Nothing here can hold a prompt, a token, a salt or a digest.

Counts come in pairs: ``total`` since the service started, ``recent`` within the last ``Snapshot.recent_seconds``.
Ages are in seconds before ``Snapshot.taken_unix_nanos``. Lists are bounded where a fleet decides on their length;
what was left out is counted beside them.
"""

from __future__ import annotations

import msgspec


class Count(msgspec.Struct, frozen=True):
    """How many since the start, and how many of them lately."""

    total: float = 0.0
    recent: float = 0.0


class NamedCount(msgspec.Struct, frozen=True):
    """A count and what was counted."""

    name: str
    count: Count


class ReceiverCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one signal at one receiver; ``reasons`` say why the refused ones were."""

    transport: str
    signal: str
    accepted: Count
    refused: Count
    reasons: tuple[NamedCount, ...] = ()


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """What became of spans, in the order of the stages.

    ``rejected`` were part of an accepted request and could not be used; ``dropped`` were lost after they had been
    accepted; ``failed`` were given up by a destination.
    """

    accepted: Count
    refused: Count
    claimed: tuple[NamedCount, ...]
    passed_through: Count
    late: Count
    rejected: tuple[NamedCount, ...]
    dropped: tuple[NamedCount, ...]
    sent: tuple[NamedCount, ...]
    failed: tuple[NamedCount, ...]


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """What the joiner holds now, its limits, and why it let go."""

    open_traces: int
    open_spans: int
    open_spans_max: int
    held_bytes: int
    held_bytes_max: int
    oldest_seconds: float | None
    hold_seconds: float
    released: tuple[NamedCount, ...]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One publisher of KV-cache events.

    ``heard_seconds`` is the age of its last message, ``None`` where it never spoke or is not listened to by a
    subscription (it pushes). ``lag_seconds`` is how old its newest batch was when it was read.
    """

    name: str
    state: str
    heard_seconds: float | None
    lag_seconds: float | None
    events: int
    blocks: int
    gaps: int
    replays: int
    restarts: int
    bad_events: int


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one worker's rank.

    ``state`` is `ledger.ports.Health`'s word. The record reaches back ``covered_seconds`` from its newest batch,
    ``complete`` says that it does so from the publisher's first event, ``expired`` that older history was let go.
    """

    worker: str
    rank: int
    model: str | None
    state: str
    heard_seconds: float | None
    covered_seconds: float | None
    complete: bool
    expired: bool
    holes: tuple[NamedCount, ...]
    last_hole_seconds: float | None


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """An exporter: how full its queue is, and how it answers.

    ``state`` is ``idle`` before the first answer, ``ok``, or ``retrying``; the last error stays to be read after it
    is over. ``code`` is a gRPC or HTTP status, or the kind of failure.
    """

    name: str
    protocol: str
    target: str
    state: str
    retrying_seconds: float | None
    code: str | None
    code_seconds: float | None
    held_requests: int
    held_requests_max: int
    held_bytes: int
    held_bytes_max: int
    fullness: float
    sent: Count
    failed: Count


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes held by part, and the limits; ``resident`` is what the process takes from the system."""

    resident_bytes: int
    parts: tuple[NamedCount, ...]
    limits: tuple[NamedCount, ...]
    refused: Count


class SpoolRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The spool on disk."""

    size_bytes: int
    bytes_max: int
    replaying_bytes: int
    fsync: str
    refused: Count
    failures: Count
    corrupt: Count
    replayed: Count


class CauseCount(msgspec.Struct, frozen=True, kw_only=True):
    """Lookups with one cause, the tokens that its fix would have saved, and who can act."""

    cause: str
    owners: tuple[str, ...]
    lookups: Count
    lost_tokens: Count


class VerdictCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What was judged. ``unknown`` is by the hole in the evidence."""

    lookups: Count
    misses: Count
    queried_tokens: Count
    hit_tokens: Count
    causes: tuple[CauseCount, ...]
    unknown: tuple[NamedCount, ...]


class TimelineStep(msgspec.Struct, frozen=True):
    """Lookups judged in one step of the recent past."""

    hits: float = 0.0
    misses: float = 0.0
    unknown: float = 0.0


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was logged as a warning or an error; equal lines are one with their number."""

    level: str
    part: str
    message: str
    details: str
    count: int
    first_seconds: float
    last_seconds: float


class Setting(msgspec.Struct, frozen=True):
    """A fact of the configuration."""

    name: str
    value: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page says."""

    version: str
    state: str
    taken_unix_nanos: int
    started_unix_nanos: int
    uptime_seconds: float
    recent_seconds: float
    memory: MemoryUse
    doors: tuple[ReceiverCounts, ...]
    spans: Spans
    hold: Hold
    sources: tuple[Source, ...]
    sources_left_out: int
    discovery_failures: Count
    streams: tuple[Stream, ...]
    streams_left_out: int
    stream_states: tuple[NamedCount, ...]
    retained_bytes: int
    retained_bytes_max: int
    destinations: tuple[Destination, ...]
    spool: SpoolRoom | None
    verdicts: VerdictCounts
    moments: tuple[TimelineStep, ...]
    moment_seconds: float
    failures: tuple[NamedCount, ...]
    troubles: tuple[Trouble, ...]
    settings: tuple[Setting, ...]
