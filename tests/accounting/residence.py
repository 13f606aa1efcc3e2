"""Residency from raw events, by the book: every copy of every block counted. What the ledger is asked, answered naively."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

from whymiss.accounting.values import Key


class Book:
    """Copies of the blocks of one stream over its events."""

    def __init__(self) -> None:
        self.events = 0
        self._copies: Counter[Key] = Counter()
        self._changes: defaultdict[Key, list[tuple[int, bool]]] = defaultdict(list)
        self.depths: dict[Key, int] = {}
        self._at_depth: defaultdict[int, list[Key]] = defaultdict(list)
        self.removals: dict[int, tuple[Key, ...]] = {}
        """What each removal removed, by ordinal."""
        self._unsure: list[int] = []
        self._sure: list[int] = []

    def lost(self) -> None:
        """Events were lost here: from now on any block may be resident, until all are cleared."""
        for key in [key for key, copies in self._copies.items() if copies]:
            self._copies[key] = 0
            self._changes[key].append((self.events, False))
        self._unsure.append(self.events)

    def _lost_before(self, position: int) -> int | None:
        """Since which event it has not been known what is resident; ``None``: it is known."""
        hole = bisect_right(self._unsure, position) - 1
        clear = bisect_left(self._sure, position) - 1
        if hole < 0 or (clear >= 0 and self._sure[clear] >= self._unsure[hole]):
            return None
        return self._unsure[hole]

    def stored(self, keys: Sequence[Key], start: int | None) -> None:
        for offset, key in enumerate(keys):
            if start is not None and key not in self.depths:
                self.depths[key] = start + offset
                self._at_depth[start + offset].append(key)
            self._copies[key] += 1
            self._changes[key].append((self.events, True))
        self.events += 1

    def removed(self, keys: Sequence[Key]) -> None:
        self.removals[self.events] = tuple(keys)
        for key in keys:
            if self._copies[key] > 0:
                self._copies[key] -= 1
                self._changes[key].append((self.events, self._copies[key] > 0))
        self.events += 1

    def cleared(self) -> None:
        for key in [key for key, copies in self._copies.items() if copies]:
            self._copies[key] = 0
            self._changes[key].append((self.events, False))
        self._sure.append(self.events)
        self.events += 1

    def other(self) -> None:
        """An event that is not about the dense group on the device."""
        self.events += 1

    # --- the questions ------------------------------------------------------------------------------

    def surely(self, key: Key, position: int) -> bool:
        changes = self._changes.get(key, ())
        before = bisect_left(changes, (position, False))
        return before > 0 and changes[before - 1][1]

    def maybe(self, key: Key, first: int, last: int) -> list[tuple[int, int]]:
        if self._lost_before(last) is not None or self._lost_before(first) is not None:
            return [(first, last)]
        runs: list[tuple[int, int]] = []
        begin = first if self.surely(key, first) else None
        changes = self._changes.get(key, [])
        for ordinal, resident in changes[bisect_left(changes, (first, False)) :]:
            if ordinal >= last:
                break
            if resident and begin is None:
                begin = ordinal + 1
            elif not resident and begin is not None:
                runs.append((begin, ordinal))
                begin = None
        if begin is not None and begin <= last:
            runs.append((begin, last))
        return runs

    def maybe_at_depth(self, depth: int, first: int, last: int) -> tuple[int, int] | None:
        if self._lost_before(last) is not None or self._lost_before(first) is not None:
            return first, last
        runs = [run for key in self._at_depth.get(depth, ()) for run in self.maybe(key, first, last)]
        return (min(run[0] for run in runs), max(run[1] for run in runs)) if runs else None
