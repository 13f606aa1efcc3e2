"""The clock and the dice of the edge, in one place, so that a test can bring its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time


class Pace:
    """Time and chance; a test has a pace of its own."""

    def now(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Return when the event is set or the time is over."""
        # Not wait_for: in Python 3.11 it can swallow a cancellation that comes with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return random.random()  # noqa: S311 - jitter is no secret
