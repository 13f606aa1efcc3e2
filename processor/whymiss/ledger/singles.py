"""Neighbouring events of one block each, gathered into one while a batch is read.

Most batches of an engine that decodes hold little else: each running request fills a block now and then, and for each
of them a full cache evicts one. What is made for an event is made here once for all that differ in their block only.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Raw

from .events import Keys, Singles
from .keys import key_of, one_key
from .shapes import NIL, NOTHING, WireRemoved, WireStored, WireStoredUnread
from .slots import StoredSlot, same_place, stored_of

_Wire: TypeAlias = WireStored | WireStoredUnread

_ONE_NIL, _NIL = Raw(b"\x91\xc0"), Raw(NIL)


class SinglesSlot(msgspec.Struct, gc=False):
    """Such events, and where their keys and digests stand in a batch's columns."""

    first: StoredSlot
    """The first store; its keys are those of the first event only."""
    at: list[int]
    parents: list[int | None]
    """The key that each store's block continues; ``None`` for a removal."""
    stored: int = 1

    def made(self, keys: Keys, digests: dict[int, Keys]) -> Singles:
        """The events."""
        first, row = self.first, self.first.token_row
        own = digests[row][first.own_first : first.own_first + self.stored] if row else None
        there = keys[first.first : first.first + len(self.at)]
        return Singles(stored_of(first, keys, digests), there, self.at, self.parents, own)


def begun_by(slot: object) -> SinglesSlot | None:
    """What other events of one block can join, if a slot is that or a store of one block that begins it."""
    if type(slot) is SinglesSlot:
        return slot
    if (
        type(slot) is not StoredSlot
        or slot.end - slot.first != 1
        or slot.parent is None
        or slot.sparse
        or not slot.wire.block_size
        or abs(slot.token_row) not in {0, slot.wire.block_size}
        or not _says_no_more(slot.wire)
    ):
        return None
    return SinglesSlot(slot, [slot.index], [slot.parent])


def store_that_joins(slot: SinglesSlot, wire: _Wire) -> tuple[bytes, int] | None:
    """The eight bytes of the key and the parent of a store that joins others; ``None`` where it is not like them.

    Raises ``BadInput`` where its parent is no block hash.
    """
    if not _alike(slot.first.wire, wire) or not _says_no_more(wire):
        return None
    key, parent = one_key(bytes(wire.block_hashes)), wire.parent_block_hash
    return None if key is None or parent is None else (key, key_of(parent))


def removal_that_joins(slot: SinglesSlot, wire: WireRemoved) -> bytes | None:
    """The eight bytes of the key of a removal that joins them; ``None`` where it is of another place or of several blocks."""
    # Where none is named, it is of all groups.
    if wire.group_idx is None or not same_place(slot.first.wire, wire):
        return None
    return one_key(bytes(wire.block_hashes))


def _says_no_more(wire: _Wire) -> bool:
    """Whether a store of one block has no extra keys, and says so, and no session."""
    return (
        wire.extra_keys == _ONE_NIL
        and wire.cache_salt is NOTHING
        and wire.additional_salt is NOTHING
        and (wire.session_id is NOTHING or wire.session_id == _NIL)
    )


def _alike(one: _Wire, other: _Wire) -> bool:
    return (
        one.block_size == other.block_size
        and one.medium == other.medium
        and one.group_idx == other.group_idx
        and one.lora_name == other.lora_name
        and one.kv_cache_spec_kind == other.kv_cache_spec_kind
        and one.kv_cache_spec_sliding_window == other.kv_cache_spec_sliding_window
        and one.locality == other.locality
        and one.ownership == other.ownership
    )
