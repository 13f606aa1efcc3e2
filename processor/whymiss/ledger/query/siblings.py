"""Similarity join of chains: blocks under the same parent, and how much of a missed chain a sibling chain repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from ...model import Block, MissedChain, Repeats
from ..columnar.bloom_filter import Probe, probe_of
from ..columnar.kernels import Integers
from ..events import Keys
from ..memtable.chain_tails import ChainTails
from ..segment.chain_table import CONTINUES, HAS_EXTRAS, HAS_OWN, HAS_PARENT, HAS_PREFIX, ChainTable
from ..segment_store import SegmentStore
from .chain_scan import comparable, depths_of, leading_count, scan_chain
from .children import children_in

CANDIDATES_MAX = 256
"""Blocks a segment with the same own tokens that a comparison looks at, the last stored ones."""

SIBLINGS_MAX = 128
"""Chains that a comparison follows back to their beginning, the last stored ones."""

_Step: TypeAlias = tuple[ChainTable, int, int]
"""A piece of a chain, and the depth at which the one below goes on."""


class MissedColumns(MissedChain, frozen=True, eq=False):
    """A chain from its first missed block on, as far as the tokens of its blocks are known."""

    head: Block
    keys: Keys
    depth: Integers
    own: Probe
    """Digests of the own tokens of all blocks but the first."""


class Siblings:
    """Answers about one stream's blocks."""

    def __init__(self, history: SegmentStore, chain_tails: ChainTails) -> None:
        self._history = history
        self._chain_tails = chain_tails
        self._missed_chain: tuple[tuple[int, tuple[int, ...]], MissedColumns | None] | None = None
        """The last one asked for: every other stream of a view is compared with it."""

    def block(self, key: int) -> Block | None:
        """The identity of a block."""
        located = self._history.locate(key)
        return None if located is None else self.block_of(*located)

    def block_of(self, chains: ChainTable, row: int) -> Block:
        """The same of a row."""
        piece = chains.piece_at(row)
        entry, first = chains.entry(piece), int(chains.first[piece])
        parent = entry.parent if entry.flags & HAS_PARENT else None
        return Block(
            key=int(chains.keys[row]),
            parent=int(chains.keys[row - 1]) if row > first else parent,
            depth=entry.depth + row - first,
            tokens=int(chains.own[row]) if chains.own is not None and entry.flags & HAS_OWN else None,
            prefix=int(chains.prefix[row]) if chains.prefix is not None and entry.flags & HAS_PREFIX else None,
            extras=entry.extras if entry.flags & HAS_EXTRAS else None,
            kinds=self._chain_tails.kinds[entry.kinds],
            adapter=self._chain_tails.adapters.get(entry.last),
        )

    # --- the same parent ----------------------------------------------------------------------

    def children(self, parent: int | None, position: int, limit: int | None) -> Sequence[int]:
        """Blocks stored under a parent before a position, in order; no more than ``limit``."""
        children: dict[int, None] = {}
        for part in self._history.parts():
            if part.begin >= position:
                break
            for key in children_in(part, parent, position):
                children[key] = None
                if len(children) == limit:
                    return list(children)
        return list(children)

    def tokens_known(self, keys: Sequence[int]) -> int:
        """How many of the first blocks of a chain have a known digest of their own tokens."""
        mine = scan_chain(self._history, probe_of(tuple(keys)).values)
        return leading_count((mine.depth >= 0) & ((mine.flags & HAS_OWN) != 0))

    # --- the same tokens further on -----------------------------------------------------------

    def missed_chain(self, keys: Sequence[int]) -> MissedColumns | None:
        """What of a chain can be compared with siblings of its first block, of any stream of this process."""
        asked = self._history.version, tuple(keys)
        if self._missed_chain is None or self._missed_chain[0] != asked:
            self._missed_chain = asked, self._missed_chain_of(asked[1])
        return self._missed_chain[1]

    def _missed_chain_of(self, keys: tuple[int, ...]) -> MissedColumns | None:
        head = self.block(keys[0]) if len(keys) > 1 else None
        if head is None or head.tokens is None:
            return None
        chain = probe_of(keys).values
        mine = scan_chain(self._history, chain)
        count = leading_count((mine.flags[1:] & HAS_OWN) != 0) + 1
        return MissedColumns(head=head, keys=chain[:count], depth=mine.depth[:count], own=Probe(mine.own[1:count]))

    def repeats(self, missed_chain: MissedColumns, position: int) -> Repeats:
        """How many blocks of a tail one chain of a sibling repeats, own tokens by own tokens, at the same depth."""
        complete = True
        matched: dict[tuple[int, int], tuple[ChainTable, Integers]] = {}
        budget = SIBLINGS_MAX
        order, own = missed_chain.own.ascending
        for part, passing in reversed(self._history.pruning().segments_with_any_digest(own, position)):
            chains = part.chains
            of, rows = chains.with_own(own.values.take(passing), CANDIDATES_MAX)
            if rows.size >= CANDIDATES_MAX:
                complete &= int(np.bincount(of).max()) < CANDIDATES_MAX
            of = order.take(passing.take(of)) + 1
            # Mostly it is the chain itself that is found.
            others = (chains.keys.take(rows) != missed_chain.keys.take(of)).nonzero()[0]  # guard: repeats-self
            if not others.size:
                continue
            of, rows = of.take(others), rows.take(others)
            pieces = chains.piece_of(rows)
            # guard: repeats-depth
            kept = comparable(chains, pieces, position) & (depths_of(chains, rows, pieces) == missed_chain.depth[of])
            several = _by_piece(pieces[kept], missed_chain.depth[of[kept]])
            complete &= len(several) < budget
            several = several[:budget]
            budget -= len(several)
            matched.update({(id(chains), piece): (chains, some) for piece, some in several})
        above: dict[tuple[int, int], _Step | None] = {}
        counts = (
            self._on_way_down((chains, piece), missed_chain, matched, (position, above))
            for (_, piece), (chains, _) in matched.items()
        )
        return Repeats(blocks=max(counts, default=0), complete=complete)

    def _on_way_down(
        self,
        piece: tuple[ChainTable, int],
        missed_chain: MissedColumns,
        matched: Mapping[tuple[int, int], tuple[ChainTable, Integers]],
        ancestors_known: tuple[int, dict[tuple[int, int], _Step | None]],
    ) -> int:
        """How many matched blocks lie on the chain from a sibling of the tail's head to the end of a piece."""
        head, count = missed_chain.head, 0
        for part, number, end in self._ancestry(*piece, *ancestors_known):
            some = matched.get((id(part), number))
            count += 0 if some is None else int(some[1].searchsorted(end))
            above = part.entry(number).depth
            if above <= head.depth:
                row = int(part.first[number]) + head.depth - above
                sibling = self.block_of(part, row) if head.depth < end else None
                is_one = sibling is not None and sibling.parent == head.parent  # guard: repeats-parent
                # guard: repeats-head
                return count if is_one and sibling is not None and sibling.tokens not in {None, head.tokens} else 0
        return 0

    def _ancestry(
        self, chains: ChainTable, piece: int, position: int, above: dict[tuple[int, int], _Step | None]
    ) -> Iterator[_Step]:
        """The pieces of a chain from its end up. ``above`` are the steps that are known, and are added to.

        Of a block that was stored several times that of the last time before a position: later ones repeat nothing.
        """
        end = chains.entry(piece).depth + chains.end_of(piece) - int(chains.first[piece])
        step: _Step | None = (chains, piece, end)
        while step is not None:
            yield step
            here = id(step[0]), step[1]
            if here not in above:
                above[here] = self._above(step[0], step[1], position)
            step = above[here]

    def _above(self, chains: ChainTable, piece: int, position: int) -> _Step | None:
        entry = chains.entry(piece)
        if entry.flags & CONTINUES:
            return chains, piece - 1, entry.depth
        # guard: repeats-before
        located = self._history.locate_before(entry.parent, position) if entry.flags & HAS_PARENT else None
        if located is None:
            return None
        upper, row = located
        piece = upper.piece_at(row)
        below = upper.entry(piece).depth + row - int(upper.first[piece]) >= entry.depth
        return None if below else (upper, piece, entry.depth)


def _by_piece(pieces: Integers, depths: Integers) -> Sequence[tuple[int, Integers]]:
    """The depths of some blocks by their pieces, the last piece first; each depth once, ascending."""
    order = np.lexsort((depths, pieces))
    pieces, depths = pieces[order], depths[order]
    begins = pieces[1:] != pieces[:-1]
    kept = np.ones(pieces.size, np.bool_)
    kept[1:] = begins | (depths[1:] != depths[:-1])
    pieces, depths = pieces[kept], depths[kept]
    bounds = [0, *((pieces[1:] != pieces[:-1]).nonzero()[0] + 1).tolist(), pieces.size]
    return [(int(pieces[begin]), depths[begin:end]) for begin, end in pairwise(bounds) if begin < end][::-1]
