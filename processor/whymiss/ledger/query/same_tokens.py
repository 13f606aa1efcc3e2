"""Secondary-index lookup: equal-token blocks, which another salt, adapter or hash seed keeps under other keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np

from ...model import Block, ChainContent, Residency
from ..columnar.bloom_filter import Probe, probe_of
from ..columnar.kernels import FEW, Flags, Integers, distinct
from ..events import Keys
from ..residency.facts import ColumnFacts
from ..segment.chain_table import HAS_EXTRAS, ChainTable
from ..segment_store import SegmentStore
from .chain_scan import KNOWN, comparable, depths_of, leading_count, scan_chain

EQUAL_TOKENS_MAX = 256
"""Blocks with the same tokens that one answer names, the last stored ones."""

AsOf: TypeAlias = Callable[[Keys, int], ColumnFacts]
BlockOf: TypeAlias = Callable[[ChainTable, int], Block]


class Content(ChainContent, frozen=True, eq=False):
    """What the first blocks of a chain are, whatever their keys: no block without known tokens is among them."""

    keys: Keys
    depth: Integers
    extras: Keys
    """Digests of all extra keys from block 0 on; 0 where they are not known."""
    described: Flags
    """Whether they are known."""
    first: int
    """Digest of the first block's own tokens."""
    prefix: Keys
    own: Probe
    """Digests of the blocks' own tokens, each once, ascending."""
    order: Integers
    """The blocks in the order of their prefix digests."""
    ascending: Keys
    """These digests in it."""


class EqualTokenBlocks:
    """Answers about one stream. ``as_of`` is its dense group at a position, ``block_of`` the identity of a row."""

    def __init__(self, history: SegmentStore, as_of: AsOf, block_of: BlockOf) -> None:
        self._history = history
        self._as_of = as_of
        self._block_of = block_of
        self._content: tuple[tuple[int, tuple[int, ...]], Content | None] | None = None
        """The last one asked for: every other stream of a view is compared with it."""

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        """Other resident blocks with the same tokens from block 0 on, no more than ``EQUAL_TOKENS_MAX``."""
        located = self._history.locate(key)
        return [] if located is None else self.like(self._block_of(*located), position)

    def like(self, mine: Block, position: int) -> Sequence[Block]:
        """The same for a block of any stream."""
        last = stored_like(self._history, mine, position)
        if not last:
            return []
        resident = self._as_of(_column(last), position).are(Residency.RESIDENT)
        # guard: equal-resident
        found = [self._block_of(*place) for place, held in zip(last.values(), resident.tolist(), strict=True) if held]
        return found[::-1]

    def same_tokens_leading(self, keys: Sequence[int], position: int) -> int:
        """How many of the first blocks of a chain have a resident other with the same tokens from block 0 on."""
        content = self.content(keys)
        return 0 if content is None else self.leading_like(content, position)

    def content(self, keys: Sequence[int]) -> Content | None:
        """What the first blocks of a chain are, to find them again under other keys, on any stream of this process."""
        asked = self._history.version, tuple(keys)
        if self._content is None or self._content[0] != asked:  # guard: content-version, content-keys
            self._content = asked, self._content_of(asked[1])
        return self._content[1]

    def _content_of(self, keys: tuple[int, ...]) -> Content | None:
        chain = probe_of(keys).values
        mine = scan_chain(self._history, chain)
        count = leading_count((mine.flags & KNOWN) == KNOWN)
        if not count:
            return None
        order = mine.prefix[:count].argsort()
        return Content(
            keys=chain[:count],
            depth=mine.depth[:count],
            extras=mine.extras[:count],
            described=(mine.flags[:count] & HAS_EXTRAS) != 0,
            first=int(mine.own[0]),
            prefix=mine.prefix[:count],
            own=Probe(distinct(mine.own[:count])),
            order=order,
            ascending=mine.prefix[order],
        )

    def leading_like(self, content: Content, position: int, *, with_extras: bool = False) -> int:
        """How many of the first blocks of a chain of any stream are resident here under other keys.

        ``with_extras`` asks for the same extra keys, too: for what another hash seed keeps apart.
        """
        if self._is_whole(content, position, with_extras=with_extras):
            return content.keys.size
        owners: list[Integers] = []
        others: list[Keys] = []
        for part, passing in self._history.pruning().segments_with_any_digest(content.own, position):
            chains = part.chains
            at, rows = chains.with_prefixes(content.own.values.take(passing), content.ascending)
            if not rows.size:
                continue
            of, named, pieces = content.order.take(at), chains.keys.take(rows), chains.piece_of(rows)
            kept = _alike(chains, (rows, pieces), content, of, with_extras=with_extras)
            kept &= comparable(chains, pieces, position) & (named != content.keys[of])  # guard: leading-self
            owners.append(of[kept])
            others.append(named[kept])
        if not others:
            return 0
        keyed = np.concatenate(others)
        resident = self._as_of(keyed, position).are(Residency.RESIDENT)
        matched = np.zeros(content.depth.size, np.bool_)
        matched[np.concatenate(owners)[resident]] = True  # guard: leading-resident
        return leading_count(matched)

    def _is_whole(self, content: Content, position: int, *, with_extras: bool) -> bool:
        """Whether all of the blocks are resident as one chain that was stored side by side, the last one that was.

        It mostly is so where any of them is, and it is found by its first block; where it is not so, they are compared
        one by one.
        """
        count = content.keys.size
        for part in reversed(self._history.pruning().segments_with_digest(content.first, position)):
            chains = part.chains
            rows = chains.with_prefix(content.first, int(content.prefix[0]))
            rows = rows[
                comparable(chains, chains.piece_of(rows), position) & (chains.keys.take(rows) != content.keys[0])
            ]
            if not rows.size:
                continue
            beside = np.arange(rows[-1], rows[-1] + count)
            if beside[-1] >= len(chains) or chains.prefix is None:  # guard: whole-end
                return False
            pieces, keys = chains.piece_of(beside), chains.keys[beside]
            same = _alike(chains, (beside, pieces), content, np.arange(count), with_extras=with_extras)
            same &= comparable(chains, pieces, position) & (keys != content.keys)  # guard: whole-self
            # guard: whole-same
            return bool((same & (chains.prefix[beside] == content.prefix)).all()) and self._are_held(keys, position)
        return False

    def _are_held(self, keys: Keys, position: int) -> bool:
        # A chain leaves from its end on, and one block is told quickly.
        last = self._as_of(keys[-1:], position).are(Residency.RESIDENT)
        return bool(last.all()) and bool(self._as_of(keys, position).are(Residency.RESIDENT).all())  # guard: whole-held


