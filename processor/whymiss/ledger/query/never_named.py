"""Negative lookups: proves from Bloom filters alone that no event of a stream named a block.

A verdict asks the record of every worker, and in a large fleet nearly none of them ever named the block. So
nothing is flushed, and no record is asked twice: one test of each run's filter is enough, and one of the memtable's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..columnar.bloom_filter import FOR_KEYS, GrowingBloomFilter, Opened, passing_one
from ..events import Cleared, KvBatch
from ..segment_store import SegmentStore


class NamedBlocks:
    """The blocks that one stream's events name, in any group and tier, whatever became of them.

    ``pending_rows`` is about how many operations the memtable holds at most.
    """

    def __init__(self, history: SegmentStore, pending_rows: int) -> None:
        self._history = history
        self._pending_rows = pending_rows
        self._version = -1
        self._filters: list[Opened[bool]] = []
        self._pending: GrowingBloomFilter | None = None
        self._noted = 0

    def may_hold(self, key: int, pending: Sequence[tuple[int, KvBatch]]) -> bool:
        """Whether a block may be one of them; ``pending`` are the batches that are not in the history yet, and only grow."""
        if self._version != self._history.version:  # guard: named-version
            runs = [run for part in self._history.parts() for run in part.runs.values()]
            self._filters = [run.filter.opened_for(True) for run in runs]
            self._version = self._history.version
        if any(passing_one(self._filters, key, FOR_KEYS)):
            return True  # guard: named-laid-out
        return bool(pending) and self._note(pending).may_hold(key)  # guard: named-pending

    def _note(self, pending: Sequence[tuple[int, KvBatch]]) -> GrowingBloomFilter:
        """The filter of the memtable, with what came since it was asked last."""
        if self._pending is None:
            self._pending = GrowingBloomFilter(self._pending_rows)
        for _, batch in pending[self._noted :]:  # guard: named-noted
            for event in batch.events:
                if not isinstance(event, Cleared):
                    self._pending.add(event.keys)
        self._noted = len(pending)
        return self._pending

    def forget_pending(self) -> None:
        """They are in the history now."""
        if self._noted:
            assert self._pending is not None, "it was made to note something"
            self._pending.clear()  # guard: named-forgotten
            self._noted = 0
