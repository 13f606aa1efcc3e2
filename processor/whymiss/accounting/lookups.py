"""What the lookup behind a path found, and where it was.

Whether the first missed block was resident is not asked: a skipped lookup, a sparse group's veto and speculative decoding
all store what is resident.
"""

from __future__ import annotations

from .path import Hit
from .stream import UNKNOWN, Placed, Stream
from .trail import Trail
from .values import Key
from .window import ROUNDS_OF_PREEMPTION, Window


class Lookups:
    """The possible lookups of one request in one stream."""

    def __init__(self, stream: Stream, window: Window) -> None:
        self._stream, self._window = stream, window

    def before(self, placed: Placed) -> tuple[Hit, ...]:
        """What was found by a lookup whose first store is given; nothing where it cannot have been so."""
        window, start = self._window, placed.start
        key = placed.keys[0] if start < window.matchable else None
        if self._stream.habits.deferred:
            return (self._deferred(placed, key),)
        if placed.ordinal < window.end:  # stored in the round of the lookup
            return (Hit(start, key, placed.ordinal, placed.ordinal, placed.position),)
        # Its first chunk filled no block: it was looked up in an earlier round.
        runs = self.runs(placed.parent, window.begin, window.end) if start else [(window.begin, window.end)]
        return (Hit(start, key, runs[0][0], runs[-1][1], runs[0][0]),) if runs else ()

    def _deferred(self, placed: Placed, key: Key | None) -> Hit:
        """A tree cache stores what is not there *after* the prefill: what was there before is what was found."""
        window, start = self._window, placed.start
        until = min(window.end, placed.ordinal)
        if not start or placed.parent is None:
            return Hit(0, key, window.begin, until, window.begin)
        whole = self.runs(placed.parent, window.begin, until) == [(window.begin, until)]
        if whole and self._stream.residence.surely(placed.parent, window.begin):
            return Hit(start, key, window.begin, until, window.begin)
        return Hit(UNKNOWN, None, window.begin, until, window.begin)

    def evicted_before(self, placed: Placed) -> bool:
        """Whether its first block may have been resident at the lookup, and gone when it was stored."""
        if self._stream.residence.surely(placed.keys[0], placed.ordinal):
            return False
        return bool(self.runs(placed.keys[0], self._window.begin, min(self._window.end, placed.ordinal)))

    def held(self, placed: Placed) -> bool:
        """Whether what it continues was surely resident wherever a lookup can have been two batches earlier."""
        top = min(self._window.end, self._stream.begin_of(placed.batch - 1))
        if not placed.start or placed.parent is None or top < self._window.begin:
            return True
        sure = self._stream.residence.surely(placed.parent, self._window.begin)
        return sure and self.runs(placed.parent, self._window.begin, top) == [(self._window.begin, top)]

    def runs(self, key: Key | None, first: int, last: int) -> list[tuple[int, int]]:
        """The runs of positions in an interval at which a block may have been resident; ``None``: the root, always."""
        if key is None:
            return [(first, last)]
        return list(self._stream.residence.maybe(key, first, last)) if first <= last else []

    def before_preemption(self, trail: Trail) -> list[Hit]:
        """What lookups can have found that were preempted before their first store, of the request's own chain."""
        stream, window, first = self._stream, self._window, trail.stores[0]
        # Before the last event of the batch before: a preemption ends a round without admissions, so two rounds and the
        # loss of its blocks lie between that lookup and this store, and all three without an event are not seen.
        top = min(stream.begin_of(first.batch) - 1, window.end)
        lowest, final = window.begin, self.final(trail)
        if final is not None and window.prefill is not None:
            lowest = max(lowest, window.lookup_from(stream, final))
        if lowest > top:
            return []
        found: dict[int, tuple[int, int]] = {}
        rounds = window.rounds(stream) >= ROUNDS_OF_PREEMPTION
        runs = {depth: self.runs(key, lowest, top) for depth, key in trail.own.items() if depth < window.matchable}
        edges = {lowest, top} | {edge for several in runs.values() for one in several for edge in (*one, one[1] + 1)}
        for position in sorted(edge for edge in edges if lowest <= edge <= top):
            for blocks in self._leading(trail, runs, position):
                late = first.unix_nanos > window.first and blocks < window.last
                fewer = blocks < first.start and (not rounds or position > stream.begin_of(first.batch - 1))
                if blocks != first.start and not late and not fewer:
                    early, _ = found.get(blocks, (position, position))
                    found[blocks] = (early, position)
        return [
            Hit(blocks, trail.own.get(blocks) if blocks < window.matchable else None, early, late, early)
            for blocks, (early, late) in found.items()
        ]

    def _leading(self, trail: Trail, runs: dict[int, list[tuple[int, int]]], position: int) -> list[int]:
        """How many leading blocks of the own chain may have been resident at a position.

        Blocks above the known lineage are taken as resident. A block that only may have been resident leaves both counts.
        """
        counts, depth = [], min(trail.own, default=0)
        while depth < self._window.matchable and depth in trail.own:
            if not any(first <= position <= last for first, last in runs[depth]):
                break
            if not self._stream.residence.surely(trail.own[depth], position):
                counts.append(depth)
            depth += 1
        return [*counts, depth]

    def final(self, trail: Trail) -> int | None:
        """When the last store of the prefill was published."""
        window = self._window
        times = [
            placed.unix_nanos
            for placed in trail.stores
            if placed.end <= window.last and placed.unix_nanos <= window.first
        ]
        return max(times, default=None)
