"""The fast fleet model's answers in the letters and names of the published tables."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fleet.traces import Trace
from whymiss.model import Cause, Reason
from whymiss.tools.fleet import trace as product
from whymiss.tools.fleet.replay import Fleet, Served, Why
from whymiss.tools.fleet.setup import Setup

FINAL_LABELS = "FXBRHLE"
ROUTINGS = {"rr": "round_robin", "sticky": "sticky", "pa": "prefix", "pa_greedy": "prefix_greedy"}
LABELS = {
    Cause.NONE: "F",
    Cause.NEW_CONTENT: "X",
    Cause.ROUTING_MISS: "H",
    Cause.EVICTED: "L",
    Cause.EVICTED_ELSEWHERE: "E",
}


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


def label_of(why: Why) -> str:
    """The letter of a cause."""
    if why.cause is Cause.NO_RECENT_MATCH:
        return "R" if why.reason == Reason.FIRST_SEEN else "B"
    return LABELS[why.cause]


def as_product(trace: Trace) -> product.Trace:
    """A trace of the tests as the tool's own, read by another reader."""
    asks = tuple(product.Ask(ask.at, ask.input_length, ask.blocks, ask.session) for ask in trace.asks)
    return product.Trace(trace.key, trace.block_tokens, asks, len({ask.session for ask in asks}), 0)


def replay(trace: Trace, workers: int, capacity: int | None, routing: str, *, engine_rule: bool = False) -> Outcome:
    """Replay a trace on the fast model; without ``engine_rule`` whole prompts are looked up, partial blocks too."""
    setup = Setup(workers=workers, capacity=capacity, routing=ROUTINGS[routing])
    fleet = Fleet(setup, trace.block_tokens, last_token=engine_rule)
    outcome = Outcome(requests=len(trace.asks), requests_per_worker=[0] * workers)
    left_at: list[list[float]] = [[] for _ in fleet.workers]
    for ask in as_product(trace).asks:
        served = fleet.serve(ask)
        outcome.block_refs += len(ask.blocks)
        if served is None:
            outcome.skipped += 1
            outcome.labels += "S"
        else:
            _count(outcome, fleet, ask, served, trace.block_tokens)
            _count_history(outcome, fleet, ask, served, left_at[served.worker])
            departures = fleet.workers[served.worker].cache.departures - len(left_at[served.worker])
            left_at[served.worker].extend([ask.at] * departures)
    outcome.evictions = sum(worker.cache.departures for worker in fleet.workers)
    return outcome


def _count(outcome: Outcome, fleet: Fleet, ask: product.Ask, served: Served, size: int) -> None:
    label = label_of(served.missed[0].why) if served.missed else "F"
    outcome.labels += label
    outcome.requests_per_worker[served.worker] += 1
    outcome.hit_blocks += served.hits
    outcome.hit_tokens += min(served.hits * size, ask.prompt_tokens)
    outcome.first_miss[label] += 1
    outcome.recomputed_tokens[label] += ask.prompt_tokens - served.hits * size
    if served.missed:
        outcome.recomputed_blocks["N" if label in "XBR" else label] += served.queried - served.hits
    gone = fleet.workers[served.worker].cache.gone
    for why, begin, end in served.missed:
        kind = label_of(why)
        outcome.missed_blocks["N" if kind in "XBR" else kind] += end - begin
        if kind == "H":
            outcome.held_elsewhere_and_evicted_here += sum(block in gone for block in ask.blocks[begin:end])


def _count_history(outcome: Outcome, fleet: Fleet, ask: product.Ask, served: Served, left_at: Sequence[float]) -> None:
    gone = fleet.workers[served.worker].cache.gone
    for why, begin, end in served.missed:
        if why.cause is not Cause.EVICTED:
            continue
        for index in range(begin, end):
            number = gone[ask.blocks[index]]
            outcome.ages.append(ask.at - left_at[number])
            outcome.rings.append(len(left_at) - number)
            if index == served.hits:
                outcome.first_ages.append(outcome.ages[-1])
                outcome.first_rings.append(outcome.rings[-1])


def share_within(values: Sequence[float], limit: float) -> float:
    """The share of values that are at most a limit; 0 of none."""
    return bisect_right(sorted(values), limit) / len(values) if values else 0.0
