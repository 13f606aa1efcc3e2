"""The replay model of the published figures: workers with an LRU of blocks, requests that take no time.

A worker holds up to ``capacity`` blocks. A lookup is the longest resident leading run; then all blocks of
the request are touched, the last one first, and the least recently touched leave. Resident sets are
therefore closed under ancestors, and a run is found by bisection.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.fleet.traces import Ask, Trace

HALF_LIFE_SECONDS = 30
FINAL_LABELS = "FXBRHLE"
Resident: TypeAlias = "OrderedDict[int, None]"


def leading(resident: Resident, blocks: Sequence[int]) -> int:
    """How many leading blocks are resident."""
    low, high = 0, len(blocks)
    while low < high:
        middle = (low + high) // 2
        if blocks[middle] in resident:
            low = middle + 1
        else:
            high = middle
    return low


def ideal_hits(trace: Trace) -> dict[str, float]:
    """Hit ratios of one unbounded cache, by each unit that is in use."""
    seen: set[int] = set()
    hits = []
    for ask in trace.asks:
        run = next((index for index, block in enumerate(ask.blocks) if block not in seen), len(ask.blocks))
        seen.update(ask.blocks)
        hits.append(run)
    sizes = [len(ask.blocks) for ask in trace.asks]
    pairs = list(zip(hits, sizes, strict=True))
    tokens = sum(min(hit * trace.block_tokens, ask.input_length) for hit, ask in zip(hits, trace.asks, strict=True))
    return {
        "block": sum(hits) / sum(sizes),
        "token": tokens / sum(ask.input_length for ask in trace.asks),
        "per_request_mean": sum(hit / size for hit, size in pairs) / len(pairs),
        "request_full": sum(hit == size for hit, size in pairs) / len(pairs),
        "request_any": sum(hit > 0 for hit in hits) / len(pairs),
    }


def plain_lru(trace: Trace, capacity: int) -> float:
    """Hit ratio where every block reference is one access."""
    resident: Resident = OrderedDict()
    hits = references = 0
    touch, forget = resident.move_to_end, resident.popitem
    for ask in trace.asks:
        references += len(ask.blocks)
        for block in ask.blocks:
            if block in resident:
                hits += 1
                touch(block)
            else:
                resident[block] = None
                if len(resident) > capacity:
                    forget(last=False)
    return hits / references


def prefix_lru(trace: Trace, capacity: int) -> tuple[float, int]:
    """Hit ratio of one worker of the model, and how many requests were longer than its cache."""
    worker = Worker(capacity)
    hits = skipped = references = 0
    for ask in trace.asks:
        references += len(ask.blocks)
        if len(ask.blocks) > capacity:
            skipped += 1
            continue
        hits += leading(worker.resident, ask.blocks)
        worker.touch(ask.blocks)
    return hits / references, skipped


def belady(trace: Trace, capacity: int) -> float:
    """Hit ratio of the clairvoyant policy, every block reference being one access."""
    references = [block for ask in trace.asks for block in ask.blocks]
    never = len(references)
    following = [never] * never
    last: dict[int, int] = {}
    for index in range(never - 1, -1, -1):
        following[index] = last.get(references[index], never)
        last[references[index]] = index
    resident: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    hits = 0
    for block, then in zip(references, following, strict=True):
        hits += block in resident
        if block not in resident:
            while len(resident) >= capacity:
                when, victim = heapq.heappop(farthest)
                if resident.get(victim) == -when:
                    del resident[victim]
        resident[block] = then
        heapq.heappush(farthest, (-then, block))
    return hits / never


def consecutive_hits(trace: Trace) -> list[float]:
    """Per session the share of blocks that its previous request had, the first request counting as a miss."""
    before: dict[int, tuple[int, ...]] = {}
    shared: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for ask in trace.asks:
        previous = before.get(ask.session, ())
        pairs = zip(previous, ask.blocks, strict=False)
        run = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(previous), len(ask.blocks)))
        shared[ask.session] += run
        total[ask.session] += len(ask.blocks)
        before[ask.session] = ask.blocks
    return sorted(shared[session] / total[session] for session in total)


class Worker:
    """One cache of the model, with what it evicted and when."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.resident: Resident = OrderedDict()
        self.gone: dict[int, tuple[float, int]] = {}
        """Evicted blocks: when, and as which eviction of this worker."""
        self.evictions = 0
        self.load = 0.0

    def touch(self, blocks: Sequence[int], at: float = 0.0, gone: Callable[[int], None] | None = None) -> None:
        """Make all blocks resident and the most recently touched, block 0 last; evict down to the capacity."""
        resident, move = self.resident, self.resident.move_to_end
        for block in reversed(blocks):
            if block in resident:
                move(block)
            else:
                resident[block] = None
        while self.capacity is not None and len(resident) > self.capacity:
            victim, _ = resident.popitem(last=False)
            self.gone[victim] = (at, self.evictions)
            self.evictions += 1
            if gone is not None:
                gone(victim)


@dataclass
class Outcome:
    """What a fleet did with a trace; the names are those of ``expected.json``."""

    requests: int = 0
    skipped: int = 0
    requests_per_worker: list[int] = field(default_factory=list)
    evictions: int = 0
    block_refs: int = 0
    hit_blocks: int = 0
    hit_tokens: int = 0
    first_miss: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINAL_LABELS, 0))
    missed_blocks: dict[str, int] = field(default_factory=lambda: dict.fromkeys("NHLE", 0))
    recomputed_blocks: dict[str, int] = field(default_factory=lambda: dict.fromkeys("NHLE", 0))
    recomputed_tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINAL_LABELS, 0))
    held_elsewhere_and_evicted_here: int = 0
    labels: str = ""
    ages: list[float] = field(default_factory=list)
    rings: list[int] = field(default_factory=list)
    first_ages: list[float] = field(default_factory=list)
    first_rings: list[int] = field(default_factory=list)

    @property
    def labels_sha256(self) -> str:
        """One label a request, in file order, as a digest."""
        return hashlib.sha256(self.labels.encode("ascii")).hexdigest()


