"""Cache of chain tails: the depth, digests and extra keys of the blocks that events continue."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from ..events import ExtraKey
from ..hashing import Digester
from ..segment.chain_table import HAS_EXTRAS, HAS_PREFIX, PLACED, ChainTable
from ..segment_store import SegmentStore

TAILS_MAX = 4096
"""Ends of chains remembered a stream: what continues another block is looked up in the history."""

ADAPTERS_MAX = 4096
"""Adapters' names remembered a stream: of more, the latest."""

ADAPTER_CHARS = 256
"""A longer name is no name, and is not remembered."""

_MASK = (1 << 64) - 1
# Stands for "these extra keys begin here", so that an end of them leaves a mark too.
_CHANGE = 0x9E3779B97F4A7C15


class ChainTail(msgspec.Struct, gc=False):
    """One block as its children see it. Digests are ``None`` where they are not known."""

    depth: int
    prefix: int | None
    extras: int | None
    last: int
    """Digest of the block's own extra keys; 0 for none."""
    kinds: int
    """Number of the set of extra-key kinds from block 0 on."""


ROOT = ChainTail(-1, 0, 0, 0, 0)
"""What is above the first block of a prompt."""


class ChainTails:
    """The links of one stream."""

    def __init__(self, history: SegmentStore, digester: Digester) -> None:
        self._history = history
        self._digester = digester
        self._remembered: dict[int, ChainTail] = {}
        self._older: dict[int, ChainTail] = {}
        self.kinds: list[tuple[str, ...]] = [()]
        self.adapters: dict[int, str] = {}
        """The adapter that is among a block's own extra keys, by their digest. Not in a checkpoint: it is learned again."""

    def forget(self) -> None:
        """Blocks may have left the history."""
        self._remembered.clear()  # guard: links-forget
        self._older.clear()

    def remember(self, key: int, tail: ChainTail) -> None:
        """Note a block that is likely to be continued."""
        # By generations: the oldest entry of a dictionary is behind all that were deleted.
        if len(self._remembered) >= TAILS_MAX // 2:
            self._older, self._remembered = self._remembered, {}
        self._remembered[key] = tail

    def remembered(self, key: int) -> ChainTail | None:
        """A block that was noted."""
        return self._remembered.get(key) or self._older.get(key)

    def of(self, key: int) -> ChainTail | None:
        """The link of a block in the history; ``None`` where its place in a chain is not known."""
        located = self._history.locate(key)
        if located is None:
            return None
        tail = tail_of(*located)
        self.remember(key, tail)
        return tail

    def with_extra_keys(
        self, above: ChainTail, depth: int, extras: tuple[ExtraKey, ...], adapter: str | None, *, described: bool
    ) -> ChainTail:
        """A link's extra keys with those that a block at a depth and its followers have; ``adapter`` is named by one of them.

        The digest grows where a block's extra keys differ from those of the block before it: it says the
        same of a chain however it was cut into events.
        """
        own = self._digester.extras_digest(extras)
        if adapter is not None and len(adapter) <= ADAPTER_CHARS and any(kind == "lora" for kind, _ in extras):
            self._name(own, adapter)
        mixed = above.extras if described else None  # guard: links-described
        if mixed is not None and own != above.last:  # guard: links-change
            change = np.array([(own + _CHANGE) & _MASK], np.uint64)
            mixed = int(self._digester.prefix_digests(change, mixed, depth)[0])
        elif mixed == above.extras and not extras:
            return above
        return ChainTail(above.depth, above.prefix, mixed, own, self._numbered(above.kinds, extras))

    def _name(self, own: int, adapter: str) -> None:
        self.adapters.setdefault(own, adapter)
        if len(self.adapters) > ADAPTERS_MAX:
            del self.adapters[next(iter(self.adapters))]

    def _numbered(self, kinds: int, extras: tuple[ExtraKey, ...]) -> int:
        if not extras:
            return kinds
        union = tuple(sorted({*self.kinds[kinds], *(kind for kind, _ in extras)}))  # guard: links-kinds
        if union not in self.kinds:
            self.kinds.append(union)
        return self.kinds.index(union)


def tail_of(chains: ChainTable, row: int) -> ChainTail:
    """The link of a placed row."""
    piece = chains.piece_at(row)
    entry = chains.entry(piece)
    assert entry.flags & PLACED, "only a placed block has a link"
    assert chains.prefix is not None or not entry.flags & HAS_PREFIX, "a prefix digest has its column"
    return ChainTail(
        entry.depth + row - int(chains.first[piece]),
        int(chains.prefix[row]) if chains.prefix is not None and entry.flags & HAS_PREFIX else None,
        entry.extras if entry.flags & HAS_EXTRAS else None,
        entry.last,
        entry.kinds,
    )


def extra_key_runs(extras: list[tuple[ExtraKey, ...]] | None) -> Iterator[tuple[int, tuple[ExtraKey, ...]]]:
    """Where a block's extra keys differ from those of the block before it, and which they are."""
    if extras is None:
        yield 0, ()
        return
    before: tuple[ExtraKey, ...] | None = None
    for index, entry in enumerate(extras):
        if entry is not before and entry != before:
            yield index, entry
        before = entry
