"""Finding the rows of a column by value, where the column itself stands in another order."""

from __future__ import annotations

import numpy as np

from .events import Keys
from .sorting import NO_INTEGERS, Integers, Rows, ordered, partitioned, spread
from .steps import SORTING, TAKING, Steps

ROWS_A_SLICE = 3
"""Rows in a slice of the values' range, as a power of two: how far an index is searched line by line."""

CROWDED = 256
"""Rows in one slice from which it is halved instead."""


class Index:
    """The rows in the order of their values, and where in it each slice of the values' range begins."""

    __slots__ = ("_rows", "_shift", "_starts")

    def __init__(self, column: Keys, rows: Rows, starts: Rows | None = None) -> None:
        bits = _bits(column)
        if starts is None:
            starts = np.zeros((1 << bits) + 1, np.uint32)
            starts[1:] = np.bincount(_slices(column, bits), minlength=1 << bits).cumsum()
        self._rows = rows
        self._shift = 64 - bits
        self._starts = starts

    @classmethod
    def in_steps(cls, column: Keys) -> Steps[Index]:
        """Make one in steps of a bounded size."""
        bits = _bits(column)
        groups = yield from partitioned(column)
        rows = np.empty(column.size, np.uint32)
        starts = np.empty((1 << bits) + 1, np.uint32)
        starts[0] = begin = 0
        # A group's values lie in as many slices as any other's.
        width = (1 << bits) // len(groups)
        for number, parts in enumerate(groups):
            some = np.concatenate(parts).astype(np.int64)
            order, values = ordered(column.take(some))
            rows[begin : begin + some.size] = some.take(order)
            counts = np.bincount(_slices(values, bits) - number * width, minlength=width)
            starts[number * width + 1 : (number + 1) * width + 1] = counts.cumsum() + begin
            begin += some.size
            yield some.size * (SORTING + TAKING)
        return cls(column, rows, starts)

    def find_one(self, column: Keys, value: int) -> Integers:
        """All rows that have a value."""
        number = value >> self._shift if self._starts.size > 2 else 0
        begin, end = int(self._starts[number]), int(self._starts[number + 1])
        if end - begin > CROWDED:
            begin, end = self._halved(column, np.uint64(value), begin, end)
            return self._rows[begin:end].astype(np.int64)
        rows = self._rows[begin:end]
        found: Integers = rows[column[rows] == np.uint64(value)].astype(np.int64)
        return found

    def find(self, column: Keys, values: Keys, limit: int) -> tuple[Integers, Integers]:
        """Which value, and the last ``limit`` rows that have it, for each of some values."""
        slices = _slices(values, 64 - self._shift)
        begin = self._starts[slices].astype(np.int64)
        counts = self._starts[slices + 1] - begin
        crowded = (counts > CROWDED).nonzero()[0]
        for number in crowded.tolist():
            first, end = self._halved(column, values[number], int(begin[number]), int(begin[number] + counts[number]))
            begin[number], counts[number] = max(first, end - limit), min(limit, end - first)
        owners, at = spread(np.arange(values.size), begin, counts)
        rows = self._rows.take(at)
        hits = (column[rows] == values[owners]).nonzero()[0]
        if not hits.size:
            return NO_INTEGERS, NO_INTEGERS
        owners, found = owners[hits], rows[hits].astype(np.int64)
        if hits.size > limit:
            # Rank of each row among those of its value, from the last one back.
            ends = owners.searchsorted(owners, "right")
            kept = ends - np.arange(owners.size) <= limit
            owners, found = owners[kept], found[kept]
        return owners, found

    def _halved(self, column: Keys, value: np.uint64, begin: int, end: int) -> tuple[int, int]:
        """Where the rows with a value begin and end, between two places of the order."""
        bounds = []
        for after in (False, True):
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                there = column[self._rows[middle]]
                if there < value or (after and there == value):
                    low = middle + 1
                else:
                    high = middle
            bounds.append(low)
        return bounds[0], bounds[1]


def _bits(column: Keys) -> int:
    return max(0, (column.size - 1).bit_length() - ROWS_A_SLICE)


def _slices(values: Keys, bits: int) -> Integers:
    """The slice that each value lies in."""
    return (values >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(values.size, np.int64)
