"""Bodies on their way to a receiver: how long one may take to arrive, and which makes room where there are too many."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY_SECONDS_MAX = 30.0
"""How long one body may take to arrive, by gRPC or HTTP: a client that trickles holds memory."""

Body = TypeVar("Body")


class Arrivals(Generic[Body]):
    """The bodies that are arriving, in the order in which they began to.

    However many others come, a body has ``undisturbed_seconds`` to arrive.
    """

    def __init__(self, undisturbed_seconds: float, seconds_max: float = BODY_SECONDS_MAX) -> None:
        self._undisturbed_seconds = undisturbed_seconds
        self._seconds_max = seconds_max
        self._arriving: dict[Body, tuple[asyncio.Timeout, float]] = {}

    def __len__(self) -> int:
        """How many are arriving."""
        return len(self._arriving)

    @property
    def oldest(self) -> Body | None:
        """The one that has been arriving longest."""
        return next(iter(self._arriving), None)

    @asynccontextmanager
    async def arriving(self, body: Body) -> AsyncIterator[None]:
        """While a body arrives. Raises `TimeoutError` where it takes too long, or was given up."""
        now = asyncio.get_running_loop().time()
        async with asyncio.timeout_at(now + self._seconds_max) as patience:
            self._arriving[body] = patience, now
            try:
                yield
            finally:
                self._arriving.pop(body, None)

    def give_up(self, body: Body) -> bool:
        """Wait for a body no longer; returns false, and waits on, where it began to arrive a moment ago."""
        now = asyncio.get_running_loop().time()
        patience, since = self._arriving[body]
        if now - since < self._undisturbed_seconds:
            return False
        del self._arriving[body]
        if not patience.expired():  # otherwise it is leaving already, and asyncio forbids to hurry it
            patience.reschedule(now)
        return True
