"""Rows of the batch builder: where each event's keys and digests are in its columns, and the events cut out of them."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ..events import ExtraKey, Keys, Removed, Stored
from .medium import medium_of
from .schema import NIL, NOTHING, WireRemoved, WireStored, WireStoredUnread


class StoredSlot(msgspec.Struct, gc=False):
    """A stored event and where its keys and digests are in the columns."""

    index: int
    wire: WireStored | WireStoredUnread
    parent: int | None
    first: int
    end: int
    extras: list[tuple[ExtraKey, ...]] | None
    described: bool
    sparse: bool
    token_row: int
    """Numbers a block in the token column, negative in the one that was read beforehand; 0 where there is none to digest."""
    own_first: int
    pairs: bool = False


class RemovedSlot(msgspec.Struct, gc=False):
    """A run of removals that differ in their keys only."""

    wire: WireRemoved
    first: int
    end: int
    at_first: int


def same_medium(first: WireRemoved, other: WireRemoved) -> bool:
    """Whether a removal is of the place of another one."""
    return (
        first.medium == other.medium
        and first.group_idx == other.group_idx
        and first.locality == other.locality
        and first.ownership == other.ownership
    )


# By position: naming eighteen arguments takes longer than all else that an event of one block needs.
def stored_of(slot: StoredSlot, keys: Keys, digests: dict[int, Keys]) -> Stored:
    """A store, with its part of a batch's keys and of the digests of the token column that it names."""
    wire, first, end = slot.wire, slot.first, slot.end
    own = None
    if slot.token_row:
        own = digests[slot.token_row][slot.own_first : slot.own_first + end - first]
    tier, medium, remote = medium_of(wire.medium, wire.locality)
    size = wire.block_size or 0
    return Stored(
        slot.index,
        keys[first:end],
        slot.parent,
        size,
        own,
        tier,
        medium,
        wire.group_idx or 0,
        wire.kv_cache_spec_kind or "",
        wire.kv_cache_spec_sliding_window,
        wire.lora_name or None,
        slot.extras,
        slot.described,
        slot.sparse,
        wire.session_id is not NOTHING and bytes(wire.session_id) != NIL,
        size == 0,
        remote,
        wire.ownership,
        slot.pairs,
    )


def removed_of(slot: RemovedSlot, keys: Keys, at: npt.NDArray[np.int64]) -> Removed:
    """A run of removals, with its part of a batch's keys and of their events' numbers."""
    wire, first, end = slot.wire, slot.first, slot.end
    tier, medium, remote = medium_of(wire.medium, wire.locality)
    at = at[slot.at_first : slot.at_first + end - first]
    return Removed(keys[first:end], at, tier, medium, wire.group_idx, remote, wire.ownership)
