"""Columnar decoding of token ids: those of a large batch, without an object for each.

Most bytes of a store are its token ids, whole numbers of one, two, three or five bytes each. A decoder goes through
them one by one and guesses the next one's width wrongly half of the time. So they are covered up first, by a
header that says "so many bytes": then the events are decoded in no time, and what was covered is read as a
column. Every marker of a wider number covers the bytes after it; what nothing covers begins a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...errors import BadInput
from ..events import Keys
from .block_keys import array_header
from .schema import PAIR

COVERED_FROM = 1 << 10
"""Bytes of a batch from which its token ids are covered, if they are not wanted."""

READ_FROM = 10 << 10
"""Bytes of a batch from which they are read as a column: below, the calls take longer than what they save."""

FEW_TOKENS, FEW_BYTES = 1 << 9, 1 << 11
"""A first event with fewer token ids in a batch of so few bytes an event: covering each would take longer, too."""

GROUP_BYTES = 1 << 15
"""Bytes of token ids that are read in one go, if they are of several events."""

EVENT_BYTES_MAX = 1 << 17
"""Bytes of one event's token ids that are read as a column at all."""

COVERED_TOKENS = 1 << 6
"""Token ids of an event from which they are covered: fewer are soon decoded."""

_NAME, _NEXT = b"\xa9token_ids", b"\xaablock_size"
"""The field, and the one that follows it wherever msgspec wrote vLLM's or SGLang's struct."""

_COVER = b"\xc6"
_COVER_BYTES = 5
_WIDEST = 5
"""Bytes of a number of 32 bits."""

NO_TOKENS = (b"\x90", b"\xc0")
"""An array of none, and nil."""
_ROOM = b"\0" * 4
"""Before the first number, so that all are read as the last four bytes of themselves."""

_MARKERS = np.array([[0xCC], [0xCD], [0xCE]], np.uint8)
"""Of numbers of one, two and four bytes."""

_SMALL_MAX = np.uint8(0x7F)
_WORD = np.dtype(">u4")
_OF_WIDTH = np.array([0xFF, 0xFF, 0xFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF], np.uint32)
_ROUNDS_MAX = 16
"""Rounds in which false markers are told from true ones; where bytes are random, it takes four or five."""


class TokenField(msgspec.Struct, frozen=True, gc=False):
    """Where an event's token ids are in a payload: ``numbers`` of them in ``[begin, end)``, their header from ``at`` on."""

    numbers: int
    at: int
    begin: int
    end: int


class Covered(msgspec.Struct, frozen=True):
    """A batch whose token ids are covered."""

    payload: bytearray
    spans: list[TokenField]
    """Of each event that has any, in order."""

    @property
    def uncovered_bytes(self) -> int:
        """Bytes of all that is not covered."""
        return len(self.payload) - sum(span.end - span.begin for span in self.spans)


def cover_tokens(payload: bytes, events: int) -> Covered | None:
    """Cover the token ids of all of so many events; ``None`` where they are not found, or not worth while."""
    spans: list[TokenField] = []
    covered = bytearray(payload)
    end = apart = 0
    while True:
        # Events of one batch are often alike: the next name stands as far behind as the last one did.
        at = end + apart
        if not apart or not payload.startswith(_NAME, at):
            at = payload.find(_NAME, end)
            if at < 0:
                return Covered(covered, spans) if spans else None
        apart = at - end
        at += len(_NAME)
        try:
            count, head = (0, 1) if payload[at : at + 1] in NO_TOKENS else array_header(payload[at : at + 5])
        except BadInput:
            return None
        if count < FEW_TOKENS and not spans and len(payload) < events * FEW_BYTES:
            return None
        begin = at + head
        end = payload.find(_NEXT, begin + count)
        if end < at or end - begin > count * _WIDEST:
            return None
        if payload[begin : begin + 1] == PAIR:  # guard: tokens-pairs
            return None
        if count >= COVERED_TOKENS:
            spans.append(TokenField(count, at, begin, end))
            covered[at : at + _COVER_BYTES] = _COVER + (end - at - _COVER_BYTES).to_bytes(4, "big")


def is_covered(field: bytes) -> bool:
    """Whether an event's field is a cover."""
    return field[:1] == _COVER


