"""Retention and compaction scheduling: which segments expire, by time or by bytes, and how much compaction a batch pays for."""

from __future__ import annotations

import math
from collections.abc import Sequence as Several

from cachetools import TTLCache

from .segment.segment import Segment
from .segment_store import CompactionWork
from .stream import StreamRecord

LATE_SECONDS = 300.0
"""Kept beyond the window: a span arrives when its request has ended, and is judged later still."""

PARTS = 4
"""A segment covers at most this part of the window, so that time passes in steps of it."""

SMALL_ROWS = 1 << 15
"""Operations up to which upkeep goes before what is larger: else small segments pile up behind it."""

GENTLY_FROM = 7 / 8
"""Part of the bytes allowed from which the oldest history is folded into what is held before the window."""

BACKLOG = 48
"""Segments of a stream from which its upkeep is hurried; a few for each level, and one for each two million operations, are no crowd."""

PORTIONS = 3
"""Portions of upkeep that are done when a stream has a new segment, or when time passes."""


class Retention:
    """Expires the segments of all streams, and merges those that stay."""

    def __init__(self, seconds: float, bytes_max: int) -> None:
        self.span = seconds / PARTS
        self._bytes_max = bytes_max
        self._now = 0.0
        self._seconds = seconds + LATE_SECONDS
        self._segments: TTLCache[Segment, StreamRecord] = TTLCache(math.inf, self._seconds, timer=lambda: self._now)
        self._leaving: dict[Segment, StreamRecord] = {}
        """Segments whose time is over and that are not folded yet."""
        self._small: dict[StreamRecord, CompactionWork] = {}
        self._large: dict[StreamRecord, CompactionWork] = {}
        self._idle: dict[StreamRecord, int] = {}
        """Streams without small upkeep to begin, until another number says that their segments changed."""
        self._turn = 0

    def maintain(self, record: StreamRecord, records: Several[StreamRecord], now: float) -> None:
        """Take in a stream's new segments, and do a bounded part of its upkeep."""
        self._now = max(self._now, now)
        self._note(record)
        self._keep_up(record)
        # After that: what was merged can weigh more than its parts.
        self._shrink(records)

    def catch_up(self, record: StreamRecord) -> None:
        """Do a portion of upkeep between a stream's new segments, where many wait for it, or several that are over."""
        segments = record.history.segments
        if len(segments) > BACKLOG or (len(segments) > 1 and segments[1].due):  # guard: window-crowded
            self._go_on(record)

    def pass_time(self, records: Several[StreamRecord], now: float) -> None:
        """Let go of what is due, and do a part of somebody's upkeep."""
        self._now = max(self._now, now)
        self._flush_idle(records)
        for record in records:
            self._note(record)
        self._expire()
        for _ in records:
            self._turn = (self._turn + 1) % len(records)
            if self._keep_up(records[self._turn]):
                break
        self._shrink(records)

    def _flush_idle(self, records: Several[StreamRecord]) -> None:
        """Lay out what one stream noted long ago: many may have fallen silent at once, and each takes its time."""
        for record in records:
            since = record.pending_since
            if since is not None and self._now - since >= self.span:  # guard: window-pending
                record.settle(self._now)
                return  # guard: window-silent

    def finish(self, record: StreamRecord) -> None:
        """Do all of a stream's upkeep that there is."""
        self._note(record)
        while self._go_on(record):
            self._note(record)

    def _note(self, record: StreamRecord) -> None:
        if record.history.fresh:
            self._expire()
            for segment in record.history.fresh:
                if segment.newest + self._seconds <= self._now:  # guard: window-checkpoint
                    # It comes out of a checkpoint.
                    self._let_go(segment, record)
                else:
                    self._segments[segment] = record
            record.history.fresh.clear()

    def _expire(self) -> None:
        for segment, record in self._segments.expire():
            self._let_go(segment, record)

    def _let_go(self, segment: Segment, record: StreamRecord) -> None:
        segment.due = True  # guard: window-due
        self._leaving[segment] = record
        self._idle.pop(record, None)

    def _keep_up(self, record: StreamRecord) -> bool:
        """Do some portions of a stream's upkeep; returns whether there was something to do."""
        # All of one stream: what one portion cost too much, the next one does not spend.
        portions = 0
        while portions < PORTIONS and self._go_on(record):
            portions += 1
        return portions > 0

    def _go_on(self, record: StreamRecord) -> bool:
        """Do a portion of what is small, or else of what is large; returns whether there was something to do."""
        for under_way, begin in ((self._small, self._small_of), (self._large, self._large_of)):
            work = under_way.get(record) or begin(record)
            if work is not None:
                replaced = next(work.steps)
                if replaced:
                    under_way.pop(record, None)
                    self._forget(record, replaced, work)
                    self._note(record)
                else:
                    under_way[record] = work
                return True
        return False

    def _small_of(self, record: StreamRecord) -> CompactionWork | None:
        version = record.history.version
        if self._idle.get(record) == version:
            return None
        work = record.history.next_compaction(self.span, SMALL_ROWS)
        if work is None:
            self._idle[record] = version
        return work

    def _large_of(self, record: StreamRecord) -> CompactionWork | None:
        return record.history.next_compaction(self.span)

    def _forget(self, record: StreamRecord, replaced: Several[Segment], work: CompactionWork) -> None:
        for segment in replaced:
            self._segments.pop(segment, None)
            self._leaving.pop(segment, None)
        if work.expires:  # guard: window-expired
            record.expired()

    def _shrink(self, records: Several[StreamRecord]) -> None:
        """Give up the oldest history while there is too much."""
        held = sum(record.history.nbytes for record in records)
        left = held - sum(segment.nbytes for segment in self._leaving)
        while left > self._bytes_max * GENTLY_FROM and len(self._segments):  # guard: window-gently
            segment = next(iter(self._segments))
            self._let_go(segment, self._segments.pop(segment))
            left -= segment.nbytes
        while held > self._bytes_max:  # guard: window-bytes
            # Folding keeps what is still resident and takes its time: there is too much for that.
            largest = max(records, key=lambda record: record.history.nbytes)  # guard: window-largest
            before = largest.history.nbytes
            self._drop(largest)
            if largest.history.nbytes >= before:
                return
            held += largest.history.nbytes - before

    def _drop(self, record: StreamRecord) -> None:
        for noted in (self._small, self._large, self._idle):
            noted.pop(record, None)
        if record.history.segments:
            segment = record.history.drop_oldest()
            self._segments.pop(segment, None)
            self._leaving.pop(segment, None)
            record.expired()
        else:
            record.forget()  # guard: window-forget
