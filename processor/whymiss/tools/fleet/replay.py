"""Replay a trace on one fleet, and give every missed block its cause.

Each block that was missed is judged by itself, so that what is lost adds up: the blocks from the first missed one
on are, in this order, promised by a router's old index, held by another worker, once held here, once held by others
only, never stored. A live verdict is one for the whole lookup, and is that of the first missed block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from ...model import Cause, Reason
from .cache import Cache, leading
from .routing import Pick, Router
from .setup import Setup
from .trace import Ask, Trace
from .worker import Worker, merged

HALF_LIFE_SECONDS = 30
EXPIRED = "expired"
"""A reason of ``evicted`` that no live verdict has: engines do not drop blocks for their age."""
REPORT_EVERY = 500
"""Requests between two reports of progress."""


class Why(NamedTuple):
    """A cause and its refinement, as a live verdict would name them."""

    cause: Cause
    reason: str = ""


class Run(NamedTuple):
    """Missed blocks in a row that have one cause: from ``begin`` up to ``end``."""

    why: Why
    begin: int
    end: int


class Served(NamedTuple):
    """What became of one request; ``hits`` counts the leading blocks found, those in the tier included."""

    worker: int
    queried: int
    """Blocks that were looked up: the last token of a prompt is always computed."""
    hits: int
    loaded: int
    """Of the hits, those that only the tier had."""
    missed: tuple[Run, ...]


class Outcome(msgspec.Struct, kw_only=True):
    """What a fleet did with a trace. Counts of tokens are of the prompts that were served."""

    requests: int = 0
    refused: int = 0
    """Requests longer than a worker's cache: no engine can take them."""
    queried_tokens: int = 0
    hit_tokens: int = 0
    loaded_tokens: int = 0
    """Of the hits, those that came from the tier."""
    unmatchable_tokens: int = 0
    """Ends of prompts that fill no whole block, and last tokens: computed by every fleet."""
    missed_tokens: Counter[Why] = msgspec.field(default_factory=Counter)
    """Tokens of missed blocks, each by its own cause."""
    lookups: Counter[Why] = msgspec.field(default_factory=Counter)
    """Requests by the cause of their first missed block, as live verdicts count them."""
    requests_of: list[int] = msgspec.field(default_factory=list)
    """By worker."""
    computed_tokens_of: list[int] = msgspec.field(default_factory=list)
    """By worker: prompt tokens that it had to compute."""


