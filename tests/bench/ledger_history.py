"""A fleet's history of many operations: how it fills, what it weighs, and how long a verdict's questions take."""

from __future__ import annotations

import random
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tests.bench.ledger_load import NANOS, Message, Published
from tests.bench.ledger_peers import DIGESTER
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.ledger.residency.facts import LazyChainFacts
from whymiss.ledger.retention import LATE_SECONDS
from whymiss.model import Block, Residency, StreamId

WINDOW_SECONDS = 3600.0

BEYOND = 1.2
"""What is published, as a part of what is retained: the window has begun to move."""

EXPIRE_SECONDS = 0.25
"""How often a service lets time pass."""

OPERATIONS_A_BATCH = 128

LOOKUPS = 12_000
"""Lookups to ask about, drawn out of all that is published."""

HELD_NANOS = 2 * NANOS
"""After a lookup its verdict is asked for: so long a request is held."""

LOST = frozenset({Residency.RESIDENT, Residency.EVICTED})
"""A chain is held, or lost, as far as its blocks are in these states."""

Column = npt.NDArray[np.float64]

Answer = TypeVar("Answer")


@dataclass
class Asked:
    """A lookup that missed: its chain, and what the publishers said before and after it."""

    stream: StreamId
    keys: tuple[int, ...]
    parent: int | None
    unix_nanos: int


@dataclass
class Pauses:
    """Milliseconds that single calls took, on the processor and on the wall."""

    # Not lists: the garbage collector would walk over them, and its pauses would be the bench's own.
    processor: array[float] = field(default_factory=lambda: array("d"))
    wall: array[float] = field(default_factory=lambda: array("d"))

    def take(self, call: Callable[[], object]) -> None:
        """Make a call and note what it took."""
        wall, own = time.perf_counter(), time.thread_time()
        call()
        self.processor.append((time.thread_time() - own) * 1e3)
        self.wall.append((time.perf_counter() - wall) * 1e3)


