"""One cache of blocks that evicts the least recently used.

All blocks of a request are touched, the last one first, so a tail leaves before its prefix: what is resident is closed
under ancestors, and so is what was ever resident. A longest leading run is therefore found by bisection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import NamedTuple, TypeAlias

Resident: TypeAlias = "OrderedDict[int, float]"


def leading(held: Container[int], blocks: Sequence[int], known: int = 0) -> int:
    """How many leading blocks are held, of a set that is closed under ancestors; ``known`` of them surely are."""
    low, high = known, len(blocks)
    if low < high and blocks[low] not in held:
        return low
    while low < high:
        middle = (low + high) // 2
        if blocks[middle] in held:
            low = middle + 1
        else:
            high = middle
    return low


class Change(NamedTuple):
    """What a touch or the time did to a cache."""

    stored: Sequence[int] = ()
    removed: Sequence[int] = ()


class Cache:
    """Up to ``capacity`` blocks, each kept for ``keep_seconds`` after its last use; None: without end."""

    def __init__(self, capacity: int | None, keep_seconds: float | None = None) -> None:
        self.capacity = capacity
        self.keep_seconds = keep_seconds
        self.resident: Resident = OrderedDict()
        """The blocks, the least recently used first, with the time of their last use where it matters."""
        self.gone: dict[int, int] = {}
        """Blocks that have left at least once: as which departure from this cache they last did, from 0."""
        self.departures = 0
        self.aged: set[int] = set()
        """Of those, the ones that last left because they were not used for too long."""

    def touch(self, blocks: Sequence[int], at: float) -> Change:
        """Make all blocks resident and the most recently used, block 0 last; evict down to the capacity."""
        resident = self.resident
        held = leading(resident, blocks)
        new = blocks[held:]
        for block in reversed(new):
            resident[block] = at
        move = resident.move_to_end
        for block in reversed(blocks[:held]):
            move(block)
        if self.keep_seconds is not None:
            for block in blocks[:held]:
                resident[block] = at
        over = 0 if self.capacity is None else len(resident) - self.capacity
        drop = resident.popitem
        removed = [drop(last=False)[0] for _ in range(over)]
        self._depart(removed)
        if self.keep_seconds is not None:
            self.aged.difference_update(removed)
        return Change(new, removed)

    def expire(self, at: float) -> Change:
        """Drop what was not used for too long."""
        if self.keep_seconds is None:
            return Change()
        removed = []
        while self.resident and next(iter(self.resident.values())) + self.keep_seconds < at:
            removed.append(self.resident.popitem(last=False)[0])
        self._depart(removed)
        self.aged.update(removed)
        return Change((), removed)

    def _depart(self, blocks: Sequence[int]) -> None:
        self.gone.update(zip(blocks, range(self.departures, self.departures + len(blocks)), strict=True))
        self.departures += len(blocks)
