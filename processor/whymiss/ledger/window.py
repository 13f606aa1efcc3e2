"""How long history is kept: over a time, within a number of bytes, and without holding anybody up."""

from __future__ import annotations

import math
from collections.abc import Sequence as Several

from cachetools import TTLCache

from .history import Upkeep
from .record import StreamRecord
from .segments import Segment

LATE_SECONDS = 300.0
"""Kept beyond the window: a span arrives when its request has ended, and is judged later still."""

PARTS = 4
"""A segment covers at most this part of the window, so that time passes in steps of it."""

AT_ONCE_ROWS = 1 << 15
"""Operations up to which segments are merged in one go."""

GENTLY_FROM = 7 / 8
"""Part of the bytes allowed from which the oldest history is folded into what is held before the window."""

STEPS = 2
"""Steps of upkeep that one passing of time does for streams that say nothing."""


class Window:
    """Expires the segments of all streams, and merges those that stay."""

    def __init__(self, seconds: float, bytes_max: int) -> None:
        self.span = seconds / PARTS
        self._bytes_max = bytes_max
        self._now = 0.0
        self._seconds = seconds + LATE_SECONDS
        self._segments: TTLCache[Segment, StreamRecord] = TTLCache(math.inf, self._seconds, timer=lambda: self._now)
        self._leaving: dict[Segment, StreamRecord] = {}
        """Segments whose time is over and that are not folded yet."""
        self._work: dict[StreamRecord, Upkeep] = {}
        self._turn = 0

    def tend(self, record: StreamRecord, records: Several[StreamRecord], now: float) -> None:
        """Take in a stream's new segments, and do a bounded part of its upkeep."""
        self._now = max(self._now, now)
        self._note(record)
        self._step(record)
        # After the step: what was merged can weigh more than its parts.
        self._shrink(records)

    def pass_time(self, records: Several[StreamRecord], now: float) -> None:
        """Let go of what is due, and do a part of somebody's upkeep."""
        self._now = max(self._now, now)
        for record in records:
            since = record.pending_since
            if since is not None and self._now - since >= self.span:
                record.settle(self._now)
            self._note(record)
        self._expire()
        steps = 0
        for turn in range(len(records)):
            self._turn = (self._turn + 1) % len(records)
            steps += self._step(records[self._turn])
            if steps >= STEPS and turn:
                break
        self._shrink(records)

    def finish(self, record: StreamRecord) -> None:
        """Do all of a stream's upkeep that there is."""
        self._note(record)
        while self._step(record):
            self._note(record)

    def _note(self, record: StreamRecord) -> None:
        if record.history.fresh:
            self._expire()
            for segment in record.history.fresh:
                if segment.newest + self._seconds <= self._now:
                    # It comes out of a checkpoint.
                    segment.due = True
                    self._leaving[segment] = record
                else:
                    self._segments[segment] = record
            record.history.fresh.clear()

    def _expire(self) -> None:
        for segment, record in self._segments.expire():
            segment.due = True
            self._leaving[segment] = record

    def _step(self, record: StreamRecord) -> bool:
        """Something small, or a step of what is large; returns whether there was something to do."""
        small = record.history.upkeep(self.span, AT_ONCE_ROWS)
        if small is not None:
            for replaced in small.steps:
                self._forget(record, replaced, small)
            self._note(record)
            return True
        large = self._work.get(record) or record.history.upkeep(self.span)
        if large is None:
            return False
        self._work[record] = large
        for replaced in large.steps:
            self._forget(record, replaced, large)
            return True
        del self._work[record]
        self._note(record)
        return True

    def _forget(self, record: StreamRecord, replaced: Several[Segment], work: Upkeep) -> None:
        for segment in replaced:
            self._segments.pop(segment, None)
            self._leaving.pop(segment, None)
        if replaced and work.expires:
            record.expired()

    def _shrink(self, records: Several[StreamRecord]) -> None:
        """Give up the oldest history while there is too much."""
        held = sum(record.history.nbytes for record in records)
        left = held - sum(segment.nbytes for segment in self._leaving)
        while left > self._bytes_max * GENTLY_FROM and len(self._segments):
            segment = next(iter(self._segments))
            self._leaving[segment] = self._segments.pop(segment)
            segment.due = True
            left -= segment.nbytes
        while held > self._bytes_max:
            # Folding keeps what is still resident and takes its time: there is too much for that.
            largest = max(records, key=lambda record: record.history.nbytes)
            before = largest.history.nbytes
            self._drop(largest)
            if largest.history.nbytes >= before:
                return
            held += largest.history.nbytes - before

    def _drop(self, record: StreamRecord) -> None:
        self._work.pop(record, None)
        if record.history.segments:
            segment = record.history.drop_oldest()
            self._segments.pop(segment, None)
            self._leaving.pop(segment, None)
            record.expired()
        else:
            record.forget()
