from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.edge.cores import PassingCore, counted
from tests.edge.doors import room
from tests.edge.loops import looped
from tests.edge.paces import HeldPace
from tests.edge.traffic import traces
from whymiss.edge.advance import STEP_SECONDS, Advance
from whymiss.edge.exporters.fan_out import FanOut
from whymiss.edge.exporters.owed import Owed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from whymiss.redaction import Redacted


@dataclass
class FailingCore(PassingCore):
    """Fails to advance, the given number of times."""

    failures: int = 0

    def advance(self, now: float) -> tuple[Redacted, ...]:
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError
        return super().advance(now)


@dataclass
class Turning:
    core: FailingCore
    pace: HeldPace = field(default_factory=HeldPace)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Advance]:
        advance = Advance(self.core, FanOut([room(self.core).exporter], Owed()), self.pace)
        task = asyncio.create_task(advance.run())
        try:
            yield advance
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@looped
async def test_what_is_due_is_released_at_its_deadline_and_not_before() -> None:
    turning = Turning(FailingCore(hold_seconds=8))
    async with turning.running() as advance:
        await turning.pace.until_waits(1)
        turning.core.traces(traces(1), turning.pace.now())
        advance.look()
        await turning.pace.until_waits(2)
        assert turning.pace.waits[1] == 8
        turning.pace.pass_by(7.9)
        assert turning.core.advanced_at == []
        turning.pace.pass_by(0.1)
        await turning.pace.until_waits(3)
    assert turning.core.advanced_at == [1008]


@looped
async def test_an_earlier_deadline_is_noticed_and_a_later_one_wakes_nobody() -> None:
    turning = Turning(FailingCore(hold_seconds=8))
    async with turning.running() as advance:
        await turning.pace.until_waits(1)
        turning.core.traces(traces(1), turning.pace.now())
        advance.look()
        await turning.pace.until_waits(2)
        turning.core.traces(traces(2), turning.pace.now() + 1)
        advance.look()
        turning.core.hold_seconds = 2
        await asyncio.sleep(0)
        assert len(turning.pace.waits) == 2
        turning.core.traces(traces(3), turning.pace.now())
        advance.look()
        await turning.pace.until_waits(3)
        assert turning.pace.waits[2] == 2


@looped
async def test_deadlines_close_together_are_met_at_once() -> None:
    turning = Turning(FailingCore(hold_seconds=1))
    async with turning.running() as advance:
        await turning.pace.until_waits(1)
        for number in range(10):
            turning.core.traces(traces(number), turning.pace.now() + number * STEP_SECONDS / 20)
        advance.look()
        await turning.pace.until_waits(2)
        turning.pace.pass_by(1)
        await turning.pace.until_waits(3)
        turning.pace.pass_by(STEP_SECONDS)
        await turning.pace.until_waits(4)
    assert len(turning.core.advanced_at) == 2
    assert turning.core.held == []


@looped
async def test_a_stage_that_raises_is_counted_and_tried_again_after_a_step() -> None:
    turning = Turning(FailingCore(hold_seconds=1, failures=2))
    async with turning.running() as advance:
        await turning.pace.until_waits(1)
        turning.core.traces(traces(1), turning.pace.now())
        advance.look()
        await turning.pace.until_waits(2)
        turning.pace.pass_by(1)
        for waits in (3, 4, 5):
            await turning.pace.until_waits(waits)
            turning.pace.pass_by(STEP_SECONDS)
    assert (turning.core.held, len(turning.core.advanced_at)) == ([], 1)
    name = "whymiss.stage.failures"
    assert counted(turning.core.measures, name, stage="advance", error_type="ZeroDivisionError") == 2
