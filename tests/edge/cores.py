"""A core that holds or passes what it is given, and says so: receivers and exporters need no more to be tested."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whymiss.measures import Measures
from whymiss.pipeline import Accepted, KvOutcome
from whymiss.redaction import Redacted, Signal, untouched
from whymiss.wire.split import span_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whymiss.pipeline import KvSource


def measures() -> Measures:
    return Measures(dimensions=(), values_max=1, series_max=1000, start_unix_nanos=1)


def counted(what: Measures, name: str, **labels: str) -> float:
    """The total of a metric over all series that have the labels (dots as underscores)."""
    return sum(
        point.value
        for metric in what.snapshot()
        if metric.instrument.name == name
        for point in metric.points
        if labels.items() <= {(key.replace(".", "_"), value) for key, value in point.labels}
    )


@dataclass
class PassingCore:
    """Lets every request through at once, or holds spans for ``hold_seconds``; fails as it is told."""

    hold_seconds: float | None = None
    failure: Exception | None = None
    rejects: tuple[int, str] = (0, "")
    measures: Measures = field(default_factory=measures)
    bodies: list[tuple[Signal, bytes]] = field(default_factory=list)
    held: list[tuple[float, Redacted]] = field(default_factory=list)
    advanced_at: list[float] = field(default_factory=list)
    recorded_bytes: int = 0

    def traces(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        return self._take(untouched(Signal.TRACES, body, span_count(body), ticket=ticket), now)

    def metrics(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        return self._take(untouched(Signal.METRICS, body, 0, ticket=ticket), now)

    def logs(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        return self._take(untouched(Signal.LOGS, body, 0, ticket=ticket), now)

    def holds(self, ticket: int) -> bool:
        return any(ticket in item.tickets for _, item in self.held)

    def _take(self, item: Redacted, now: float) -> Accepted:
        if self.failure is not None:
            raise self.failure
        self.bodies.append((item.signal, item.body))
        if self.hold_seconds is None:
            return Accepted((item,), *self.rejects)
        self.held.append((now + self.hold_seconds, item))
        return Accepted((), *self.rejects)

    @property
    def next_deadline(self) -> float | None:
        return min((due for due, _ in self.held), default=None)

    def advance(self, now: float) -> tuple[Redacted, ...]:
        self.advanced_at.append(now)
        due = tuple(item for at, item in self.held if at <= now)
        self.held = [(at, item) for at, item in self.held if at > now]
        return due

    def drain(self) -> tuple[Redacted, ...]:
        held, self.held = self.held, []
        return tuple(item for _, item in held)

    @property
    def held_bytes(self) -> int:
        return sum(len(item.body) for _, item in self.held)

    def shed(self, bytes_max: int, now: float) -> tuple[Redacted, ...]:
        del now
        released: list[Redacted] = []
        while self.held_bytes > bytes_max:
            released.append(self.held.pop(0)[1])
        return tuple(released)

    def kv_frames(
        self, source: KvSource, frames: Sequence[bytes], received_unix_nanos: int, *, replayed: bool, now: float
    ) -> KvOutcome:
        raise NotImplementedError


@dataclass
class SequenceCore(PassingCore):
    """Knows of KV events the sequence numbers only, as the ledger does: what comes too soon waits."""

    applied: dict[str, list[int]] = field(default_factory=dict)
    waiting: dict[str, set[int]] = field(default_factory=dict)
    poison: bytes = b"poison"

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()

    def kv_frames(
        self, source: KvSource, frames: Sequence[bytes], received_unix_nanos: int, *, replayed: bool, now: float
    ) -> KvOutcome:
        assert received_unix_nanos > 0
        assert now > 0
        self._changed.set()
        if self.poison in frames:
            raise ZeroDivisionError
        if len(frames) < 2 or len(frames[-2]) != 8:
            return KvOutcome(kind="bad")
        seq = int.from_bytes(frames[-2], "big")
        if seq == (1 << 64) - 1:
            assert replayed
            return KvOutcome(kind="end")
        return self._place(self.applied.setdefault(source.name, []), self.waiting.setdefault(source.name, set()), seq)

    def _place(self, applied: list[int], waiting: set[int], seq: int) -> KvOutcome:
        expected = applied[-1] + 1 if applied else 0
        if seq < expected or seq in waiting:
            return KvOutcome(kind="duplicate")
        if seq > expected:
            first = not waiting
            waiting.add(seq)
            return (
                KvOutcome(kind="gap", missing_first=expected, missing_last=seq - 1)
                if first
                else KvOutcome(kind="applied")
            )
        applied.append(seq)
        while applied[-1] + 1 in waiting:
            waiting.remove(applied[-1] + 1)
            applied.append(applied[-1] + 1)
        return KvOutcome(kind="applied")

    async def until(self, happened: Callable[[], bool], *, within_seconds: float = 10.0) -> None:
        """Wait for messages until something is true."""
        async with asyncio.timeout(within_seconds):
            while not happened():
                self._changed.clear()
                await self._changed.wait()
