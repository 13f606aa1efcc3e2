"""Finding the rows of a column by value, where the column itself stands in another order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .events import Keys
from .sorting import NO_INTEGERS, Integers, Rows, order_slices, spread

ROWS_A_SLICE = 3
"""Rows in a slice of the values' range, as a power of two: how far an index is searched line by line."""

CROWDED = 256
"""Rows in one slice from which it is halved instead."""


class Index:
    """The rows in the order of their values, and where in it each slice of the values' range begins."""

    __slots__ = ("_rows", "_shift", "_starts")

    def __init__(self, column: Keys, rows: Rows, counts: Integers | None = None) -> None:
        bits = _bits(column)
        counts = _counts(column, bits) if counts is None else counts
        self._rows = rows
        self._shift = 64 - bits
        self._starts: Rows = np.concatenate((np.zeros(1, np.uint32), counts.cumsum().astype(np.uint32)))

    @classmethod
    def in_steps(cls, column: Keys) -> Iterator[Index | None]:
        """Make one in steps of a bounded size: ``None`` after each, the index at the end."""
        bits = _bits(column)
        counts = np.zeros(1 << bits, np.int64)
        rows: list[Rows] = []
        for some, values in order_slices(column):
            rows.append(some)
            counts += _counts(values, bits)
            yield None
        yield cls(column, np.concatenate(rows), counts)

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


def _counts(values: Keys, bits: int) -> Integers:
    """How many values lie in each slice."""
    return np.bincount(_slices(values, bits), minlength=1 << bits)


def _slices(values: Keys, bits: int) -> Integers:
    return (values >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(values.size, np.int64)
