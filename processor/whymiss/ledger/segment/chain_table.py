"""Chain table: each stored block's parent, depth, token digests and extra keys, in the order in which blocks were stored.

One row a stored block of the dense group, one *piece* for each stretch of an event's blocks that share
their extra keys. A block's parent is the row before it, or its piece's parent for the first one; its
depth is the piece's depth plus its place in the piece. So neither takes a column. A secondary index finds rows by digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..columnar.bloom_filter import FOR_DIGESTS, BloomFilter, bytes_of
from ..columnar.hash_index import HashIndex
from ..columnar.kernels import NO_INTEGERS, Integers, Rows, order_of
from ..columnar.pacing import Steps, concatenated, taken
from ..events import Keys

PIECE = np.dtype(
    [
        ("parent", np.uint64),
        ("extras", np.uint64),
        ("last", np.uint64),
        ("depth", np.int32),
        ("back", np.uint32),
        ("kinds", np.uint16),
        ("group", np.uint16),
        ("flags", np.uint16),
    ]
)
"""``extras`` digests the extra keys from block 0 on, ``last`` those of the last block; ``back`` is how many
events before its own the lookup stood; ``kinds`` numbers a set of extra-key kinds in the stream's list."""


class Piece(NamedTuple):
    """One entry of those, as plain numbers: looking at its fields one by one takes many times as long."""

    parent: int
    extras: int
    last: int
    depth: int
    back: int
    kinds: int
    group: int
    flags: int


Pieces: TypeAlias = npt.NDArray[np.void]

HAS_PARENT, HAS_OWN, HAS_PREFIX, HAS_EXTRAS, PLACED, REPORTED, CONTINUES, TAIL, SESSION = (1 << bit for bit in range(9))
"""CONTINUES: the row before a piece belongs to the same event. TAIL: its last row ended the event. SESSION: a session id came with it,
so leading blocks that were resident may only be announced again."""

UNPLACED, UNLISTED = -1, -2
"""Depths of a chain whose parent is not known, and of blocks that are not said to be a chain."""

SEARCHED_FROM = 4096
"""Rows from which a column is put in order to be searched; fewer are scanned."""


