"""The nouns of whymiss: what is read, what is known, what is said.

Times are integers in nanoseconds since the Unix epoch, on the clock of whoever reported them
(``_unix_nanos``). Token and block counts are plain integers. Block keys are unsigned 64-bit
integers: the low 64 bits of an engine's block hash, comparable only inside one hash family.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

Attribute: TypeAlias = str | bool | int | float | bytes | list[str] | None
"""A span attribute as far as a dialect reads it. ``None`` is a present key of another shape."""

SECOND = 1_000_000_000


class Cause(StrEnum):
    """Why a lookup missed. The order of the members is the order of the table."""

    NONE = "none"
    CACHE_DISABLED = "cache_disabled"
    BELOW_MATCH_UNIT = "below_match_unit"
    SPARSE_RETENTION = "sparse_retention"
    SPECULATIVE_REPLAY = "speculative_replay"
    TRANSFER_TIMEOUT = "transfer_timeout"
    TRANSFER_FAILED = "transfer_failed"
    STALE_INDEX = "stale_index"
    LOOKUP_FAILURE = "lookup_failure"
    TIER_UNREACHABLE = "tier_unreachable"
    ROUTING_MISS = "routing_miss"
    EVICTED = "evicted"
    EVICTED_ELSEWHERE = "evicted_elsewhere"
    EXTRA_KEY_MISMATCH = "extra_key_mismatch"
    IDENTITY_MISMATCH = "identity_mismatch"
    TOKEN_DIVERGENCE = "token_divergence"
    NEW_CONTENT = "new_content"
    NO_RECENT_MATCH = "no_recent_match"
    UNKNOWN = "unknown"


class Owner(StrEnum):
    """Who can act on a cause."""

    NONE = "none"
    ENGINE = "engine"
    PLATFORM = "platform"
    ROUTING = "routing"
    SECURITY = "security"
    APPLICATION = "application"
    OBSERVABILITY = "observability"


class Reason(StrEnum):
    """A refinement of a cause, or, for ``unknown``, the hole in the evidence."""

    NONE = ""
    HOLDER_KNOWN = "holder_known"
    HOLDER_UNKNOWN = "holder_unknown"
    PINNED = "pinned"
    CAPACITY = "capacity"
    CLEARED = "cleared"
    RESTARTED = "restarted"
    AFTER_ROUTE = "after_route"
    BRANCH = "branch"
    CONCURRENT_PREFILL = "concurrent_prefill"
    FIRST_SEEN = "first_seen"
    EVENTS_DROPPED = "events_dropped"
    HISTORY_EXPIRED = "history_expired"
    HISTORY_SHORT = "history_short"
    NO_EVENT_SOURCE = "no_event_source"
    FLEET_VIEW_PARTIAL = "fleet_view_partial"
    NO_WORKER = "no_worker"
    NO_FIRST_MISS_KEY = "no_first_miss_key"
    AMBIGUOUS_CHAIN = "ambiguous_chain"
    AMBIGUOUS_COPIES = "ambiguous_copies"
    CLOCK_SKEW = "clock_skew"
    EVIDENCE_LATE = "evidence_late"
    LOOKUP_UNSEEN = "lookup_unseen"
    PARTIAL_TRACE = "partial_trace"
    NO_CACHED_TOKENS = "no_cached_tokens"


class Grade(StrEnum):
    """Where the first missed key and the cached count come from, best first."""

    DIRECT = "direct"
    DERIVED = "derived"
    CONSENSUS = "consensus"
    SPANS = "spans"
    NONE = "none"


class Residency(StrEnum):
    """What a record says of one block at one moment."""

    RESIDENT = "resident"
    EVICTED = "evicted"
    NEVER_SEEN = "never_seen"
    AMBIGUOUS = "ambiguous"
    UNKNOWN = "unknown"


class Removal(StrEnum):
    """How a block left."""

    REMOVED = "removed"
    CLEARED = "cleared"
    RESTARTED = "restarted"


class Tier(StrEnum):
    """Where a block lives. Unknown media keep their own name and are never merged into device."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    REMOTE = "remote"
    OTHER = "other"


class Role(StrEnum):
    """What a claimed span is evidence of."""

    ENGINE = "engine"
    LOOKUP = "lookup"
    ROUTER = "router"
    OFFLOAD = "offload"
    GATEWAY = "gateway"


