"""The paths of one request in one stream, from every store with which they can begin."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

from .lookups import Lookups
from .path import Hit, Path
from .stream import UNKNOWN, Placed, Stream
from .trail import Trail, advance, begin, continuations
from .values import Key, Limits, Request
from .window import ROUNDS_OF_PREEMPTION, window_of

STORES_A_PATH = 4
"""So many stores of one end or beginning are looked at for each path that may be kept."""

KEYS_A_STEP = 64
"""Keys looked up count less than stores followed."""


class Walk:
    """Finds the paths of one request in one stream; ``bounded`` says that there are more than are looked at."""

    def __init__(self, request: Request, index: int, stream: Stream, limits: Limits) -> None:
        self._stream, self._index, self._limits = stream, index, limits
        self.window = window_of(request, stream, limits)
        self._lookups = Lookups(stream, self.window)
        self.paths: list[Path] = []
        self.bounded = False
        self._seen: set[tuple[tuple[int, ...], int]] = set()
        self._steps = 0
        self._begin_with_prefill()
        if not stream.habits.replays_last or self.window.matchable == 0:
            self._begin_with_full_hit()

    # --- where a path can begin ---------------------------------------------------------------------

    def _begin_with_prefill(self) -> None:
        window = self.window
        for placed in self._reaching():
            if placed.start > window.matchable or placed.end > window.last:
                continue
            hits = self._lookups.before(placed)
            if hits:
                self._follow(begin(self._stream, placed, hits))
            later = placed.batch > window.batch and placed.ordinal > window.begin
            evicted = later and placed.start < window.matchable and self._lookups.evicted_before(placed)
            if evicted or (later and not self._lookups.held(placed)):
                self._follow(begin(self._stream, placed, None))

    def _reaching(self) -> list[Placed]:
        """Stores of the window on a chain that ends where the prompt's full blocks end, in order."""
        stream, window = self._stream, self.window
        found: dict[int, Placed] = {}
        pending = self._within(stream.by_end.get(window.last, []), window.low, window.first)
        keys: set[Key] = set()
        while pending and not self.bounded:
            placed = pending.pop()
            if placed.number in found or placed.start == UNKNOWN:
                continue
            found[placed.number] = placed
            self._step(1 + len(placed.keys) // KEYS_A_STEP)
            for key in (placed.parent, *placed.keys):
                if key is not None and key not in keys:
                    keys.add(key)
                    pending += self._within(stream.by_tail.get(key, []), window.low, window.first)
        return [found[number] for number in sorted(found)]

    def _begin_with_full_hit(self) -> None:
        """No store before the first fill. Never where the prompt is a multiple of the block: the last one is stored again."""
        stream, window = self._stream, self.window
        if window.matchable != window.last and not stream.habits.deferred:
            return
        hull: tuple[int, int] | None = (window.begin, window.end)
        if window.matchable:
            hull = stream.residence.maybe_at_depth(window.matchable - 1, window.begin, window.end)
        if hull is not None and window.fills_min == 0:
            self._emit((), Hit(window.matchable, None, hull[0], hull[1], hull[1]), None)
        if self._stored_by_another():
            self._emit((), Hit(UNKNOWN, None, window.begin, window.end, window.begin), None)
        if window.fills_max > 0:
            self._begin_with_fill()
        self._begin_behind_first_token()

    def _stored_by_another(self) -> bool:
        """Whether somebody else may have stored the whole prompt between the lookup and the end of the prefill.

        A tree cache then stores nothing; other engines if the request was preempted and admitted again, rounds later.
        """
        stream, window = self._stream, self.window
        if not window.matchable or (window.rounds(stream) < ROUNDS_OF_PREEMPTION and not stream.habits.deferred):
            return False
        return any(
            placed.start < window.matchable
            for placed in self._within(stream.by_end.get(window.last, []), window.low, window.first)
        )

    def _begin_with_fill(self) -> None:
        stream, window = self._stream, self.window
        for placed in self._within(stream.by_start.get(window.last, []), window.low, window.finish):
            self._step()
            if placed.end != window.last + 1 and not stream.habits.deferred:
                continue
            runs = self._lookups.runs(placed.parent if window.matchable else None, window.begin, window.end)
            if runs and not self.bounded:
                hit = Hit(window.matchable, None, runs[0][0], runs[-1][1], runs[-1][1])
                self._follow(begin(stream, placed, (hit,)))

    def _begin_behind_first_token(self) -> None:
        """A full hit that was preempted before its first fill: its prompt is stored again after the first token."""
        stream, window = self._stream, self.window
        for end in (window.last, window.last + 1):
            for placed in self._within(stream.by_end.get(end, []), window.first + 1, window.finish):
                self._step()
                if placed.start < window.last and not self.bounded and self._lookups.evicted_before(placed):
                    self._follow(begin(stream, placed, None))

    def _within(self, placed: list[Placed], first: int, last: int) -> list[Placed]:
        """Of stores in order those published in an interval, both ends inclusive; too many are not looked at."""
        after = bisect_left(placed, first, key=lambda one: one.unix_nanos)
        until = bisect_right(placed, last, key=lambda one: one.unix_nanos)
        if until - after > STORES_A_PATH * self._limits.paths_max:
            self.bounded = True
            return []
        return placed[after:until]

    # --- following a path, and what it says ---------------------------------------------------------

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > self._limits.steps_max:
            self.bounded = True

    def _follow(self, trail: Trail) -> None:
        window = self.window
        while not self.bounded:
            self._step()
            filled = trail.reached - window.last
            if filled >= 0 and window.fills_min <= filled <= window.fills_max:
                self._arrive(trail)
            further = continuations(self._stream, window, trail)
            if not further:
                return
            for placed in further[1:]:
                branch = trail.copy()
                advance(self._stream, branch, placed)
                self._follow(branch)
            advance(self._stream, trail, further[0])

    def _arrive(self, trail: Trail) -> None:
        stores = tuple(placed.number for placed in trail.stores)
        for hit in trail.hits if trail.hits is not None else self._lookups.before_preemption(trail):
            self._emit(stores, hit, trail)

    def _emit(self, stores: tuple[int, ...], hit: Hit, trail: Trail | None) -> None:
        if (stores, hit.blocks) in self._seen:
            return
        if len(self.paths) >= self._limits.paths_max:
            self.bounded = True
            return
        self._seen.add((stores, hit.blocks))
        if trail is None:
            self.paths.append(Path(self._index, stores, hit))
            return
        window, low, final = self.window, 0, self._lookups.final(trail)
        if final is not None and window.prefill is not None:
            low = window.scheduled_from(final)
            early = max(hit.early, window.lookup_from(self._stream, final))
            if early > hit.late:
                return
            # A store of the lookup's own round: what was removed for it came after the lookup.
            position = hit.position if early == hit.early else max(early, hit.position)
            hit = msgspec.structs.replace(hit, early=early, position=position)
        self.paths.append(
            Path(
                self._index,
                stores,
                hit,
                chain=_chain(trail.own, hit.blocks, window.last),
                above=trail.own.get(hit.blocks - 1),
                low=low,
                high=trail.stores[0].unix_nanos,
                idle=trail.idle,
                loaded=trail.loaded,
                preempted=trail.preempted,
            )
        )


def _chain(own: dict[int, Key], first: int, last: int) -> tuple[Key, ...]:
    """The keys from a depth on; empty where they are not all known."""
    if first < 0 or any(depth not in own for depth in range(first, last)):
        return ()
    return tuple(own[depth] for depth in range(first, last))
