"""All destinations together: each gets everything, in its own time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...redaction import Redacted
    from .exporter import Exporter
    from .receipts import Receipts

ITEM_BYTES = 512
"""What a queued request is counted as beside its bytes (measured below it: tests/edge/test_memory.py)."""


class FanOut:
    """What leaves goes to all destinations. ``receipts`` knows which requests are over."""

    def __init__(self, exporters: Sequence[Exporter], receipts: Receipts | None = None) -> None:
        self._exporters = exporters
        self._receipts = receipts
        self._copies: dict[int, int] = {}
        self._held_bytes = 0
        for exporter in exporters:
            exporter.ended = self._ended

    @property
    def held_bytes(self) -> int:
        """Bytes of all that is queued or under way; what several destinations share is counted once."""
        return self._held_bytes + sum(exporter.copied_bytes for exporter in self._exporters)

    @property
    def exporters(self) -> Sequence[Exporter]:
        """The destinations."""
        return self._exporters

    @property
    def fullness(self) -> float:
        """That of the fullest destination."""
        return max((exporter.fullness for exporter in self._exporters), default=0.0)

    def require_room(self) -> None:
        """Raise `Overloaded` while any destination's queue is full."""
        for exporter in self._exporters:
            exporter.require_room()

    def enqueue(self, items: Iterable[Redacted]) -> None:
        """Queue acknowledged items everywhere."""
        for item in items:
            if self._receipts is not None:
                self._receipts.queued(item, len(self._exporters) if item.body else 0)
            if item.body and self._exporters:
                # The queues hold the item, so its identity is nobody else's as long as it is owed.
                self._copies[id(item)] = len(self._exporters)
                self._held_bytes += len(item.body) + ITEM_BYTES
            for exporter in self._exporters:
                exporter.enqueue(item)

    def _ended(self, items: Sequence[Redacted]) -> None:
        """Know that one destination is done with items."""
        for item in items:
            left = self._copies.pop(id(item)) - 1
            if left:
                self._copies[id(item)] = left
            else:
                self._held_bytes -= len(item.body) + ITEM_BYTES
        if self._receipts is not None:
            self._receipts.ended(items)

    def look(self, ticket: int) -> None:
        """See whether a request is over, after all that left of it at once was queued."""
        if self._receipts is not None and ticket:
            self._receipts.look([ticket])

    def sweep(self) -> Sequence[bool]:
        """After a release that failed: postpone the requests that it lost; false for those that were given up."""
        return [] if self._receipts is None else self._receipts.sweep()

    def gauge(self) -> None:
        """Bring the gauges up to date."""
        for exporter in self._exporters:
            exporter.gauge()

    async def stop(self, deadline_seconds: float) -> int:
        """Stop all at once; return how many requests were given up."""
        return sum(await asyncio.gather(*(exporter.stop(deadline_seconds) for exporter in self._exporters)))
