"""Builds the chain table of a segment: under which block each event's blocks come, and what they are.

Nothing is made for a block here. What depends on the blocks held before, a chain's depth and digests, is settled for
each event as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import starmap
from struct import Struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..events import Keys, Singles, Stored
from ..hashing import Digester
from ..segment.chain_table import (
    CONTINUES,
    HAS_EXTRAS,
    HAS_OWN,
    HAS_PARENT,
    HAS_PREFIX,
    PIECE,
    PLACED,
    REPORTED,
    SESSION,
    TAIL,
    UNLISTED,
    UNPLACED,
    ChainTable,
    empty_chain_table,
)
from .chain_tails import ROOT, ChainTail, ChainTails, extra_key_runs
from .lookup_position import LookupPositions
from .prefix_digests import PrefixDigests

Codes: TypeAlias = npt.NDArray[np.uint32]
"""What a run has beside each key."""

_PIECE = Struct("=QQQiIHHH")
"""One ``PIECE``: an array of many is made of their bytes in a third of the time."""

_RAMP = np.arange(1, 1 << 17, 2, dtype=np.uint32)


class ChainBuilder:
    """Takes the events of the dense group in order; ``end`` makes their columns. One a segment."""

    def __init__(self, chain_tails: ChainTails, digester: Digester, begin: int) -> None:
        """``begin`` is the ordinal at which the segment begins."""
        self._chain_tails = chain_tails
        self._begin = begin
        self._rows = 0
        self._has_own = False
        self._keys: list[Keys] = []
        self._prefixes = PrefixDigests(digester)
        self._ends: list[ChainTail | None] = []
        """The last block of each event; ``None`` where its place is not known."""
        self._event_ending_with: dict[int, int] = {}
        """The latest event that ends with a block."""
        self._first: list[int] = []
        self._ordinals: list[int] = []
        self._pieces: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._first)

    def holds(self, key: int) -> bool:
        """Whether one of the events stored a block."""
        return any((column == np.uint64(key)).any() for column in self._keys)

    def add(self, event: Stored, ordinal: int, position: int, *, reported: bool) -> Codes:
        """Take a store whose lookup stood at a position; returns the codes of its blocks."""
        keys, row = event.keys, self._rows
        count = keys.size
        above, number = self._above(event)
        flags = REPORTED | TAIL if reported else TAIL
        if event.session:
            flags |= SESSION
        own = event.own
        if own is not None:
            flags |= HAS_OWN
            self._has_own = True
        if own is not None and above is not None and above.prefix is not None:
            flags |= HAS_PREFIX
            self._prefixes.add(own, above.prefix if number is None else ~number, above.depth + 1)
        else:
            self._prefixes.add_unknown(own, count)
        if above is None:
            depth = UNLISTED if event.placeholder else UNPLACED
            self._piece(event, (depth, ordinal, ordinal - position), ROOT, flags)
            self._ends.append(None)
        else:
            end_tail = self._pieces_of(event, ordinal, position, above, flags | PLACED)
            self._event_ending_with[keys.item(-1)] = len(self._ends)
            # Its digest is reckoned when the segment ends.
            prefix = 0 if flags & HAS_PREFIX else None
            self._ends.append(ChainTail(above.depth + count, prefix, end_tail.extras, end_tail.last, end_tail.kinds))
        self._keys.append(keys)
        self._rows = end = row + count
        return _RAMP[row:end] if end <= _RAMP.size else np.arange(2 * row + 1, 2 * end, 2, dtype=np.uint32)

    def add_singles(self, event: Singles, base: int, lookups: LookupPositions) -> Codes:
        """Take events of one block each, as ``add`` takes stores but without an array for each; returns their codes."""
        offset = base - self._begin
        codes: list[int] = []
        above: list[int] = []
        depths: list[int] = []
        for key, at, parent in zip(event.keys.tolist(), event.at, event.parents, strict=True):
            if parent is None:
                codes.append(2 * (offset + at))  # guard: chaining-single-removal
                lookups.remove(base + at)  # guard: chaining-single-run
                continue
            codes.append(2 * self._rows + 1)
            ordinal = base + at
            digest, depth = self._add_single(
                event, key, parent, (ordinal, lookups.store(ordinal, parent, event.first.group))
            )
            above.append(digest)
            depths.append(depth)
            self._rows += 1
        self._prefixes.add_singles(event.own, above, depths)
        self._has_own |= event.own is not None
        stored = event.keys if len(depths) == len(codes) else event.keys[np.array(codes) & 1 == 1]
        self._keys.append(stored)
        return np.array(codes, np.uint32)

    def end(self) -> ChainTable:
        """The columns of all of them."""
        if not self._first:
            return empty_chain_table()
        digests = None
        lasts: Sequence[int] = ()
        if self._has_own:
            own = self._prefixes.own()
            prefix, lasts = self._prefixes.column(own)
            digests = own, prefix, None
        for key, event in self._event_ending_with.items():
            tail = self._ends[event]
            assert tail is not None, "a tail has its place"
            if tail.prefix is not None:
                tail.prefix = lasts[event]
            self._chain_tails.remember(key, tail)
        return ChainTable(
            np.concatenate(self._keys),
            digests,
            np.array(self._first, np.uint32),
            np.array(self._ordinals, np.int64),
            np.frombuffer(b"".join(starmap(_PIECE.pack, self._pieces)), PIECE),
        )

    def _above(self, event: Stored) -> tuple[ChainTail | None, int | None]:
        """The chain tail above the event's first block; ``None`` if that is not known.

        With the number of the event in this segment whose last block it is: its digest is not reckoned yet.
        """
        parent = event.parent
        if event.placeholder or event.sparse:  # guard: chaining-sparse, chaining-placeholder
            return None, None
        if parent is None:
            return ROOT, None
        number = self._event_ending_with.get(parent)
        if number is not None:
            return self._ends[number], number
        return self._chain_tails.remembered(parent) or self._here(parent) or self._chain_tails.of(parent), None

    def _here(self, key: int) -> ChainTail | None:
        """The chain tail of a block inside the segment that is being built."""
        if not self._keys:
            return None
        for row in np.flatnonzero(np.concatenate(self._keys) == np.uint64(key))[::-1].tolist():
            piece = bisect_right(self._first, row) - 1
            _, extras, last, depth, _, kinds, _, flags = self._pieces[piece]
            if flags & PLACED:  # guard: chaining-unplaced
                prefix = self._prefixes.column(self._prefixes.own())[0].item(row) if flags & HAS_PREFIX else None
                digest = extras if flags & HAS_EXTRAS else None
                return ChainTail(depth + row - self._first[piece], prefix, digest, last, kinds)
        return None

    def _pieces_of(self, event: Stored, ordinal: int, position: int, above: ChainTail, flags: int) -> ChainTail:
        """Note the event's pieces; returns the link that the last one carries."""
        where = above.depth + 1, ordinal, ordinal - position
        if event.extras is None and not above.last and event.described is (above.extras is not None):
            self._piece(event, where, above, flags)
            return above
        tail, begun = above, -1
        for begin, extras in extra_key_runs(event.extras):
            if begun >= 0:
                self._piece(event, where, tail, flags & ~TAIL, begun)
            tail = self._chain_tails.with_extra_keys(
                tail, where[0] + begin, extras, event.lora_name, described=event.described
            )
            begun = begin
        self._piece(event, where, tail, flags, begun)
        return tail

    def _piece(self, event: Stored, where: tuple[int, int, int], tail: ChainTail, flags: int, begin: int = 0) -> None:
        """Note one piece; ``where`` is the event's first depth, its ordinal, and how far back the lookup stood."""
        depth, ordinal, back = where
        parent = event.parent
        if begin:
            flags |= CONTINUES
            parent = int(event.keys[begin - 1])
        if parent is not None:
            flags |= HAS_PARENT
        if tail.extras is not None and flags & PLACED:
            flags |= HAS_EXTRAS
        self._first.append(self._rows + begin)
        self._ordinals.append(ordinal)
        self._pieces.append(
            (parent or 0, tail.extras or 0, tail.last, depth + begin, back, tail.kinds, event.group, flags)
        )

    def _add_single(self, event: Singles, key: int, parent: int, where: tuple[int, int]) -> tuple[int, int]:
        """Note the piece of one store; ``where`` are its ordinal and its lookup's position.

        Returns the digest of the block above, or ``~`` the number of the event, and its depth; -1 where it is not known.
        """
        first, (ordinal, position) = event.first, where
        number = self._event_ending_with.get(parent)
        if number is not None:
            tail = self._ends[number]
        else:
            tail = self._chain_tails.remembered(parent) or self._here(parent) or self._chain_tails.of(parent)
        flags = TAIL | HAS_PARENT if event.own is None else TAIL | HAS_PARENT | HAS_OWN
        if first.session:
            flags |= SESSION
        if tail is None:
            self._note(ordinal, (parent, 0, 0, UNPLACED, ordinal - position, 0, first.group, flags))
            self._ends.append(None)
            return 0, -1
        self._event_ending_with[key] = len(self._ends)  # guard: chaining-single-tail
        depth, extras = tail.depth + 1, tail.extras
        prefix_known = tail.prefix is not None and event.own is not None  # guard: chaining-single-digest
        flags |= PLACED | HAS_PREFIX if prefix_known else PLACED
        end_tail = tail
        if tail.last or first.described is (extras is None):  # guard: chaining-single-salted, chaining-single-described
            end_tail = self._chain_tails.with_extra_keys(tail, depth, (), first.lora_name, described=first.described)
            extras = end_tail.extras
        if extras is not None:  # guard: chaining-single-extras
            flags |= HAS_EXTRAS
        piece = (parent, extras or 0, end_tail.last, depth, ordinal - position, end_tail.kinds, first.group, flags)
        self._note(ordinal, piece)
        self._ends.append(ChainTail(depth, 0 if prefix_known else None, extras, end_tail.last, end_tail.kinds))
        if not prefix_known:
            return 0, -1
        return (tail.prefix or 0) if number is None else ~number, depth

    def _note(self, ordinal: int, piece: tuple[int, ...]) -> None:
        self._first.append(self._rows)
        self._ordinals.append(ordinal)
        self._pieces.append(piece)