class Fleet:
    """Workers behind a router; ``engine_rule`` looks up all but the last token and stores full blocks only."""

    def __init__(
        self, trace: Trace, workers: int, capacity: int | None, routing: str, *, engine_rule: bool = False
    ) -> None:
        self.trace = trace
        self.capacity = capacity
        self.workers = [Worker(capacity) for _ in range(workers)]
        self.holders: Counter[int] = Counter()
        self.stored: set[int] = set()
        self.parents: set[int] = set()
        self.engine_rule = engine_rule
        self._route = {"rr": self._rr, "sticky": self._sticky, "pa": self._pa, "pa_greedy": self._greedy}[routing]
        self._turn = 0
        self._clock: float | None = None

    def run(self) -> Outcome:
        """Replay the whole trace."""
        outcome = Outcome(requests=len(self.trace.asks), requests_per_worker=[0] * len(self.workers))
        labels = []
        for ask in self.trace.asks:
            outcome.block_refs += len(ask.blocks)
            if self.capacity is not None and len(ask.blocks) > self.capacity:
                outcome.skipped += 1
                labels.append("S")
                continue
            labels.append(self._serve(ask, outcome))
        outcome.labels = "".join(labels)
        outcome.evictions = sum(worker.evictions for worker in self.workers)
        return outcome

    def _serve(self, ask: Ask, outcome: Outcome) -> str:
        self._decay(ask.at)
        index = self._route(ask)
        worker = self.workers[index]
        outcome.requests_per_worker[index] += 1
        wanted = ask.blocks
        if self.engine_rule:
            wanted = wanted[: (ask.input_length - 1) // self.trace.block_tokens]
        hits = leading(worker.resident, wanted)
        label = self._label(worker, wanted, hits)
        worker.load += len(ask.blocks) - hits
        self._count(outcome, worker, ask, wanted, hits, label)
        for parent, block in zip((-1, *ask.blocks), ask.blocks, strict=False):
            if block not in self.stored:
                self.stored.add(block)
                self.parents.add(parent)
        for block in ask.blocks[hits:]:
            self.holders[block] += block not in worker.resident
        worker.touch(ask.blocks, ask.at, self._forget)
        return label

    def _forget(self, block: int) -> None:
        self.holders[block] -= 1

    def _label(self, worker: Worker, wanted: Sequence[int], hits: int) -> str:
        if hits == len(wanted):
            return "F"
        kind = self._kind(worker, wanted[hits])
        if kind != "N":
            return kind
        if hits == 0:
            return "R"
        return "B" if wanted[hits - 1] in self.parents else "X"

    def _kind(self, worker: Worker, block: int) -> str:
        if block not in self.stored:
            return "N"
        if self.holders[block]:
            return "H"
        return "L" if block in worker.gone else "E"

    def _count(self, outcome: Outcome, worker: Worker, ask: Ask, wanted: Sequence[int], hits: int, label: str) -> None:
        outcome.hit_blocks += hits
        outcome.hit_tokens += min(hits * self.trace.block_tokens, ask.input_length)
        outcome.first_miss[label] += 1
        outcome.recomputed_tokens[label] += ask.input_length - hits * self.trace.block_tokens
        missed = wanted[hits:]
        if missed:
            outcome.recomputed_blocks["N" if label in "XBR" else label] += len(missed)
        for first, block in enumerate(missed):
            kind = self._kind(worker, block)
            outcome.missed_blocks[kind] += 1
            if kind == "H":
                outcome.held_elsewhere_and_evicted_here += block in worker.gone
            elif kind == "L":
                when, number = worker.gone[block]
                outcome.ages.append(ask.at - when)
                outcome.rings.append(worker.evictions - number)
                if first == 0:
                    outcome.first_ages.append(ask.at - when)
                    outcome.first_rings.append(worker.evictions - number)

    # --- routers ------------------------------------------------------------------------------------

    def _decay(self, at: float) -> None:
        if self._clock is not None and at > self._clock:
            for worker in self.workers:
                worker.load *= 0.5 ** ((at - self._clock) / HALF_LIFE_SECONDS)
        if self._clock is None or at > self._clock:
            self._clock = at

    def _rr(self, ask: Ask) -> int:
        del ask
        self._turn += 1
        return (self._turn - 1) % len(self.workers)

    def _sticky(self, ask: Ask) -> int:
        return ask.session % len(self.workers)

    def _pa(self, ask: Ask) -> int:
        return self._longest(ask, lambda match: 2 * match >= len(ask.blocks))

    def _greedy(self, ask: Ask) -> int:
        return self._longest(ask, lambda match: match > 0)

    def _longest(self, ask: Ask, enough: Callable[[int], bool]) -> int:
        matches = [leading(worker.resident, ask.blocks) for worker in self.workers]
        best = max(matches)
        choice: Iterator[int] = iter(range(len(matches)))
        if best and enough(best):
            choice = (index for index in choice if matches[index] == best)
        return min(choice, key=lambda index: (self.workers[index].load, index))


def share_within(values: Sequence[float], limit: float) -> float:
    """The share of values that are at most a limit; 0 of none."""
    return bisect_right(sorted(values), limit) / len(values) if values else 0.0
