"""What one stream stored and removed over the window, and what it held where the window begins.

The newest events lie in the youngest of a list of immutable segments, what outlived the window in the
*base*. Small segments are merged into larger ones, and one whose time is over is folded into the base; both
are done in steps, so that no batch waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ..model import Residency, Tier
from .barriers import Barriers
from .chains import PIECE, PLACED, Chains
from .events import Keys
from .folding import fold
from .merging import mergeable, merged
from .segments import NO_HITS, Hits, Place, Segment
from .sorting import NO_INTEGERS, Flags, Integers
from .tally import Findings, judge, tally
from .timeline import Timeline


def no_chains() -> Chains:
    """Chains without a row."""
    none = np.zeros(0, np.uint64)
    return Chains(none, None, np.zeros(0, np.uint32), NO_INTEGERS, np.zeros(0, PIECE))


class Upkeep(msgspec.Struct, frozen=True, eq=False):
    """Work on a history in steps; each step says which segments it replaced, if it did."""

    rows: int
    steps: Iterator[Sequence[Segment]]
    expires: bool
    """Whether it moves the beginning of the window."""


class History:
    """The segments of one stream. Positions and ordinals are the stream's."""

    def __init__(self) -> None:
        self.base = Segment((0, 0), {}, no_chains(), stamps=(NO_INTEGERS, NO_INTEGERS))
        self.segments: list[Segment] = []
        self.barriers = Barriers()
        self.timeline = Timeline()
        self.edge_unix_nanos: int | None = None
        """Where the window begins, once something left it."""
        self.fresh: list[Segment] = []
        """Segments whose time in the window does not run yet."""
        self._held = 0

    @property
    def edge(self) -> int:
        """The first position that can be asked about."""
        return self.base.end

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return self._held + self.base.nbytes + self.timeline.nbytes

    def append(self, segment: Segment) -> None:
        """Add what happened since the newest segment."""
        self.segments.append(segment)
        self.fresh.append(segment)
        self._held += segment.nbytes

    # --- reading ------------------------------------------------------------------------------

    def parts(self) -> Iterator[Segment]:
        """The base and the segments, oldest first."""
        yield self.base
        yield from self.segments

    def hits(self, place: Place, keys: Keys, first: int, last: int) -> Hits:
        """Operations on some blocks with ordinals in ``[first, last)``, grouped by block, in order."""
        found: list[Hits] = []
        for part in self.parts():
            if part.begin >= last:
                break
            if part.end <= first or (hits := part.select(place, keys)) is None:
                continue
            if part.end > last or part.begin < first:
                hits = hits.taking((hits.ordinals < last) & (hits.ordinals >= first))
            found.append(hits)
        if not found:
            return NO_HITS
        if len(found) == 1:
            return found[0]
        whole = Hits(
            np.concatenate([hits.owners for hits in found]),
            np.concatenate([hits.ordinals for hits in found]),
            np.concatenate([hits.stores for hits in found]),
            np.concatenate([hits.rows for hits in found]),
            np.concatenate([hits.reported for hits in found]),
        )
        return whole if keys.size == 1 else whole.taking(whole.owners.argsort(kind="stable"))

    def counted_hits(self, place: Place, keys: Keys, last: int) -> Hits:
        """Operations before ordinal ``last`` that change the number of copies."""
        hits = self.hits(place, keys, 0, last)
        return hits.taking(~hits.reported) if hits.reported.any() else hits

    def as_of(self, place: Place, keys: Keys, position: int) -> Findings:
        """What the record says of some blocks before event ordinal ``position``."""
        if position < self.edge:
            return Findings.all_of(Residency.UNKNOWN, keys.size)
        findings = Findings.all_of(Residency.NEVER_SEEN, keys.size)
        hits = self.counted_hits(place, keys, position)
        if not hits.owners.size:
            return findings
        barriers = self.barriers.of(place[0])
        found = tally(hits, barriers, position)
        judged = judge(found, hits, barriers)
        nanos = self.nanos_of(
            judged.ordinals, place[0], at_barrier=judged.at_barrier if barriers.ordinals.size else None
        )
        findings.fill(found.owners, judged, nanos)
        return findings

    def lows(self, place: Place, keys: Keys, position: int) -> Integers:
        """Copies that each block surely had before a position."""
        low = np.zeros(keys.size, np.int64)
        hits = self.counted_hits(place, keys, position)
        if hits.owners.size:
            found = tally(hits, self.barriers.of(place[0]), position)
            low[found.owners] = np.where(found.barrier < 0, found.low, 0)
        return low

    def touched(self, place: Place, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` concerned a block."""
        if last <= first:
            return False
        if self.barriers.between(place[0], first, last):
            return True
        hits = self.hits(place, np.array([key], np.uint64), first, last)
        return bool((~hits.reported).any())

    def located(self, key: int) -> Iterator[tuple[Segment, int]]:
        """Where a block was stored as part of a chain, the last time first."""
        wanted = np.array([key], np.uint64)
        for part in reversed(list(self.parts())):
            for place, run in part.runs.items():
                if run.chained and (hits := part.select(place, wanted)) is not None:
                    for row in hits.rows[::-1].tolist():
                        if row >= 0:
                            yield part, row

    def locate(self, key: int) -> tuple[Chains, int] | None:
        """The chains and the row in which a block's place in its chain is known."""
        for part, row in self.located(key):
            if part.chains.flags_of(part.chains.piece_of(np.array([row])))[0] & PLACED:
                return part.chains, row
        return None

    def nanos_of(self, ordinals: Integers, tier: Tier, *, at_barrier: Flags | None = None) -> Integers:
        """When events happened; those marked are barriers of a tier."""
        nanos = np.zeros(ordinals.size, np.int64)
        barrier = np.zeros(ordinals.size, np.bool_) if at_barrier is None else at_barrier
        if barrier.any():
            columns = self.barriers.of(tier)
            nanos[barrier] = columns.nanos[columns.ordinals.searchsorted(ordinals[barrier])]
        old = (ordinals < self.edge) & ~barrier
        if old.any():
            assert self.base.stamps is not None, "a base keeps its times"
            nanos[old] = self.base.stamps[1][self.base.stamps[0].searchsorted(ordinals[old])]
        new = ~(old | barrier)
        if new.any():
            nanos[new] = self.timeline.nanos_of(ordinals[new])
        return nanos

    # --- keeping ------------------------------------------------------------------------------

    def forget_all(self, position: int) -> None:
        """Drop everything before a position, what is held there too."""
        self.base = Segment((0, position), {}, no_chains(), stamps=(NO_INTEGERS, NO_INTEGERS))
        self.segments.clear()
        self.fresh.clear()
        self._held = 0
        if len(self.timeline):
            self.edge_unix_nanos = self.timeline.nanos[-1]
        self.timeline.forget(position)
        self.barriers.forget(position)

    def upkeep(self, span_seconds: float) -> Upkeep | None:
        """What there is to do; ``None`` if nothing. Segments are merged that lie within ``span_seconds``."""
        if self.segments and self.segments[0].due:
            oldest = self.segments[0]
            return Upkeep(self.base.rows + oldest.rows, self._fold(oldest), expires=True)
        group = mergeable(self.segments, span_seconds)
        return Upkeep(sum(segment.rows for segment in group), self._merge(group), expires=False) if group else None

    def _merge(self, group: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
        whole: Segment | None = None
        for whole in merged(group):
            if whole is None:
                yield ()
        assert whole is not None, "merging ends with a segment"
        place = self.segments.index(group[0])
        self.segments[place : place + len(group)] = [whole]
        self.fresh.append(whole)
        self._held += whole.nbytes - sum(segment.nbytes for segment in group)
        yield group

    def _fold(self, segment: Segment) -> Iterator[Sequence[Segment]]:
        base: Segment | None = None
        for base in fold(self.base, segment, self):
            if base is None:
                yield ()
        assert base is not None, "folding ends with a base"
        self.edge_unix_nanos = self.timeline.nanos_at(segment.end - 1)
        self.base = base
        del self.segments[0]
        self._held -= segment.nbytes
        self.timeline.forget(base.end)
        self.barriers.forget(base.end)
        yield (segment,)
