"""A tier below the device: what it holds, how a load from it can go, and what a whole lookup came to."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["none", "miss", "hit", "timeout", "failed", "stale"]


@dataclass(frozen=True, kw_only=True)
class TierSpec:
    """A host tier of each worker; what is not refused or spoilt is a hit."""

    capacity: int
    """Blocks."""
    unasked: float = 0.0
    """Share of the lookups that never ask it."""
    timeouts: float = 0.0
    failures: float = 0.0
    """Loads that deliver half of what was found."""
    stale: float = 0.0
    """Loads that deliver nothing of what was found, without an error."""


class Offer(NamedTuple):
    """What came of asking: blocks found, and blocks loaded."""

    status: Status
    found: int = 0
    loaded: int = 0


class Found(NamedTuple):
    """What a lookup came to, in blocks."""

    matchable: int
    held: int
    """Hits in the device's pool."""
    dense: int
    """Hits that the dense group alone would have given."""
    offer: Offer | None
    opted_out: bool = False
    """The request did not read the cache."""

    @property
    def hits(self) -> int:
        """Blocks that are not computed again."""
        return self.held + (self.offer.loaded if self.offer is not None else 0)


class Tier:
    """Every block that the device stores is written here too; the least recently used leave."""

    def __init__(self, spec: TierSpec) -> None:
        self._spec = spec
        self._keys: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def leading(self, keys: Iterable[int]) -> int:
        """How many leading keys are here."""
        count = 0
        for key in keys:
            if key not in self._keys:
                break
            count += 1
        return count

    def keep(self, keys: Sequence[int]) -> tuple[list[int], list[int]]:
        """Write blocks; returns which are new, and which had to leave for them."""
        stored = []
        for key in reversed(keys):
            if key in self._keys:
                self._keys.move_to_end(key)
            else:
                self._keys[key] = None
                stored.append(key)
        removed = []
        while len(self._keys) > self._spec.capacity:
            removed.append(self._keys.popitem(last=False)[0])
        return stored, removed

    def ask(self, keys: Sequence[int], chance: random.Random) -> Offer:
        """One lookup behind the device's last hit, and its load."""
        spec, draw = self._spec, chance.random()
        if draw < spec.unasked:
            return Offer("none")
        found = self.leading(keys)
        if not found:
            return Offer("miss")
        draw -= spec.unasked
        if draw < spec.timeouts:
            return Offer("timeout", found)
        if draw < spec.timeouts + spec.failures:
            return Offer("failed", found, found // 2)
        if draw < spec.timeouts + spec.failures + spec.stale:
            return Offer("stale", found)
        return Offer("hit", found, found)
