"""Tasks that go on for as long as the service does: one that fails is a defect of ours, and is told and counted.

asyncio itself would keep the error until the task is waited for, which is when the service stops.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .telemetry.logs import Log

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AsyncExitStack

    from ..measures import Measures

_log = Log("chores")


class Chores:
    """Begins tasks; each ends when the stack that it was begun with is left."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures

    def begin(self, stack: AsyncExitStack, name: str, work: Coroutine[None, None, None]) -> None:
        """Have something done beside everything else. ``name`` is a word of ours, and a label."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        stack.push_async_callback(_cancel, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        name = task.get_name()
        self._measures.count("whymiss.stage.failures", stage=name, error_type=type(error).__name__)
        _log.error("a task has failed and is gone until the service is restarted", error=error, task=name)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
