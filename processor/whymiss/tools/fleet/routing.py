"""The router: which worker gets a request, and what it promised of that worker."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from .cache import Change, leading
from .setup import Setup
from .worker import Worker

SEED = 1
"""Of the random policy: the same trace gives the same choices."""


class Pick(NamedTuple):
    """A decision; ``promised`` is how many blocks the index knows there, ``best`` how many on the best worker."""

    worker: int
    promised: int = 0
    best: int = 0


class News(NamedTuple):
    """What the index will learn of a worker, and when."""

    due: float
    worker: int
    change: Change


class Router:
    """Picks by a setup's policy, from an index that may trail the workers."""

    def __init__(self, setup: Setup, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._lag = setup.index_lag_seconds
        self._routing = setup.routing
        self._aware = setup.routing in {"prefix", "prefix_greedy"}
        self._index: list[dict[int, int]] = [{} for _ in workers]
        """Copies of a block that each worker said it holds; empty while the index is exact."""
        self._news: deque[News] = deque()
        self._turn = 0
        self._random = random.Random(SEED)  # noqa: S311 - a policy, not a secret

    @property
    def follows(self) -> bool:
        """Whether it wants to hear of changes: an exact index looks at the workers instead."""
        return self._aware and self._lag > 0

    def hear(self, worker: int, change: Change, at: float) -> None:
        """A worker stored or dropped blocks."""
        self._news.append(News(at + self._lag, worker, change))

    def pick(self, blocks: Sequence[int], session: int, at: float) -> Pick:
        """Choose a worker for a request's blocks."""
        if self._aware:
            return self._by_prefix(blocks, at)
        if self._routing == "round_robin":
            self._turn += 1
            return Pick((self._turn - 1) % len(self._workers))
        if self._routing == "sticky":
            return Pick(session % len(self._workers))
        if self._routing == "random":
            return Pick(self._random.randrange(len(self._workers)))
        return Pick(self._least_loaded(range(len(self._workers))))

    def _by_prefix(self, blocks: Sequence[int], at: float) -> Pick:
        if self._lag > 0:
            self._catch_up(at)
            matches = [leading(index, blocks) for index in self._index]
        else:
            matches = [worker.match(blocks) for worker in self._workers]
        best = max(matches)
        choice: Sequence[int] = range(len(matches))
        if best and (self._routing == "prefix_greedy" or 2 * best >= len(blocks)):
            choice = [worker for worker in choice if matches[worker] == best]
        worker = self._least_loaded(choice)
        return Pick(worker, matches[worker], best)

    def _least_loaded(self, choice: Sequence[int]) -> int:
        return min(choice, key=lambda worker: (self._workers[worker].load, worker))

    def _catch_up(self, at: float) -> None:
        while self._news and self._news[0].due <= at:
            news = self._news.popleft()
            index = self._index[news.worker]
            for block in news.change.stored:
                index[block] = index.get(block, 0) + 1
            for block in news.change.removed:
                left = index.get(block, 0) - 1
                if left > 0:
                    index[block] = left
                else:
                    index.pop(block, None)
