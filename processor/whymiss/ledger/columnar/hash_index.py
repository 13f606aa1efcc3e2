"""Hash index: a secondary index of the rows of an unsorted column by value.

A row's number leaves bits of its word free. They hold a *tag*, the lowest bits of the row's value, so that of the rows
of a bucket only those are looked up in the column that are likely to have the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .kernels import (
    CROWDED,
    FEW,
    NO_INTEGERS,
    Integers,
    Rows,
    Values,
    expand_ranges,
    ordered,
    partitioned,
    sliding_windows,
)
from .pacing import SORTING, TAKING, Steps, prefaulted

ROWS_A_BUCKET_BITS = 3
"""Rows in a bucket, as a power of two: how far an index is searched row by row."""

_ALL = (1 << 32) - 1


class HashIndex:
    """The row numbers in the order of their values, and where in it each bucket of the value range begins."""

    __slots__ = ("_low", "_rows", "_shift", "_starts", "_tagged", "_view")

    def __init__(self, column: Values, rows: Rows, starts: Rows | None = None) -> None:
        """``rows`` have tags already where ``starts`` are given."""
        bits = _bits(column)
        if starts is None:
            starts = np.zeros((1 << bits) + 1, np.uint32)
            starts[1:] = np.bincount(_buckets(column, bits), minlength=1 << bits).cumsum()
            rows = _tagged(rows, column.take(rows), column.size)
        self._tagged = rows
        self._rows = _row_bits(column.size)
        self._low = (1 << self._rows) - 1
        self._shift = 64 - bits
        self._starts = starts
        self._view = starts.data

    @classmethod
    def in_steps(cls, column: Values) -> Steps[HashIndex]:
        """Make one in steps of a bounded size."""
        bits = _bits(column)
        groups = yield from partitioned(column)
        rows = yield from prefaulted(np.empty(column.size, np.uint32))
        starts = np.empty((1 << bits) + 1, np.uint32)
        starts[0] = begin = 0
        # A group's values lie in as many slices as any other's.
        width = (1 << bits) // len(groups)
        for number, parts in enumerate(groups):
            some = np.concatenate(parts).astype(np.int64)
            order, values = ordered(column.take(some))
            rows[begin : begin + some.size] = _tagged(some.take(order), values, column.size)
            counts = np.bincount(_buckets(values, bits) - number * width, minlength=width)
            starts[number * width + 1 : (number + 1) * width + 1] = counts.cumsum() + begin
            begin += some.size
            yield some.size * (SORTING + TAKING)
        return cls(column, rows, starts)

    def find_one(self, column: Values, value: int) -> Integers:
        """All rows that have a value: int64, ascending."""
        number = value >> self._shift if len(self._view) > 2 else 0
        begin, end = self._view[number], self._view[number + 1]
        if end - begin > CROWDED:
            begin, end = self._binary_search(column, np.uint64(value), begin, end)
            return (self._tagged[begin:end] & np.uint32(self._low)).astype(np.int64)
        tag, low = (value << self._rows) & _ALL, self._low
        likely = [one & low for one in self._tagged[begin:end].tolist() if one ^ tag <= low]
        return np.array([row for row in likely if column.item(row) == value], np.int64)

    def find(self, column: Values, values: Values, limit: int) -> tuple[Integers, Integers]:
        """Joins values with the column: (value_index, row), int64, sorted by value_index, then row; the last ``limit`` rows of each."""
        if values.size <= FEW:
            return self._join_few(column, values.tolist(), limit)
        slices = _buckets(values, 64 - self._shift)
        begin = self._starts.take(slices).astype(np.int64)
        counts = self._starts.take(slices + 1) - begin
        width = int(counts.max())
        if width > CROWDED:
            return self._find_in_crowded(column, values, (begin, counts), limit)
        if not width:
            return NO_INTEGERS, NO_INTEGERS
        begin = np.minimum(begin, column.size - width)
        # What is beyond a slice has another value, and is found out where the values are compared.
        tagged = sliding_windows(self._tagged, width)[begin]
        tags = values.astype(np.uint32) << np.uint32(self._rows)
        likely = ((tagged ^ tags[:, None]) <= np.uint32(self._low)).ravel().nonzero()[0]
        rows = (tagged.ravel().take(likely) & np.uint32(self._low)).astype(np.int64)
        owners = likely // width
        hits = (column.take(rows) == values.take(owners)).nonzero()[0]
        return _last(owners.take(hits), rows.take(hits), limit)

    def _join_few(self, column: Values, values: Sequence[int], limit: int) -> tuple[Integers, Integers]:
        """The same: arrays of so few are slow."""
        owners, rows_found = [NO_INTEGERS], [NO_INTEGERS]
        for owner, value in enumerate(values):
            rows = self.find_one(column, value)[-limit:]
            if rows.size:
                owners.append(np.full(rows.size, owner))
                rows_found.append(rows)
        if len(owners) == 1:
            return NO_INTEGERS, NO_INTEGERS
        return np.concatenate(owners), np.concatenate(rows_found)

    def _find_in_crowded(
        self, column: Values, values: Values, bounds: tuple[Integers, Integers], limit: int
    ) -> tuple[Integers, Integers]:
        begin, counts = bounds
        for number in (counts > CROWDED).nonzero()[0].tolist():
            first, end = self._binary_search(
                column, values[number], int(begin[number]), int(begin[number] + counts[number])
            )
            begin[number], counts[number] = max(first, end - limit), min(limit, end - first)
        owners, at = expand_ranges(np.arange(values.size), begin, counts)
        rows = (self._tagged.take(at) & np.uint32(self._low)).astype(np.int64)
        hits = (column.take(rows) == values.take(owners)).nonzero()[0]
        return _last(owners.take(hits), rows.take(hits), limit)

    def _binary_search(self, column: Values, value: np.uint64, begin: int, end: int) -> tuple[int, int]:
        """Where the rows with a value begin and end, between two places of the order."""
        bounds = []
        for after in (False, True):
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                there = column[int(self._tagged[middle]) & self._low]
                if there < value or (after and there == value):
                    low = middle + 1
                else:
                    high = middle
            bounds.append(low)
        return bounds[0], bounds[1]


def _bits(column: Values) -> int:
    return max(0, (column.size - 1).bit_length() - ROWS_A_BUCKET_BITS)


def _buckets(values: Values, bits: int) -> Integers:
    """The bucket that each value is in: int64."""
    return (values >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(values.size, np.int64)


def _row_bits(rows: int) -> int:
    """Bits that a row's number takes."""
    return min(31, max(1, (rows - 1).bit_length()))


def _tagged(rows: Rows | Integers, values: Values, count: int) -> Rows:
    """Rows of so many with the tags of their values."""
    tagged = values.astype(np.uint32)
    tagged <<= np.uint32(_row_bits(count))
    tagged |= rows.astype(np.uint32, copy=False)
    return tagged


def _last(owners: Integers, rows: Integers, limit: int) -> tuple[Integers, Integers]:
    """Of rows that are grouped by owner, each owner's last ones."""
    if rows.size > limit:
        # Rank of each row among those of its value, from the last one back.
        ends = owners.searchsorted(owners, "right")
        kept = ends - np.arange(owners.size) <= limit
        return owners[kept], rows[kept]
    return owners, rows
