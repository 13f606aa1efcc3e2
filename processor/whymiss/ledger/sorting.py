"""Sorting columns of uniformly spread 64-bit numbers (block hashes, keyed digests)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .events import Keys

Rows: TypeAlias = npt.NDArray[np.uint32]
"""Row numbers of a column."""
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NO_INTEGERS: Integers = np.zeros(0, np.int64)


STEP_BITS = 16
"""Rows that are put in order in one step, as a power of two."""

NEIGHBOURS = 8
"""Rows of one value from which its last one is searched."""

_COUNTED = np.arange(1 << 19, dtype=np.uint64)


def order_of(values: Keys) -> Rows:
    """The rows in ascending order of their values, equal ones in the order in which they stand."""
    return ordered(values)[0]


def ordered(values: Keys) -> tuple[Rows, Keys]:
    """That order, and the values in it.

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
    found = values.take(packed.view(np.int64))
    if (found[1:] < found[:-1]).any():
        order = np.argsort(values, kind="stable").astype(np.uint32)
        return order, values[order]
    return order, found


def order_slices(values: Keys) -> Iterator[tuple[Rows, Keys]]:
    """The same, cut into slices of a bounded size that are found one at a time; the first may be empty."""
    slices = 1 << max(0, (values.size - 1) >> STEP_BITS).bit_length()
    if slices == 1:
        yield ordered(values)
        return
    highest = (values >> np.uint64(65 - slices.bit_length())).astype(np.uint16)
    yield np.zeros(0, np.uint32), values[:0]
    for number in range(slices):
        rows = (highest == number).nonzero()[0]
        order, found = ordered(values.take(rows))
        yield rows.take(order).astype(np.uint32), found


def ranges_of(column: Keys, needles: Keys) -> tuple[Integers, Integers] | None:
    """For needles that occur in a sorted column: which ones, repeated for each row, and the rows."""
    first = column.searchsorted(needles)
    hits = (column.take(first, mode="clip") == needles).nonzero()[0]
    if not hits.size:
        return None
    begin, wanted = first[hits], needles[hits]
    counts = np.ones(hits.size, np.int64)
    more, step = np.arange(hits.size), 1
    # Few blocks come up often in a column, and looking at the next row is cheaper than searching again.
    while step < NEIGHBOURS:
        after = begin[more] + step
        more = more[(after < column.size) & (column.take(after, mode="clip") == wanted[more])]
        if not more.size:
            return spread(hits, begin, counts)
        counts[more] += 1
        step += 1
    counts[more] = column.searchsorted(wanted[more], "right") - begin[more]
    return spread(hits, begin, counts)


def spread(owners: Integers, begin: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Each owner once a row, and the rows from ``begin`` on of each."""
    total = int(counts.sum())
    if total == owners.size:
        return owners, begin
    ends = counts.cumsum()
    rows = np.arange(total, dtype=np.int64)
    rows += (begin - ends + counts).repeat(counts)
    return owners.repeat(counts), rows
