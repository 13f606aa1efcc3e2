"""The bytes of a segment: a header, then records until the end. Nothing here knows files.

A segment is ``magic, first sequence, CRC``; a record is ``length, sequence, signal, CRC, body``, little-endian.
Sequence numbers rise by one from record to record and from segment to segment, so that what is missing can
be counted, and nothing that merely looks like a record is taken for one. Notes are in a file of their own
beside the segment: the sequence numbers of what is settled, those of what was tried in vain, once a time, and the
number after its last record once that is known, each with a CRC.
"""

from __future__ import annotations

import struct
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from ...redaction import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import BinaryIO

_MAGIC: Final = b"WMSPOOL1"
_HEADER: Final = struct.Struct("<8sQI")
_RECORD: Final = struct.Struct("<IQBI")
_CHECKED: Final = struct.Struct("<IQB")
_NOTE: Final = struct.Struct("<QI")

HEADER_BYTES: Final = _HEADER.size
RECORD_BYTES: Final = _RECORD.size
"""What a record costs beside its body."""
NOTE_BYTES: Final = _NOTE.size
_END: Final = 1 << 63
"""Marks a note as the end of the segment."""
_ATTEMPT: Final = 1 << 62
"""Marks a note as an attempt in vain."""

_NUMBERS: Final = {Signal.TRACES: 1, Signal.METRICS: 2, Signal.LOGS: 3}
_SIGNALS: Final = {number: signal for signal, number in _NUMBERS.items()}


class Record(msgspec.Struct, frozen=True):
    """One accepted request, as it came."""

    sequence: int
    signal: Signal
    body: bytes


class Damage(StrEnum):
    """Why the reading of a segment ended before its end."""

    TORN = "torn"
    """It breaks off inside a record, as after a crash in the middle of a write."""
    CORRUPT = "corrupt"
    """Bytes are there, and they are not what was written."""


def encode_header(first: int) -> bytes:
    """Begin a segment whose first record has this sequence number."""
    return _HEADER.pack(_MAGIC, first, crc32(_MAGIC + first.to_bytes(8, "little")))


def encode_prefix(sequence: int, signal: Signal, body: bytes) -> bytes:
    """Encode the header of a record."""
    number = _NUMBERS[signal]
    check = crc32(body, crc32(_CHECKED.pack(len(body), sequence, number)))
    return _RECORD.pack(len(body), sequence, number, check)


class Notes(msgspec.Struct, frozen=True):
    """The notes beside a segment."""

    settled: frozenset[int]
    """Sequence numbers that need not be replayed."""
    end: int | None
    """The number after the last record, or ``None`` for a segment that was not closed."""
    attempts: Mapping[int, int] = {}
    """How often records were tried in vain."""

    def count_lost(self, next_sequence: int) -> int:
        """Count the unsettled records from a number on; at least one where the end is not known."""
        if self.end is None:
            return 1
        return max(0, self.end - next_sequence - sum(one >= next_sequence for one in self.settled))


def encode_notes(settled: Iterable[int], end: int | None) -> bytes:
    """Write notes to be added to those that are there."""
    numbers = [*settled, *([] if end is None else [end | _END])]
    return b"".join(_NOTE.pack(one, crc32(one.to_bytes(8, "little"))) for one in numbers)


def encode_attempt(sequence: int) -> bytes:
    """Write the note that a record was tried in vain once more."""
    return encode_notes([sequence | _ATTEMPT], None)


def encode_mark(sequence: int) -> bytes:
    """Write which record is being tried; 0 is none."""
    return encode_notes([sequence], None)


def decode_mark(content: bytes) -> int:
    """Read which record was being tried; 0 where that is none, or cannot be read."""
    return max(decode_notes(content).settled, default=0)


def decode_notes(content: bytes) -> Notes:
    """Read notes; a damaged one says nothing, and costs a duplicate."""
    whole = len(content) - len(content) % NOTE_BYTES
    sound = [one for one, check in _NOTE.iter_unpack(content[:whole]) if check == crc32(one.to_bytes(8, "little"))]
    ends = [one - _END for one in sound if one >= _END]
    return Notes(
        frozenset(one for one in sound if one < _ATTEMPT),
        ends[-1] if ends else None,
        Counter(one - _ATTEMPT for one in sound if _ATTEMPT <= one < _END),
    )


class Reader:
    """Iterates over the records of one segment, up to its end or its first damage.

    It holds one record at a time. ``first`` is the sequence number that the segment is known to begin with;
    ``size`` is that of the file, so that a damaged length asks for no memory.
    """

    def __init__(self, file: BinaryIO, size: int, first: int) -> None:
        self._file = file
        self._size = size
        self._first = first
        self.next_sequence = first
        self.damage: Damage | None = None
        """Set where the reading ended early."""
        self.sound_bytes = 0
        """Bytes from the beginning that are sound."""

    def __iter__(self) -> Iterator[Record]:
        header = self._file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            self.damage = Damage.TORN
            return
        if header != encode_header(self._first):
            self.damage = Damage.CORRUPT
            return
        self.sound_bytes = HEADER_BYTES
        while (record := self._read()) is not None:
            self.sound_bytes += RECORD_BYTES + len(record.body)
            self.next_sequence += 1
            yield record

    def _read(self) -> Record | None:
        prefix = self._file.read(RECORD_BYTES)
        if not prefix:
            return None
        # After a power failure a file may be as long as it should be, and hold zeros.
        if len(prefix) < RECORD_BYTES or not any(prefix):
            self.damage = Damage.TORN
            return None
        length, sequence, number, check = _RECORD.unpack(prefix)
        if sequence != self.next_sequence or number not in _SIGNALS:
            self.damage = Damage.CORRUPT
            return None
        if length > self._size - self.sound_bytes - RECORD_BYTES:
            self.damage = Damage.TORN
            return None
        body = self._file.read(length)
        if check != crc32(body, crc32(_CHECKED.pack(length, sequence, number))):
            self.damage = Damage.CORRUPT
            return None
        return Record(sequence, _SIGNALS[number], body)
