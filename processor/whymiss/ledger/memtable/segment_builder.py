"""Memtable flush: puts a stream's batches into columns, in event order, and ends a segment.

Whether a store only repeats what is resident is settled here, for each event as a whole.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ...model import Removal, Tier
from ..cache_groups import CacheGroups
from ..events import Cleared, Keys, KvBatch, Removed, Singles, Stored
from ..hashing import Digester
from ..residency.resets import Reset
from ..segment.operations import Run, sorted_run
from ..segment.segment import Place, Segment
from ..segment_store import SegmentStore
from .chain_builder import ChainBuilder
from .chain_tails import ChainTails
from .lookup_position import LookupPositions
from .reannouncements import Reannouncements


class _Part(msgspec.Struct, gc=False):
    """Operations of one place in order of events."""

    chained: bool
    keys: list[Keys]
    codes: list[npt.NDArray[np.uint32]]


class SegmentBuilder:
    """Takes batches in order; ``cut`` ends a segment. One a stream."""

    def __init__(self, history: SegmentStore, groups: CacheGroups, digester: Digester) -> None:
        self._history = history
        self._groups = groups
        self._digester = digester
        self.chain_tails = ChainTails(history, digester)
        self.times = (0.0, 0.0)
        """When the first and the last batch of the segment were taken."""
        self._start(0)

    def _start(self, begin: int) -> None:
        self._begin = begin
        self._parts: dict[Place, _Part] = {}
        self._chains = ChainBuilder(self.chain_tails, self._digester, begin)

    def take(self, base: int, batch: KvBatch) -> None:
        """Lay out a batch whose first event has ordinal ``base``."""
        lookups = LookupPositions()
        reannouncements: Reannouncements | None = None
        for event in batch.events:
            if type(event) is Stored:
                ordinal = base + event.index
                position = lookups.store(ordinal, event.parent, event.group)
                if reannouncements is None and event.session and event.parent is None:
                    reannouncements = Reannouncements(batch, self.resident)
                self._store(event, ordinal, position, reannouncements)
            elif type(event) is Removed:
                lookups.remove(base + int(event.at[0]))
                self._remove(event, base)
            elif type(event) is Singles:
                self._take_singles(event, base, lookups)
            else:
                assert type(event) is Cleared, "no other event is known"
                lookups.clear()  # guard: intake-cleared-run
                reset = Reset(base + event.index, batch.unix_nanos, Removal.CLEARED, event.tier)
                self._history.resets.add(reset)

    def flush(self, end: int) -> None:
        """End the segment before ordinal ``end`` and hand it to the history."""
        if self._parts or len(self._chains):
            runs: dict[Place, Run] = {
                place: sorted_run(part.keys, part.codes, chained=part.chained) for place, part in self._parts.items()
            }
            self._history.append(Segment((self._begin, end), runs, self._chains.end(), times=self.times))
        self._start(end)

    # --- removals -----------------------------------------------------------------------------

    def _remove(self, event: Removed, base: int) -> None:
        if event.tier is not Tier.DEVICE:
            self._groups.releasing.add(event.tier)  # guard: intake-releasing
        codes = ((event.at + (base - self._begin)) * 2).astype(np.uint32)
        # guard: intake-all-groups
        groups = (event.group,) if event.group is not None else tuple(self._groups.specs) or (0,)
        for group in groups:
            part = self._part((event.tier, group))
            part.keys.append(event.keys)
            part.codes.append(codes)

    def _part(self, place: Place, *, chained: bool = False) -> _Part:
        part = self._parts.get(place)
        if part is None:
            part = self._parts[place] = _Part(chained, [], [])
        elif chained:
            part.chained = True
        return part

    # --- stores -------------------------------------------------------------------------------

    def _store(self, event: Stored, ordinal: int, position: int, reannouncements: Reannouncements | None) -> None:
        dense = self._groups.learn(event) and event.tier is Tier.DEVICE  # guard: intake-dense-device
        count = event.keys.size
        if not count:
            return
        # guard: intake-report
        reported = reannouncements is not None and reannouncements.is_reannouncement(event, ordinal, dense=dense)
        if dense:
            part = self._part((event.tier, event.group), chained=True)
            part.keys.append(event.keys)
            part.codes.append(self._chains.add(event, ordinal, position, reported=reported))
        elif not reported:  # guard: intake-report-sparse
            part = self._part((event.tier, event.group))
            part.keys.append(event.keys)
            part.codes.append(np.full(count, 2 * (ordinal - self._begin) + 1, np.uint32))

    def _take_singles(self, event: Singles, base: int, lookups: LookupPositions) -> None:
        first = event.first
        if first.tier is Tier.DEVICE and self._groups.learn(first):  # guard: intake-singles-dense, intake-singles-group
            part = self._part((first.tier, first.group), chained=True)
            part.keys.append(event.keys)
            part.codes.append(self._chains.add_singles(event, base, lookups))
            return
        for single in event.expanded():
            if isinstance(single, Stored):
                ordinal = base + single.index
                self._store(single, ordinal, lookups.store(ordinal, single.parent, single.group), None)
            else:
                lookups.remove(base + int(single.at[0]))
                self._remove(single, base)

    # --- re-announcements ---------------------------------------------------------------------

    def resident(self, place: Place, keys: Keys, ordinal: int) -> bool:
        """Whether all of some blocks are surely held by a place before an event."""
        # Cheap for the common case: a session's first store is of something new.
        here = self._chains.holds(int(keys[0]))
        if not here and not self._history.operations_on(place, int(keys[0]), 0, ordinal):
            return False
        self.flush(ordinal)
        return bool((self._history.lows(place, keys, ordinal) > 0).all())  # guard: resident-all, resident-at-all
