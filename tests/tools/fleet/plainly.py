"""The same fleet, written plainly: caches are lists, blocks are looked up one by one, and nothing is clever."""

from __future__ import annotations

from dataclasses import dataclass, field

from whymiss.model import Cause, Reason
from whymiss.tools.fleet.replay import EXPIRED, Why
from whymiss.tools.fleet.setup import Setup
from whymiss.tools.fleet.trace import Ask


@dataclass
class Shelf:
    """A cache: blocks with the time of their last use, the next to leave first."""

    room: int | None
    keep: float | None
    blocks: list[tuple[int, float]] = field(default_factory=list)
    left: dict[int, str] = field(default_factory=dict)

    def __contains__(self, block: int) -> bool:
        return any(one == block for one, _ in self.blocks)

    def use(self, blocks: tuple[int, ...], at: float) -> None:
        for block in reversed(blocks):
            self.blocks = [pair for pair in self.blocks if pair[0] != block] + [(block, at)]
        while self.room is not None and len(self.blocks) > self.room:
            self.left[self.blocks.pop(0)[0]] = Reason.CAPACITY

    def age(self, at: float) -> None:
        for block, used in list(self.blocks):
            if self.keep is not None and used + self.keep < at:
                self.blocks.remove((block, used))
                self.left[block] = EXPIRED


class PlainFleet:
    """Judges each missed block of a request by itself."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.own = [Shelf(setup.capacity, setup.keep_seconds) for _ in range(setup.workers)]
        tier = setup.tier
        shelves = [] if tier is None else [Shelf(tier.blocks, setup.keep_seconds) for _ in self.own]
        self.shared = shelves[:1] if tier is not None and tier.shared else []
        self.private = [[shelf] for shelf in shelves] if not self.shared else [[] for _ in self.own]
        if tier is None:
            self.private = [[] for _ in self.own]
        self.ever: list[int] = []
        self.parents: list[int] = []

    def pass_time(self, at: float) -> None:
        for shelf in [*self.own, *self.shared, *(one for shelves in self.private for one in shelves)]:
            shelf.age(at)

    def places(self, worker: int) -> list[Shelf]:
        """Where a worker finds what it would find nowhere else."""
        return [self.own[worker], *self.private[worker]]

    def missed(self, ask: Ask, worker: int, wanted: int) -> list[Why]:
        """The cause of each missed block, or nothing; a router's promises are left out."""
        found, places = 0, [*self.places(worker), *self.shared]
        while found < wanted and any(ask.blocks[found] in place for place in places):
            found += 1
        new: Why | None = None
        whys = []
        for index in range(found, wanted):
            why = self._judge(ask.blocks[index], worker)
            if why is None:
                new = new or self._new(ask.blocks, index)
                why = new
            whys.append(why)
        return whys

    def _judge(self, block: int, worker: int) -> Why | None:
        if block not in self.ever:
            return None
        if any(block in place for other in range(len(self.own)) if other != worker for place in self.places(other)):
            return Why(Cause.ROUTING_MISS)
        if block in self.own[worker].left:
            return Why(Cause.EVICTED, self.own[worker].left[block])
        return Why(Cause.EVICTED_ELSEWHERE)

    def _new(self, blocks: tuple[int, ...], index: int) -> Why:
        if index == 0:
            return Why(Cause.NO_RECENT_MATCH, Reason.FIRST_SEEN)
        if blocks[index - 1] in self.parents:
            return Why(Cause.NO_RECENT_MATCH, Reason.BRANCH)
        return Why(Cause.NEW_CONTENT)

    def use(self, ask: Ask, worker: int) -> None:
        for parent, block in zip((-1, *ask.blocks), ask.blocks, strict=False):
            if block not in self.ever:
                self.ever.append(block)
                self.parents.append(parent)
        for place in [*self.places(worker), *self.shared]:
            place.use(ask.blocks, ask.at)