class ChainTable:
    """Rows and pieces of one segment. Immutable but for the orders that are made when first needed."""

    __slots__ = (
        *("_by_own", "_by_parent", "_own_filter", "_roots"),
        *("first", "keys", "ordinals", "own", "pieces", "prefix", "has_reannouncements"),
    )

    def __init__(
        self,
        keys: Keys,
        digests: tuple[Keys, Keys, BloomFilter | None] | None,
        first: Rows,
        ordinals: Integers,
        pieces: Pieces,
    ) -> None:
        """``digests`` are those of own tokens and of all from block 0 on, and the filter of the former if it is made."""
        self.keys = keys
        self.own: Keys | None = None if digests is None else digests[0]
        self.prefix: Keys | None = None if digests is None else digests[1]
        self.first = first
        self.ordinals = ordinals
        self.pieces = pieces
        self.has_reannouncements = bool((pieces["flags"] & REPORTED).any())
        """Whether any of them is a store that only repeated what was resident."""
        self._own_filter = None if digests is None else digests[2]
        self._by_own: HashIndex | None = None
        self._by_parent: tuple[Keys, Rows] | None = None
        self._roots: Integers | None = None

    def __len__(self) -> int:
        return self.keys.size

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, with the index."""
        rows = self.keys.nbytes + self.first.nbytes + self.ordinals.nbytes + self.pieces.nbytes
        if self.own is None or self.prefix is None:
            return rows
        # The index of own digests has a row number for each row, and one for each slice of eight.
        index = 4 * self.own.size + self.own.size // 2
        return rows + self.own.nbytes + self.prefix.nbytes + index + bytes_of(self.own.size, FOR_DIGESTS)

    def piece_of(self, rows: Integers | Rows) -> Integers:
        """The piece of each row: int64, aligned with ``rows``; the last piece for row -1."""
        # Of one kind with the column: it would be copied whole to be searched for another.
        found: Integers = self.first.searchsorted(rows.astype(np.uint32, copy=False), "right") - 1
        return found

    def piece_at(self, row: int) -> int:
        """The piece of one row."""
        return int(self.first.searchsorted(np.uint32(row), "right")) - 1

    def entry(self, piece: int) -> Piece:
        """What is known of a piece."""
        return Piece._make(self.pieces.item(piece))

    def ordinal_at(self, row: int) -> int:
        """The ordinal of the event that stored a row."""
        return int(self.ordinals[self.piece_at(row)])

    def is_placed(self, row: int) -> bool:
        """Whether the depth of a row's block is known."""
        return bool(self.entry(self.piece_at(row)).flags & PLACED)

    def end_of(self, piece: int) -> int:
        """The row after a piece's last one."""
        return int(self.first[piece + 1]) if piece + 1 < self.first.size else self.keys.size

    def flags_of(self, pieces: Integers) -> npt.NDArray[np.uint16]:
        """The flags of each piece."""
        flags: npt.NDArray[np.uint16] = self.pieces["flags"][pieces]
        return flags

    def put_in_order(self) -> Steps[None]:
        """Make the index now and in steps, rather than when a question needs it."""
        if self.own is not None:
            self._by_own = yield from HashIndex.in_steps(self.own)

    def _index_of_own(self, own: Keys) -> HashIndex:
        if self._by_own is None:
            self._by_own = HashIndex(own, order_of(own))
        return self._by_own

    @property
    def own_filter(self) -> BloomFilter | None:
        """The filter of own digests, if there are any."""
        if self._own_filter is None and self.own is not None:
            self._own_filter = BloomFilter.of(self.own, FOR_DIGESTS)
        return self._own_filter

    def with_own(self, digests: Keys, limit: int) -> tuple[Integers, Integers]:
        """Joins own-token digests with the table: (digest_index, row), int64, sorted by both; the last ``limit`` rows of each."""
        if self.own is None:
            return NO_INTEGERS, NO_INTEGERS
        return self._index_of_own(self.own).find(self.own, digests, limit)

    def with_prefix(self, own: int, digest: int) -> Integers:
        """Rows whose tokens from block 0 on have a digest: int64, ascending; ``own`` is the digest of the rows' own tokens."""
        if self.own is None or self.prefix is None:
            return NO_INTEGERS
        if self._by_own is None and self.prefix.size < SEARCHED_FROM:
            found: Integers = (self.prefix == np.uint64(digest)).nonzero()[0]
            return found
        rows = self._index_of_own(self.own).find_one(self.own, own)
        alike: Integers = rows[self.prefix.take(rows) == np.uint64(digest)] if rows.size else rows
        return alike

    def with_prefixes(self, own: Keys, ascending: Keys) -> tuple[Integers, Integers]:
        """Joins prefix digests with the table: (digest_index, row), equal-length int64 arrays in no order.

        ``own`` are the digests of the rows' own tokens. Neither the digests, which ascend, nor those of own tokens come twice.
        """
        if self.own is None or self.prefix is None:
            return NO_INTEGERS, NO_INTEGERS
        # Where many blocks have the same tokens their rows are many, but never more than there are.
        _, rows = self._index_of_own(self.own).find(self.own, own, self.own.size)
        found = self.prefix.take(rows)
        at = np.minimum(ascending.searchsorted(found), ascending.size - 1)
        same = (ascending.take(at) == found).nonzero()[0]
        return at.take(same), rows.take(same)

    @property
    def roots(self) -> Integers:
        """Pieces that begin at a root: int64, ascending."""
        if self._roots is None:
            flags = self.pieces["flags"]
            self._roots = np.flatnonzero(((flags & HAS_PARENT) == 0) & ((flags & PLACED) != 0))
        return self._roots

    def begun_under(self, parent: int) -> Integers:
        """Pieces that begin under a parent: int64, ascending."""
        if self._by_parent is None:
            column = self.pieces["parent"].copy()
            order = order_of(column)
            self._by_parent = column[order], order
        parents, order = self._by_parent
        wanted = np.uint64(parent)
        begin = int(parents.searchsorted(wanted))
        if begin == parents.size or parents[begin] != wanted:
            return NO_INTEGERS
        pieces = order[begin : int(parents.searchsorted(wanted, "right"))].astype(np.int64)
        ours = self.pieces["flags"][pieces]
        kept: Integers = pieces[((ours & HAS_PARENT) != 0) & ((ours & CONTINUES) == 0)]
        return kept


def empty_chain_table() -> ChainTable:
    """Chains without a row."""
    none = np.zeros(0, np.uint64)
    return ChainTable(none, None, np.zeros(0, np.uint32), NO_INTEGERS, np.zeros(0, PIECE))


def digests_in_steps(
    parts: Sequence[ChainTable], rows: Integers | None = None
) -> Steps[tuple[Keys, Keys, BloomFilter] | None]:
    """The digests of several chains' rows, or of some of them, one after the other; ``None`` where there are none."""
    if all(part.own is None for part in parts):
        return None
    own = yield from _digests([part.own for part in parts], parts, rows)
    prefix = yield from _digests([part.prefix for part in parts], parts, rows)
    return own, prefix, (yield from BloomFilter.in_steps(own, FOR_DIGESTS))


def _digests(columns: Sequence[Keys | None], parts: Sequence[ChainTable], rows: Integers | None) -> Steps[Keys]:
    columns_known = [
        np.zeros(len(part), np.uint64) if column is None else column
        for column, part in zip(columns, parts, strict=True)
    ]
    return concatenated(columns_known) if rows is None else taken(columns_known, rows)