# --- What spans say ---------------------------------------------------------------------------


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The resource and scope that a span came in, as bytes, so that it can leave in the same ones.

    ``resource`` is the encoded ``ResourceSpans`` without its ``scope_spans``; ``scope`` the
    encoded ``ScopeSpans`` without its ``spans``. Two equal envelopes may share one group.
    """

    resource: bytes
    scope: bytes


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One engine request as the engine's own span describes it.

    ``queue_seconds``, ``first_token_seconds`` and ``prefill_seconds`` bound the lookup in time:
    it took place not before start + queue and not after start + first token - prefill.
    """

    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    queue_seconds: float | None = None
    first_token_seconds: float | None = None
    prefill_seconds: float | None = None
    choices: int = 1
    model: str | None = None
    prefill_only: bool = False
    decode_only: bool = False


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix-cache lookup seen inside the engine: the input contract ``prefix_cache.lookup.*``.

    ``expected_keys`` is the chain of block keys of the prompt's full blocks, from block 0.
    ``present`` says whether the first missed block was in the pool at the lookup.
    """

    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    block_size: int | None = None
    match_unit: int | None = None
    first_miss_key: int | None = None
    expected_keys: tuple[int, ...] = ()
    extra_key_kinds: tuple[str, ...] | None = None
    local_hit_tokens: int | None = None
    external_hit_tokens: int | None = None
    sparse_lost_tokens: int | None = None
    disabled: bool = False
    speculative: bool = False
    present: bool | None = None
    preempted: bool = False
    event_seq: int | None = None


class RouteDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What a router decided and promised: the input contract ``prefix_cache.route.*``."""

    request_id: str | None = None
    worker: str | None = None
    rank: int | None = None
    predicted_blocks: int | None = None
    best_worker: str | None = None
    best_blocks: int | None = None
    index_version: str | None = None
    reason: str | None = None
    pinned: bool = False
    prefix_aware: bool | None = None
    model: str | None = None


class OffloadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an offload tier found and delivered: the input contract ``prefix_cache.offload.*``."""

    request_id: str | None = None
    found_blocks: int | None = None
    loaded_blocks: int | None = None
    status: str | None = None
    tier: str | None = None


class GatewayUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts that a gateway or SDK repeats from the engine's response."""

    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    model: str | None = None


Evidenced: TypeAlias = EngineRequest | Lookup | RouteDecision | OffloadOutcome | GatewayUsage


class ResourceIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a resource says about the process that emitted its spans.

    ``attributes`` holds all of its string attributes, for the operator's own mapping.
    """

    attributes: tuple[tuple[str, str], ...] = ()

    service_name: str | None = None
    instance_id: str | None = None
    pod_name: str | None = None
    pod_ip: str | None = None
    pod_uid: str | None = None
    namespace: str | None = None
    host: str | None = None
    worker: str | None = None
    rank: int | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed span: its bytes and the few fields that its dialect read."""

    raw: bytes
    envelope: Envelope
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start_unix_nanos: int
    end_unix_nanos: int
    flags: int
    trace_state: str
    role: Role
    dialect: str
    says: tuple[Evidenced, ...]
    resource: ResourceIdentity
    linked_trace_ids: tuple[bytes, ...] = ()
    sensitive: tuple[str, ...] = ()
    """Names of attributes of the span that must not leave."""


_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
_CHILD = re.compile(r"^\d+_")


def request_ids(span: Span) -> tuple[str, ...]:
    """The ids under which a span's request may be known, most exact first.

    vLLM's engine core appends ``-`` and eight hex digits to the external id and puts ``n_`` before
    the ids of the children of one request.
    """
    found: dict[str, None] = {}
    for said in span.says:
        exact = said.request_id
        if exact:
            plain = _CHILD.sub("", exact)
            for spelling in (exact, plain, _SUFFIX.sub("", plain)):
                found.setdefault(spelling, None)
    return tuple(found)


# --- What the ledger knows --------------------------------------------------------------------


