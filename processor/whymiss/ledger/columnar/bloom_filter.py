"""Register-blocked Bloom filters (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, WEA 2007).

A filter is an array of 64-bit words. A number's upper half chooses one word, and fourteen of its other bits choose a
ready-made set of bits in that word, so a test is one look at memory. Nothing that is held is ever kept out. Of numbers that
are not held, and evenly spread as hashes are, at most one in 300 passes at the density for keys and one in 1,200 at that
for digests (measured and held by ``tests/ledger/columnar/test_bloom_filter.py``). Numbers that differ in their lowest
eight bits only pass or fail together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TypeAlias, TypeVar

import msgspec
import numpy as np

from .kernels import Integers, Values
from .pacing import MARKING, Steps, at_once, prefaulted, step_parts

WORD = np.dtype("<u8")

Target = TypeVar("Target")
Opened: TypeAlias = tuple[memoryview, int, Target]
"""A filter's words, how many they are, and what it is the filter of."""

_WORD_BITS = 64
_HALF, _LOWEST, _SIX_BITS, _SIX = 32, 8, 6, 63
_ONE = np.uint64(1)
_TABLE_BITS = 14
_TABLE_MASK = (1 << _TABLE_BITS) - 1

_QUARTERS = 4
"""Sizes of filters in an octave: most segments share one, and where numbers fall is reckoned once for each size."""


class Density(msgspec.Struct, frozen=True):
    """How much of a filter each number of a column takes."""

    bits: int
    """Bits of the filter for each number, or up to a quarter more."""
    marks: int
    """Bits that each number sets."""


FOR_KEYS = Density(bits=20, marks=4)
"""At most one absent number in 300 passes."""

FOR_DIGESTS = Density(bits=30, marks=5)
"""At most one in 1,200 does: of a chain's many digests none is in most columns, and a search costs more than room."""


@cache
def _table(marks: int) -> Values:
    """Sets of that many bits, of which a number takes one: looking it up takes a quarter of the time of making it."""
    drawn = np.frombuffer(hashlib.shake_256(b"whymiss filters").digest(8 << _TABLE_BITS), WORD)
    table = _ONE << (drawn & np.uint64(_SIX))
    for number in range(1, marks):
        table |= _ONE << ((drawn >> np.uint64(_SIX_BITS * number)) & np.uint64(_SIX))
    return table.astype(np.uint64)


@cache
def _listed(marks: int) -> list[int]:
    sets: list[int] = _table(marks).tolist()
    return sets


def marks_of(values: Values, marks: int) -> Values:
    """The bits that each number sets in its word: uint64, aligned with ``values``."""
    rest = values >> np.uint64(_LOWEST)
    rest &= np.uint64(_TABLE_MASK)
    # Signed it is taken as it is: unsigned it would be copied to be an index.
    return _table(marks).take(rest.view(np.int64))


class Probe:
    """Some numbers that filters are asked about. Where they fall in a filter is reckoned once for each size."""

    __slots__ = ("_ascending", "_high", "_marks", "_words", "first", "values")

    def __init__(self, values: Values) -> None:
        self.values = values
        self.first = int(values[0]) if values.size else 0
        self._high: Values | None = None
        self._marks: dict[int, Values] = {}
        self._words: dict[int, Integers] = {}
        self._ascending: tuple[Integers, Probe] | None = None

    @property
    def ascending(self) -> tuple[Integers, Probe]:
        """(order, probe): int64 indexes that sort the numbers, and the probe of the sorted numbers, which are near in memory."""
        if self._ascending is None:
            order = self.values.argsort()
            self._ascending = order, Probe(self.values[order])
        return self._ascending

    def words(self, size: int) -> Integers:
        """The word of each number in a filter of ``size`` words: int64 indexes."""
        words = self._words.get(size)
        if words is None:
            if self._high is None:
                self._high = self.values >> np.uint64(_HALF)
            words = self._words[size] = ((self._high * np.uint64(size)) >> np.uint64(_HALF)).view(np.int64)
        return words

    def marks(self, count: int) -> Values:
        """The bits that each number sets in its word, of ``count`` each."""
        marks = self._marks.get(count)
        if marks is None:
            marks = self._marks[count] = marks_of(self.values, count)
        return marks


@lru_cache(maxsize=64)
def probe_of(keys: tuple[int, ...]) -> Probe:
    """The probe of some keys. One verdict asks many records about the same ones."""
    return Probe(np.array(keys, np.uint64))


@lru_cache(1 << 12)
def mask_of(value: int, marks: int) -> int:
    """The bits that one number sets in its word."""
    return _listed(marks)[value >> _LOWEST & _TABLE_MASK]