def covered_by(field: bytes, span: TokenField | None) -> int:
    """How many token ids a cover covers, if it is that of a span; raises ``BadInput`` where it is not."""
    if span is None or len(field) != span.end - span.at:  # guard: tokens-elsewhere
        raise BadInput("token ids are not where they seemed to be")
    return span.numbers


def read_tokens(payload: bytes, spans: Sequence[TokenField]) -> Keys | None:
    """The token ids of all events as one uint64 column, one event after the other.

    ``None`` where one of them is anything else than a number that msgpack keeps in 32 bits, without a sign, or where
    one event has so many that telling true markers from false ones may take long.
    """
    parts: list[Keys] = []
    for group in _groups(spans):
        part = _read_group(payload, group)
        if part is None:
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _groups(spans: Sequence[TokenField]) -> Iterator[Sequence[TokenField]]:
    """Neighbours that are read in one go."""
    begin = size = 0
    for index, span in enumerate(spans):
        size += span.end - span.begin
        if size > GROUP_BYTES and index > begin:
            yield spans[begin:index]
            begin, size = index, span.end - span.begin
    yield spans[begin:]


def _read_group(payload: bytes, spans: Sequence[TokenField]) -> Keys | None:
    encoded = b"".join([_ROOM, *[payload[span.begin : span.end] for span in spans]])
    size = len(encoded) - len(_ROOM)
    starts = None if size > EVENT_BYTES_MAX else _starts(np.frombuffer(encoded, np.uint8, size, len(_ROOM)))
    if starts is None or not _begin_together(starts, spans):
        return None
    # Where a number ends is before the next one's start.
    ends = _rows(starts >> 1 | 1 << (size - 1), size)
    words = np.ndarray(size, _WORD, encoded, 1, 1).take(ends).astype(np.uint32)
    widths = np.empty_like(ends)
    widths[0] = ends[0] + 1
    np.subtract(ends[1:], ends[:-1], out=widths[1:])
    words &= _OF_WIDTH.take(widths, mode="clip")
    return words.astype(np.uint64)


def _begin_together(starts: int, spans: Sequence[TokenField]) -> bool:
    """Whether each event has as many numbers as it says."""
    for span in spans:
        size = span.end - span.begin
        own = starts & ((1 << size) - 1)
        if not own & 1 or own.bit_count() != span.numbers:  # guard: tokens-counted, tokens-kept-whole
            return False
        starts >>= size
    return True


def _starts(column: npt.NDArray[np.uint8]) -> int | None:
    """The bytes that begin a number, as bits; ``None`` where that cannot be told.

    A true marker covers the bytes of its number; one that is covered by a true marker is false. Those that no other
    covers are true.
    """
    size = column.size
    flags = np.empty((4, size), np.bool_)
    np.equal(column, _MARKERS, out=flags[:3])
    np.greater(column, _SMALL_MAX, out=flags[3])
    # As numbers with a bit a row they are shifted and compared in no time.
    packed = np.packbits(flags, axis=1, bitorder="little").tobytes()
    width = size + 7 >> 3
    narrow, wide, widest, high = (
        int.from_bytes(packed[begin : begin + width], "little") for begin in range(0, 4 * width, width)
    )
    wide |= widest
    marks = wide | narrow
    for _ in range(_ROUNDS_MAX):
        inside = _covering(marks, wide, widest)
        doubts = marks & inside
        if not doubts:
            break
        marks &= ~_covering(marks ^ doubts, wide, widest)  # guard: tokens-false
    else:
        return None
    # What begins a number is a marker, or a number below 128 itself.
    if high & ~(inside | marks) or inside >> size:  # guard: tokens-marked, tokens-ended
        return None
    return inside ^ ((1 << size) - 1)


def _covering(marks: int, wide: int, widest: int) -> int:
    """The bytes that markers cover: those of one byte, of two, and of four."""
    wide &= marks
    widest &= marks
    return marks << 1 | wide << 2 | widest << 3 | widest << 4


def _rows(bits: int, size: int) -> npt.NDArray[np.intp]:
    """The rows whose bits are set."""
    packed = np.frombuffer(bits.to_bytes(size + 7 >> 3, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little").view(np.bool_).nonzero()[0]
