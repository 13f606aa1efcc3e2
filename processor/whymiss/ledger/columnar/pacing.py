"""Pacing: background work as generators of bounded steps that say what each step cost, so that no batch waits for it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Result = TypeVar("Result")
Entry = TypeVar("Entry", np.uint64, np.int64, np.uint32, np.bool_, np.void)

Steps: TypeAlias = Generator[int, None, Result]
"""Work that stops after each step and says what the step cost; what it makes comes at the end.

A cost is told in rows of eight bytes that are copied to memory that was not used before, in about the same time.
"""

STEP_BITS = 14
STEP_ROWS = 1 << STEP_BITS
"""Rows that one step works on."""

PORTION = 3 << 16
"""What is spent in one go: some one and a half milliseconds, of which there is room for several."""

LARGE_BYTES = 1 << 22
"""Bytes from which numpy asks for large pages for an array."""

PAGE_BYTES = 1 << 21
"""A large page: a virtual machine that touches one for the first time can take five milliseconds, however little it writes there."""

TOUCHING = 2 * PORTION
"""What it costs to touch a large page."""

TAKING = 2
"""What a row costs that is looked up."""
SORTING = 4
"""What a row costs that is put in order."""
MARKING = 5
"""What a row costs that is marked in a filter."""


def at_once(steps: Steps[Result]) -> Result:
    """Do all of it."""
    results: list[Result] = []
    for _ in _noting(steps, results):
        pass
    return results[0]


def in_portions(steps: Steps[Result], portion: int = PORTION) -> Iterator[Result | None]:
    """Do it in portions of about one cost: ``None`` after each, what it makes at the end.

    What a step cost beyond its portion is taken off those that follow.
    """
    results: list[Result] = []
    spent = 0
    for cost in _noting(steps, results):
        spent += cost
        while spent >= portion:
            spent -= portion
            yield None
    yield results[0]


def _noting(steps: Steps[Result], found: list[Result]) -> Iterator[int]:
    found.append((yield from steps))


def step_slices(size: int) -> Iterator[slice[int, int, None]]:
    """The rows of a column in steps."""
    for begin in range(0, size, STEP_ROWS):
        yield slice(begin, min(begin + STEP_ROWS, size))


def step_parts(column: npt.NDArray[Entry]) -> Iterator[npt.NDArray[Entry]]:
    """A column in steps."""
    return (column[rows] for rows in step_slices(column.size))


def prefaulted(whole: npt.NDArray[Entry]) -> Steps[npt.NDArray[Entry]]:
    """A column that is still to be filled, once each of its large pages is there."""
    if whole.nbytes >= LARGE_BYTES:
        for row in (*range(0, whole.size, PAGE_BYTES // whole.itemsize), whole.size - 1):
            whole[row : row + 1] = np.zeros(1, whole.dtype)
            yield TOUCHING
    return whole


def filled(whole: npt.NDArray[Entry], parts: Iterable[npt.NDArray[Entry]], cost: int = 1) -> Steps[npt.NDArray[Entry]]:
    """Fill a column from its first row on with parts that are made one a step, at a cost a row."""
    begin, words = 0, max(1, whole.itemsize // 8)
    yield from prefaulted(whole)
    for part in parts:
        whole[begin : begin + part.size] = part
        begin += part.size
        yield part.size * words * cost
    return whole


def concatenated(columns: Sequence[npt.NDArray[Entry]]) -> Steps[npt.NDArray[Entry]]:
    """Columns of one type, at least one, one after the other."""
    whole = np.empty(sum(column.size for column in columns), columns[0].dtype)
    return filled(whole, (part for column in columns for part in step_parts(column)))


def taken(columns: Sequence[npt.NDArray[Entry]], rows: npt.NDArray[np.int64]) -> Steps[npt.NDArray[Entry]]:
    """Some rows, in ascending order, of columns of one type that are numbered one after the other."""
    return filled(np.empty(rows.size, columns[0].dtype), _taken(columns, rows), TAKING)


def _taken(columns: Sequence[npt.NDArray[Entry]], rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[Entry]]:
    first = begin = 0
    for column in columns:
        end = int(rows.searchsorted(first + column.size))
        for some in step_parts(rows[begin:end]):
            yield column.take(some - first)
        first, begin = first + column.size, end
