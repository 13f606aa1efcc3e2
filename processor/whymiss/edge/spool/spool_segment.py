"""What is known of one segment: which of its records are settled, and whether it can go."""

from __future__ import annotations

from .records import NOTE_BYTES, RECORD_BYTES


class SpoolSegment:
    """Records from ``first`` on. A segment that is closed and has nothing left in it can be removed."""

    __slots__ = ("_settled", "closed", "first", "left", "size", "unnoted")

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.size = size
        """Bytes that it takes of the spool, the notes still to come included."""
        self.left = 0
        """Records that are not settled."""
        self.closed = False
        """Whether no record will be added any more."""
        self.unnoted: list[int] = []
        """Settled records that are not noted on disk yet."""
        self._settled = bytearray()

    @property
    def next_sequence(self) -> int:
        """The number of the record that would be added next."""
        return self.first + len(self._settled)

    @property
    def is_over(self) -> bool:
        """Whether it can be removed."""
        return self.closed and not self.left

    def grow(self, size: int) -> None:
        """Take so many more bytes of the spool."""
        self.size += size

    def close(self) -> None:
        """Let no more records be added."""
        self.closed = True

    def add(self, *, settled: bool = False) -> None:
        """Add a record, settled already or not."""
        self._settled.append(settled)
        self.left += not settled

    def settle(self, sequence: int) -> bool:
        """Note that a record need not be replayed; False where that is known, or there is no such record."""
        at = sequence - self.first
        if not 0 <= at < len(self._settled) or self._settled[at]:
            return False
        self._settled[at] = True
        self.left -= 1
        self.unnoted.append(sequence)
        return True


def cost(body: bytes) -> int:
    """Bytes of the spool that a request takes, until its segment goes."""
    return RECORD_BYTES + len(body) + NOTE_BYTES
