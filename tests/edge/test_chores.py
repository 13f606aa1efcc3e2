from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tests.edge.cores import PassingCore, counted, measures
from tests.edge.loops import looped
from tests.edge.sink import Sink
from tests.edge.test_service import config
from whymiss.edge.chores import Chores
from whymiss.edge.service import serving


class Unmeasurable(PassingCore):
    """A core whose record cannot be measured."""

    @property
    def held_bytes(self) -> int:
        raise ValueError("a defect")


async def fail() -> None:
    raise ValueError("a defect")


@looped
async def test_a_task_that_fails_is_counted_once_and_one_that_is_cancelled_is_not() -> None:
    counts, never = measures(), asyncio.Event()

    async def wait() -> None:
        await never.wait()

    async with AsyncExitStack() as stack:
        chores = Chores(counts)
        chores.begin(stack, "failing", fail())
        chores.begin(stack, "waiting", wait())
        while not counted(counts, "whymiss.stage.failures"):  # noqa: ASYNC110 - each turn is the task's as well
            await asyncio.sleep(0)
    assert counted(counts, "whymiss.stage.failures", stage="failing", error_type="ValueError") == 1
    assert counted(counts, "whymiss.stage.failures") == 1


@looped
async def test_the_service_tells_of_a_task_that_it_has_lost() -> None:
    core = Unmeasurable()
    async with Sink() as sink, serving(config(sink), core):
        while not counted(core.measures, "whymiss.stage.failures"):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert counted(core.measures, "whymiss.stage.failures", stage="memory", error_type="ValueError") == 1
