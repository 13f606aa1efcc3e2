"""Finding values in a sorted column with few looks at memory: where each slice of the values' range begins in it.

Halving a column of a million rows looks at twenty places, most of them far from each other. Numbers that are spread
evenly, as hashes are, lie a few to a slice, and rows of one slice lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .events import Keys
from .sorting import Integers, Rows, ranges_of

ROWS_A_SLICE = 8
"""Rows in a slice, on average."""

SLICED_FROM = 1 << 12
"""Rows from which a column is cut into slices; fewer are near each other in any case."""

CROWDED = 64
"""Rows in one slice from which the column is halved instead."""

_HALF = np.uint64(32)
_STEP_BITS = 14


class Slices:
    """The slices of one sorted column. Immutable."""

    __slots__ = ("_count", "_starts", "_view")

    def __init__(self, starts: Rows) -> None:
        self._starts = starts
        self._view = starts.data
        self._count = starts.size - 1

    @classmethod
    def of(cls, column: Keys) -> Slices | None:
        """The slices of a column, ``None`` of a short one."""
        *_, made = cls.in_steps(column)
        return made

    @classmethod
    def in_steps(cls, column: Keys) -> Iterator[Slices | None]:
        """Make them in steps of a bounded size: ``None`` after each, the slices at the end if there are any."""
        if column.size < SLICED_FROM:
            yield None
            return
        count = column.size // ROWS_A_SLICE
        counts = np.zeros(count + 1, np.uint32)
        for begin in range(0, column.size, 1 << _STEP_BITS):
            slices = _slices(column[begin : begin + (1 << _STEP_BITS)], count)
            first, last = int(slices[0]), int(slices[-1])
            counts[first + 1 : last + 2] += np.bincount(slices - first).astype(np.uint32)
            yield None
        yield cls(counts.cumsum(dtype=np.uint32))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._starts.nbytes

    def around(self, value: int) -> tuple[int, int]:
        """Where the rows of one slice begin and end, in which a value is if it is anywhere."""
        number = ((value >> 32) * self._count) >> 32
        return self._view[number], self._view[number + 1]

    def find(self, column: Keys, needles: Keys) -> tuple[Integers, Integers] | None:
        """For needles that occur in the column: which ones, repeated for each row, and the rows, which ascend."""
        slices = _slices(needles, self._count)
        begin = self._starts.take(slices).astype(np.int64)
        slices += 1
        width = int((self._starts.take(slices) - begin).max())
        if width > CROWDED:
            return ranges_of(column, needles)
        if not width:
            return None
        # A window that begins before its slice shows no other row that has the value, nor does one that ends after it.
        begin = np.minimum(begin, column.size - width)
        windows = np.ndarray((column.size - width + 1, width), column.dtype, column, strides=(8, 8))
        same = (windows[begin] == needles[:, None]).ravel().nonzero()[0]
        if not same.size:
            return None
        which = same // width
        same -= which * width
        same += begin.take(which)
        return which, same


def _slices(values: Keys, count: int) -> Integers:
    """The slice of each value, of so many."""
    slices = values >> _HALF
    slices *= np.uint64(count)
    slices >>= _HALF
    # Signed they are taken as they are: unsigned they would be copied to be an index.
    return slices.view(np.int64)