def stored_like(history: SegmentStore, mine: Block, position: int) -> dict[int, tuple[ChainTable, int]]:
    """Where blocks with the tokens of a block from block 0 on are described that were stored before a position.

    By key, held or not, but for the block's own key; the last ``EQUAL_TOKENS_MAX``, the last stored one first.
    """
    if mine.prefix is None or mine.tokens is None:
        return {}
    candidates: dict[int, tuple[ChainTable, int]] = {}
    for part in history.pruning().segments_with_digest(mine.tokens, position):
        chains = part.chains
        for row in _rows_at_depth(chains, chains.with_prefix(mine.tokens, mine.prefix), mine.depth, position):
            candidates.setdefault(int(chains.keys[row]), (chains, row))
    candidates.pop(mine.key, None)  # guard: equal-self
    return dict(islice(reversed(candidates.items()), EQUAL_TOKENS_MAX))


def _alike(
    chains: ChainTable, where: tuple[Integers, Integers], content: Content, of: Integers, *, with_extras: bool
) -> Flags:
    """Which rows, of these pieces, are as deep as blocks of a chain, and have their extra keys where these matter."""
    rows, pieces = where
    alike: Flags = depths_of(chains, rows, pieces) == content.depth[of]
    if with_extras:
        alike &= chains.pieces["extras"][pieces] == content.extras[of]  # guard: leading-extras
        alike &= ((chains.flags_of(pieces) & HAS_EXTRAS) != 0) == content.described[of]  # guard: leading-described
    return alike


def _rows_at_depth(chains: ChainTable, rows: Integers, depth: int, position: int) -> Sequence[int]:
    """Which rows were stored before a position and are that deep."""
    if rows.size > FEW:
        pieces = chains.piece_of(rows)
        rows_there: list[int] = rows[
            comparable(chains, pieces, position) & (depths_of(chains, rows, pieces) == depth)
        ].tolist()
        return rows_there
    return [row for row in rows.tolist() if _is_at_depth(chains, row, depth, position)]


def _is_at_depth(chains: ChainTable, row: int, depth: int, position: int) -> bool:
    piece = chains.piece_at(row)
    entry = chains.entry(piece)
    deep = entry.depth + row - int(chains.first[piece])
    return entry.flags & KNOWN == KNOWN and deep == depth and int(chains.ordinals[piece]) < position


def _column(keys: dict[int, tuple[ChainTable, int]]) -> Keys:
    return np.fromiter(keys, np.uint64, len(keys))
