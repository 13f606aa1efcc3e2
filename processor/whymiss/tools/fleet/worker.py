"""A worker: its own cache, perhaps a tier behind it, and how busy it was lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from .cache import Cache, Change, leading


class Worker:
    """One engine; ``shared`` says that its tier is every worker's."""

    def __init__(self, cache: Cache, tier: Cache | None, *, shared: bool) -> None:
        self.cache = cache
        self.tier = tier
        self.load = 0.0
        """Blocks computed lately."""
        self._own = () if tier is None or shared else (tier,)

    def match(self, blocks: Sequence[int]) -> int:
        """Leading blocks that are held by this worker: in its cache, or in its tier unless that is shared."""
        run = leading(self.cache.resident, blocks)
        for tier in self._own:
            run = leading(tier.resident, blocks, run)
        return run

    def holds(self, block: int) -> bool:
        """Whether a request would have found a block here and not on every other worker alike."""
        return block in self.cache.resident or any(block in tier.resident for tier in self._own)

    def touch(self, blocks: Sequence[int], at: float) -> Iterable[Change]:
        """Use a request's blocks; returns what changed in the caches that are this worker's alone."""
        changes = [self.cache.touch(blocks, at)]
        if self.tier is not None:
            change = self.tier.touch(blocks, at)
            changes.extend(change for _ in self._own)
        return changes

    def expire(self, at: float) -> Iterable[Change]:
        """Drop what was not used for too long; returns as ``touch`` does."""
        changes = [self.cache.expire(at)]
        if self.tier is not None:
            change = self.tier.expire(at)
            changes.extend(change for _ in self._own)
        return [one for one in changes if one.removed]


def merged(changes: Iterable[Change]) -> Change:
    """Several changes as one, for counting copies."""
    changes = list(changes)
    return Change(
        tuple(chain.from_iterable(one.stored for one in changes)),
        tuple(chain.from_iterable(one.removed for one in changes)),
    )
