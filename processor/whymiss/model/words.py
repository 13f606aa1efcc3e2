"""The words that users see: causes, owners, reasons, grades; and those of the record."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

Attribute: TypeAlias = str | bool | int | float | bytes | list[str] | list[int] | list[bytes] | None
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


OFFLOAD_STATUSES = ("timeout", "failed", "stale", "miss", "hit", "none")
"""How a lookup in a tier below may end, the worst first; ``none``: there was none."""


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
