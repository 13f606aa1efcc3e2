"""Time index: from event ordinals to the publisher's time and back, by bisection over batches."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

import numpy as np

from ..model import PublishedBatch
from .columnar.kernels import Integers


class TimeIndex:
    """The batches of one stream, in order. A clock that falls back is held at its highest."""

    def __init__(self) -> None:
        self.nanos = array("q")
        self.ends = array("q")
        self.lives: list[tuple[int, int]] = []
        """Where consecutive numbering begins anew: the batch's place here and its sequence number."""
        self.life = 0
        """Place of the first batch of the publisher's present life."""

    def append(self, seq: int, unix_nanos: int, end: int) -> None:
        """Add a batch that ends before ordinal ``end``."""
        place = len(self.nanos)
        if not self.lives or seq - self.lives[-1][1] != place - self.lives[-1][0]:
            self.lives.append((place, seq))
        self.nanos.append(max(unix_nanos, self.nanos[-1]) if place else unix_nanos)  # guard: time-falls-back
        self.ends.append(end)

    def __len__(self) -> int:
        return len(self.nanos)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return 16 * len(self.nanos)

    def begin_life(self) -> None:
        """The publisher began to number anew."""
        self.life = len(self.nanos)

    def time_of(self, seq: int) -> int | None:
        """The time of the batch with a number in the present life; ``None`` where it is not kept."""
        for index in range(len(self.lives) - 1, -1, -1):
            place, first = self.lives[index]
            end = self.lives[index + 1][0] if index + 1 < len(self.lives) else len(self.nanos)
            wanted = place + seq - first
            if place <= wanted < end:
                return self.nanos[wanted] if wanted >= self.life else None  # guard: time-life
            if place <= self.life:
                return None
        return None

    def position_at(self, unix_nanos: int) -> int:
        """Events of all batches flushed at or before a time; 0 where none is kept that was."""
        index = bisect_right(self.nanos, unix_nanos)
        return self.ends[index - 1] if index else 0  # guard: time-position-after

    def confirmed_position(self, unix_nanos: int) -> int | None:
        """The position after the first batch flushed later than a time, or ``None`` before it came."""
        index = bisect_right(self.nanos, unix_nanos)
        return self.ends[index] if index < len(self.ends) else None  # guard: time-confirmed

    def around(self, earliest: int, latest: int) -> tuple[int, int, int | None]:
        """The positions at two times, and the confirmed one of the later."""
        first, last = bisect_right(self.nanos, earliest), bisect_right(self.nanos, latest)
        ends = self.ends
        return ends[first - 1] if first else 0, ends[last - 1] if last else 0, ends[last] if last < len(ends) else None

    def batches_from(self, position: int, lost: Collection[int], restarts: Collection[int]) -> Sequence[PublishedBatch]:
        """The batches of which no event is before a position; ``lost`` and ``restarts`` are ordinals of resets.

        A reset between batches has an ordinal of its own, so that the batch behind it begins one later.
        """
        index = bisect_left(self.ends, position)
        if index < len(self.ends) and self.ends[index] == position:
            index += 1  # guard: batches-position
        found, before = [], self.ends[index - 1] if index else position
        for place in range(index, len(self.ends)):
            after = self.ends[place]
            inside = range(before, after)
            broken = any(ordinal in inside for ordinal in lost)
            anew = any(ordinal in inside for ordinal in restarts)
            found.append(PublishedBatch(self.nanos[place], before, after, broken, anew))
            before = after
        return found

    def published_before(self, unix_nanos: int) -> int | None:
        """When the last batch before a time was flushed; ``None`` where none is kept that was."""
        index = bisect_left(self.nanos, unix_nanos)
        return self.nanos[index - 1] if index else None

    def nanos_at(self, ordinal: int) -> int:
        """The time of the batch that an event came in."""
        index = bisect_right(self.ends, ordinal)
        return self.nanos[min(index, len(self.nanos) - 1)]

    def nanos_of(self, ordinals: Integers) -> Integers:
        """Publisher's time of the batch of each event: int64 nanoseconds since the epoch, aligned with ``ordinals``."""
        index = np.frombuffer(self.ends, np.int64).searchsorted(ordinals, "right")
        found: Integers = np.frombuffer(self.nanos, np.int64)[index]
        return found

    def forget(self, edge: int) -> int:
        """Drop batches before the one after which ``edge`` was the position, or before which. Returns how many."""
        dropped = bisect_left(self.ends, edge)
        if dropped == len(self.ends) or self.ends[dropped] > edge:
            dropped = max(0, dropped - 1)
        if dropped:
            del self.nanos[:dropped]
            del self.ends[:dropped]
            self.life = max(0, self.life - dropped)
            moved = [(place - dropped, seq) for place, seq in self.lives]
            current = bisect_right(moved, 0, key=lambda life: life[0])
            past = moved[:current]
            self.lives = ([(0, past[-1][1] - past[-1][0])] if past else []) + moved[current:]
        return dropped
