"""What the pipeline and the edge ask of a history beside its questions: writing, health, snapshots.

``Ledger`` is one history; another one (in other processes, on other machines) stands in by these protocols alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from ..model import Coverage, FleetView, StreamId
from .events import KvBatch
from .sequencer import Delivery, SequencedBatch

EVER: Final = 1 << 62
"""Later than any time in nanoseconds."""


class StreamHealth(StrEnum):
    """How far a stream can be relied on."""

    WHOLE = "whole"
    """Its record has no hole in the window."""
    BROKEN = "broken"
    """It has one, or begins inside the window."""
    WAITING = "waiting"
    """Batches wait behind a gap."""
    SILENT = "silent"
    """Nothing came for long."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say of one record."""

    health: StreamHealth
    heard: float
    """When its newest batch came, in seconds on the clock of ``accept``; 0 where none has come since the start."""
    model: str | None
    coverage: Coverage
    """Of all time."""


class HistoryWriting(Protocol):
    """Takes batches in. Times ``now`` are seconds on one clock of the caller's."""

    def accept(self, stream: StreamId, seq: int, batch: KvBatch, delivery: Delivery) -> SequencedBatch:
        """Take one batch of a publisher."""
        ...

    def expire(self, now: float) -> int:
        """End the waits that are over, let go of history that is due. Returns how many waits ended in a hole."""
        ...

    def settle(self) -> int:
        """End all waits at once (shutdown). Returns how many there were."""
        ...

    @property
    def next_deadline(self) -> float | None:
        """When ``expire`` next has work."""
        ...


class HistoryHealth(Protocol):
    """Says how much there is of a history, and how far it can be relied on."""

    def health(self, now: float) -> Mapping[StreamId, StreamHealth]:
        """How far each stream can be relied on."""
        ...

    def conditions(self, now: float) -> Mapping[StreamId, Condition]:
        """What there is to say of each record."""
        ...

    def ends(self) -> Mapping[StreamId, int]:
        """The position after everything that was taken, of each stream."""
        ...

    @property
    def retained_operations(self) -> int:
        """Stores and removals held."""
        ...

    @property
    def retained_bytes(self) -> int:
        """Bytes held."""
        ...


class HistorySnapshots(Protocol):
    """Writes a history out, and takes one up."""

    def dump(self, *, now: float, unix_nanos: int) -> Iterator[bytes]:
        """The state at the first step, in pieces; ``now`` and ``unix_nanos`` are one moment on two clocks."""
        ...

    def load(self, content: bytes | memoryview, *, now: float, unix_nanos: int) -> int:
        """Take up what ``dump`` gave into a history that is empty; returns how many streams. Raises ``BadInput``."""
        ...


class History(FleetView, HistoryWriting, HistoryHealth, Protocol):
    """All that the pipeline uses of a history."""