class StreamId(msgspec.Struct, frozen=True, order=True):
    """One publisher's record: a worker and its data-parallel rank."""

    worker: str
    rank: int


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of one block at one position."""

    state: Residency
    at_unix_nanos: int | None = None
    """Time of the operation that made it so, on the stream's clock."""
    removal: Removal | None = None
    ordinal: int | None = None
    """Ordinal of that operation's event in its stream."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one block as its first store described it.

    ``tokens`` is the keyed digest of the block's own token ids, ``prefix`` that of all tokens from
    block 0 to its end, ``extras`` that of the extra keys from block 0 to its end; all three are
    ``None`` where a store did not carry them. ``depth`` counts from 0.
    """

    key: int
    parent: int | None
    depth: int
    tokens: int | None = None
    prefix: int | None = None
    extras: int | None = None
    kinds: tuple[str, ...] = ()


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """One event that stored blocks of the dense group on the device, in chain order.

    ``start`` is the depth of ``keys[0]`` and ``None`` where its parent is not known. ``position``
    is where the lookup of the request that stored them stood: before the first event that the
    request caused, its own removals included (they precede its stores in the batch).
    """

    keys: tuple[int, ...]
    start: int | None
    parent: int | None
    position: int
    unix_nanos: int
    """The publisher's time of the batch."""
    reported: bool = False
    """All of it was resident already and the event carried a session: a re-announcement."""
    parent_tail_unix_nanos: int | None = None
    """When the parent was stored as the last block of an event, if it was: a tail that a running
    request may still be extending while it decodes."""


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one KV-cache group: ``kind`` is vLLM's ``kv_cache_spec_kind``."""

    group: int
    kind: str = ""
    block_size: int | None = None
    window: int | None = None
    """Sliding window in tokens."""

    @property
    def dense(self) -> bool:
        """Whether a hit needs every block from 0 on, and not only the last ones."""
        return self.kind in DENSE_KINDS


DENSE_KINDS = frozenset({"", "full_attention", "mla_attention", "sink_full_attention", "unknown"})


