"""The one task that lets go of what has been held long enough."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from .telemetry.logs import Log

if TYPE_CHECKING:
    from .core import Core
    from .exporters.fan_out import FanOut
    from .pace import Pace

STEP_SECONDS = 0.05
"""Deadlines this close together are met at once: what a hundred requests release leaves as one."""

_IDLE_SECONDS = 3600.0

_log = Log("advance")


class Advance:
    """Calls the core at its deadlines and hands on what it releases."""

    def __init__(self, core: Core, fan_out: FanOut, pace: Pace) -> None:
        self._core = core
        self._fan_out = fan_out
        self._pace = pace
        self._awaited = math.inf
        self._earlier = asyncio.Event()

    def look(self) -> None:
        """See whether the next deadline has moved forward; call this after whatever the core was given."""
        deadline = self._core.next_deadline
        if deadline is not None and deadline < self._awaited:
            self._earlier.set()

    async def run(self) -> None:
        """Meet deadlines until cancelled."""
        while True:
            deadline = self._core.next_deadline
            self._awaited = math.inf if deadline is None else deadline
            seconds = self._awaited - self._pace.now()
            if seconds > 0:
                self._earlier.clear()
                await self._pace.wait(self._earlier, min(seconds, _IDLE_SECONDS))
                continue
            self._release()
            self._earlier.clear()
            self._awaited = -math.inf  # no deadline is worth a wake-up within the step
            await self._pace.wait(self._earlier, STEP_SECONDS)

    def _release(self) -> None:
        # The spans are acknowledged, so they go in even where a queue is full.
        try:
            self._fan_out.enqueue(self._core.advance(self._pace.now()))
        except Exception as error:
            name = type(error).__name__
            self._core.measures.count("whymiss.stage.failures", stage="advance", error_type=name)
            _log.error("held spans could not be released", error=error)
            for postponed in self._fan_out.sweep():
                outcome = "postponed" if postponed else "given_up"
                self._core.measures.count("whymiss.spool.swept_requests", outcome=outcome)
