"""Runs: the operations of one place, sorted by block key; joins of keys with a run, and what a join selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ..columnar.bloom_filter import BloomFilter, Probe
from ..columnar.bucket_index import BucketIndex
from ..columnar.kernels import FEW, NO_INTEGERS, Flags, Integers, join_sorted, ordered
from ..events import Keys

Operation: TypeAlias = tuple[int, bool]
"""The ordinal of an event that stored (``True``) or removed a copy of a block."""


SCANNED = 64
"""Rows that are looked at one by one; more are halved."""


class Run:
    """Operations of one place, sorted by key and in order of events inside a key. Immutable.

    A code is twice a chain row plus one for a store of a chained place, and else twice an ordinal's
    offset, plus one for a store.
    """

    __slots__ = ("buckets", "chained", "codes", "filter", "keys")

    def __init__(
        self,
        keys: Keys,
        codes: npt.NDArray[np.uint32] | Integers,
        *,
        chained: bool,
        passing: BloomFilter | None = None,
        buckets: BucketIndex | None = None,
    ) -> None:
        self.keys = keys
        self.codes = codes
        self.chained = chained
        self.filter = passing or BloomFilter.of(keys)
        self.buckets = buckets or BucketIndex.of(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        buckets = 0 if self.buckets is None else self.buckets.nbytes
        return self.keys.nbytes + self.codes.nbytes + self.filter.nbytes + buckets

    def find(self, probe: Probe) -> tuple[Integers, Integers] | None:
        """Joins keys with the run: (probe_index, row), equal-length int64 arrays sorted by probe_index, then row.

        ``None`` without a match.
        """
        if probe.values.size == 1:
            return self._join_one(probe)
        return self.join_passing(probe, self.filter.passing(probe))

    def join_passing(self, probe: Probe, passing: Integers) -> tuple[Integers, Integers] | None:
        """The same of the keys that pass its filter: ``passing`` are their indexes in the probe, int64, ascending."""
        if passing.size <= FEW:
            return self._join_few(passing.tolist(), probe)
        needles = probe.values.take(passing)
        found = join_sorted(self.keys, needles) if self.buckets is None else self.buckets.find(self.keys, needles)
        return None if found is None else (passing.take(found[0]), found[1])

    def _join_few(self, passing: Sequence[int], probe: Probe) -> tuple[Integers, Integers] | None:
        """The same of some that pass its filter, wrongly for the most part."""
        owners: list[int] = []
        rows: list[int] = []
        for owner in passing:
            begin, end = self.rows_of(probe.values.item(owner))
            owners.extend([owner] * (end - begin))
            rows.extend(range(begin, end))
        return (np.array(owners), np.array(rows)) if rows else None

    def _join_one(self, probe: Probe) -> tuple[Integers, Integers] | None:
        if not self.filter.may_hold(probe.first):
            return None
        return self._join_few((0,), probe)

    def rows_of(self, key: int) -> tuple[int, int]:
        """Begin and end of the rows of one key; equal where the run does not name it."""
        begin, end = (0, self.keys.size) if self.buckets is None else self.buckets.bucket_of(key)
        if end - begin > SCANNED:
            return self._binary_search(key, begin, end)
        some: list[int] = self.keys[begin:end].tolist()
        count = some.count(key)
        if count:
            begin += some.index(key)
        return begin, begin + count

    def _binary_search(self, key: int, begin: int, end: int) -> tuple[int, int]:
        value, keys = np.uint64(key), self.keys[begin:end]
        return begin + int(keys.searchsorted(value)), begin + int(keys.searchsorted(value, "right"))


class CountedOperations:
    """Operations on the blocks that were asked for, in order of events for each block.

    Their ordinals are found when they are needed: mostly it is enough to know their order.
    """

    __slots__ = ("_find", "_ordinals", "begin", "owners", "stores")

    def __init__(self, owners: Integers, stores: Flags, ordinals: Callable[[], Integers], begin: int = 0) -> None:
        self.owners = owners
        """Index of each operation's key among those asked for: int64, ascending."""
        self.stores = stores
        self.begin = begin
        """None of their ordinals is lower."""
        self._find = ordinals
        self._ordinals: Integers | None = None

    @property
    def ordinals(self) -> Integers:
        """Event ordinals, int64, aligned with ``owners``."""
        if self._ordinals is None:
            self._ordinals = self._find()
        return self._ordinals


class SelectedOperations(msgspec.Struct, frozen=True, eq=False, gc=False):
    """All operations on the blocks that were asked for, in order of events for each block."""

    owners: Integers
    """Which of the keys asked for."""
    ordinals: Integers
    stores: Flags
    rows: Integers
    """The store's row in the segment's chains; -1 where it has none."""
    reported: Flags
    """Stores that only repeated what was resident: they do not count."""


NO_OPERATIONS = CountedOperations(NO_INTEGERS, np.zeros(0, np.bool_), lambda: NO_INTEGERS)


def sorted_run(keys: Sequence[Keys], codes: Sequence[npt.NDArray[np.uint32]], *, chained: bool) -> Run:
    """A run from the operations of a place in the order of events: aligned parts of keys and codes."""
    column = keys[0] if len(keys) == 1 else np.concatenate(keys)
    order, found = ordered(column)
    coded = codes[0] if len(codes) == 1 else np.concatenate(codes)
    return Run(found, coded.take(order), chained=chained)


def grouped(parts: Sequence[CountedOperations]) -> CountedOperations:
    """Concatenates the operations of several segments, oldest first, grouped by owner and in event order inside one."""
    if not parts:
        return NO_OPERATIONS
    if len(parts) == 1:
        return parts[0]
    owners = np.concatenate([some.owners for some in parts])
    order = owners.argsort(kind="stable")
    stores = np.concatenate([some.stores for some in parts])
    return CountedOperations(
        owners.take(order),
        stores.take(order),
        lambda: np.concatenate([some.ordinals for some in parts]).take(order),
        parts[0].begin,
    )
