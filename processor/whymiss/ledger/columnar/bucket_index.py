"""Bucket index: a sparse index of a sorted column, by where each bucket of the value range begins in it.

Binary search in a column of a million rows looks at twenty places, most of them far from each other. Numbers that are
spread evenly, as hashes are, lie a few to a bucket, and rows of one bucket lie side by side.
"""

from __future__ import annotations

import numpy as np

from .kernels import CROWDED, Integers, Rows, Values, join_sorted, sliding_windows
from .pacing import TAKING, Steps, at_once, step_parts

ROWS_A_BUCKET = 8
"""Rows in a bucket, on average."""

INDEXED_FROM = 1 << 12
"""Rows from which a column gets an index; fewer are near each other in any case."""

_HALF = np.uint64(32)


class BucketIndex:
    """Where each bucket of one sorted column begins. Immutable."""

    __slots__ = ("_count", "_starts", "_view")

    def __init__(self, starts: Rows) -> None:
        self._starts = starts
        self._view = starts.data
        self._count = starts.size - 1

    @classmethod
    def of(cls, column: Values) -> BucketIndex | None:
        """The index of a sorted column; ``None`` for a short one, which needs none."""
        return at_once(cls.in_steps(column))

    @classmethod
    def in_steps(cls, column: Values) -> Steps[BucketIndex | None]:
        """Make them in steps of a bounded size; ``None`` of a short column."""
        if column.size < INDEXED_FROM:
            return None
        count = column.size // ROWS_A_BUCKET
        starts = np.empty(count + 1, np.uint32)
        begin = filled_until = 0
        for some in step_parts(column):
            slices = _buckets(some, count)
            first, after = int(slices[0]), int(slices[-1]) + 1
            # A slice without a row begins where the next one does, and the first of these may have begun before them.
            starts[filled_until : first + 1] = begin
            starts[first + 1 : after + 1] = np.bincount(slices - first).cumsum() + begin
            begin, filled_until = begin + some.size, after + 1
            yield some.size * TAKING
        starts[filled_until:] = begin
        return cls(starts)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._starts.nbytes

    def bucket_of(self, value: int) -> tuple[int, int]:
        """Begin and end of the rows of the only bucket that can hold a value."""
        number = ((value >> 32) * self._count) >> 32
        return self._view[number], self._view[number + 1]

    def find(self, column: Values, needles: Values) -> tuple[Integers, Integers] | None:
        """Joins needles with the column: (needle_index, row), equal-length int64 arrays sorted by needle_index, then row.

        ``None`` without a match.
        """
        slices = _buckets(needles, self._count)
        begin = self._starts.take(slices).astype(np.int64)
        slices += 1
        width = int((self._starts.take(slices) - begin).max())
        if width > CROWDED:
            return join_sorted(column, needles)
        if not width:
            return None
        # A window that begins before its slice shows no other row that has the value, nor does one that ends after it.
        begin = np.minimum(begin, column.size - width)
        same = (sliding_windows(column, width)[begin] == needles[:, None]).ravel().nonzero()[0]
        if not same.size:
            return None
        which = same // width
        same -= which * width
        same += begin.take(which)
        return which, same


def _buckets(values: Values, count: int) -> Integers:
    """The bucket of each value, of ``count`` buckets: int64."""
    slices = values >> _HALF
    slices *= np.uint64(count)
    slices >>= _HALF
    # Signed they are taken as they are: unsigned they would be copied to be an index.
    return slices.view(np.int64)
