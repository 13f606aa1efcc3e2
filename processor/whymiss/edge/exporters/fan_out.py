"""All destinations together: each gets everything, in its own time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...redaction import Redacted
    from .exporter import Exporter
    from .owed import Owed


class FanOut:
    """What leaves goes to all destinations. ``owed`` is the one that the exporters take from."""

    def __init__(self, exporters: Sequence[Exporter], owed: Owed) -> None:
        self._exporters = exporters
        self._owed = owed
        self._given_up = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all that is queued or under way; what several destinations share is counted once."""
        return self._owed.shared_bytes + sum(exporter.copied_bytes for exporter in self._exporters)

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
            self._owed.queued(item, len(self._exporters))
            for exporter in self._exporters:
                exporter.enqueue(item)

    def look(self, ticket: int) -> None:
        """See whether a request is over, after all that left of it at once was queued."""
        self._owed.look(ticket)

    def sweep(self) -> Sequence[bool]:
        """After a release that failed: postpone the requests that it lost; false for those that were given up."""
        return self._owed.sweep()

    def gauge(self) -> None:
        """Bring the gauges up to date."""
        for exporter in self._exporters:
            exporter.gauge()

    async def stop(self, deadline_seconds: float) -> int:
        """Stop all at once; return how many requests were given up."""
        self._given_up = sum(await asyncio.gather(*(exporter.stop(deadline_seconds) for exporter in self._exporters)))
        return self._given_up

    @property
    def given_up(self) -> int:
        """How many requests were given up by `stop`."""
        return self._given_up
