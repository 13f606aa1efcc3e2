"""Segment: the events of a stretch of ordinals, immutable, as one sorted run a place and a chain table.

A *place* is a tier and a group of the stream. Every place has its run of operations; in the places whose
blocks have an identity, an operation that stores names its row in the segment's chain table, and any other
operation the ordinal of its event, as an offset from the segment's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
import numpy as np

from ...model import Tier
from ..columnar.bloom_filter import Probe
from ..columnar.kernels import Flags, Integers
from .chain_table import REPORTED, ChainTable
from .operations import CountedOperations, Operation, Run, SelectedOperations

Place: TypeAlias = tuple[Tier, int]

ORDINALS_MAX = 1 << 30
"""Ordinals that one segment can span: twice an offset must fit into 32 bits."""


class Children(msgspec.Struct, frozen=True, gc=False):
    """Blocks that one segment saw stored under a parent, in order."""

    keys: tuple[int, ...]
    ordinals: tuple[int, ...]
    """Of the events that stored them."""
    more: bool
    """Whether there are more than are named here."""


class Segment:
    """All places over the events ``[begin, end)``. Immutable but for what questions found in it, which is kept."""

    __slots__ = (
        *("begin", "children_known", "busy", "chains", "due", "end", "level"),
        *("nbytes", "newest", "oldest", "rows", "runs", "stamps"),
    )

    def __init__(
        self,
        span: tuple[int, int],
        runs: Mapping[Place, Run],
        chains: ChainTable,
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
        self.children_known: dict[int | None, Children] = {}
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
        """In a base: publisher's time of each event, int64 nanoseconds since the epoch, aligned with ``ordinals``."""
        assert self.stamps is not None, "a base keeps its times"
        found: Integers = self.stamps[1][self.stamps[0].searchsorted(ordinals)]
        return found

    def select(self, place: Place, probe: Probe) -> SelectedOperations | None:
        """The operations of a place on the keys of a probe, sorted by key, then event; ``None`` where there are none."""
        run = self.runs.get(place)
        joined = None if run is None else run.find(probe)
        if run is None or joined is None:
            return None
        return self.decode_codes(run, joined[0], run.codes[joined[1]].astype(np.int64))

    def operations_on(self, run: Run, key: int) -> Iterator[Operation]:
        """(ordinal, whether it stores) of a run's operations on one block that change its number of copies, in event order."""
        begin, end = run.rows_of(key)
        chains = self.chains
        for code in run.codes[begin:end].tolist():
            stores, value = bool(code & 1), code >> 1
            if not stores or not run.chained or not len(chains):
                yield value + self.begin, stores
                continue
            piece = chains.piece_at(value)
            if not (chains.has_reannouncements and chains.entry(piece).flags & REPORTED):  # guard: one-reported
                yield int(chains.ordinals[piece]), True

    def counted_operations(self, run: Run, owners: Integers, rows: Integers, last: int) -> CountedOperations:
        """Of some rows of a run, the operations before ordinal ``last`` that change a number of copies, in the order of ``rows``.

        ``owners`` and ``rows`` are aligned int64 arrays, as ``Run.join`` gives them.
        """
        codes = run.codes.take(rows)
        if run.chained and self.chains.has_reannouncements:
            hits = self.decode_codes(run, owners, codes.astype(np.int64))
            kept = ~hits.reported & (hits.ordinals < last)  # guard: counted-reported, counted-last-reported
            return CountedOperations(owners[kept], hits.stores[kept], lambda: hits.ordinals[kept], self.begin)
        stores = (codes & 1).astype(np.bool_)
        codes >>= 1
        if self.end > last:  # guard: counted-last
            # Rows and offsets ascend with the ordinals, so that these need not be known.
            kept = codes < self._values_before(run, last).take(stores)
            if not kept.all():
                owners, stores, codes = owners[kept], stores[kept], codes[kept]
        return CountedOperations(owners, stores, lambda: self._ordinals_of(run, stores, codes), self.begin)

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

    def decode_codes(self, run: Run, owners: Integers, codes: Integers) -> SelectedOperations:
        """Decodes int64 codes of a run; all columns of the result are aligned with ``codes``."""
        stores = (codes & 1).astype(np.bool_)
        values = codes >> 1
        if not run.chained or not len(self.chains):
            return SelectedOperations(
                owners, values + self.begin, stores, np.full(codes.size, -1), np.zeros(codes.size, np.bool_)
            )
        rows = np.where(stores, values, -1)
        pieces = self.chains.piece_of(rows)
        ordinals = np.where(stores, self.chains.ordinals.take(pieces), values + self.begin)
        reported = np.zeros(codes.size, np.bool_)
        if self.chains.has_reannouncements:
            reported = stores & ((self.chains.flags_of(pieces) & REPORTED) != 0)  # guard: many-reported
        return SelectedOperations(owners, ordinals, stores, rows, reported)
