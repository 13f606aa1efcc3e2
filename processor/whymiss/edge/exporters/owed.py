"""What the destinations still have to send, shared by the fan-out, which adds to it, and the exporters, which take from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...redaction import Redacted
    from .receipts import Receipts

ITEM_BYTES = 512
"""What a queued request is counted as beside its bytes (measured below it: tests/edge/test_memory.py)."""


class Owed:
    """Counts the copies of each item that are still to be sent, and the bytes that all copies share.

    ``receipts`` is told of the same, where requests are kept on disk until they are over.
    """

    def __init__(self, receipts: Receipts | None = None) -> None:
        self._receipts = receipts
        self._copies: dict[int, int] = {}
        self._shared_bytes = 0

    @property
    def shared_bytes(self) -> int:
        """Bytes of the items that at least one destination has not sent; each item is counted once."""
        return self._shared_bytes

    def queued(self, item: Redacted, destinations: int) -> None:
        """Add an item that so many destinations are about to queue; an empty one is not queued by any."""
        if self._receipts is not None:
            self._receipts.queued(item, destinations if item.body else 0)
        if item.body and destinations:
            # The queues hold the item, so no other item has its identity as long as it is owed.
            self._copies[id(item)] = destinations
            self._shared_bytes += len(item.body) + ITEM_BYTES

    def ended(self, items: Sequence[Redacted]) -> None:
        """Take off items that one destination has delivered, or has given up and counted."""
        for item in items:
            left = self._copies.pop(id(item)) - 1
            if left:
                self._copies[id(item)] = left
            else:
                self._shared_bytes -= len(item.body) + ITEM_BYTES
        if self._receipts is not None:
            self._receipts.ended(items)

    def look(self, ticket: int) -> None:
        """See whether a request is over, after all that left of it at once was queued."""
        if self._receipts is not None and ticket:
            self._receipts.look([ticket])

    def sweep(self) -> Sequence[bool]:
        """After a release that failed: postpone the requests that it lost; false for those that were given up."""
        return [] if self._receipts is None else self._receipts.sweep()
