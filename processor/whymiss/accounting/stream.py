"""The stores of one publisher over a stretch of time, indexed by the keys that they begin with, end with and continue.

A stretch only grows at its end (`append`) and is cut at its beginning (`forget`). Times of batches never fall here: a
clock that was set back counts as standing still, so the order of the publisher stays the order of time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict

import msgspec

from ..model import StreamId
from .residence import Residence
from .values import NEVER, Batch, Habits, Key, Store

UNKNOWN = -1
"""The depth of a store whose parent is not known."""


class Placed(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A fresh store in its stretch. Blocks ``start`` to ``end - 1``; ``number`` and ``batch`` count from the stream's first."""

    number: int
    batch: int
    unix_nanos: int
    ordinal: int
    position: int
    keys: tuple[Key, ...]
    parent: Key | None
    start: int
    end: int


class Stream:
    """One publisher's stretch."""

    def __init__(
        self,
        name: StreamId,
        residence: Residence,
        block_size: int,
        habits: Habits | None = None,
        *,
        from_birth: bool = False,
    ) -> None:
        """``block_size`` is that of the dense group; stores of other sizes (ends of prompts, tiers) are no chains.

        ``from_birth``: the first batch is the publisher's first one.
        """
        self.from_birth = from_birth
        self.name = name
        self.residence = residence
        self.block_size = block_size
        self.habits = habits or Habits()
        self.stores: list[Placed] = []
        self.by_parent: defaultdict[Key | None, list[Placed]] = defaultdict(list)
        self.by_tail: defaultdict[Key, list[Placed]] = defaultdict(list)
        self.by_end: defaultdict[int, list[Placed]] = defaultdict(list)
        self.by_start: defaultdict[int, list[Placed]] = defaultdict(list)
        self.repeats: defaultdict[Key, list[Placed]] = defaultdict(list)
        """Stores by their first key, where any of their keys had been named before."""
        self.parents: dict[Key, Key | None] = {}
        self._times: list[int] = []
        self._ends: list[int] = []
        self._begin = 0
        self._base_batch = 0
        self._base_store = 0
        self._confirmed = 0
        self._since = 0
        self._unknown: list[int] = []
        """When stores of unknown depth were published, ascending."""
        self.holes: list[int] = []
        """Batches before which events were lost, ascending."""
        self.other_sizes = False
        """Blocks of another size were stored: the end of a prompt may be found inside a block."""

    # --- growing and forgetting ---------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with every batch."""
        return self._base_batch + len(self._times)

    @property
    def confirmed_unix_nanos(self) -> int:
        """The record is known to hold up to here: the newest batch, or what an idle publisher confirmed."""
        return max(self._confirmed, self._times[-1] if self._times else 0)

    def confirm(self, unix_nanos: int) -> None:
        """An idle publisher said at a time that it has published nothing since its newest batch."""
        self._confirmed = max(self._confirmed, unix_nanos)

    def lost(self) -> None:
        """Events were lost between the newest batch and the next one."""
        self.holes.append(self.version)

    def append(self, batch: Batch) -> None:
        """Take the publisher's next batch."""
        if not self._times:
            self._begin = batch.first
        unix_nanos = max(batch.unix_nanos, self._times[-1]) if self._times else batch.unix_nanos
        for store in batch.stores:
            if not store.keys:
                continue
            if store.block_size == self.block_size:
                self._place(store, unix_nanos)
            else:
                self.other_sizes = True
        self._times.append(unix_nanos)
        self._ends.append(batch.after)

    def _place(self, store: Store, unix_nanos: int) -> None:
        keys, parent, start = store.keys, store.parent, store.start
        again = self._announced(store) if store.session else 0
        if again == len(keys):
            return
        if again:
            parent, keys, start = keys[again - 1], keys[again:], None if start is None else start + again
        begin = UNKNOWN if start is None else start
        placed = Placed(
            self._base_store + len(self.stores),
            self.version,
            unix_nanos,
            store.ordinal,
            store.position,
            keys,
            parent,
            begin,
            UNKNOWN if start is None else start + len(keys),
        )
        self.stores.append(placed)
        self._index(placed)

    def _announced(self, store: Store) -> int:
        """How many leading blocks of a store with a session were resident: it tells of them again."""
        for count, key in enumerate(store.keys):
            if not self.residence.surely(key, store.ordinal):
                return count
        return len(store.keys)

    def _index(self, placed: Placed) -> None:
        if any(key in self.parents for key in placed.keys) or placed.keys[0] in self.by_parent:
            self.repeats[placed.keys[0]].append(placed)
        self.by_parent[placed.parent].append(placed)
        self.by_tail[placed.keys[-1]].append(placed)
        if placed.start == UNKNOWN:
            self._unknown.append(placed.unix_nanos)
        else:
            self.by_end[placed.end].append(placed)
            self.by_start[placed.start].append(placed)
        above = placed.parent
        for key in placed.keys:
            self.parents.setdefault(key, above)
            above = key

    def forget(self, before_unix_nanos: int) -> None:
        """Let go of what was published before a time. Costs what stays; call it when half may go."""
        batches = bisect_left(self._times, before_unix_nanos)
        if not batches:
            return
        self.from_birth, self._since = False, before_unix_nanos
        stores = bisect_left(self.stores, self._base_batch + batches, key=lambda placed: placed.batch)
        self._begin = self._ends[batches - 1]
        del self._times[:batches], self._ends[:batches]
        kept = self.stores[stores:]
        self._base_batch += batches
        self._base_store += stores
        self.stores = []
        self._unknown.clear()
        for index in (self.by_parent, self.by_tail, self.by_end, self.by_start, self.repeats, self.parents):
            index.clear()
        for placed in kept:
            self.stores.append(placed)
            self._index(placed)

    # --- asking -------------------------------------------------------------------------------------

    @property
    def begins_unix_nanos(self) -> int:
        """Since when all batches are here; `NEVER` before one came."""
        return self._since or (self._times[0] if self._times else NEVER)

    def store(self, number: int) -> Placed:
        """A store by its number."""
        return self.stores[number - self._base_store]

    def batch_at(self, unix_nanos: int) -> int:
        """The batch that carries what the engine did at a time: the first one published then or later."""
        return self._base_batch + bisect_left(self._times, unix_nanos)

    def time_of(self, batch: int) -> int:
        """When a batch was published; 0 before the first one."""
        index = batch - self._base_batch
        return 0 if index < 0 or not self._times else self._times[min(index, len(self._times) - 1)]

    def begin_of(self, batch: int) -> int:
        """The position before a batch."""
        index = batch - self._base_batch
        if index <= 0 or not self._ends:
            return self._begin
        return self._ends[min(index, len(self._ends)) - 1]

    def end_of(self, batch: int) -> int:
        """The position behind a batch; behind the newest one where it has not come."""
        return self.begin_of(batch + 1)

    def batch_until(self, placed: Placed) -> list[Placed]:
        """The stores of its batch up to a store, itself included."""
        end = placed.number - self._base_store + 1
        begin = bisect_left(self.stores, placed.batch, hi=end, key=lambda one: one.batch)
        return self.stores[begin:end]

    def unknown_between(self, first_unix_nanos: int, last_unix_nanos: int) -> bool:
        """Whether a store of unknown depth was published in an interval, both ends inclusive."""
        after = bisect_left(self._unknown, first_unix_nanos)
        return after < len(self._unknown) and self._unknown[after] <= last_unix_nanos

    def before_and_within(
        self, first_unix_nanos: int, last_unix_nanos: int, count: int
    ) -> tuple[list[Placed], list[Placed]]:
        """The last ``count`` stores before an interval, and those in it (both ends inclusive)."""
        first = bisect_left(self.stores, first_unix_nanos, key=_time)
        last = bisect_right(self.stores, last_unix_nanos, key=_time)
        return self.stores[max(0, first - count) : first], self.stores[first:last]

    def holes_between(self, first_batch: int, last_batch: int) -> int:
        """How many times events were lost just before one of these batches, both inclusive."""
        return bisect_right(self.holes, last_batch) - bisect_left(self.holes, first_batch)

    def lineage(self, key: Key | None, depth: int) -> dict[int, Key]:
        """The known keys of a chain by depth, from a block at ``depth`` upwards."""
        found: dict[int, Key] = {}
        while key is not None and depth >= 0:
            found[depth] = key
            key = self.parents.get(key)
            depth -= 1
        return found


def _time(placed: Placed) -> int:
    return placed.unix_nanos
