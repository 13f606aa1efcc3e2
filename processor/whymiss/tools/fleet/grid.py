"""A trace on many fleets, on as many cores as it is worth."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from .replay import Fleet, Outcome
from .setup import Setup
from .trace import Trace

POOL_BLOCKS_MIN = 1_000_000
"""Blocks in all replays together below which one core is done before others have started: half a second."""


def replay(trace: Trace, setup: Setup, progress: Callable[[int], None] = lambda _: None) -> Outcome:
    """Replay a trace on one fleet; ``progress`` is told how many requests are through."""
    return Fleet(setup, trace.block_tokens).run(trace, progress)


def replay_all(
    trace: Trace, setups: Sequence[Setup], jobs: int, progress: Callable[[int], None] = lambda _: None
) -> list[Outcome]:
    """Replay a trace on every fleet; ``progress`` is told of requests replayed, those of all fleets together.

    ``jobs`` is how many processes may share the work; what comes out does not depend on it.
    """
    blocks = sum(len(ask.blocks) for ask in trace.asks)
    if min(jobs, len(setups)) > 1 and blocks * len(setups) >= POOL_BLOCKS_MIN:
        return _in_a_pool(trace, setups, jobs, progress)
    return list(_one_by_one(trace, setups, progress))


def _one_by_one(trace: Trace, setups: Sequence[Setup], progress: Callable[[int], None]) -> Iterator[Outcome]:
    for number, setup in enumerate(setups):
        yield replay(trace, setup, partial(_add, number * len(trace.asks), progress))


def _add(before: int, progress: Callable[[int], None], through: int) -> None:
    progress(before + through)


def _in_a_pool(trace: Trace, setups: Sequence[Setup], jobs: int, progress: Callable[[int], None]) -> list[Outcome]:
    # A fresh interpreter each: the progress bar has a thread, and a fork must not copy one.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(setups)), mp_context=context) as pool:
        waiting = [pool.submit(replay, trace, setup) for setup in setups]
        for finished, _ in enumerate(as_completed(waiting), 1):
            progress(finished * len(trace.asks))
        return [one.result() for one in waiting]
