"""A stretch of one stream's history in columns: what was stored and removed, sorted by block.

A *place* is a tier and a group of the stream. Every place has its run of operations; in the places whose
blocks have an identity, an operation that stores names its row in the segment's chains, and any other
operation the ordinal of its event, as an offset from the segment's first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ...model import Tier
from ..columnar.bloom_filter import Filter, Probe
from ..columnar.bucket_index import Slices
from ..columnar.kernels import NO_INTEGERS, Flags, Integers, ordered, ranges_of
from ..events import Keys
from ..residency.copies_of_one import Operation
from .chain_table import REPORTED, Chains

Place: TypeAlias = tuple[Tier, int]

SPAN_MAX = 1 << 30
"""Ordinals that one segment can span: twice an offset must fit into 32 bits."""

FEW = 3
"""Blocks that are sought one by one: arrays of so few are slow."""

SCANNED = 64
"""Rows that are looked at one by one; more are halved."""


class Run:
    """Operations of one place, sorted by key and in order of events inside a key. Immutable.

    A code is twice a chain row plus one for a store of a chained place, and else twice an ordinal's
    offset, plus one for a store.
    """

    __slots__ = ("chained", "codes", "filter", "keys", "slices")

    def __init__(
        self,
        keys: Keys,
        codes: npt.NDArray[np.uint32] | Integers,
        *,
        chained: bool,
        passing: Filter | None = None,
        slices: Slices | None = None,
    ) -> None:
        self.keys = keys
        self.codes = codes
        self.chained = chained
        self.filter = passing or Filter.of(keys)
        self.slices = slices or Slices.of(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        slices = 0 if self.slices is None else self.slices.nbytes
        return self.keys.nbytes + self.codes.nbytes + self.filter.nbytes + slices

    def find(self, probe: Probe) -> tuple[Integers, Integers] | None:
        """For blocks that it names: which ones, repeated for each row, and the rows."""
        if probe.values.size == 1:
            return self._find_one(probe)
        return self.find_passing(probe, self.filter.passing(probe))

    def find_passing(self, probe: Probe, passing: Integers) -> tuple[Integers, Integers] | None:
        """The same of those that pass its filter."""
        if passing.size <= FEW:
            return self._find_few(passing.tolist(), probe)
        needles = probe.values.take(passing)
        found = ranges_of(self.keys, needles) if self.slices is None else self.slices.find(self.keys, needles)
        return None if found is None else (passing.take(found[0]), found[1])

    def _find_few(self, passing: Sequence[int], probe: Probe) -> tuple[Integers, Integers] | None:
        """The same of some that pass its filter, wrongly for the most part."""
        owners: list[int] = []
        rows: list[int] = []
        for owner in passing:
            begin, end = self.rows_of(probe.values.item(owner))
            owners.extend([owner] * (end - begin))
            rows.extend(range(begin, end))
        return (np.array(owners), np.array(rows)) if rows else None

    def _find_one(self, probe: Probe) -> tuple[Integers, Integers] | None:
        if not self.filter.may_hold(probe.first):
            return None
        return self._find_few((0,), probe)

    def rows_of(self, key: int) -> tuple[int, int]:
        """Where the operations on one block begin and end."""
        begin, end = (0, self.keys.size) if self.slices is None else self.slices.around(key)
        if end - begin > SCANNED:
            return self._halved(key, begin, end)
        some: list[int] = self.keys[begin:end].tolist()
        count = some.count(key)
        if count:
            begin += some.index(key)
        return begin, begin + count

    def _halved(self, key: int, begin: int, end: int) -> tuple[int, int]:
        value, keys = np.uint64(key), self.keys[begin:end]
        return begin + int(keys.searchsorted(value)), begin + int(keys.searchsorted(value, "right"))


class Counted:
    """Operations on the blocks that were asked for, in order of events for each block.

    Their ordinals are found when they are needed: mostly it is enough to know their order.
    """

    __slots__ = ("_find", "_ordinals", "begin", "owners", "stores")

    def __init__(self, owners: Integers, stores: Flags, ordinals: Callable[[], Integers], begin: int = 0) -> None:
        self.owners = owners
        """Which of the keys asked for."""
        self.stores = stores
        self.begin = begin
        """None of their ordinals is lower."""
        self._find = ordinals
        self._ordinals: Integers | None = None

    @property
    def ordinals(self) -> Integers:
        """Those of their events."""
        if self._ordinals is None:
            self._ordinals = self._find()
        return self._ordinals


class Hits(msgspec.Struct, frozen=True, eq=False, gc=False):
    """All operations on the blocks that were asked for, in order of events for each block."""

    owners: Integers
    """Which of the keys asked for."""
    ordinals: Integers
    stores: Flags
    rows: Integers
    """The store's row in the segment's chains; -1 where it has none."""
    reported: Flags
    """Stores that only repeated what was resident: they do not count."""


NOTHING_COUNTED = Counted(NO_INTEGERS, np.zeros(0, np.bool_), lambda: NO_INTEGERS)


class Brood(msgspec.Struct, frozen=True, gc=False):
    """Blocks that one segment saw stored under a parent, in order."""

    keys: tuple[int, ...]
    ordinals: tuple[int, ...]
    """Of the events that stored them."""
    more: bool
    """Whether there are more than are named here."""


class Segment:
    """All places over the events ``[begin, end)``. Immutable but for what questions found in it, which is kept."""

    __slots__ = (
        *("begin", "broods", "busy", "chains", "due", "end", "level"),
        *("nbytes", "newest", "oldest", "rows", "runs", "stamps"),
    )

    def __init__(
        self,
        span: tuple[int, int],
        runs: Mapping[Place, Run],
        chains: Chains,
        *,
        times: tuple[float, float] = (0.0, 0.0),
        stamps: tuple[Integers, Integers] | None = None,
    ) -> None:
        self.begin, self.end = span
        self.runs = runs
        self.chains = chains
        self.oldest, self.newest = times
        """When its first and its last batch were taken, in seconds on the caller's clock."""
        self.stamps = stamps
        """In a base: the ordinals of its operations and the times of their batches, which are not kept else."""
        self.broods: dict[int | None, Brood] = {}
        """The first blocks under parents that were asked about: one verdict asks often, and many ask about one root."""
        self.due = False
        """Its time in the window is over."""
        self.busy = False
        """It is being merged or folded."""
        self.level = 0
        """How often its operations were merged, as far as they are enough for it."""
        self.rows = sum(run.keys.size for run in runs.values())
        held = 0 if stamps is None else stamps[0].nbytes + stamps[1].nbytes
        self.nbytes = held + chains.nbytes + sum(run.nbytes for run in runs.values())

    def nanos_of(self, ordinals: Integers) -> Integers:
        """In a base: when the events of its operations happened."""
        assert self.stamps is not None, "a base keeps its times"
        found: Integers = self.stamps[1][self.stamps[0].searchsorted(ordinals)]
        return found

    def select(self, place: Place, probe: Probe) -> Hits | None:
        """The operations of a place on some blocks; ``None`` where there are none."""
        run = self.runs.get(place)
        found = None if run is None else run.find(probe)
        if run is None or found is None:
            return None
        return self.described(run, found[0], run.codes[found[1]].astype(np.int64))

    def operations_on(self, run: Run, key: int) -> Iterator[Operation]:
        """The operations of a run on one block that change the number of its copies, in order."""
        begin, end = run.rows_of(key)
        chains = self.chains
        for code in run.codes[begin:end].tolist():
            stores, value = bool(code & 1), code >> 1
            if not stores or not run.chained or not len(chains):
                yield value + self.begin, stores
                continue
            piece = chains.piece_at(value)
            if not (chains.reports and chains.entry(piece).flags & REPORTED):  # guard: one-reported
                yield int(chains.ordinals[piece]), True

    def counted(self, run: Run, owners: Integers, rows: Integers, last: int) -> Counted:
        """Those of some operations of a run before an ordinal that change the number of a block's copies."""
        codes = run.codes.take(rows)
        if run.chained and self.chains.reports:
            hits = self.described(run, owners, codes.astype(np.int64))
            kept = ~hits.reported & (hits.ordinals < last)  # guard: counted-reported, counted-last-reported
            return Counted(owners[kept], hits.stores[kept], lambda: hits.ordinals[kept], self.begin)
        stores = (codes & 1).astype(np.bool_)
        codes >>= 1
        if self.end > last:  # guard: counted-last
            # Rows and offsets ascend with the ordinals, so that these need not be known.
            kept = codes < self._values_before(run, last).take(stores)
            if not kept.all():
                owners, stores, codes = owners[kept], stores[kept], codes[kept]
        return Counted(owners, stores, lambda: self._ordinals_of(run, stores, codes), self.begin)

    def _ordinals_of(self, run: Run, stores: Flags, values: Integers) -> Integers:
        ordinals: Integers = values + np.int64(self.begin)
        if run.chained and len(self.chains):
            np.copyto(ordinals, self.chains.ordinals.take(self.chains.piece_of(values)), where=stores)
        return ordinals

    def _values_before(self, run: Run, last: int) -> Integers:
        """The first values of a removal's code and of a store's that are not before an ordinal."""
        offset = last - self.begin
        if not run.chained or not len(self.chains):
            return np.array([offset, offset])
        piece = int(self.chains.ordinals.searchsorted(last))
        return np.array([offset, self.chains.end_of(piece - 1) if piece else 0])  # guard: counted-last-stored

    def described(self, run: Run, owners: Integers, codes: Integers) -> Hits:
        """What the codes of some rows of a run mean."""
        stores = (codes & 1).astype(np.bool_)
        values = codes >> 1
        if not run.chained or not len(self.chains):
            return Hits(owners, values + self.begin, stores, np.full(codes.size, -1), np.zeros(codes.size, np.bool_))
        rows = np.where(stores, values, -1)
        pieces = self.chains.piece_of(rows)
        ordinals = np.where(stores, self.chains.ordinals.take(pieces), values + self.begin)
        reported = np.zeros(codes.size, np.bool_)
        if self.chains.reports:
            reported = stores & ((self.chains.flags_of(pieces) & REPORTED) != 0)  # guard: many-reported
        return Hits(owners, ordinals, stores, rows, reported)


def run_of(keys: Sequence[Keys], codes: Sequence[npt.NDArray[np.uint32]], *, chained: bool) -> Run:
    """A run from the operations of a place in the order of events."""
    column = keys[0] if len(keys) == 1 else np.concatenate(keys)
    order, found = ordered(column)
    coded = codes[0] if len(codes) == 1 else np.concatenate(codes)
    return Run(found, coded.take(order), chained=chained)


def grouped(found: Sequence[Counted]) -> Counted:
    """Operations of several segments, oldest first, of each block side by side."""
    if not found:
        return NOTHING_COUNTED
    if len(found) == 1:
        return found[0]
    owners = np.concatenate([some.owners for some in found])
    order = owners.argsort(kind="stable")
    stores = np.concatenate([some.stores for some in found])
    return Counted(
        owners.take(order),
        stores.take(order),
        lambda: np.concatenate([some.ordinals for some in found]).take(order),
        found[0].begin,
    )
