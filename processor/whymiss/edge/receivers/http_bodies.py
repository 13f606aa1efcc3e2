"""The bodies of HTTP requests in memory: all of them together are bounded, and the slowest makes room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Overloaded
from .arrivals import BODY_SECONDS_MAX, Arrivals

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

UNDISTURBED_SECONDS = 1.0
"""How long a body may take however many others come."""

LIMIT_KEY = "receivers.http.max_body_bytes"


class Budget:
    """Bytes that all bodies may take. Where they are used up, the body that has been arriving longest is given up."""

    def __init__(
        self,
        bytes_max: int,
        undisturbed_seconds: float = UNDISTURBED_SECONDS,
        seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        self.bytes_left = bytes_max
        self._arrivals: Arrivals[Held] = Arrivals(undisturbed_seconds, seconds_max)

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

    def arriving(self, held: Held) -> AbstractAsyncContextManager[None]:
        """While a body arrives. Raises `TimeoutError` where it takes too long, or made room for others."""
        return self._arrivals.arriving(held)

    def _make_room(self, taker: Held) -> bool:
        oldest = self._arrivals.oldest
        if oldest is None or oldest is taker or not self._arrivals.give_up(oldest):
            return False
        oldest.give_back()
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

    def arriving(self) -> AbstractAsyncContextManager[None]:
        """While the body arrives. Raises `TimeoutError` where it takes too long, or made room for others."""
        return self._budget.arriving(self)
