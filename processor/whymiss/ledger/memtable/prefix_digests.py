"""Prefix sums of a flush: the prefix digests of all blocks of a segment, computed in one pass when it ends.

An event continues a block whose digest is known, or the last block of an event before it in the same segment. So
what is needed of each event is the block above it; one sum over all blocks then serves every event, as a prefix
digest is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..events import Keys
from ..hashing import Digester

_MASK = (1 << 64) - 1


class PrefixDigests:
    """The blocks of one segment, event by event. ``column`` has their digests; 0 where none is known."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._own: list[Keys] = []
        self._multipliers: list[Keys] = []
        self._counts: list[int] = []
        self._above: list[int] = []
        """The digest of the block above each event, or ``~`` the number of the event whose last block it is."""

    def add(self, own: Keys, above: int, depth: int) -> None:
        """Take an event's blocks by the digests of their own tokens; the first one has a depth."""
        self._own.append(own)
        self._multipliers.append(self._digester.depth_multipliers(depth, own.size))
        self._counts.append(own.size)
        self._above.append(above)

    def add_unknown(self, own: Keys | None, count: int) -> None:
        """Take an event whose parent or whose tokens are not known."""
        none = np.zeros(count, np.uint64)
        self._own.append(none if own is None else own)
        self._multipliers.append(none)
        self._counts.append(count)
        self._above.append(0)

    def add_singles(self, own: Keys | None, above: Sequence[int], depths: Sequence[int]) -> None:
        """Take events of one block each; a depth below 0 is that of a block whose parent is not known."""
        count = len(depths)
        multipliers = np.zeros(count, np.uint64)
        if own is not None:
            found = np.array(depths)
            multipliers = self._digester.depth_multipliers_at(np.maximum(found, 0))
            multipliers[found < 0] = 0
        self._own.append(np.zeros(count, np.uint64) if own is None else own)
        self._multipliers.append(multipliers)
        self._counts.extend([1] * count)
        self._above.extend(above)

    def own(self) -> Keys:
        """The digests of the blocks' own tokens; 0 where they are not known."""
        return np.concatenate(self._own)

    def column(self, own: Keys) -> tuple[Keys, list[int]]:
        """(digest of each block: uint64, aligned with ``own``; digest of each event's last block: a list of numbers)."""
        sums: Keys = np.concatenate(self._multipliers)
        sums *= own
        np.add.accumulate(sums, out=sums)
        counts = np.array(self._counts)
        shifts: list[int] = []
        lasts: list[int] = []
        before = 0
        for above, end in zip(self._above, sums.take(counts.cumsum() - 1).tolist(), strict=True):
            shift = (above if above >= 0 else lasts[~above]) - before
            shifts.append(shift & _MASK)
            lasts.append((end + shift) & _MASK)
            before = end
        sums += np.array(shifts, np.uint64).repeat(counts)
        return sums, lasts
