"""A clock that moves when a test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from whymiss.edge.pace import Pace


@dataclass
class HeldPace(Pace):
    """Time stands still until `pass_by`; chance is always one half, so that jitter is none."""

    time: float = 1000.0
    waits: list[float] = field(default_factory=list)
    """How long somebody wanted to wait, in order."""

    def __post_init__(self) -> None:
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._lay_down = asyncio.Event()

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        self.waits.append(seconds)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, over))
        self._lay_down.set()
        rung = asyncio.ensure_future(event.wait())
        either: set[asyncio.Future[Any]] = {over, rung}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rung.cancel()
            over.cancel()

    async def until_waits(self, count: int) -> None:
        """Wait until somebody has wanted to wait for the count-th time."""
        async with asyncio.timeout(10):
            while len(self.waits) < count:
                self._lay_down.clear()
                await self._lay_down.wait()

    def pass_by(self, seconds: float) -> None:
        """Let time go on; who has waited long enough goes on too."""
        self.time += seconds
        for due, over in self._sleepers:
            if due <= self.time and not over.done():
                over.set_result(None)
        self._sleepers = [(due, over) for due, over in self._sleepers if not over.done()]
