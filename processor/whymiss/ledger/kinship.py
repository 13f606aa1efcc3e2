"""Who is related to whom: blocks with the same parent, or with the same tokens further on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from ..model import Block, Repeats
from .broods import children_in
from .chains import CONTINUES, HAS_EXTRAS, HAS_OWN, HAS_PARENT, HAS_PREFIX, Chains
from .events import Keys
from .filters import Probe, probe_of
from .history import History
from .links import Links
from .placed import depths, leading, placed, usable, where
from .sorting import NO_INTEGERS, Integers

RIVALS_MAX = 256
"""Blocks a segment with the same own tokens that a comparison looks at, the last stored ones."""

SIBLINGS_MAX = 128
"""Chains that a comparison follows back to their beginning, the last stored ones."""


class Tail(msgspec.Struct, frozen=True, eq=False):
    """A chain from its first missed block on, as far as the tokens of its blocks are known."""

    head: Block
    keys: Keys
    depth: Integers
    own: Probe
    """Digests of the own tokens of all blocks but the first."""


class Kinship:
    """Answers about one stream's blocks."""

    def __init__(self, history: History, links: Links) -> None:
        self._history = history
        self._links = links
        self._tail: tuple[tuple[int, tuple[int, ...]], Tail | None] | None = None
        """The last one asked for: every other stream of a view is compared with it."""

    def block(self, key: int) -> Block | None:
        """The identity of a block."""
        located = self._history.locate(key)
        return None if located is None else self.block_of(*located)

    def block_of(self, chains: Chains, row: int) -> Block:
        """The same of a row."""
        piece = chains.piece_at(row)
        entry = chains.pieces[piece]
        flags = int(entry["flags"])
        return Block(
            key=int(chains.keys[row]),
            parent=_parent(chains, piece, row),
            depth=int(entry["depth"]) + row - int(chains.first[piece]),
            tokens=int(chains.own[row]) if chains.own is not None and flags & HAS_OWN else None,
            prefix=int(chains.prefix[row]) if chains.prefix is not None and flags & HAS_PREFIX else None,
            extras=int(entry["extras"]) if flags & HAS_EXTRAS else None,
            kinds=self._links.kinds[int(entry["kinds"])],
            adapter=self._links.adapters.get(int(entry["last"])),
        )

    # --- the same parent ----------------------------------------------------------------------

    def children(self, parent: int | None, position: int, limit: int | None) -> Sequence[int]:
        """Blocks stored under a parent before a position, in order; no more than ``limit``."""
        found: dict[int, None] = {}
        for part in self._history.parts():
            if part.begin >= position:
                break
            for key in children_in(part, parent, position):
                found[key] = None
                if len(found) == limit:
                    return list(found)
        return list(found)

    def tokens_known(self, keys: Sequence[int]) -> int:
        """How many of the first blocks of a chain have a known digest of their own tokens."""
        mine = placed(self._history, probe_of(tuple(keys)).values)
        return leading(np.flatnonzero((mine.depth >= 0) & ((mine.flags & HAS_OWN) != 0)))

    # --- the same tokens further on -----------------------------------------------------------

    def tail(self, keys: Sequence[int]) -> Tail | None:
        """What of a chain can be compared with siblings of its first block, of any stream of this process."""
        asked = self._history.version, tuple(keys)
        if self._tail is None or self._tail[0] != asked:
            self._tail = asked, self._tail_of(asked[1])
        return self._tail[1]

    def _tail_of(self, keys: tuple[int, ...]) -> Tail | None:
        head = self.block(keys[0]) if len(keys) > 1 else None
        if head is None or head.tokens is None:
            return None
        chain = probe_of(keys).values
        mine = placed(self._history, chain)
        count = leading(where((mine.flags[1:] & HAS_OWN) != 0)) + 1
        return Tail(head=head, keys=chain[:count], depth=mine.depth[:count], own=Probe(mine.own[1:count]))

    def repeats(self, tail: Tail, position: int) -> Repeats:
        """How many blocks of a tail one chain of a sibling repeats, own tokens by own tokens, at the same depth."""
        complete = True
        matched: dict[tuple[int, int], tuple[Chains, Integers]] = {}
        budget = SIBLINGS_MAX
        order, own = tail.own.ascending
        for part, passing in reversed(self._history.passing().with_any_digest(own, position)):
            chains = part.chains
            of, rows = chains.with_own(own.values.take(passing), RIVALS_MAX)
            if rows.size >= RIVALS_MAX:
                complete &= int(np.bincount(of).max()) < RIVALS_MAX
            of = order.take(passing.take(of)) + 1
            # Mostly it is the chain itself that is found.
            others = (chains.keys.take(rows) != tail.keys.take(of)).nonzero()[0]
            if not others.size:
                continue
            of, rows = of.take(others), rows.take(others)
            pieces = chains.piece_of(rows)
            kept = usable(chains, pieces, position) & (depths(chains, rows, pieces) == tail.depth[of])
            of, pieces = of[kept], pieces[kept]
            several = np.unique(pieces)[::-1]
            complete &= several.size < budget
            several = several[:budget]
            budget -= several.size
            for piece in several.tolist():
                matched[id(chains), piece] = chains, np.unique(tail.depth[of[pieces == piece]])
        counts = (
            self._on_way_down((chains, piece), tail, matched, position) for (_, piece), (chains, _) in matched.items()
        )
        return Repeats(blocks=max(counts, default=0), complete=complete)

    def _on_way_down(
        self,
        piece: tuple[Chains, int],
        tail: Tail,
        matched: Mapping[tuple[int, int], tuple[Chains, Integers]],
        position: int,
    ) -> int:
        """How many matched blocks lie on the chain from a sibling of the tail's head to the end of a piece."""
        head, count = tail.head, 0
        for part, number, end in self._ancestry(*piece, position):
            _, depths = matched.get((id(part), number), (part, NO_INTEGERS))
            count += int((depths < end).sum())
            above = int(part.pieces["depth"][number])
            if above <= head.depth:
                row = int(part.first[number]) + head.depth - above
                sibling = self.block_of(part, row) if head.depth < end else None
                is_one = sibling is not None and sibling.parent == head.parent
                return count if is_one and sibling is not None and sibling.tokens not in {None, head.tokens} else 0
        return 0

    def _ancestry(self, chains: Chains, piece: int, position: int) -> Iterator[tuple[Chains, int, int]]:
        """The pieces of a chain from its end up, each with the depth at which the one below goes on.

        Of a block that was stored several times that of the last time before a position: later ones repeat nothing.
        """
        end = int(chains.pieces["depth"][piece]) + chains.end_of(piece) - int(chains.first[piece])
        while True:
            yield chains, piece, end
            entry = chains.pieces[piece]
            above, flags = int(entry["depth"]), int(entry["flags"])
            if flags & CONTINUES:
                piece, end = piece - 1, above
                continue
            found = self._history.locate_before(int(entry["parent"]), position) if flags & HAS_PARENT else None
            if found is None:
                return
            chains, row = found
            piece, end = chains.piece_at(row), above
            if int(chains.pieces[piece]["depth"]) + row - int(chains.first[piece]) >= above:
                return


def _parent(chains: Chains, piece: int, row: int) -> int | None:
    if row > int(chains.first[piece]):
        return int(chains.keys[row - 1])
    entry = chains.pieces[piece]
    return int(entry["parent"]) if int(entry["flags"]) & HAS_PARENT else None
