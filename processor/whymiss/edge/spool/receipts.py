"""When a request is over: nothing of it is held by the core, and no destination has any of it left to send.

A request's number on disk is its ticket. What leaves the core carries the tickets of all that is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...redaction import Redacted


class Receipts:
    """Counts what is owed for each ticket, and settles those for which nothing is."""

    def __init__(self, holds: Callable[[int], bool], settle: Callable[[int], None]) -> None:
        self._holds = holds
        self._settle = settle
        self._owed: dict[int, int] = {}

    def queued(self, item: Redacted, destinations: int) -> None:
        """Know that an item is on its way to so many destinations; with none it is over."""
        if not destinations:
            self.look(item.tickets)
            return
        for ticket in item.tickets:
            self._owed[ticket] = self._owed.get(ticket, 0) + destinations

    def ended(self, items: Iterable[Redacted]) -> None:
        """Know that a destination has items, or that they were given up and counted."""
        for item in items:
            for ticket in item.tickets:
                left = self._owed.get(ticket, 0) - 1
                if left > 0:
                    self._owed[ticket] = left
                else:
                    self._owed.pop(ticket, None)
            self.look(item.tickets)

    def look(self, tickets: Iterable[int]) -> None:
        """Settle those for which nothing is owed."""
        for ticket in tickets:
            if ticket not in self._owed and not self._holds(ticket):
                self._settle(ticket)
