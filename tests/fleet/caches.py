"""What one worker has published: its cache, how blocks left it, and which of its batches never arrived."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Gone(NamedTuple):
    """How and when a block left a worker."""

    at: int
    how: str


class Sweep(NamedTuple):
    """A worker lost everything at ``at``; ``told`` is the number of its batch that says so."""

    at: int
    how: str
    told: int


class Cache:
    """One worker's published state, and its whole history."""

    def __init__(self) -> None:
        self.copies: dict[int, int] = {}
        self.gone: dict[int, Gone] = {}
        self.plains: defaultdict[int, set[int]] = defaultdict(set)
        """Resident keys by the identity of their tokens alone."""
        self.batches: list[int] = []
        """When each batch was published."""
        self.dropped: set[int] = set()
        """Numbers of the batches that never arrived."""
        self.owed: set[int] = set()
        """Numbers of the batches that are lost as long as no later one of the same life shows the gap."""
        self.operations: defaultdict[int, list[int]] = defaultdict(list)
        """By key, for each operation twice the number of its batch, plus one for a store."""
        self.sweeps: list[Sweep] = []

    def leading(self, keys: Iterable[int], *, once: bool = False, since: int = 0) -> int:
        """How many leading keys are resident here (``once``: are, or were since then)."""
        count = 0
        for key in keys:
            if key not in self.copies and not (once and self.held(key, since)):
                break
            count += 1
        return count

    def held(self, key: int, since: int) -> bool:
        """Whether a key is or was resident here since some time."""
        return key in self.copies or (key in self.gone and self.gone[key].at >= since)

    def give_up(self) -> None:
        """Nothing will show any more what is owed: nobody asks for it."""
        self.dropped |= self.owed
        self.owed.clear()

    def lost(self, after: int, until: int) -> bool:
        """Whether a batch in ``(after, until]`` never arrived.

        A hole reaches from the last batch that arrived before it to the first one after it.
        """
        while after in self.dropped:
            after -= 1
        while until in self.dropped:
            until += 1
        return any(after < number <= until for number in self.dropped)
