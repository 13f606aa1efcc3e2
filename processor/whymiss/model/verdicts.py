"""The facts that a verdict rests on, and what is said."""

from __future__ import annotations

import msgspec

from .history import Fact, StreamId
from .spans import OffloadOutcome, RouteDecision
from .templates import Likeness
from .words import Cause, Grade, Owner, Reason, Residency, Tier


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Another place that held the first missed block at the lookup, and how much of the chain."""

    stream: StreamId
    tier: Tier = Tier.DEVICE
    leading_blocks: int | None = None
    """``None`` where the record of a later block is not certain."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When something happened, between two times (inclusive) on the engine's clock.

    What another host's clock says is widened by the tolerance between clocks.
    """

    earliest_unix_nanos: int
    latest_unix_nanos: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one lookup under one reading of its evidence.

    Attribution decides from this alone. A fact that could not be established has the reason in the
    ``..._gap`` beside it; an empty reason means that the fact holds, the negative one included.
    """

    grade: Grade
    gap: Reason = Reason.NONE
    """Why no first missed block is known at all."""
    stream: StreamId | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    local_hit_tokens: int | None = None
    """Cached tokens that were in the engine's own cache, where the engine keeps them apart."""
    block_size: int | None = None
    match_unit: int | None = None
    first: int | None = None
    """Index of the first missed block."""
    key: int | None = None
    last_hit_key: int | None = None
    chain_known: bool = False
    """Whether the keys of the whole expected chain are known, and not only the first."""
    lookup_seen: bool = False
    lookup_gap: Reason = Reason.NONE
    """Why it cannot be said that the request did not opt out of the cache."""
    disabled: bool = False
    speculative: bool = False
    sparse_lost_tokens: int | None = None
    sparse_boundary: int | None = None
    """Blocks that the dense group held while a sparse group vetoed them, if that is what happened."""
    sparse_gap: Reason = Reason.NONE
    dense_ahead: int = 0
    """Leading dense blocks from the first missed one on that were resident here."""
    ahead_gap: Reason = Reason.NONE
    """Why there may be more of them."""
    here: Fact | None = None
    record_gap: Reason = Reason.NONE
    """Why a negative statement about the serving worker's record is not supported."""
    window_seconds: float = 0.0
    recoverable: int | None = None
    """Leading blocks from the first missed one on that were evicted or resident here."""
    eviction_age_nanos: int | None = None
    lost_at: Moment | None = None
    """When the block left this worker, where it did."""
    holders: tuple[Holder, ...] = ()
    holder_gap: Reason = Reason.NONE
    """Why a worker that looks like a holder cannot be called one."""
    view_gap: Reason = Reason.NONE
    """Why it cannot be said that no other worker held the block."""
    lost_elsewhere: bool = False
    lost_elsewhere_blocks: int | None = None
    """Leading blocks that the best of those workers had held; not counted where a holder or the worker's own record decides."""
    tiers_holding: tuple[Tier, ...] = ()
    tier_blocks: int | None = None
    """Leading blocks that the best of those tiers held."""
    tier_gap: Reason = Reason.NONE
    """Why it cannot be said that no other tier within reach held the block."""
    differing_kinds: tuple[str, ...] | None = None
    """Extra-key kinds in which a resident block with the same tokens differs."""
    same_identity: bool = False
    """Another worker held the same tokens under the same extra keys and another key."""
    same_tokens_leading: int | None = None
    relatives_gap: Reason = Reason.NONE
    """Why the block cannot be compared with others of the same tokens or the same parent."""
    reconverging: int = 0
    tail_gap: Reason = Reason.NONE
    """Why later blocks of the chain may repeat a sibling's all the same."""
    likeness: Likeness | None = None
    """How the block compares with a known-good template, where it can be compared with one."""
    siblings: bool = False
    """Another block was stored under the same parent, on any worker of the view.

    This and what the siblings repeat is asked only where no nearer row of the table decides.
    """
    siblings_gap: Reason = Reason.NONE
    """Why other workers may have had siblings, or chains of them, that are not counted."""
    extends: bool = False
    concurrent: bool = False
    """Another request was computing the block at the lookup."""
    extra_key_kinds: tuple[str, ...] = ()
    kept_apart_by: tuple[str, ...] | None = None
    """All extra-key kinds of the prompt from block 0 on that keep its blocks from other prompts' with the same tokens."""
    adapter: str | None = None
    route: RouteDecision | None = None
    promised_at: Moment | None = None
    """When the router decided; where its span is missing, when it can have."""
    route_gap: Reason = Reason.NONE
    """Why it cannot be said what the router had promised of this worker."""
    best_is_elsewhere: bool = True
    """Whether the router's best worker may be another one than the one that it picked."""
    offload: OffloadOutcome | None = None
    offload_gap: Reason = Reason.NONE
    """Why it cannot be said that no tier had promised the block."""


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
    template_version: str | None = None
    """Of the known-good template that the first missed block was compared with."""
    template_name: str | None = None
    kept_apart_by: tuple[str, ...] | None = None
    """Kinds of extra keys by which other prompts with the same tokens have other blocks; ``None`` where they are not known."""
    adapter: str | None = None
    """Name of the adapter, where the engine publishes it."""
    first_miss_key: int | None = None
    last_hit_key: int | None = None
