"""The small parts of a record: operations, barriers, and how digests are chained."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import GroupSpec, Removal
from .events import Event, Stored

MASK = (1 << 64) - 1


class Operation:
    """The copies of a block after one event."""

    __slots__ = ("high", "low", "ordinal", "unix_nanos")

    def __init__(self, ordinal: int, unix_nanos: int, low: int, high: int) -> None:
        self.ordinal = ordinal
        self.unix_nanos = unix_nanos
        self.low = low
        self.high = high


class Barrier:
    """An event that changed every block of the stream at once: a clear, a restart or a hole."""

    __slots__ = ("ordinal", "removal", "unix_nanos")

    def __init__(self, ordinal: int, unix_nanos: int, removal: Removal | None) -> None:
        self.ordinal = ordinal
        self.unix_nanos = unix_nanos
        self.removal = removal


def mixed(above: int, digest: int) -> int:
    """An order-dependent 64-bit combination (splitmix64's finaliser over a running sum)."""
    state = (above * 0x9E3779B97F4A7C15 + digest + 0xD1B54A32D192ED03) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def reported_ranges(events: Sequence[Event]) -> frozenset[tuple[int, ...]]:
    """Key lists of the batch's dense session stores from the root: candidates for a re-announcement."""
    return frozenset(
        tuple(event.keys.tolist())
        for event in events
        if isinstance(event, Stored)
        and event.session
        and event.parent is None
        and GroupSpec(group=0, kind=event.kind).dense
    )