class Hole(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a stream's time that the record does not cover, and why."""

    after_unix_nanos: int
    until_unix_nanos: int
    reason: Reason


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How far a record can be trusted between two moments.

    ``begins_unix_nanos`` is where the unbroken record starts, ``from_birth`` whether it starts
    with the publisher's first event, ``confirmed_unix_nanos`` the time of the newest batch.
    """

    holes: tuple[Hole, ...]
    begins_unix_nanos: int
    from_birth: bool
    confirmed_unix_nanos: int


class LedgerView(Protocol):
    """What attribution may ask of the ledger.

    A *position* is the number of a stream's events that had happened: the state at position ``p``
    is that before event ordinal ``p``. Ordinals count events (not blocks) from 0 in the order in
    which the publisher numbered them.
    """

    def streams(self) -> Sequence[StreamId]:
        """All streams with a record, in a stable order."""
        ...

    def view_of(self, stream: StreamId) -> Sequence[StreamId]:
        """The other streams that serve the same model and hash family."""
        ...

    def block_size(self, stream: StreamId) -> int | None:
        """Tokens a block of the stream's dense group, or ``None`` before the first store."""
        ...

    def match_unit(self, stream: StreamId) -> int | None:
        """Tokens a match unit: the least common multiple of the groups' block sizes."""
        ...

    def groups(self, stream: StreamId) -> Sequence[GroupSpec]:
        """The stream's KV-cache groups, the dense one first."""
        ...

    def position_at(self, stream: StreamId, unix_nanos: int) -> int:
        """The position after all batches that the stream published at or before a time."""
        ...

    def confirmed_position(self, stream: StreamId, unix_nanos: int) -> int | None:
        """The position after the first batch published later than a time; ``None`` while there is none.

        vLLM publishes a reset with its next step, so a record is only known to hold at a time
        once a later batch has arrived.
        """
        ...

    def as_of(
        self,
        stream: StreamId,
        keys: Sequence[int],
        position: int,
        *,
        tier: Tier = Tier.DEVICE,
        group: int | None = None,
    ) -> Sequence[Fact]:
        """For each key what the record says at a position; ``group`` None is the dense group."""
        ...

    def touched(self, stream: StreamId, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` stored, removed or cleared the key."""
        ...

    def tiers(self, stream: StreamId) -> Sequence[Tier]:
        """Tiers below the device for which the stream has published anything."""
        ...

    def stores_between(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``, in order."""
        ...

    def block(self, stream: StreamId, key: int) -> Block | None:
        """The identity of a block that the record has seen stored."""
        ...

    def children(self, stream: StreamId, parent: int | None, position: int) -> Sequence[int]:
        """Blocks first stored under a parent (``None``: roots) before a position."""
        ...

    def same_tokens(self, stream: StreamId, key: int, position: int) -> Sequence[Block]:
        """Other blocks, resident at a position, whose tokens from block 0 to their end are the same."""
        ...

    def reconverges(self, stream: StreamId, keys: Sequence[int], position: int) -> int:
        """How many of ``keys[1:]`` have the own tokens of a sibling chain's block at the same depth.

        ``keys[0]`` is the first missed block. Only leading-sibling chains that were stored before
        ``position`` count. The result is the largest number over all siblings.
        """
        ...

    def coverage(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """The holes that touch an interval, and the bounds of the record around it."""
        ...


# --- What a verdict rests on --------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of one engine request: at least an engine's span or a lookup."""

    engine: Span | None = None
    lookup: Span | None = None
    routes: tuple[Span, ...] = ()
    offloads: tuple[Span, ...] = ()
    gateways: tuple[Span, ...] = ()

    @property
    def subject(self) -> Span:
        """The span that carries the verdict."""
        chosen = self.engine or self.lookup
        assert chosen is not None, "a request has an engine span or a lookup"
        return chosen

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans of the request, each once."""
        several = (self.engine, self.lookup, *self.routes, *self.offloads, *self.gateways)
        unique = {(span.trace_id, span.span_id): span for span in several if span is not None}
        return tuple(unique.values())


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Another place that held the first missed block at the lookup, and how much of the chain."""

    stream: StreamId
    tier: Tier
    leading_blocks: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one lookup under one reading of its evidence.

    Attribution decides from this alone. A field whose fact could not be established carries the
    reason in the field beside it; an empty reason means that the fact holds.
    """

    grade: Grade
    gap: Reason = Reason.NONE
    """Why no first missed block is known at all."""
    stream: StreamId | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    block_size: int | None = None
    match_unit: int | None = None
    first: int | None = None
    """Index of the first missed block."""
    key: int | None = None
    last_hit_key: int | None = None
    chain_known: bool = False
    """Whether the keys of the whole expected chain are known, and not only the first."""
    lookup_seen: bool = False
    disabled: bool = False
    speculative: bool = False
    sparse_lost_tokens: int | None = None
    sparse_boundary: int | None = None
    """Blocks that the dense group held while a sparse group vetoed them, if that is what happened."""
    dense_ahead: int = 0
    """Leading dense blocks from the first missed one on that were resident here."""
    here: Fact | None = None
    record_gap: Reason = Reason.NONE
    """Why a negative statement about the serving worker's record is not supported."""
    window_seconds: float = 0.0
    recoverable: int = 0
    """Leading blocks from the first missed one on that were evicted or resident here."""
    holders: tuple[Holder, ...] = ()
    holder_gap: Reason = Reason.NONE
    """Why a worker that looks like a holder cannot be called one."""
    view_gap: Reason = Reason.NONE
    """Why it cannot be said that no other worker held the block."""
    lost_elsewhere: bool = False
    tiers_holding: tuple[Tier, ...] = ()
    differing_kinds: tuple[str, ...] | None = None
    """Extra-key kinds in which a resident block with the same tokens differs."""
    same_identity: bool = False
    """A resident block from block 0 on has the same tokens and extra keys under another key."""
    same_tokens_leading: int = 0
    tokens_known: bool = False
    reconverging: int = 0
    siblings: bool = False
    extends: bool = False
    concurrent: bool = False
    extra_key_kinds: tuple[str, ...] = ()
    eviction_age_nanos: int | None = None
    route: RouteDecision | None = None
    route_unix_nanos: int | None = None
    offload: OffloadOutcome | None = None


# --- What is said -----------------------------------------------------------------------------


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One lookup, judged. Facts that are not known are ``None``, never guessed."""

    cause: Cause
    owner: Owner
    reason: Reason = Reason.NONE
    grade: Grade = Grade.NONE
    worker: str | None = None
    rank: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    recomputed_tokens: int | None = None
    lost_tokens: int | None = None
    sparse_lost_tokens: int | None = None
    block_size: int | None = None
    match_unit: int | None = None
    block_index: int | None = None
    residency: Residency | None = None
    eviction_age_ms: int | None = None
    eviction_reason: str | None = None
    holders_count: int | None = None
    holders_tiers: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    predicted_blocks: int | None = None
    best_blocks: int | None = None
    index_version: str | None = None
    route: str | None = None
    remote_lookup: str | None = None
    extra_key_kinds: tuple[str, ...] = ()
    window_seconds: float | None = None
    history_complete: bool | None = None
    fleet_view_complete: bool | None = None
    first_miss_key: int | None = None
    last_hit_key: int | None = None


# --- What happens to a span -------------------------------------------------------------------


class ReleaseReason(StrEnum):
    """Why the joiner let a request go."""

    COMPLETE = "complete"
    HOLD = "hold"
    DRAIN = "drain"
    SHED = "shed"


class Released(msgspec.Struct, frozen=True):
    """A request left the joiner, with all the spans that had arrived for it."""

    spans: tuple[Span, ...]
    reason: ReleaseReason
    arrived: float
    """When its first span arrived, on the joiner's clock."""


class Late(msgspec.Struct, frozen=True):
    """A span that arrived after its request had been released."""

    span: Span


JoinOutcome: TypeAlias = Released | Late
