"""What is said of one lookup."""

from __future__ import annotations

import msgspec

from .words import Cause, Grade, Owner, Reason, Residency


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
