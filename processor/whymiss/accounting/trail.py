"""Following a path from store to store: chunks of a prefill, decode fills, and what is stored again after a preemption."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from .path import Hit
from .stream import Placed, Stream
from .values import Key
from .window import Window


class Trail(msgspec.Struct):
    """A path as it is walked."""

    stores: list[Placed]
    tail: Key
    """The last key of its newest store,"""
    depth: int
    """which ends here."""
    reached: int
    """It had come this far before a preemption."""
    own: dict[int, Key]
    """The keys of its chain by depth, as far as they are known; also of blocks that it hit."""
    again: list[Placed]
    """Stores that name a block of this chain which had been named before."""
    hits: tuple[Hit, ...] | None
    """``None``: it was preempted before its first store, and the admitted lookup found what was resident then."""
    idle: int = -1
    loaded: int = 0
    preempted: bool = False

    def copy(self) -> Trail:
        """The same trail, to go on elsewhere."""
        return msgspec.structs.replace(self, stores=[*self.stores], own=dict(self.own), again=[*self.again])


def begin(stream: Stream, placed: Placed, hits: tuple[Hit, ...] | None) -> Trail:
    """A trail whose first store is given."""
    own = stream.lineage(placed.parent, placed.start - 1) if placed.start else {}
    again = [one for key in own.values() for one in stream.repeats.get(key, ())]
    trail = Trail([], placed.keys[-1], placed.start, placed.start, own, again, hits, preempted=hits is None)
    advance(stream, trail, placed)
    return trail


def advance(stream: Stream, trail: Trail, placed: Placed) -> None:
    """Go on to a store."""
    if len(trail.stores) == 1 and trail.stores[0].batch == placed.batch:
        if stream.habits.connector:
            trail.loaded = len(trail.stores[0].keys)
        else:
            trail.idle = placed.batch
    trail.preempted |= placed.start < trail.reached
    trail.stores.append(placed)
    trail.tail, trail.depth, trail.reached = placed.keys[-1], placed.end, max(trail.reached, placed.end)
    for depth, key in enumerate(placed.keys, placed.start):
        trail.own[depth] = key
        trail.again += stream.repeats.get(key, ())


def continuations(stream: Stream, window: Window, trail: Trail) -> list[Placed]:
    """The stores that can be the next one of a trail."""
    newest = trail.stores[-1]
    found = [placed for placed in _behind(stream, trail.tail, newest) if _continues(stream, window, trail, placed)]
    taken = {placed.number for placed in found}
    if trail.depth < trail.reached:  # all that lies between was resident when it was admitted again
        for placed in _behind(stream, trail.own[trail.reached - 1], newest):
            if placed.number not in taken and _continues(stream, window, trail, placed):
                taken.add(placed.number)
                found.append(placed)
    for placed in trail.again:
        if placed.number > newest.number and placed.number not in taken and _repeats(stream, window, trail, placed):
            taken.add(placed.number)
            found.append(placed)
    return found


def _behind(stream: Stream, tail: Key, newest: Placed) -> list[Placed]:
    """Later stores that continue a block."""
    children = stream.by_parent.get(tail, [])
    return children[bisect_left(children, newest.number + 1, key=lambda one: one.number) :]


def _continues(stream: Stream, window: Window, trail: Trail, placed: Placed) -> bool:
    if placed.unix_nanos > window.finish:
        return False
    # One store a batch. A pipeline that was idle or ran dry publishes two rounds in one, a connector what it loaded and the rest.
    if len(trail.stores) > 1 and trail.stores[-2].batch == placed.batch:
        return False
    return _fits(stream, window, trail, placed)


def _repeats(stream: Stream, window: Window, trail: Trail, placed: Placed) -> bool:
    """Admitted again after a preemption: own blocks that were evicted are stored again, at most one block further.

    Own are all blocks of its chain, also those that it had hit.
    """
    start = placed.start
    if start >= trail.reached or placed.batch == trail.stores[-1].batch or placed.unix_nanos > window.finish:
        return False
    recomputed = placed.end == start + 1 == trail.reached
    if not recomputed and stream.residence.surely(placed.keys[0], placed.ordinal):
        return False
    return trail.own.get(start) == placed.keys[0] and _fits(stream, window, trail, placed)


def _fits(stream: Stream, window: Window, trail: Trail, placed: Placed) -> bool:
    """Whether a store lies on the trail's chain, and goes no further than it can in its time."""
    if placed.start > trail.reached:
        return False
    if placed.start < trail.reached and any(
        trail.own.get(depth, key) != key for depth, key in enumerate(placed.keys, placed.start)
    ):
        return False
    if trail.reached < window.last:
        in_time = placed.unix_nanos <= window.first and window.spans(trail.stores[0], placed)
        return placed.end <= window.last and in_time
    further = placed.end - trail.reached
    return placed.end - window.last <= window.fills_max and (further <= 1 or stream.habits.deferred)
