"""Batch builder: the events of one batch in columns, and cut into events again at the end."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import UNSET, Raw

from ...errors import BadInput
from ..events import Cleared, Event, ExtraKey, Keys, KvBatch
from ..hashing import BLOCK_TOKENS_MAX, Digester, append_tokens
from .block_keys import GROUPS, append_keys, array_header, key_of
from .coalescing import SinglesSlot, gather
from .event_rows import RemovedSlot, StoredSlot, removed_of, same_medium, stored_of
from .extra_keys import ExtrasReader, has_none
from .medium import medium_of
from .removal_runs import RemovalRun
from .schema import NIL, PAIR, Found, Lost, Shape, WireCleared, WireEvent, WireRemoved, WireStored, WireStoredUnread

_BIG_ENDIAN, _NATIVE = np.dtype(">u8"), np.dtype(np.uint64)
_NO_EVENTS = np.zeros(0, np.int64)

Witness: TypeAlias = Callable[[Keys, int, Keys], None]
"""Sees the tokens of the blocks of one store, how many a block has, and the digests of the blocks."""


class BatchBuilder:
    """Takes a batch's events in order; ``batch`` ends it. Use one a batch."""

    def __init__(
        self,
        digester: Digester,
        *,
        tokens: bool,
        read: Keys | None = None,
        lost: bool = False,
        witness: Witness | None = None,
    ) -> None:
        """``read`` are the token ids of all events that ``add_covered`` takes, if they are wanted."""
        self.bad_events = 0
        self._witness = witness
        self._digester = digester
        self.digests_tokens = tokens
        """Whether token ids are wanted at all."""
        self._extras: ExtrasReader | None = None
        self._slots: list[StoredSlot | RemovedSlot | SinglesSlot | Cleared] = []
        self._keys = bytearray()
        self._at = array("Q")
        self._tokens: dict[int, array[int]] = {}
        self._read = read
        self._rows_read: set[int] = set()
        self._alone_until = 0
        """Events before this one are taken one by one."""
        self._lost = lost
        self._lost_inside = False
        self._unknown = 0

    def add(self, index: int, event: WireEvent | Found) -> None:
        """Take one event. Raises ``BadInput``, and is as before, where it cannot be read."""
        if type(event) is WireStored or type(event) is WireStoredUnread:
            self._store(
                index,
                event,
                _counted(event.token_ids),
                described=event.lora_name is not UNSET,
                pairs=_are_pairs(event.token_ids),
            )
        elif type(event) is WireRemoved:
            self._remove(index, event)
        elif isinstance(event, Shape):
            self._store(index, event.wire, _counted(event.wire.token_ids), described=event.described, pairs=event.pairs)
        elif isinstance(event, WireCleared):
            self._slots.append(Cleared(index=index, tier=medium_of(event.medium).tier))
        elif isinstance(event, Lost):
            self._lost = True
            self._lost_inside |= index > 0
        else:
            self._unknown += 1

    def add_singles(self, index: int, events: Sequence[object], begin: int) -> int:
        """Take neighbouring events of one block each, from one of them on; returns how many; 0 for none, or too few."""
        gathered = gather(events, begin, tokens=self.digests_tokens) if index >= self._alone_until else None
        if gathered is None:
            return 0
        wire, count = gathered.first, len(gathered.parents)
        if gathered.keys is None:  # guard: columns-alone
            # Else the next of them would gather the rest of them again.
            self._alone_until = index + count
            return 0
        row = wire.block_size or 0
        own_first = 0
        if self.digests_tokens:
            column = self._tokens.setdefault(row, array("Q"))
            own_first = len(column) // row
            column += gathered.tokens
        else:
            row = 0
        ahead = gathered.ahead
        first = (len(self._keys) >> 3) + ahead
        self._keys += gathered.keys
        parent, described = gathered.parents[ahead], wire.lora_name is not UNSET
        slot = StoredSlot(index + ahead, wire, parent, first, first + 1, None, described, False, row, own_first)
        self._slots.append(SinglesSlot(slot, ahead, gathered.parents, count - gathered.parents.count(None)))
        return count

    def add_covered(self, index: int, event: WireStoredUnread, begin: int, count: int) -> None:
        """Take a store whose token ids were read beforehand, or just counted. Raises ``BadInput`` as ``add`` does."""
        tokens = None if self._read is None else range(begin, begin + count)
        self._store(index, event, (count, tokens), described=event.lora_name is not UNSET)

    def add_read(self, index: int, event: WireStoredUnread, tokens: list[int]) -> None:
        """Take a store whose token ids are few, and were read from its bytes. Raises ``BadInput`` as ``add`` does."""
        self._store(index, event, (len(tokens), tokens), described=event.lora_name is not UNSET)

    def add_removal_run(self, run: RemovalRun) -> None:
        """Take a run of removals. Raises ``BadInput``, and is as before, where they cannot be read."""
        self._remove(run.index, run.first)
        others = run.count - 1
        self._keys += run.keys[8:]
        self._at.frombytes(np.arange(run.index + 1, run.index + 1 + others, dtype=np.uint64).tobytes())
        last = self._slots[-1]
        assert isinstance(last, RemovedSlot), "a removal has just been taken"
        last.end += others

    def _store(
        self,
        index: int,
        wire: WireStored | WireStoredUnread,
        counted: tuple[int, list[int] | range | None],
        *,
        described: bool,
        pairs: bool = False,
    ) -> None:
        size = wire.block_size or 0
        if size < 0 or (wire.group_idx or 0) not in GROUPS:
            raise BadInput("a block size or a group index is out of range")
        count, tokens = counted
        parent = None if wire.parent_block_hash is None else key_of(wire.parent_block_hash)
        first = len(self._keys) >> 3
        blocks = append_keys(bytes(wire.block_hashes), self._keys)
        row = size
        sparse = size > 0 and count > 0 and count != blocks * row  # guard: columns-sparse
        own_first = 0
        if tokens is None or not count or not size or sparse or row > BLOCK_TOKENS_MAX or not self.digests_tokens:
            row = 0
        elif type(tokens) is range and not tokens.start % row:
            own_first = tokens.start // row
            row = -row
            self._rows_read.add(row)
        else:
            try:
                own_first = self._append_tokens(tokens, row)
            except BadInput:
                del self._keys[first << 3 :]  # guard: columns-bad-tokens
                raise
        try:
            extras = None if has_none(wire, blocks) else self._read_extras(wire, blocks)
        except BadInput:
            # The blocks are there whatever their extra keys are; only nothing follows from these.
            extras, described = None, False  # guard: columns-bad-extras
        described = size > 0 and (described or extras is not None)  # guard: columns-described
        # A placeholder writes 0 where others write nil.
        parent = parent if size or parent else None
        self._slots.append(
            StoredSlot(index, wire, parent, first, first + blocks, extras, described, sparse, row, own_first, pairs)
        )

    def _read_extras(self, wire: WireStored | WireStoredUnread, blocks: int) -> list[tuple[ExtraKey, ...]] | None:
        if self._extras is None:
            self._extras = ExtrasReader(self._digester)
        return self._extras.read(wire, blocks)

    def _append_tokens(self, tokens: list[int] | range, row: int) -> int:
        column = self._tokens.get(row)
        if column is None:
            column = self._tokens[row] = array("Q")
        first = len(column) // row
        if isinstance(tokens, list):
            append_tokens(tokens, column)
        else:
            assert self._read is not None, "a range is one of what was read"
            column.frombytes(self._read[tokens.start : tokens.stop].tobytes())
        return first

    def _remove(self, index: int, wire: WireRemoved) -> None:
        if (wire.group_idx or 0) not in GROUPS:  # guard: columns-group
            raise BadInput("a group index is out of range")
        first = len(self._keys) >> 3
        count = append_keys(bytes(wire.block_hashes), self._keys)
        if not count:
            return
        at = self._at
        last = self._slots[-1] if self._slots else None
        if isinstance(last, RemovedSlot) and same_medium(last.wire, wire):  # guard: columns-place
            last.end = first + count
        else:
            self._slots.append(RemovedSlot(wire, first, first + count, len(at)))
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
        keys: Keys = np.frombuffer(self._keys, _BIG_ENDIAN).astype(_NATIVE)
        at = np.frombuffer(self._at, np.int64) if self._at else _NO_EVENTS
        columns: dict[int, Keys] = {row: np.frombuffer(column, np.uint64) for row, column in self._tokens.items()}
        if self._read is not None:
            columns.update(dict.fromkeys(self._rows_read, self._read))
        digests = {
            row: self._digester.block_digests(column, abs(row), column.size // abs(row))
            for row, column in columns.items()
        }
        if self._witness is not None:
            self._show(self._witness, columns, digests)
        events: list[Event] = []
        for slot in self._slots:
            if type(slot) is StoredSlot:
                events.append(stored_of(slot, keys, digests))
            elif type(slot) is SinglesSlot:
                events.append(slot.made(keys, digests))
            elif type(slot) is RemovedSlot:
                events.append(removed_of(slot, keys, at))
            else:
                assert type(slot) is Cleared, "no other slot is made"
                events.append(slot)
        return KvBatch(
            unix_nanos=unix_nanos,
            events=events,
            rank=rank,
            count=count,
            bad_events=self.bad_events,
            unknown_events=self._unknown,
            lost=self._lost,
            lost_inside=self._lost_inside,
            incarnation=incarnation,
            cursor=cursor,
        )

    def _show(self, witness: Witness, columns: dict[int, Keys], digests: dict[int, Keys]) -> None:
        for row, first, last in self._stores_with_tokens():
            size = abs(row)
            witness(columns[row][first * size : last * size], size, digests[row][first:last])

    def _stores_with_tokens(self) -> Iterator[tuple[int, int, int]]:
        """Each store's row in the token column, and where its blocks begin and end there."""
        for slot in self._slots:
            if type(slot) is StoredSlot and slot.token_row:
                yield slot.token_row, slot.own_first, slot.own_first + slot.end - slot.first
            elif type(slot) is SinglesSlot and slot.first.token_row:
                for own in range(slot.first.own_first, slot.first.own_first + slot.stored):
                    yield slot.first.token_row, own, own + 1


def _are_pairs(tokens: list[int] | Raw | None) -> bool:
    """Whether token ids that are left as bytes are pairs; as numbers they are read, and none."""
    if tokens is None or type(tokens) is list:
        return False
    encoded = bytes(tokens)
    return encoded != NIL and encoded[array_header(encoded)[1] :][:1] == PAIR


def _counted(tokens: list[int] | Raw | None) -> tuple[int, list[int] | None]:
    """How many token ids an event has, and they themselves where they are read."""
    if type(tokens) is list:
        return len(tokens), tokens
    encoded = NIL if tokens is None else bytes(tokens)
    return (0 if encoded == NIL else array_header(encoded)[0]), None
