"""Column kernels: sorting, joining and cutting columns of evenly spread 64-bit numbers. Knows no block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .pacing import STEP_BITS, STEP_ROWS, TAKING, Entry, Steps, step_slices

Values: TypeAlias = npt.NDArray[np.uint64]
"""Evenly spread 64-bit numbers: hashes, digests."""
Rows: TypeAlias = npt.NDArray[np.uint32]
"""Row numbers of a column."""
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NO_INTEGERS: Integers = np.zeros(0, np.int64)

DUPLICATES_SCANNED = 8
"""Rows of one value from which its last one is searched."""

FEW = 3
"""Values or rows that are looked at one by one: arrays of so few are slow."""

CROWDED = 64
"""Rows in one bucket of an index from which it is halved instead of read whole."""

_COUNTED = np.arange(1 << 19, dtype=np.uint64)


def order_of(values: Values) -> Rows:
    """The row numbers in ascending order of their values, equal values in row order: uint32, as long as ``values``."""
    return ordered(values)[0]


def ordered(values: Values) -> tuple[Rows, Values]:
    """Sorts a column stably: (row numbers, sorted values), uint32 and uint64, both as long as ``values``.

    Sorting numbers is many times faster than sorting their positions, so the position is put in the
    place of a value's lowest bits. Values that differ in those bits only are rare among hashes; where
    they do come up, the slow way is taken.
    """
    count = values.size
    if count < 2:
        return np.zeros(count, np.uint32), values
    low = np.uint64((1 << (count - 1).bit_length()) - 1)
    packed = values & ~low
    packed |= _COUNTED[:count] if count <= _COUNTED.size else np.arange(count, dtype=np.uint64)
    packed.sort()
    packed &= low
    order = packed.astype(np.uint32)
    # Signed it is taken as it is: unsigned it would be copied to be an index.
    ascending = values.take(packed.view(np.int64))
    if (ascending[1:] < ascending[:-1]).any():
        order = np.argsort(values, kind="stable").astype(np.uint32)
        return order, values[order]
    return order, ascending


def partitioned(values: Values) -> Steps[Sequence[Sequence[Rows]]]:
    """Radix partitions of a column of evenly spread numbers by the highest bits of their values, in steps.

    The row numbers of each group come as uint32 parts that ascend; every value of a group is below those of the next.
    """
    bits = (max(0, values.size - 1) >> STEP_BITS).bit_length()
    if not bits:
        return [[np.arange(values.size, dtype=np.uint32)]]
    groups: list[list[Rows]] = [[] for _ in range(1 << bits)]
    for rows in step_slices(values.size):
        highest = (values[rows] >> np.uint64(64 - bits)).astype(np.uint16)
        order = highest.argsort(kind="stable").astype(np.uint32)
        order += np.uint32(rows.start)
        begin = 0
        for group, end in zip(groups, np.bincount(highest, minlength=len(groups)).cumsum().tolist(), strict=True):
            group.append(order[begin:end])
            begin = end
        yield order.size * TAKING
    return groups


def split_by_value(
    columns: Sequence[npt.NDArray[Entry]], rows: int = STEP_ROWS
) -> Sequence[Sequence[slice[int, int, None]]]:
    """Cuts ascending columns by value: of each slice in order, its rows in every column.

    All rows of one value are in one slice, and but for those no slice has more than ``rows``.
    """
    # Between neighbouring samples of a column there are `apart` rows, and between two cuts few samples of all.
    count = len(columns)
    apart = max(1, rows // (4 * count))
    samples = np.sort(np.concatenate([column[apart::apart] for column in columns]))
    splits = samples[3 * count - 1 :: 3 * count]
    return list(zip(*(_between(column, splits) for column in columns), strict=True))


def _between(column: npt.NDArray[Entry], splits: npt.NDArray[Entry]) -> Iterator[slice[int, int, None]]:
    begin = 0
    for end in (*column.searchsorted(splits).tolist(), column.size):
        yield slice(begin, end)
        begin = end


def distinct(values: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
    """The values of a column, each once and in ascending order. Of few numpy's ``unique`` takes many times as long."""
    ascending = np.sort(values)
    kept = np.ones(ascending.size, np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=kept[1:])
    return ascending[kept]


def join_sorted(column: Values, needles: Values) -> tuple[Integers, Integers] | None:
    """Joins needles with a sorted column: (needle_index, row), equal-length int64 arrays sorted by needle_index, then row.

    ``None`` without a match. The needles need no order.
    """
    if not column.size:
        return None
    first = column.searchsorted(needles)
    hits = (column.take(first, mode="clip") == needles).nonzero()[0]
    if not hits.size:
        return None
    begin, wanted = first[hits], needles[hits]
    counts = np.ones(hits.size, np.int64)
    more, step = np.arange(hits.size), 1
    # Few blocks come up often in a column, and looking at the next row is cheaper than searching again.
    while step < DUPLICATES_SCANNED:
        after = begin[more] + step
        more = more[(after < column.size) & (column.take(after, mode="clip") == wanted[more])]
        if not more.size:
            return expand_ranges(hits, begin, counts)
        counts[more] += 1
        step += 1
    counts[more] = column.searchsorted(wanted[more], "right") - begin[more]
    return expand_ranges(hits, begin, counts)


def expand_ranges(owners: Integers, begin: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Expands ranges: (owner repeated once a row, row), equal-length int64 arrays; ``counts[i]`` rows from ``begin[i]`` on."""
    total = int(counts.sum())
    if total == owners.size and counts.min(initial=1):
        return owners, begin
    ends = counts.cumsum()
    rows = np.arange(total, dtype=np.int64)
    rows += (begin - ends + counts).repeat(counts)
    return owners.repeat(counts), rows


def sliding_windows(column: npt.NDArray[Entry], width: int) -> npt.NDArray[Entry]:
    """All windows of ``width`` rows of a column: a view of shape (size - width + 1, width) that copies nothing."""
    size = column.itemsize
    return np.ndarray((column.size - width + 1, width), column.dtype, column.data, strides=(size, size))