class BloomFilter:
    """One column's. Immutable."""

    __slots__ = ("_marks", "_view", "_words")

    def __init__(self, content: Values, marks: int) -> None:
        self._words = content
        self._view = content.data
        self._marks = marks

    @classmethod
    def of(cls, values: Values, density: Density = FOR_KEYS) -> BloomFilter:
        """The filter of a column."""
        return at_once(cls.in_steps(values, density))

    @classmethod
    def in_steps(cls, values: Values, density: Density = FOR_KEYS) -> Steps[BloomFilter]:
        """Make one in steps of a bounded size."""
        words = yield from prefaulted(np.empty(_words(values.size, density), WORD))
        for part in step_parts(words):
            part.fill(0)
            yield part.size
        for some in step_parts(values):
            _mark(words, some, density)
            yield some.size * MARKING
        return cls(words, density.marks)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._words.nbytes

    def opened_for(self, target: Target) -> Opened[Target]:
        """The filter as ``passing_one`` takes it; ``target`` is what it is the filter of."""
        return self._view, len(self._view), target

    def may_hold(self, value: int) -> bool:
        """Whether a number may be in the column."""
        mask = mask_of(value, self._marks)
        word: int = self._view[((value >> _HALF) * len(self._view)) >> _HALF]
        return word & mask == mask

    def look_up(self, probe: Probe, into: Values) -> None:
        """Writes the words that the numbers fall in to ``into``: uint64, one a number."""
        # Clipped, none is copied first to be put there; and none falls beyond the last.
        self._words.take(probe.words(self._words.size), mode="clip", out=into)

    def passing(self, probe: Probe) -> Integers:
        """Which of the numbers may be in the column: int64 indexes into the probe, ascending."""
        marks = probe.marks(self._marks)
        found: Integers = ((self._words.take(probe.words(self._words.size)) & marks) == marks).nonzero()[0]
        return found


# What follows is ``may_hold`` and ``passing`` for many filters: a call for each filter would cost more than its answer.


def passing_one(filters: Iterable[Opened[Target]], value: int, density: Density) -> Iterator[Target]:
    """The targets of the filters of one density that may hold a number, in their order."""
    high, mask = value >> _HALF, mask_of(value, density.marks)
    for words, size, target in filters:
        if words[(high * size) >> _HALF] & mask == mask:
            yield target


def passing_many(filters: Sequence[BloomFilter], probe: Probe, density: Density) -> Iterator[tuple[int, Integers]]:
    """Asks filters of one density about many numbers in one go.

    (filter_index, number_indexes) for each filter that may hold any of them; the indexes are int64 and ascend.
    """
    count = probe.values.size
    if not count or not filters:
        return
    words = np.empty((len(filters), count), WORD)
    for row, asked in zip(words, filters, strict=True):
        asked.look_up(probe, row)
    marks = probe.marks(density.marks)
    words &= marks
    passing = (words == marks).ravel().nonzero()[0]
    begin = 0
    for number, end in enumerate(passing.searchsorted(np.arange(count, count * len(filters) + 1, count)).tolist()):
        if begin < end:
            yield number, passing[begin:end] - number * count
        begin = end


class GrowingBloomFilter:
    """Of numbers that are added as they come. More than were expected let more others pass wrongly."""

    __slots__ = ("_density", "_filter", "_words")

    def __init__(self, count: int, density: Density = FOR_KEYS) -> None:
        self._words = np.zeros(_words(count, density), WORD)
        self._filter = BloomFilter(self._words, density.marks)
        self._density = density

    def add(self, values: Values) -> None:
        """Let some numbers pass."""
        _mark(self._words, values, self._density)

    def may_hold(self, value: int) -> bool:
        """Whether a number may have been added."""
        return self._filter.may_hold(value)

    def clear(self) -> None:
        """Forget all of them."""
        self._words.fill(0)


def _mark(words: Values, values: Values, density: Density) -> None:
    where = values >> np.uint64(_HALF)
    where *= np.uint64(words.size)
    where >>= np.uint64(_HALF)
    # Signed it is taken as it is: unsigned it would be copied to be an index.
    np.bitwise_or.at(words, where.view(np.int64), marks_of(values, density.marks))


def bytes_of(count: int, density: Density) -> int:
    """Bytes that the filter of so many numbers holds."""
    return _words(count, density) * WORD.itemsize


def _words(count: int, density: Density) -> int:
    """Words of the filter of so many numbers: one of a few sizes in each octave."""
    words = -(-count * density.bits // _WORD_BITS)
    step = 1 << max(0, words.bit_length() - _QUARTERS.bit_length())
    return max(1, -(-words // step) * step)
