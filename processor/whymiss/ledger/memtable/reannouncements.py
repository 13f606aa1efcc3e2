"""Idempotent writes: which stores of a batch only repeat what is resident, and count no copy."""

from __future__ import annotations

from collections.abc import Callable

from ...model import DENSE_KINDS, Tier
from ..events import Keys, KvBatch, Stored
from ..segment.segment import Place


class Reannouncements:
    """Which of a batch's stores only repeat what is resident (vLLM's ``kv_cache_report_mode=full``).

    Such a store comes with a session and from the root, and all of its blocks are resident already. A sparse
    group repeats the dense group's list, naming blocks that it never stored: it goes with the dense one.
    """

    def __init__(self, batch: KvBatch, resident: Callable[[Place, Keys, int], bool]) -> None:
        """``resident`` tells whether all of some blocks are surely held by a place before an event."""
        self._resident = resident
        self._decided: dict[bytes, bool] = {}
        self._dense = {
            event.keys.tobytes(): event.group
            for event in batch.events
            if type(event) is Stored and _may_repeat(event) and event.tier is Tier.DEVICE and event.kind in DENSE_KINDS
        }

    def is_reannouncement(self, event: Stored, ordinal: int, *, dense: bool) -> bool:
        """Whether a store is one. Ask in the order of events."""
        if not _may_repeat(event) or event.tier is not Tier.DEVICE:  # guard: report-device
            return False
        listed = event.keys.tobytes()
        if dense:
            answer = self._resident((event.tier, event.group), event.keys, ordinal)
            self._decided[listed] = answer
            return answer
        if listed in self._decided:  # guard: report-listed
            return self._decided[listed]
        group = self._dense.get(listed)
        return group is not None and self._resident((event.tier, group), event.keys, ordinal)


def _may_repeat(event: Stored) -> bool:
    return event.session and event.parent is None and event.keys.size > 0  # guard: report-session, report-root
