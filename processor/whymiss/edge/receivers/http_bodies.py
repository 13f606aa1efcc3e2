"""The bodies of HTTP requests in memory: all of them together are bounded, and the slowest makes room."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY_SECONDS_MAX = 30.0
"""How long one body may take to arrive: a client that trickles holds memory."""

UNDISTURBED_SECONDS = 1.0
"""How long a body may take however many others come."""

LIMIT_KEY = "receivers.http.max_body_bytes"


class Budget:
    """Bytes that all bodies may take. Where they are used up, the body that has been arriving longest is given up."""

    def __init__(self, bytes_max: int, undisturbed_seconds: float = UNDISTURBED_SECONDS) -> None:
        self.bytes_left = bytes_max
        self._undisturbed_seconds = undisturbed_seconds
        self._arriving: dict[Held, tuple[asyncio.Timeout, float]] = {}

    def take(self, size: int, taker: Held) -> None:
        """Take a part, or raise `Overloaded` where too little is left."""
        while size > self.bytes_left and self._make_room(taker):
            pass
        if size > self.bytes_left:
            raise Overloaded("too many large bodies at once", limit_key=LIMIT_KEY)
        self.bytes_left -= size

    def give_back(self, size: int) -> None:
        """Have so many bytes back."""
        self.bytes_left += size

    def arrives(self, held: Held, patience: asyncio.Timeout) -> None:
        """Note that a body is arriving, and what ends the wait for it."""
        self._arriving[held] = patience, asyncio.get_running_loop().time()

    def arrived(self, held: Held) -> None:
        """Note that a body is there, or that it is waited for no longer."""
        self._arriving.pop(held, None)

    def _make_room(self, taker: Held) -> bool:
        now = asyncio.get_running_loop().time()
        oldest = next(iter(self._arriving), None)
        if oldest is None or oldest is taker:
            return False
        patience, since = self._arriving[oldest]
        if now - since < self._undisturbed_seconds:
            return False
        self.arrived(oldest)
        oldest.give_back()
        if not patience.expired():  # otherwise it is leaving already, and asyncio forbids to hurry it
            patience.reschedule(now)
        return True


class Held:
    """What one request has taken of the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = 0
        self._is_over = False

    def take(self, size: int) -> None:
        """Take a part, or raise `Overloaded`."""
        if self._is_over:
            raise Overloaded("the body took too long", limit_key=LIMIT_KEY, remedy="send it again")
        self._budget.take(size, self)
        self._bytes += size

    def give_back(self) -> None:
        """Give all of it back; the request is over."""
        self._budget.give_back(self._bytes)
        self._bytes = 0
        self._is_over = True

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[None]:
        """While the body arrives. Raises `TimeoutError` where it takes too long, or made room for others."""
        async with asyncio.timeout(BODY_SECONDS_MAX) as patience:
            self._budget.arrives(self, patience)
            try:
                yield
            finally:
                self._budget.arrived(self)
