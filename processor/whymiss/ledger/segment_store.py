"""The segment store of one stream: immutable segments over a base snapshot, with point lookups and compaction.

The newest events lie in the youngest of a list of segments, what was held when older ones expired in the *base*.
Small segments are merged into larger ones, and an expired one is folded into the base; both
are done in steps, so that no batch waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ..model import Fact, Residency
from .columnar.bloom_filter import Probe
from .columnar.kernels import NO_INTEGERS, Integers
from .compaction.fold import fold
from .compaction.merge import mergeable, merged
from .events import Keys
from .residency.copies import count_copies
from .residency.copies_of_one import residency_of_one
from .residency.facts import ColumnFacts
from .residency.resets import Resets
from .residency.states import facts_of
from .segment.chain_table import ChainTable, empty_chain_table
from .segment.operations import CountedOperations, Operation, grouped
from .segment.pruning import Pruning
from .segment.segment import Place, Segment
from .time_index import TimeIndex

_UNKNOWN, _NEVER_SEEN = Fact(state=Residency.UNKNOWN), Fact(state=Residency.NEVER_SEEN)


LOCATED_MAX = 1 << 10
"""Blocks whose places are remembered until the segments change: one verdict asks about the same ones again."""


class CompactionWork(msgspec.Struct, frozen=True, eq=False):
    """Work on a history in steps; each step says which segments it replaced, if it did."""

    rows: int
    steps: Iterator[Sequence[Segment]]
    expires: bool
    """Whether it moves the beginning of the window."""


class SegmentStore:
    """The segments of one stream. Positions and ordinals are the stream's."""

    def __init__(self) -> None:
        self.base = Segment((0, 0), {}, empty_chain_table(), stamps=(NO_INTEGERS, NO_INTEGERS))
        self.segments: list[Segment] = []
        self.resets = Resets()
        self.time_index = TimeIndex()
        self.edge_unix_nanos: int | None = None
        """Where the window begins, once something left it."""
        self.fresh: list[Segment] = []
        """Segments whose time in the window does not run yet."""
        self._held = 0
        self._idle: float | None = None
        """The span for which there is nothing to merge, until the segments change."""
        self._pruning: Pruning | None = None
        self._located: dict[int, tuple[ChainTable, int] | None] = {}
        self.version = 0
        """Another number says that the segments changed."""

    @property
    def edge(self) -> int:
        """The first position that can be asked about."""
        return self.base.end

    @property
    def rows(self) -> int:
        """Operations in all columns."""
        return self.base.rows + sum(segment.rows for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return self._held + self.base.nbytes + self.time_index.nbytes

    def append(self, segment: Segment) -> None:
        """Add what happened since the newest segment."""
        self.segments.append(segment)
        self.fresh.append(segment)
        self._held += segment.nbytes
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._pruning = None
        self._located.clear()
        self._idle = None

    # --- reading ------------------------------------------------------------------------------

    def parts(self) -> Sequence[Segment]:
        """The base and the segments, oldest first."""
        return (self.base, *self.segments)

    def counted_operations(self, place: Place, probe: Probe, last: int) -> CountedOperations:
        """Operations on some blocks before ordinal ``last`` that change the number of copies, grouped by block, in order."""
        parts: list[CountedOperations] = []
        for run, part, passing in self.pruning().runs_naming_any(place, probe, last):
            rows = run.join_passing(probe, passing)
            if rows is not None:
                parts.append(part.counted_operations(run, *rows, last))
        return grouped(parts)

    def pruning(self) -> Pruning:
        """Which segments may name a block or know a digest."""
        if self._pruning is None:
            self._pruning = Pruning(list(self.parts()))
        return self._pruning

    def as_of(self, place: Place, probe: Probe, position: int) -> ColumnFacts:
        """What the record says of some blocks before event ordinal ``position``."""
        count = probe.values.size
        if position < self.edge:
            return ColumnFacts.all_of(Residency.UNKNOWN, count)  # guard: history-edge
        if count == 1:
            return ColumnFacts.of_one(self.first_of(place, probe.first, position))
        order, ascending = probe.ascending
        hits, base = self.counted_operations(place, ascending, position), self.base
        return facts_of(hits, order, self.resets.of(place[0]), position, lambda ordinals: self.nanos_of(ordinals, base))

    def first_of(self, place: Place, key: int, position: int) -> Fact:
        """The same of one block."""
        if position < self.edge:  # guard: history-edge-one
            return _UNKNOWN
        operations = self.operations_on(place, key, 0, position)
        if not operations:
            return _NEVER_SEEN
        resets = self.resets.of(place[0])
        residency = residency_of_one(operations, resets, position)
        at_reset = int(resets.ordinals.searchsorted(residency.ordinal)) if residency.at_reset else -1
        return Fact(
            state=residency.state,
            at_unix_nanos=self.nanos_at(residency.ordinal) if at_reset < 0 else int(resets.nanos[at_reset]),
            removal=residency.removal,
            ordinal=residency.ordinal,
        )

    def operations_on(self, place: Place, key: int, first: int, last: int) -> list[Operation]:
        """Operations on one block with ordinals in ``[first, last)`` that change the number of copies, in order."""
        operations: list[Operation] = []
        for run, part in self.pruning().runs_naming(place, key, first, last):
            # guard: one-last, one-first
            operations.extend(operation for operation in part.operations_on(run, key) if first <= operation[0] < last)
        return operations

    def lows(self, place: Place, keys: Keys, position: int) -> Integers:
        """Copies that each block surely had before a position: int64, aligned with ``keys``."""
        low = np.zeros(keys.size, np.int64)
        hits = self.counted_operations(place, Probe(keys), position)
        if hits.owners.size:
            counts = count_copies(hits, self.resets.of(place[0]), position)
            low[counts.owners] = np.where(counts.reset < 0, counts.low, 0)  # guard: history-low-barrier
        return low

    def touched(self, place: Place, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` concerned a block."""
        if last <= first:
            return False
        if self.resets.between(place[0], first, last):  # guard: touched-barrier
            return True
        return bool(self.operations_on(place, key, first, last))

    def located(self, key: int) -> Iterator[tuple[Segment, int]]:
        """Where a block was stored as part of a chain, the last time first."""
        for run, part in self.pruning().chained_runs_naming(key):
            begin, end = run.rows_of(key)
            for code in run.codes[begin:end][::-1].tolist():
                if code & 1:
                    yield part, code >> 1

    def locate(self, key: int) -> tuple[ChainTable, int] | None:
        """The chains and the row in which a block's place in its chain is known."""
        if key not in self._located:
            if len(self._located) >= LOCATED_MAX:
                self._located.clear()
            self._located[key] = self._locate(key)
        return self._located[key]

    def locate_before(self, key: int, position: int) -> tuple[ChainTable, int] | None:
        """The same as it was known at a position; as it is now where it was not known then."""
        latest = self.locate(key)
        if latest is None or latest[0].ordinal_at(latest[1]) < position:
            return latest
        placed = ((part.chains, row) for part, row in self.located(key) if part.chains.is_placed(row))
        # guard: locate-before
        return next((where for where in placed if where[0].ordinal_at(where[1]) < position), latest)

    def _locate(self, key: int) -> tuple[ChainTable, int] | None:
        for part, row in self.located(key):
            if part.chains.is_placed(row):  # guard: locate-placed
                return part.chains, row
        return None

    def nanos_of(self, ordinals: Integers, base: Segment | None = None) -> Integers:
        """When events happened; ``base`` is what was held where the window began when they were found."""
        base = base or self.base
        old = ordinals < base.end
        if not old.any():
            return self.time_index.nanos_of(ordinals)
        nanos = np.empty(ordinals.size, np.int64)
        nanos[old] = base.nanos_of(ordinals[old])
        nanos[~old] = self.time_index.nanos_of(ordinals[~old])
        return nanos

    def nanos_at(self, ordinal: int) -> int:
        """The same of one event."""
        if ordinal >= self.edge:
            return self.time_index.nanos_at(ordinal)
        return int(self.base.nanos_of(np.array(ordinal)))

    # --- keeping ------------------------------------------------------------------------------

    def forget_all(self, position: int) -> None:
        """Drop everything before a position, what is held there too."""
        self.base = Segment((0, position), {}, empty_chain_table(), stamps=(NO_INTEGERS, NO_INTEGERS))
        self.segments.clear()
        self.fresh.clear()
        self._changed()
        self._held = 0
        if len(self.time_index):
            self.edge_unix_nanos = self.time_index.nanos[-1]  # guard: forget-edge
        self.time_index.forget(position)
        self.resets.forget(position)

    def drop_oldest(self) -> Segment:
        """Drop the oldest segment, and with it what was held before it. No upkeep may be under way."""
        dropped = self.segments.pop(0)
        edge = dropped.end
        self.base = Segment((0, edge), {}, empty_chain_table(), stamps=(NO_INTEGERS, NO_INTEGERS))
        self.fresh = [segment for segment in self.fresh if segment is not dropped]
        for segment in self.segments:
            segment.busy = False
        self._changed()
        self._held -= dropped.nbytes
        self.edge_unix_nanos = self.time_index.nanos_at(edge - 1)
        self.resets.begin_unknown(edge, self.edge_unix_nanos)
        self.time_index.forget(edge)
        return dropped

    def next_compaction(self, span_seconds: float, rows_max: int | None = None) -> CompactionWork | None:
        """What there is to do, of no more than ``rows_max`` rows; ``None`` if nothing.

        No segment that is merged reaches over a multiple of ``span_seconds``. Nothing large may be begun while
        something large is under way.
        """
        oldest = self.segments[0] if self.segments else None
        if oldest is not None and oldest.due and not oldest.busy:
            rows = self.base.rows + oldest.rows
            if rows_max is None or rows <= rows_max:
                oldest.busy = True
                return CompactionWork(rows, self._fold(oldest), expires=True)
        if self._idle == span_seconds:
            return None
        waiting = False
        for group in mergeable(self.segments, span_seconds):
            waiting = True
            rows = sum(segment.rows for segment in group)
            if rows_max is None or rows <= rows_max:
                for segment in group:
                    segment.busy = True
                return CompactionWork(rows, self._merge(group), expires=False)
        # A group that is too large now is one for the next question.
        self._idle = None if waiting or self._is_busy() else span_seconds
        return None

    def _is_busy(self) -> bool:
        return any(segment.busy or segment.due for segment in self.segments)

    def _merge(self, group: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
        whole: Segment | None = None
        for whole in merged(group):
            if whole is None:
                yield ()
        assert whole is not None, "merging ends with a segment"
        place = self.segments.index(group[0])
        self.segments[place : place + len(group)] = [whole]
        self._changed()
        self.fresh.append(whole)
        self._held += whole.nbytes - sum(segment.nbytes for segment in group)
        yield group

    def _fold(self, segment: Segment) -> Iterator[Sequence[Segment]]:
        base: Segment | None = None
        for base in fold(self.base, segment, self.resets, self.nanos_of):
            if base is None:
                yield ()
        assert base is not None, "folding ends with a base"
        self.edge_unix_nanos = self.time_index.nanos_at(segment.end - 1)  # guard: fold-edge
        self.base = base
        del self.segments[0]
        self._changed()
        self._held -= segment.nbytes
        self.time_index.forget(base.end)
        self.resets.forget(base.end)
        yield (segment,)
