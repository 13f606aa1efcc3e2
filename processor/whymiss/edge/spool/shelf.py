"""The segments of a spool, of this run and of those before: what is settled, and what has to be read back."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from ..telemetry.logs import Log
from .records import (
    NOTE_BYTES,
    Damage,
    Notes,
    Reader,
    decode_mark,
    decode_notes,
    encode_attempt,
    encode_mark,
    encode_notes,
)
from .spool_segment import SpoolSegment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...measures import Measures
    from .records import Record
    from .volume import Volume

_RECORDS_MAX: Final = 1 << 32
"""More than any segment can hold."""

_log = Log("spool")


class Shelf:
    """All segments in order. A segment goes when it is closed and nothing in it is left to settle."""

    def __init__(self, volume: Volume, measures: Measures, attempts_max: int) -> None:
        self._volume = volume
        self._measures = measures
        self._attempts_max = attempts_max
        self._attempts: dict[int, int] = {}
        self._segments: list[SpoolSegment] = []
        self._old: deque[SpoolSegment] = deque()
        self._unnoted: set[SpoolSegment] = set()
        self._replaying: dict[int, int] = {}
        self.opened = asyncio.Event()
        """Set once the directory could be opened; until then nothing can be accepted."""
        self.size = 0
        """Bytes on disk, and those that notes will take."""
        self.replaying_bytes = 0
        """Bytes of requests that were read back and are not settled."""
        self.next_sequence = 1

    @property
    def has_unnoted(self) -> bool:
        """Whether anything is settled and the disk does not know it."""
        return bool(self._unnoted)

    def open(self) -> None:
        """Open the directory; raises ``OSError``, and ``BlockingIOError`` where another process has it."""
        found = self._volume.open()
        try:
            if found:
                self.next_sequence = self._mend(found)
            self._segments = [SpoolSegment(first, self._volume.size(first)) for first in found]
            self._volume.remove_orphans(found)
        except OSError:
            self._volume.close()
            raise
        self._blame()
        self._old.extend(self._segments)
        self.size = sum(segment.size for segment in self._segments)
        self.opened.set()
        _log.info("the spool is open", segments=len(self._segments), bytes=self.size)

    def begin(self, size: int) -> SpoolSegment:
        """Know of a new, empty segment."""
        if self._segments and self._segments[-1].first == self.next_sequence:
            stale = self._segments.pop()  # it never held a record, and could not be removed
            self._unnoted.discard(stale)
            self.size -= stale.size
        segment = SpoolSegment(self.next_sequence, size)
        self._segments.append(segment)
        self.size += size
        return segment

    def place(self, segment: SpoolSegment, size: int) -> int:
        """Add a record that takes so many bytes to a segment; returns its number."""
        sequence = segment.next_sequence
        segment.add()
        segment.grow(size)
        self.size += size
        self.next_sequence = segment.next_sequence
        return sequence

    def settle(self, sequence: int) -> None:
        """Forget a request; one that is not known, or forgotten, is no mistake."""
        self.replaying_bytes -= self._replaying.pop(sequence, 0)
        self._attempts.pop(sequence, None)
        at = bisect_right(self._segments, sequence, key=_first) - 1
        if at >= 0 and self._segments[at].settle(sequence):
            self._unnoted.add(self._segments[at])
            self.drop_if_over(self._segments[at])

    def mark(self, sequence: int) -> None:
        """Have the disk know which request is tried now, in case the process does not survive it; 0 is none."""
        try:
            self._volume.mark(encode_mark(sequence))
        except OSError as error:
            self.fail("mark", error)

    def unmark(self) -> None:
        """Forget that anything was tried."""
        try:
            self._volume.unmark()
        except OSError as error:
            self.fail("mark", error)

    def postpone(self, sequence: int) -> bool:
        """Leave a request to the next start; false where it was tried often enough, and is given up."""
        self.replaying_bytes -= self._replaying.pop(sequence, 0)
        if self._note_attempt(sequence) < self._attempts_max:
            return True
        self.settle(sequence)
        return False

    def close(self, segment: SpoolSegment) -> None:
        """Know that a segment gets no more records."""
        segment.close()
        self._unnoted.add(segment)
        self.drop_if_over(segment)

    def drop_if_over(self, segment: SpoolSegment) -> None:
        """Remove a segment in which nothing is left."""
        if not segment.closed or segment.left:
            return
        try:
            self._volume.remove(segment.first)
        except OSError as error:
            self.fail("remove", error)
            self._unnoted.add(segment)
            return
        self._segments.remove(segment)
        self._unnoted.discard(segment)
        self.size -= segment.size

    def note(self) -> None:
        """Note on disk what is settled, so that a crash does not replay it."""
        for segment in sorted(self._unnoted, key=_first):
            self.drop_if_over(segment)
            if segment not in self._unnoted:
                continue
            try:
                end = segment.next_sequence if segment.closed else None
                self._volume.note(segment.first, encode_notes(segment.unnoted, end))
            except OSError as error:
                self.fail("note", error)
                return
            segment.unnoted.clear()
            self._unnoted.discard(segment)

    def backlog(self) -> Iterator[Record]:
        """Read back, in order, what earlier runs left unsettled; one request is in memory at a time."""
        while self._old:
            yield from self._read_back(self._old.popleft())

    def fail(self, operation: str, error: OSError) -> None:
        """Count a failure of the disk."""
        self._measures.count("whymiss.spool.failures", operation=operation)
        _log.error("the spool's disk failed", error=error, operation=operation)

    def _blame(self) -> None:
        """Note an attempt in vain of the request that the process of an earlier run did not survive."""
        try:
            sequence = decode_mark(self._volume.marked())
            self._volume.unmark()
        except OSError as error:
            self.fail("mark", error)
            return
        if sequence:
            _log.warning("an earlier run ended while it tried a request", request=sequence)
            self._note_attempt(sequence)

    def _note_attempt(self, sequence: int) -> int:
        """Note one more attempt in vain; return how many there were."""
        attempts = self._attempts[sequence] = self._attempts.get(sequence, 0) + 1
        at = bisect_right(self._segments, sequence, key=_first) - 1
        if at >= 0:
            segment = self._segments[at]
            try:
                self._volume.note(segment.first, encode_attempt(sequence))
            except OSError as error:
                self.fail("note", error)
            else:
                segment.grow(NOTE_BYTES)
                self.size += NOTE_BYTES
        return attempts

    def _mend(self, found: list[int]) -> int:
        """Cut what a crash tore off the last segment, and return the first sequence number that is free."""
        first = found[-1]
        try:
            notes = decode_notes(self._volume.notes(first))
            if notes.end is not None:
                return notes.end
            file, size = self._volume.read(first)
            with file:
                reader = Reader(file, size, first)
                for _ in reader:
                    pass
        except OSError as error:
            self.fail("read", error)
            return first + _RECORDS_MAX
        if reader.damage is None:
            return reader.next_sequence
        self._count_end(first, reader, notes)
        try:
            if reader.next_sequence == first:
                self._volume.remove(first)
                found.pop()
            else:
                self._volume.cut(first, reader.sound_bytes)
        except OSError as error:
            self.fail("cut", error)
            return first + _RECORDS_MAX
        return reader.next_sequence

    def _read_back(self, segment: SpoolSegment) -> Iterator[Record]:
        try:
            notes = decode_notes(self._volume.notes(segment.first))
            file, size = self._volume.read(segment.first)
        except OSError as error:
            self.fail("read", error)
            return
        with file:
            reader = Reader(file, size, segment.first)
            records = iter(reader)
            while True:
                try:
                    record = next(records, None)
                except OSError as error:  # a bad sector; what is behind it is kept for another start
                    self.fail("read", error)
                    return
                if record is None:
                    break
                settled = record.sequence in notes.settled
                segment.add(settled=settled)
                if not settled and not self._is_given_up(record.sequence, notes):
                    self._replaying[record.sequence] = len(record.body)
                    self.replaying_bytes += len(record.body)
                    yield record
        self._count_end(segment.first, reader, notes)
        segment.close()
        self.drop_if_over(segment)

    def _is_given_up(self, sequence: int, notes: Notes) -> bool:
        """Whether a request has been tried in vain often enough; then it is settled and counted here."""
        tried = notes.attempts.get(sequence, 0)
        if tried < self._attempts_max:
            if tried:
                self._attempts[sequence] = tried
            return False
        _log.error("a request from disk is given up", limit_key="spool.attempts_max", attempts=tried)
        self._measures.count("whymiss.spool.replayed_requests", outcome="given_up")
        self.settle(sequence)
        return True

    def _count_end(self, first: int, reader: Reader, notes: Notes) -> None:
        """Count what the reading of a segment did not reach; what was torn off between records shows by its end only."""
        damage, lost = reader.damage, notes.count_lost(reader.next_sequence)
        if damage is None and (not lost or notes.end is None):
            return
        kind = damage or Damage.TORN
        self._measures.count("whymiss.spool.corrupt_records", lost, kind=kind.value)
        # A crash tears off what nobody had been told was taken.
        write = _log.warning if kind is Damage.TORN and notes.end is None else _log.error
        write("a segment of the spool is damaged", segment=first, offset=reader.sound_bytes, kind=kind, records=lost)


def _first(segment: SpoolSegment) -> int:
    return segment.first
