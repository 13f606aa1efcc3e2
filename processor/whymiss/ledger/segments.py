"""A stretch of one stream's history in columns: what was stored and removed, sorted by block.

A *place* is a tier and a group of the stream. Every place has its run of operations; in the places whose
blocks have an identity, an operation that stores names its row in the segment's chains, and any other
operation the ordinal of its event, as an offset from the segment's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ..model import Tier
from .chains import REPORTED, Chains
from .events import Keys
from .filters import Filter, Probe
from .single import Operation
from .sorting import NEIGHBOURS, NO_INTEGERS, Flags, Integers, ordered, ranges_of

Place: TypeAlias = tuple[Tier, int]

SPAN_MAX = 1 << 30
"""Ordinals that one segment can span: twice an offset must fit into 32 bits."""


class Run:
    """Operations of one place, sorted by key and in order of events inside a key. Immutable.

    A code is twice a chain row plus one for a store of a chained place, and else twice an ordinal's
    offset, plus one for a store.
    """

    __slots__ = ("chained", "codes", "filter", "keys")

    def __init__(
        self,
        keys: Keys,
        codes: npt.NDArray[np.uint32] | Integers,
        *,
        chained: bool,
        passing: Filter | None = None,
    ) -> None:
        self.keys = keys
        self.codes = codes
        self.chained = chained
        self.filter = passing or Filter.of(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return self.keys.nbytes + self.codes.nbytes + self.filter.nbytes

    def find(self, probe: Probe) -> tuple[Integers, Integers] | None:
        """For blocks that it names: which ones, repeated for each row, and the rows."""
        if probe.values.size == 1:
            return self._find_one(probe)
        passing = self.filter.passing(probe)
        if not passing.size:
            return None
        found = ranges_of(self.keys, probe.values[passing])
        return None if found is None else (passing[found[0]], found[1])

    def _find_one(self, probe: Probe) -> tuple[Integers, Integers] | None:
        if not self.filter.may_hold(probe.first):
            return None
        begin, end = self.rows_of(probe.first)
        rows = np.arange(begin, end)
        return (np.zeros_like(rows), rows) if begin < end else None

    def rows_of(self, key: int) -> tuple[int, int]:
        """Where the operations on one block begin and end."""
        value, keys = np.uint64(key), self.keys
        begin = int(keys.searchsorted(value))
        if begin == keys.size or keys[begin] != value:
            return begin, begin
        # Few blocks come up often, and looking at the next rows is cheaper than searching again.
        end = int(keys[begin : begin + NEIGHBOURS].searchsorted(value, "right")) + begin
        return begin, int(keys.searchsorted(value, "right")) if end == begin + NEIGHBOURS else end


class Hits(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Operations on the blocks that were asked for, in order of events for each block."""

    owners: Integers
    """Which of the keys asked for."""
    ordinals: Integers
    stores: Flags
    rows: Integers
    """The store's row in the segment's chains; -1 where it has none."""
    reported: Flags
    """Stores that only repeated what was resident: they do not count."""

    def taking(self, chosen: Flags | Integers | slice[int, int, None]) -> Hits:
        """Some of them."""
        return Hits(
            self.owners[chosen], self.ordinals[chosen], self.stores[chosen], self.rows[chosen], self.reported[chosen]
        )


NO_HITS = Hits(NO_INTEGERS, NO_INTEGERS, np.zeros(0, np.bool_), NO_INTEGERS, np.zeros(0, np.bool_))


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
        *("begin", "broods", "busy", "chains", "due", "end"),
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
        self.rows = sum(run.keys.size for run in runs.values())
        held = 0 if stamps is None else stamps[0].nbytes + stamps[1].nbytes
        self.nbytes = held + chains.nbytes + sum(run.nbytes for run in runs.values())

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
            if not (chains.reports and int(chains.pieces["flags"][piece]) & REPORTED):
                yield int(chains.ordinals[piece]), True

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
            reported = stores & ((self.chains.flags_of(pieces) & REPORTED) != 0)
        return Hits(owners, ordinals, stores, rows, reported)


def run_of(keys: Sequence[Keys], codes: Sequence[npt.NDArray[np.uint32]], *, chained: bool) -> Run:
    """A run from the operations of a place in the order of events."""
    column = keys[0] if len(keys) == 1 else np.concatenate(keys)
    order, found = ordered(column)
    coded = codes[0] if len(codes) == 1 else np.concatenate(codes)
    return Run(found, coded.take(order), chained=chained)


def joined(found: Sequence[Hits]) -> Hits:
    """Several hits, one after the other."""
    if len(found) == 1:
        return found[0]
    return Hits(
        np.concatenate([hits.owners for hits in found]),
        np.concatenate([hits.ordinals for hits in found]),
        np.concatenate([hits.stores for hits in found]),
        np.concatenate([hits.rows for hits in found]),
        np.concatenate([hits.reported for hits in found]),
    )
