"""Run an async test to its end, and never for long."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Parameters = ParamSpec("Parameters")


def looped(
    test: Callable[Parameters, Coroutine[None, None, None]], seconds: float = 30.0
) -> Callable[Parameters, None]:
    """Make a coroutine function a test, with a loop of its own and a deadline."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(seconds):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run
