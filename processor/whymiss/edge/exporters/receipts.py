"""When a request is over: nothing of it is held by the core, and no destination has any of it left to send.

A request's number on disk is its ticket. What leaves the core carries the tickets of all that is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...redaction import Redacted


class Receipts:
    """Counts what is owed for each ticket, and settles those for which nothing is.

    ``postpone`` leaves a ticket to the next start, or gives it up and returns false.
    """

    def __init__(
        self, holds: Callable[[int], bool], settle: Callable[[int], None], postpone: Callable[[int], bool]
    ) -> None:
        self._holds = holds
        self._settle = settle
        self._postpone = postpone
        self._owed: dict[int, int] = {}
        self._held: set[int] = set()
        self._lost: set[int] = set()

    def queued(self, item: Redacted, destinations: int) -> None:
        """Know that an item is on its way to so many destinations; with none it is over."""
        if not destinations:
            self.look(item.tickets)
            return
        for ticket in item.tickets:
            self._owed[ticket] = self._owed.get(ticket, 0) + destinations
            if not self._holds(ticket):
                self._held.discard(ticket)

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
            if self._holds(ticket):
                self._held.add(ticket)
                continue
            self._held.discard(ticket)
            if ticket not in self._owed and ticket not in self._lost:
                self._settle(ticket)

    def sweep(self) -> Sequence[bool]:
        """After a release that failed: see what was held and neither is nor has left, and postpone it.

        Returns for each of them whether it was postponed; the others were given up.
        """
        lost = [ticket for ticket in self._held if not self._holds(ticket)]
        self._held.difference_update(lost)
        self._lost.update(lost)
        return [self._postpone(ticket) for ticket in lost]
