"""Routers: who gets the next request, from an index that trails what the workers published."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.fleet.emit import Value
from tests.fleet.pool import Operation, Removed
from tests.fleet.prompts import Prompt
from tests.fleet.spec import SECOND, FleetSpec

HALF_LIFE_SECONDS = 30


class Decision(NamedTuple):
    """A pick and what the router thought of it; ``predicted`` is None of a router that knows no prefixes."""

    worker: int
    predicted: int | None = None
    best_worker: int | None = None
    best: int | None = None
    pinned: bool = False
    version: int = 0

    def said(self, spec: FleetSpec) -> Mapping[str, Value]:
        """The decision as attributes of the input contract."""
        words: dict[str, Value] = {"worker": spec.name(self.worker), "reason": spec.routing}
        if self.pinned:
            words["pinned"] = True
        if self.predicted is not None and self.best is not None and self.best_worker is not None:
            words["predicted_blocks"] = self.predicted
            words["best_worker"] = spec.name(self.best_worker)
            words["best_blocks"] = self.best
            words["index_version"] = str(self.version)
        return words


class News(NamedTuple):
    """One batch as the index will learn of it."""

    due: int
    worker: int
    stored: tuple[int, ...]
    removed: tuple[int, ...]
    swept: bool


class Router:
    """Picks by the policy of the published tables; the load of a worker decays by half in 30 seconds."""

    def __init__(self, spec: FleetSpec) -> None:
        self._spec = spec
        self._index: list[dict[int, int]] = [{} for _ in range(spec.workers)]
        self._news: deque[News] = deque()
        self._lag = round(spec.index_lag_seconds * SECOND)
        self._loads = [0.0] * spec.workers
        self._clock = 0
        self._turn = 0
        self._version = 0

    def hear(self, worker: int, operations: Iterable[Operation], prompts: Mapping[int, Prompt], at: int) -> None:
        """A batch was published; who only decodes is not in the index."""
        if worker >= self._spec.workers:
            return
        stored: list[int] = []
        removed: list[int] = []
        for one in operations:
            if isinstance(one, Removed):
                removed.append(one.key)
            elif not one.ends:
                stored.extend(prompts[one.number].keys[one.start : one.end])
        self._news.append(News(at + self._lag, worker, tuple(stored), tuple(removed), swept=False))

    def hear_swept(self, worker: int, at: int) -> None:
        """A worker published that it lost everything."""
        if worker < self._spec.workers and not self._spec.index_ignores_clears:
            self._news.append(News(at + self._lag, worker, (), (), swept=True))

    def pick(self, prompt: Prompt, at: int) -> Decision:
        """Choose a worker at a moment."""
        self._catch_up(at)
        self._decay(at)
        routing = self._spec.routing
        if routing == "rr":
            self._turn += 1
            return self._charged(prompt, Decision((self._turn - 1) % self._spec.workers))
        if routing == "sticky":
            return self._charged(prompt, Decision(prompt.session % self._spec.workers, pinned=True))
        matches = [_leading(index, prompt.keys) for index in self._index]
        best = max(matches)
        choice = list(range(len(matches)))
        if routing != "load" and best and (routing == "pa_greedy" or 2 * best >= len(prompt.keys)):
            choice = [worker for worker in choice if matches[worker] == best]
        worker = min(choice, key=lambda one: (self._loads[one], one))
        decision = Decision(worker, matches[worker], matches.index(best), best, version=self._version)
        return self._charged(prompt, decision)

    def _charged(self, prompt: Prompt, decision: Decision) -> Decision:
        self._loads[decision.worker] += len(prompt.keys) - (decision.predicted or 0)
        return decision

    def _decay(self, at: int) -> None:
        if at > self._clock:
            factor = 0.5 ** ((at - self._clock) / SECOND / HALF_LIFE_SECONDS)
            self._loads = [load * factor for load in self._loads]
            self._clock = at

    def _catch_up(self, at: int) -> None:
        while self._news and self._news[0].due <= at:
            news = self._news.popleft()
            index = self._index[news.worker]
            self._version += 1
            if news.swept:
                index.clear()
            for key in news.removed:
                left = index.get(key, 0) - 1
                if left > 0:
                    index[key] = left
                else:
                    index.pop(key, None)
            for key in news.stored:
                index[key] = index.get(key, 0) + 1


def _leading(index: dict[int, int], keys: tuple[int, ...]) -> int:
    for count, key in enumerate(keys):
        if key not in index:
            return count
    return len(keys)