class Fleet:
    """Workers behind a router. ``last_token`` is off only to reproduce tables that look up whole prompts."""

    def __init__(self, setup: Setup, block_tokens: int, *, last_token: bool = True) -> None:
        self.setup = setup
        self.workers = [
            Worker(Cache(setup.capacity, setup.keep_seconds), tier, shared=setup.tier is not None and setup.tier.shared)
            for tier in _tiers(setup)
        ]
        self._router = Router(setup, self.workers)
        self._block_tokens = block_tokens
        self._last_token = last_token
        self._stored: set[int] = set()
        """Blocks that any worker ever stored."""
        self._parents: set[int] = set()
        """Blocks that any other was ever stored behind."""
        self._clock: float | None = None

    def run(self, trace: Trace, progress: Callable[[int], None] = lambda _: None) -> Outcome:
        """Replay a whole trace; ``progress`` is told how many requests are through."""
        outcome = Outcome(requests_of=[0] * len(self.workers), computed_tokens_of=[0] * len(self.workers))
        for number, ask in enumerate(trace.asks):
            if number % REPORT_EVERY == 0:
                progress(number)
            served = self.serve(ask)
            if served is None:
                outcome.refused += 1
            else:
                self._count(ask, served, outcome)
        progress(len(trace.asks))
        return outcome

    def serve(self, ask: Ask) -> Served | None:
        """Serve the next request; None: it is longer than a worker's cache and is not served."""
        capacity, blocks = self.setup.capacity, ask.blocks
        if capacity is not None and len(blocks) > capacity:
            return None
        at = self._pass_time(ask.at)
        pick = self._router.pick(blocks, ask.session, at)
        worker = self.workers[pick.worker]
        wanted = blocks
        if self._last_token:
            wanted = blocks[: (ask.prompt_tokens - 1) // self._block_tokens]
        own = hits = leading(worker.cache.resident, wanted)
        if worker.tier is not None:
            hits = leading(worker.tier.resident, wanted, own)
        missed = tuple(self._judge(pick, wanted, hits)) if hits < len(wanted) else ()
        worker.load += len(blocks) - hits
        self._remember(blocks)
        changes = worker.touch(blocks, at)
        if self._router.follows:
            self._router.hear(pick.worker, merged(changes), at)
        return Served(pick.worker, len(wanted), hits, hits - own, missed)

    def _pass_time(self, at: float) -> float:
        """Let time pass up to a request's moment; returns what the time is now, which never goes back."""
        before = self._clock
        if before is not None and at <= before:
            return before
        self._clock = at
        if before is not None:
            for worker in self.workers:
                worker.load *= 0.5 ** ((at - before) / HALF_LIFE_SECONDS)
        if self.setup.keep_seconds is not None:
            for index, worker in enumerate(self.workers):
                changes = worker.expire(at)
                if changes and self._router.follows:
                    self._router.hear(index, merged(changes), at)
        return at

    def _judge(self, pick: Pick, wanted: Sequence[int], hits: int) -> Iterator[Run]:
        """The missed blocks by cause, in the order of the table; each set is closed under ancestors, hence a run."""
        worker, end = self.workers[pick.worker], len(wanted)
        begin = hits
        if pick.promised > begin:
            yield Run(Why(Cause.STALE_INDEX), begin, min(pick.promised, end))
            begin = min(pick.promised, end)
        stored = leading(self._stored, wanted, begin)
        held = begin
        if begin < stored:
            first = wanted[begin]
            held = max((one.match(wanted[:stored]) for one in self.workers if one.holds(first)), default=begin)
        if held > begin:
            yield Run(Why(Cause.ROUTING_MISS, self._passed_over(pick, begin)), begin, held)
        left = leading(worker.cache.gone, wanted[:stored], held)
        yield from _evicted(worker.cache, wanted, held, left)
        if stored > left:
            yield Run(Why(Cause.EVICTED_ELSEWHERE), left, stored)
        if end > stored:
            yield Run(self._new(wanted, stored), stored, end)

    def _passed_over(self, pick: Pick, begin: int) -> str:
        if self.setup.routing == "sticky":
            return Reason.PINNED
        return Reason.HOLDER_KNOWN if pick.best > begin else Reason.HOLDER_UNKNOWN

    def _new(self, wanted: Sequence[int], begin: int) -> Why:
        if begin == 0:
            return Why(Cause.NO_RECENT_MATCH, Reason.FIRST_SEEN)
        if wanted[begin - 1] in self._parents:
            return Why(Cause.NO_RECENT_MATCH, Reason.BRANCH)
        return Why(Cause.NEW_CONTENT)

    def _remember(self, blocks: Sequence[int]) -> None:
        known = leading(self._stored, blocks)
        self._stored.update(blocks[known:])
        self._parents.update(blocks[max(known - 1, 0) : -1])

    def _count(self, ask: Ask, served: Served, outcome: Outcome) -> None:
        size = self._block_tokens
        outcome.requests += 1
        outcome.queried_tokens += ask.prompt_tokens
        outcome.hit_tokens += served.hits * size
        outcome.loaded_tokens += served.loaded * size
        outcome.unmatchable_tokens += ask.prompt_tokens - served.queried * size
        outcome.requests_of[served.worker] += 1
        outcome.computed_tokens_of[served.worker] += ask.prompt_tokens - served.hits * size
        outcome.lookups[served.missed[0].why if served.missed else Why(Cause.NONE)] += 1
        for why, begin, end in served.missed:
            outcome.missed_tokens[why] += (end - begin) * size


def _tiers(setup: Setup) -> Iterator[Cache | None]:
    if setup.tier is None:
        yield from (None for _ in range(setup.workers))
    elif setup.tier.shared:
        one = Cache(setup.tier.blocks, setup.keep_seconds)
        yield from (one for _ in range(setup.workers))
    else:
        yield from (Cache(setup.tier.blocks, setup.keep_seconds) for _ in range(setup.workers))


def _evicted(cache: Cache, wanted: Sequence[int], begin: int, end: int) -> Iterator[Run]:
    """The blocks that were held here, by the way in which they left."""
    if begin == end:
        return
    if cache.keep_seconds is None:
        yield Run(Why(Cause.EVICTED, Reason.CAPACITY), begin, end)
        return
    for expired, blocks in groupby(range(begin, end), key=lambda index: wanted[index] in cache.aged):
        indices = list(blocks)
        yield Run(Why(Cause.EVICTED, EXPIRED if expired else Reason.CAPACITY), indices[0], indices[-1] + 1)
