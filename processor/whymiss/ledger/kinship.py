"""Who is related to whom: blocks with the same parent, the same tokens, or the same tokens further on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec
import numpy as np

from ..model import Block, Residency
from .chains import CONTINUES, HAS_EXTRAS, HAS_OWN, HAS_PARENT, HAS_PREFIX, PLACED, Chains
from .events import Keys
from .history import History
from .segments import Segment
from .sorting import Flags, Integers
from .tally import Findings

TWINS_MAX = 256
"""Blocks with the same tokens that one answer names, the last stored ones."""

RIVALS_MAX = 32
"""Blocks a segment with the same own tokens that a comparison looks at, the last stored ones."""

SIBLINGS_MAX = 64
"""Chains that a comparison follows back to their beginning, the last stored ones."""

_KNOWN = HAS_OWN | HAS_PREFIX | PLACED

AsOf = Callable[[Keys, int], Findings]


class _Placed(msgspec.Struct, frozen=True, eq=False):
    """Where the blocks of a chain stand, one entry a block; depth -1 where that is not known."""

    depth: Integers
    own: Keys
    prefix: Keys
    flags: Integers


class Kinship:
    """Answers about one stream's blocks. ``as_of`` is the stream's dense group at a position."""

    def __init__(self, history: History, kinds: Sequence[tuple[str, ...]], as_of: AsOf) -> None:
        self._history = history
        self._kinds = kinds
        self._as_of = as_of

    def block(self, key: int) -> Block | None:
        """The identity of a block."""
        located = self._history.locate(key)
        return None if located is None else self._block(*located)

    def _block(self, chains: Chains, row: int) -> Block:
        piece = int(chains.piece_of(np.array([row]))[0])
        entry = chains.pieces[piece]
        flags = int(entry["flags"])
        return Block(
            key=int(chains.keys[row]),
            parent=_parent(chains, piece, row),
            depth=int(entry["depth"]) + row - int(chains.first[piece]),
            tokens=int(chains.own[row]) if chains.own is not None and flags & HAS_OWN else None,
            prefix=int(chains.prefix[row]) if chains.prefix is not None and flags & HAS_PREFIX else None,
            extras=int(entry["extras"]) if flags & HAS_EXTRAS else None,
            kinds=self._kinds[int(entry["kinds"])],
        )

    # --- the same parent ----------------------------------------------------------------------

    def children(self, parent: int | None, position: int, limit: int | None) -> Sequence[int]:
        """Blocks stored under a parent before a position, in order; no more than ``limit``."""
        found: dict[int, None] = {}
        for part in self._history.parts():
            if part.begin >= position:
                break
            for key in self._children_in(part, parent, position):
                found.setdefault(key)
                if limit is not None and len(found) >= limit:
                    return list(found)
        return list(found)

    def _children_in(self, part: Segment, parent: int | None, position: int) -> Sequence[int]:
        chains = part.chains
        if not len(chains):
            return ()
        rows = chains.first[chains.begun_under(parent)].astype(np.int64)
        if parent is not None:
            rows = np.concatenate((rows, _followers(part, parent)))
        if not rows.size:
            return ()
        pieces = chains.piece_of(rows)
        placed = (chains.flags_of(pieces) & PLACED) != 0
        rows = np.sort(rows[placed & (chains.ordinals[pieces] < position)])
        keys: Sequence[int] = chains.keys[rows].tolist()
        return keys

    # --- the same tokens from block 0 on ------------------------------------------------------

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        """Other resident blocks with the same tokens from block 0 on, no more than ``TWINS_MAX``."""
        mine = self.block(key)
        return [] if mine is None else self.like(mine, position)

    def like(self, mine: Block, position: int) -> Sequence[Block]:
        """The same for a block of any stream."""
        if mine.prefix is None:
            return []
        twins: dict[int, tuple[Chains, int]] = {}
        for part in self._history.parts():
            if part.begin >= position:
                break
            chains = part.chains
            rows = chains.with_prefix(mine.prefix)
            rows = rows[_usable(chains, rows, position) & (_depths(chains, rows) == mine.depth)]
            for other, row in zip(chains.keys[rows].tolist(), rows.tolist(), strict=True):
                twins.setdefault(other, (chains, row))
        twins.pop(mine.key, None)
        last = dict(islice(reversed(twins.items()), TWINS_MAX))
        resident = self._as_of(_column(last), position).are(Residency.RESIDENT)
        found = [self._block(*where) for where, held in zip(last.values(), resident.tolist(), strict=True) if held]
        return found[::-1]

    def same_tokens_leading(self, keys: Sequence[int], position: int) -> int:
        """How many of the first blocks of a chain have a resident other with the same tokens from block 0 on."""
        chain = np.array(keys, np.uint64)
        mine = self._placed(chain)
        wanted = np.flatnonzero((mine.depth >= 0) & ((mine.flags & HAS_PREFIX) != 0))
        wanted = wanted[: _leading(wanted)]
        if not wanted.size or not position:
            return 0
        owners: list[Integers] = []
        others: list[Keys] = []
        for part in self._history.parts():
            if part.begin >= position:
                break
            of, rows = part.chains.with_prefixes(mine.prefix[wanted], RIVALS_MAX)
            kept = _usable(part.chains, rows, position) & (_depths(part.chains, rows) == mine.depth[of])
            kept &= part.chains.keys[rows] != chain[of]
            owners.append(of[kept])
            others.append(part.chains.keys[rows[kept]])
        keyed = np.concatenate(others)
        resident = self._as_of(keyed, position).are(Residency.RESIDENT)
        return _leading(np.unique(np.concatenate(owners)[resident]))

    def tokens_known(self, keys: Sequence[int]) -> int:
        """How many of the first blocks of a chain have a known digest of their own tokens."""
        mine = self._placed(np.array(keys, np.uint64))
        return _leading(np.flatnonzero((mine.depth >= 0) & ((mine.flags & HAS_OWN) != 0)))

    # --- the same tokens further on -----------------------------------------------------------

    def reconverges(self, keys: Sequence[int], position: int) -> int:
        """How many of ``keys[1:]`` a sibling chain repeats, own tokens by own tokens, at the same depth."""
        head = self.block(keys[0]) if len(keys) > 1 else None
        if head is None or head.tokens is None:
            return 0
        chain = np.array(keys, np.uint64)
        mine = self._placed(chain)
        usable = (mine.depth >= 0) & ((mine.flags & HAS_OWN) != 0)
        count = _leading(np.flatnonzero(usable[1:])) + 1
        roots: dict[int, int] = {}
        pairs: list[Integers] = []
        budget = SIBLINGS_MAX
        for part in reversed(list(self._history.parts())):
            chains = part.chains
            if part.begin >= position or not len(chains) or not budget:
                continue
            of, rows = chains.with_own(mine.own[1:count], RIVALS_MAX)
            of = of + 1
            kept = _usable(chains, rows, position) & (_depths(chains, rows) == mine.depth[of])
            kept &= chains.keys[rows] != chain[of]
            of, pieces = of[kept], chains.piece_of(rows[kept])
            several = np.unique(pieces)[::-1][:budget]
            budget -= several.size
            for piece in several.tolist():
                root = self._sibling(chains, piece, head)
                if root is not None:
                    number = roots.setdefault(root, len(roots))
                    pairs.append(np.unique(of[pieces == piece]) * SIBLINGS_MAX + number)
        if not pairs:
            return 0
        return int(np.bincount(np.unique(np.concatenate(pairs)) % SIBLINGS_MAX).max())

    def _sibling(self, chains: Chains, piece: int, head: Block) -> int | None:
        """The sibling of a block that a piece descends from, if it does."""
        found = self._ancestor(chains, piece, head.depth)
        if found is None:
            return None
        sibling = self._block(*found)
        is_one = sibling.parent == head.parent and sibling.tokens not in {None, head.tokens}
        return sibling.key if is_one else None

    def _ancestor(self, chains: Chains, piece: int, depth: int) -> tuple[Chains, int] | None:
        while True:
            entry = chains.pieces[piece]
            above = int(entry["depth"])
            if above <= depth:
                row = int(chains.first[piece]) + depth - above
                return (chains, row) if row < chains.end_of(piece) else None
            flags = int(entry["flags"])
            if flags & CONTINUES:
                piece -= 1
                continue
            found = self._history.locate(int(entry["parent"])) if flags & HAS_PARENT else None
            if found is None:
                return None
            chains, row = found
            piece = int(chains.piece_of(np.array([row]))[0])
            if int(chains.pieces[piece]["depth"]) + row - int(chains.first[piece]) >= above:
                return None

    def _placed(self, keys: Keys) -> _Placed:
        count = keys.size
        found = _Placed(
            np.full(count, -1), np.zeros(count, np.uint64), np.zeros(count, np.uint64), np.zeros(count, np.int64)
        )
        open_ = np.arange(count)
        for part in reversed(list(self._history.parts())):
            for place, run in part.runs.items():
                hits = part.select(place, keys[open_]) if run.chained and open_.size else None
                if hits is None:
                    continue
                chains = part.chains
                rows, owners = hits.rows[hits.rows >= 0], open_[hits.owners[hits.rows >= 0]]
                flags = chains.flags_of(chains.piece_of(rows))
                kept = (flags & PLACED) != 0
                rows, owners = rows[kept], owners[kept]
                found.depth[owners] = _depths(chains, rows)
                found.flags[owners] = flags[kept]
                if chains.own is not None and chains.prefix is not None:
                    found.own[owners] = chains.own[rows]
                    found.prefix[owners] = chains.prefix[rows]
            open_ = np.flatnonzero(found.depth < 0)
        return found


def _parent(chains: Chains, piece: int, row: int) -> int | None:
    if row > int(chains.first[piece]):
        return int(chains.keys[row - 1])
    entry = chains.pieces[piece]
    return int(entry["parent"]) if int(entry["flags"]) & HAS_PARENT else None


def _followers(part: Segment, key: int) -> Integers:
    """Rows that follow a block inside one event."""
    chains = part.chains
    wanted = np.array([key], np.uint64)
    found = [np.zeros(0, np.int64)]
    for place, run in part.runs.items():
        hits = part.select(place, wanted) if run.chained else None
        if hits is not None:
            rows = hits.rows[hits.rows >= 0] + 1
            rows = rows[rows < len(chains)]
            pieces = chains.piece_of(rows)
            inside = (chains.first[pieces] < rows) | ((chains.flags_of(pieces) & CONTINUES) != 0)
            found.append(rows[inside])
    return np.concatenate(found)


def _usable(chains: Chains, rows: Integers, position: int) -> Flags:
    pieces = chains.piece_of(rows)
    usable: Flags = ((chains.flags_of(pieces) & _KNOWN) == _KNOWN) & (chains.ordinals[pieces] < position)
    return usable


def _depths(chains: Chains, rows: Integers) -> Integers:
    pieces = chains.piece_of(rows)
    depths: Integers = chains.pieces["depth"][pieces].astype(np.int64) + rows - chains.first[pieces]
    return depths


def _leading(ascending: Integers) -> int:
    """How many of ascending numbers are 0, 1, 2 and so on."""
    wrong = ascending != np.arange(ascending.size)
    return int(wrong.argmax()) if wrong.any() else ascending.size


def _column(keys: dict[int, tuple[Chains, int]]) -> Keys:
    return np.fromiter(keys, np.uint64, len(keys))
