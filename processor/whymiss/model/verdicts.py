"""The facts that a verdict rests on, and what is said."""

from __future__ import annotations

import msgspec

from .history import Fact, StreamId
from .spans import OffloadOutcome, RouteDecision
from .words import Cause, Grade, Owner, Reason, Residency, Tier


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
