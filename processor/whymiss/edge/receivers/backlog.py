"""After a crash: what was not delivered goes through the stages again, in order and not all at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ..telemetry.logs import Log

if TYPE_CHECKING:
    from ..exporters.fan_out import FanOut
    from ..pace import Pace
    from ..spool.spool import Spool
    from .request_intake import RequestIntake

BYTES_MAX: Final = 64 << 20
"""Bytes read back that may be under way at once."""

FULLNESS_MAX: Final = 0.5
"""The part of a queue beyond which new requests have the rest to themselves."""

_TURN_SECONDS: Final = 0.05

_log = Log("spool")


class BacklogReplay:
    """One task, from the start of the service until the backlog has been read."""

    def __init__(
        self, spool: Spool, intake: RequestIntake, fan_out: FanOut, pace: Pace, requests_per_second: int
    ) -> None:
        self._spool = spool
        self._intake = intake
        self._fan_out = fan_out
        self._pace = pace
        self._turn = max(1, round(requests_per_second * _TURN_SECONDS))
        self._seconds = self._turn / requests_per_second
        self._never = asyncio.Event()

    async def run(self) -> None:
        """Read the backlog and hand it on, a few requests a turn."""
        count = 0
        try:
            for record in await self._spool.backlog():
                while self._must_wait():
                    await self._pace.wait(self._never, _TURN_SECONDS)
                self._intake.replay(record)
                count += 1
                if count % self._turn == 0:
                    await self._pace.wait(self._never, self._seconds)
        finally:
            self._spool.end_trying()
        _log.info("the backlog of earlier runs has been read", requests=count)

    def _must_wait(self) -> bool:
        """Whether new requests need the memory or the queues."""
        full = self._spool.replaying_bytes > BYTES_MAX or self._fan_out.fullness > FULLNESS_MAX
        return full or self._intake.is_pressed