class History:
    """Fills a ledger from a fleet until its window moves."""

    def __init__(self, operations: int, engines: int) -> None:
        self.operations = operations
        self.engines = engines
        seconds = WINDOW_SECONDS + LATE_SECONDS
        self.ledger = Ledger(window_seconds=WINDOW_SECONDS, bytes_max=1 << 40, digester=DIGESTER)
        self.ingest = Pauses()
        self.pruning = Pauses()
        self.asked: list[Asked] = []
        self.live: dict[str, list[float]] = {}
        """Milliseconds of each question that was asked while the fleet published, once the window was full."""
        self._due: deque[Asked] = deque()
        self.taken = 0
        step = round(seconds * NANOS * OPERATIONS_A_BATCH / operations)
        # A cache holds what a fiftieth of the window stores, so most of a window's blocks were evicted.
        held = max(8, operations // 2 // 50 // engines // 256)
        self._published = Published(engines, held, step, round(operations * BEYOND), LOOKUPS)
        self._expired = 0.0

    def fill(self) -> None:
        """Publish and take; notes every call's time, and lookups to ask about later."""
        shown = time.monotonic()
        for message in self._published.messages():
            self._take(message)
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                print(f"  {self.taken:,} of {self.operations * BEYOND:,.0f} operations", file=sys.stderr, flush=True)

    def _take(self, message: Message) -> None:
        stream = StreamId(f"engine-{message.engine}", 0)
        now = message.unix_nanos / NANOS
        delivery = Delivery(now=now, received_unix_nanos=message.unix_nanos)

        def ingest() -> None:
            self.ledger.accept(stream, message.seq, decode_batch(message.content, DIGESTER), delivery)

        self.ingest.take(ingest)
        self.taken += message.operations
        if now - self._expired >= EXPIRE_SECONDS:
            self._expired = now
            self.pruning.take(lambda: self.ledger.expire(now))
        self._ask(message.unix_nanos)
        prompt = message.prompt
        if prompt is not None:
            self.asked.append(Asked(stream, tuple(prompt.keys[: 1 + 200]), prompt.parent, message.unix_nanos))
            self._due.append(self.asked[-1])

    def _ask(self, unix_nanos: int) -> None:
        """Ask for the verdicts that are due, as a service does between batches."""
        while self._due and self._due[0].unix_nanos + HELD_NANOS < unix_nanos:
            took = self.live if self.taken > self.operations else {}
            ask_all(self.ledger, self._due.popleft(), took)

    @property
    def retained(self) -> int:
        """Operations in the window and in what is held where it begins."""
        return self.ledger.retained_operations

    def inside(self) -> Sequence[Asked]:
        """Lookups of the window that is left, in no order."""
        edge = self._fleet_edge() + 300 * NANOS
        kept = [one for one in self.asked if one.unix_nanos > edge]
        random.Random(5).shuffle(kept)
        return kept

    def _fleet_edge(self) -> int:
        return max(self.ledger.stream(stream).coverage(0, 1).begins_unix_nanos for stream in self.ledger.streams())


@dataclass
class Questions:
    """What evidence/ asks about one missed chain, in its order; each makes the facts that a verdict reads, and is timed."""

    ledger: Ledger
    asked: Asked
    took: dict[str, list[float]]
    """Milliseconds of each call, by what was asked."""

    def __post_init__(self) -> None:
        self.earliest, self.latest = self.asked.unix_nanos - NANOS // 10, self.asked.unix_nanos + NANOS // 10
        self.window = round(WINDOW_SECONDS * NANOS)
        self.unseen = self.held = False
        self.lost: list[LazyChainFacts] = []

    def _ask(self, name: str, question: Callable[[], Answer]) -> Answer:
        begin = time.thread_time()
        answer = question()
        self.took.setdefault(name, []).append((time.thread_time() - begin) * 1e3)
        return answer

    def all(self) -> None:
        """Ask all of them, one after the other."""
        self._own()
        if self.unseen:
            self._equal_tokens()
        self._elsewhere()
        if self.unseen and not self.held and not self.lost:
            # Where another stream held the block or lost it, its siblings decide nothing.
            self._siblings()

    def _own(self) -> None:
        ledger, stream = self.ledger, self.asked.stream
        self.position = ledger.stream(stream).position_at(self.earliest)
        ledger.stream(stream).coverage(self.earliest, self.latest)
        ledger.stream(stream).confirmed_position(self.earliest)
        self._ask("stores_between, 0.2 s", lambda: ledger.stream(stream).stores_between(self.earliest, self.latest))
        ledger.stream(stream).groups()
        ledger.stream(stream).tiers()
        self._ask(
            "coverage of the window", lambda: ledger.stream(stream).coverage(self.latest - self.window, self.latest)
        )
        states = ledger.stream(stream).as_of(self.asked.keys, self.position)
        self.unseen = self._ask("as_of, first block", lambda: states[0].state) is Residency.NEVER_SEEN
        if not self.unseen:
            self._count(states)

    def _count(self, states: LazyChainFacts) -> None:
        self._ask("as_of, all 201 blocks", lambda: states.leading(LOST))
        states.leading({Residency.RESIDENT})

    def _equal_tokens(self) -> None:
        ledger, stream, keys = self.ledger, self.asked.stream, self.asked.keys
        self._ask("block", lambda: ledger.stream(stream).block(keys[0]))
        if self.asked.parent is not None:
            ledger.stream(stream).block(self.asked.parent)
        if self._ask("same_tokens", lambda: ledger.stream(stream).same_tokens(keys[0], self.position)):
            self._ask("same_tokens_leading", lambda: ledger.stream(stream).same_tokens_leading(keys, self.position))

    def _elsewhere(self) -> None:
        stream = self.asked.stream
        block = (
            self.ledger.stream(stream).block(self.asked.keys[0]) if self.unseen and self.asked.parent is None else None
        )
        for other in self.ledger.peers(stream, 16):
            self._another(other.stream, block)
        if self.unseen and not self.held:
            for states in self.lost:
                self._count(states)

    def _another(self, other: StreamId, block: Block | None) -> None:
        ledger, key = self.ledger, self.asked.keys[0]
        before, after = self._bounds(other)
        ledger.stream(other).block_size()
        ledger.stream(other).tiers()
        ledger.stream(other).coverage(self.latest - self.window, self.latest)
        states = ledger.stream(other).as_of(self.asked.keys, before)
        first = self._ask("as_of, first block", lambda: states[0].state)
        if first is Residency.RESIDENT:
            self.held = True
            self._count(states)
        elif first is Residency.EVICTED:
            self.lost.append(states)
        self._ask("touched", lambda: ledger.stream(other).touched(key, before, after))
        if block is not None:
            self._ask("like", lambda: ledger.stream(other).like(block, before))

    def _bounds(self, other: StreamId) -> tuple[int, int]:
        ledger = self.ledger
        self._ask("clock_offset", lambda: ledger.stream(other).clock_offset)
        ledger.stream(other).confirmed_position(self.latest)
        return ledger.stream(other).position_at(self.earliest), ledger.stream(other).position_at(self.latest)

    def _siblings(self) -> None:
        ledger, asked = self.ledger, self.asked
        if self._has_siblings(asked.stream, self.position):
            self._repeats(asked.stream, self.position)
            self._ask("tokens_known", lambda: ledger.stream(asked.stream).tokens_known(asked.keys[1:]))
        for peer in ledger.peers(asked.stream, 16):
            other = peer.stream
            before, after = self._bounds(other)
            self._has_siblings(other, before)
            end = ledger.stream(other).confirmed_position(self.latest) or after
            if self._has_siblings(other, end):
                self._repeats(other, end)

    def _has_siblings(self, stream: StreamId, position: int) -> bool:
        key, parent = self.asked.keys[0], self.asked.parent
        return self._ask("siblings", lambda: self._has_sibling(stream, key, parent, position))

    def _has_sibling(self, stream: StreamId, key: int, parent: int | None, position: int) -> bool:
        return any(other != key for other in self.ledger.stream(stream).children(parent, position, limit=2))

    def _repeats(self, among: StreamId, position: int) -> None:
        own, keys = self.ledger.stream(self.asked.stream), self.asked.keys

        def repeats() -> int:
            tail = own.missed_chain(keys)
            return 0 if tail is None else self.ledger.stream(among).repeats(tail, position).blocks

        self._ask("reconverges, 201 blocks", repeats)


WHOLE = "all of a verdict's"


def ask_all(ledger: Ledger, asked: Asked, took: dict[str, list[float]]) -> None:
    """Ask all of a verdict's questions, and note what each took, and all together."""
    begin = time.thread_time()
    Questions(ledger, asked, took).all()
    took.setdefault(WHOLE, []).append((time.thread_time() - begin) * 1e3)


def holders(ledger: Ledger, asked: Asked) -> Sequence[StreamId]:
    """The other streams that have heard of the first block by the lookup."""
    found = []
    for other in ledger.peers(asked.stream, 16):
        said = other.as_of(asked.keys, other.position_at(asked.unix_nanos))
        if said[0].state is not Residency.NEVER_SEEN:
            found.append(other.stream)
    return found


def fleet_questions(ledger: Ledger, asked: Asked) -> dict[str, Callable[[], object]]:
    """The fleet's answers in one call each."""
    return {"holders of 201 blocks": lambda: holders(ledger, asked)}


def timed(history: History) -> dict[str, Column]:
    """Milliseconds that each question took, one entry a call, and all of a verdict's together, one a lookup."""
    found: dict[str, list[float]] = {}
    for asked in history.inside():
        ask_all(history.ledger, asked, found)
        for name, ask in fleet_questions(history.ledger, asked).items():
            begin = time.thread_time()
            ask()
            found.setdefault(name, []).append((time.thread_time() - begin) * 1e3)
    return columns_of(found)


def columns_of(took: dict[str, list[float]]) -> dict[str, Column]:
    """The same as columns, that of all questions together last."""
    return {name: np.array(took[name]) for name in sorted(took, key=lambda name: name == WHOLE)}
