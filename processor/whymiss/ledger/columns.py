"""The events of one batch laid out in columns, and cut into events again at the end."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Raw

from ..errors import BadInput
from .digests import BLOCK_TOKENS_MAX, Digester, append_tokens
from .events import Cleared, Event, ExtraKey, Keys, KvBatch, Removed, Stored
from .extras import ExtrasReader
from .keys import append_keys, array_header, key_of, read_anything
from .media import tier_of
from .shapes import (
    NIL,
    NOTHING,
    Lost,
    Shape,
    Unknown,
    WireCleared,
    WireRemoved,
    WireStored,
    WireStoredUnread,
    read_event,
)

_GROUPS = range(1 << 16)


class _StoredSlot(msgspec.Struct, gc=False):
    """A stored event and where its keys and digests stand in the columns."""

    index: int
    wire: WireStored | WireStoredUnread
    parent: int | None
    first: int
    end: int
    extras: list[tuple[ExtraKey, ...]] | None
    described: bool
    sparse: bool
    token_row: int
    """Numbers a block in the token column; 0 where there is none to digest."""
    own_first: int


class _RemovedSlot(msgspec.Struct, gc=False):
    """A run of removals that differ in their keys only."""

    wire: WireRemoved
    first: int
    end: int
    at_first: int


class Columns:
    """Takes a batch's events in order; ``batch`` ends it. Use one a batch."""

    def __init__(self, digester: Digester, *, lost: bool = False) -> None:
        self._digester = digester
        self._extras = ExtrasReader(digester)
        self._slots: list[_StoredSlot | _RemovedSlot | Cleared] = []
        self._keys = bytearray()
        self._at = array("Q")
        self._tokens: dict[int, array[int]] = {}
        self._lost = lost
        self._bad = 0
        self._unknown = 0

    def add(self, index: int, wire: WireStored | WireStoredUnread | WireRemoved | WireCleared) -> None:
        """Take an event of the usual shape."""
        try:
            if isinstance(wire, WireRemoved):
                self._remove(index, wire)
            elif isinstance(wire, WireCleared):
                self._slots.append(Cleared(index=index, tier=tier_of(wire.medium)[0]))
            else:
                self._store(index, wire, token_width=1, described=wire.lora_name is not UNSET)
        except BadInput:
            self._bad += 1

    def add_unusual(self, index: int, encoded: bytes) -> None:
        """Take an event of any other shape, as bytes."""
        try:
            found = read_event(encoded)
            if isinstance(found, Shape):
                self._store(index, found.wire, token_width=found.token_width, described=found.described)
            elif isinstance(found, Unknown):
                self._unknown += 1
            elif isinstance(found, Lost):
                self._lost = True
            else:
                self.add(index, found)
        except BadInput:
            self._bad += 1

    def _store(self, index: int, wire: WireStored | WireStoredUnread, *, token_width: int, described: bool) -> None:
        # All that can fail comes before the columns grow.
        size = wire.block_size or 0
        if size < 0 or (wire.group_idx or 0) not in _GROUPS:
            raise BadInput("a block size or a group index is out of range")
        parent = None if wire.parent_block_hash is None else key_of(wire.parent_block_hash)
        tokens = wire.token_ids
        token_count = _token_count(tokens)
        first = len(self._keys) >> 3
        blocks = append_keys(bytes(wire.block_hashes), self._keys)
        row = size * token_width
        sparse = size > 0 and token_count > 0 and token_count != blocks * row
        own_first = 0
        if size and blocks and isinstance(tokens, list) and tokens and not sparse and row <= BLOCK_TOKENS_MAX:
            column = self._tokens.setdefault(row, array("Q"))
            own_first = len(column) // row
            append_tokens(tokens, column)
        else:
            row = 0
        extras, told = self._extras_of(wire, blocks)
        described = size > 0 and told and (described or extras is not None)
        self._slots.append(
            _StoredSlot(
                index,
                wire,
                parent if size or parent else None,
                first,
                first + blocks,
                extras,
                described,
                sparse,
                row,
                own_first,
            )
        )

    def _extras_of(
        self, wire: WireStored | WireStoredUnread, blocks: int
    ) -> tuple[list[tuple[ExtraKey, ...]] | None, bool]:
        """The blocks' extra keys, and whether what the event says of them could be read."""
        extras: list[tuple[ExtraKey, ...]] | None = None
        beside: list[ExtraKey] = []
        listed = bytes(wire.extra_keys)
        try:
            if listed != NIL:
                extras = self._extras.listed(listed, wire.lora_name or None, blocks)
            # Releases that publish no extra keys still name the adapter.
            elif wire.lora_name:
                beside.append(self._extras.beside("lora", wire.lora_name))
            elif wire.lora_id is not None and wire.lora_id > 0:
                beside.append(self._extras.beside("lora", wire.lora_id))
            salts = [read_anything(salt) for salt in (wire.cache_salt, wire.additional_salt) if salt is not NOTHING]
            beside += [self._extras.beside("cache_salt", salt) for salt in salts if salt]
        except BadInput:
            return None, False
        if beside:
            extras = [entry + tuple(beside) for entry in extras or [()] * blocks]
        return extras, True

    def _remove(self, index: int, wire: WireRemoved) -> None:
        if (wire.group_idx or 0) not in _GROUPS:
            raise BadInput("a group index is out of range")
        first = len(self._keys) >> 3
        count = append_keys(bytes(wire.block_hashes), self._keys)
        at = self._at
        last = self._slots[-1] if self._slots else None
        if isinstance(last, _RemovedSlot) and _same_place(last.wire, wire):
            last.end = first + count
        else:
            self._slots.append(_RemovedSlot(wire, first, first + count, len(at)))
        if count == 1:
            at.append(index)
        else:
            at.fromlist([index] * count)

    def batch(
        self,
        count: int,
        unix_nanos: int,
        rank: int | None,
        *,
        incarnation: int | None = None,
        cursor: int | None = None,
    ) -> KvBatch:
        """The batch of the events taken so far; ``count`` of them were on the wire."""
        keys: Keys = np.frombuffer(self._keys, ">u8").astype(np.uint64)
        at = np.frombuffer(self._at, np.int64)
        digests = {
            row: self._digester.block_digests(np.frombuffer(column, np.uint64), row, len(column) // row)
            for row, column in self._tokens.items()
        }
        events: list[Event] = []
        for slot in self._slots:
            if isinstance(slot, _RemovedSlot):
                events.append(_removed(slot, keys, at))
            elif isinstance(slot, _StoredSlot):
                events.append(_stored(slot, keys, digests))
            else:
                events.append(slot)
        return KvBatch(
            unix_nanos=unix_nanos,
            events=events,
            rank=rank,
            count=count,
            bad_events=self._bad,
            unknown_events=self._unknown,
            lost=self._lost,
            incarnation=incarnation,
            cursor=cursor,
        )


def _token_count(tokens: list[int] | Raw | None) -> int:
    if isinstance(tokens, list):
        return len(tokens)
    return 0 if tokens is None else array_header(bytes(tokens))[0]


def _same_place(one: WireRemoved, other: WireRemoved) -> bool:
    return (
        one.medium == other.medium
        and one.group_idx == other.group_idx
        and one.locality == other.locality
        and one.ownership == other.ownership
    )


def _stored(slot: _StoredSlot, keys: Keys, digests: dict[int, Keys]) -> Stored:
    wire, blocks = slot.wire, slot.end - slot.first
    remote = wire.locality is not None and wire.locality.upper() == "REMOTE"
    tier, medium = tier_of(wire.medium, remote=remote)
    size = wire.block_size or 0
    return Stored(
        index=slot.index,
        keys=keys[slot.first : slot.end],
        parent=slot.parent,
        block_size=size,
        own=digests[slot.token_row][slot.own_first : slot.own_first + blocks] if slot.token_row else None,
        tier=tier,
        medium=medium,
        group=wire.group_idx or 0,
        kind=wire.kv_cache_spec_kind or "",
        sliding_window=wire.kv_cache_spec_sliding_window,
        lora_name=wire.lora_name or None,
        extras=slot.extras,
        described=slot.described,
        sparse=slot.sparse,
        session=bytes(wire.session_id) != NIL,
        placeholder=not size,
        remote=remote,
        ownership=wire.ownership,
    )


def _removed(slot: _RemovedSlot, keys: Keys, at: npt.NDArray[np.int64]) -> Removed:
    wire, count = slot.wire, slot.end - slot.first
    remote = wire.locality is not None and wire.locality.upper() == "REMOTE"
    tier, medium = tier_of(wire.medium, remote=remote)
    return Removed(
        keys=keys[slot.first : slot.end],
        at=at[slot.at_first : slot.at_first + count],
        tier=tier,
        medium=medium,
        group=wire.group_idx,
        remote=remote,
        ownership=wire.ownership,
    )
