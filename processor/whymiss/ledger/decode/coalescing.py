"""Write coalescing: neighbouring events of one block each become one event while a batch is read.

Most batches of an engine that decodes hold little else: each running request fills a block now and then, and for each
of them a full cache evicts one. What is made for an event is made here once for all that differ in their block only.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import attrgetter

import msgspec
from msgspec import Raw

from ...errors import BadInput
from ..events import Keys, Singles
from ..hashing import BLOCK_TOKENS_MAX
from .block_keys import DECODE_ERRORS, GROUPS, array_header, key_of, keys_alike
from .event_rows import StoredSlot, stored_of
from .extra_keys import has_none
from .schema import PAIR, WireRemoved, WireStored, WireStoredUnread

_DIGEST_BYTES = 32

FEWEST = 5
"""Events that are gathered at least: of fewer each is made sooner by itself."""

_REMOVALS_AHEAD = 3
"""Removals that may come before the first store: more are a run of their own. Less than are gathered, so that one is among these."""

_said_of_store = attrgetter(
    *("extra_keys", "cache_salt", "additional_salt", "session_id"),
    *("medium", "group_idx", "locality", "ownership"),
    *("block_size", "lora_name", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"),
)
"""All that a store says beside its block, its parent and its tokens. An adapter's number says nothing where extra keys are listed."""
_said_of_place = attrgetter("medium", "group_idx", "locality", "ownership")

_numbers = msgspec.msgpack.Decoder(list[int])


class Gathered(msgspec.Struct, gc=False):
    """Some neighbouring events of one block each."""

    first: WireStored | WireStoredUnread
    """The first store."""
    ahead: int
    """Removals before it."""
    keys: bytes | None
    """Eight big-endian bytes an event; ``None`` where they are few, or their hashes not written alike: together they are no good."""
    parents: list[int | None]
    """The key that each store's block continues; ``None`` for a removal."""
    tokens: array[int]
    """The token ids of all stores, if they are wanted."""


def gather(events: Sequence[object], begin: int, *, tokens: bool) -> Gathered | None:
    """As many decoded events as there are from one on; ``None`` where there cannot be enough, or no store is among the first.

    With ``tokens`` they are read where they are left as bytes.
    """
    row = begin
    while row < len(events) and row - begin < _REMOVALS_AHEAD and type(events[row]) is WireRemoved:
        row += 1
    first = events[row] if row < len(events) >= begin + FEWEST else None
    if (type(first) is not WireStored and type(first) is not WireStoredUnread) or not _may_begin(first):
        return None
    said_first, place, width = _said_of_store(first), _said_of_place(first), len(first.block_hashes)
    column = array("Q")
    hashes: list[Raw] = []
    parents: list[int | None] = []
    for at in range(begin, len(events)):
        event = events[at]
        if type(event) is WireStored or type(event) is WireStoredUnread:
            if _said_of_store(event) != said_first or len(event.block_hashes) != width:  # guard: singles-alike
                break
            parent = _parent_of_single(event, column, tokens=tokens)
            if parent is None:  # guard: singles-root
                break
            parents.append(parent)
        elif type(event) is WireRemoved:
            # Without a group it is of all groups.
            # guard: singles-removal-groups, singles-removal-place
            if event.group_idx is None or _said_of_place(event) != place or len(event.block_hashes) != width:
                break
            parents.append(None)
        else:
            break
        hashes.append(event.block_hashes)
    keys = keys_alike(b"".join(hashes), len(hashes)) if len(hashes) >= FEWEST else None
    return Gathered(first, row - begin, keys, parents, column)


def _may_begin(wire: WireStored | WireStoredUnread) -> bool:
    """Whether a store has no extra keys, and says so, and blocks of a size."""
    sized = 0 < (wire.block_size or 0) <= BLOCK_TOKENS_MAX
    # guard: singles-extras, singles-no-size, singles-group-range
    return sized and (wire.group_idx or 0) in GROUPS and has_none(wire, 1)


def _parent_of_single(event: WireStored | WireStoredUnread, column: array[int], *, tokens: bool) -> int | None:
    """The parent of a store of one block's token ids, which are appended to a column; ``None`` where it is none such."""
    parent, ids, size = event.parent_block_hash, event.token_ids, event.block_size
    if parent is None or ids is None:
        return None
    try:
        if type(parent) is bytes and len(parent) == _DIGEST_BYTES:
            key = int.from_bytes(parent[24:], "big")
        else:
            key = key_of(parent)
        if type(ids) is Raw:
            if not tokens:
                count, head = array_header(bytes(ids))
                plain = bytes(ids)[head : head + 1] != PAIR  # guard: singles-pairs-unread
                return key if plain and count == size else None  # guard: singles-whole-unread
            ids = _numbers.decode(ids)
        if len(ids) != size:  # guard: singles-whole
            return None
        column.fromlist(ids)
    except (*DECODE_ERRORS, BadInput):
        return None
    return key


class SinglesSlot(msgspec.Struct, gc=False):
    """Such events, and where their keys and digests are in a batch's columns."""

    first: StoredSlot
    """The first store."""
    ahead: int
    """Removals before it."""
    parents: list[int | None]
    stored: int

    def made(self, keys: Keys, digests: dict[int, Keys]) -> Singles:
        """The events."""
        first, row, count = self.first, self.first.token_row, len(self.parents)
        own = digests[row][first.own_first : first.own_first + self.stored] if row else None
        begin, index = first.first - self.ahead, first.index - self.ahead
        at = range(index, index + count)
        return Singles(stored_of(first, keys, digests), keys[begin : begin + count], at, self.parents, own)
