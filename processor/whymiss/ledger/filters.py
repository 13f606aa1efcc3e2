"""Which of many columns a number cannot be in, without searching them.

A filter has one bit for each slice of the 64-bit range of numbers, and each number of the column sets two: that
of its slice, and one in the same word that its next six bits choose. So both are tested by one look at
memory, and numbers that are spread evenly, as hashes are, pass wrongly as often as two bits in a word are set.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from .events import Keys
from .sorting import STEP_BITS, Integers

Places: TypeAlias = tuple[Integers, Keys]

WORD = np.dtype("<u8")

_WORD_BITS = 64
_SECOND, _SIX = 26, 63


class Probe:
    """Some numbers that filters are asked about. Where they fall in a filter is reckoned once for each size."""

    __slots__ = ("_ascending", "_high", "_places", "_second", "first", "values")

    def __init__(self, values: Keys) -> None:
        self.values = values
        self.first = int(values[0]) if values.size else 0
        self._high: Keys | None = None
        self._second: Keys | None = None
        self._places: dict[int, Places] = {}
        self._ascending: tuple[Integers, Probe] | None = None

    @property
    def ascending(self) -> tuple[Integers, Probe]:
        """The order of the numbers, and the same numbers in it: they fall in neighbouring places of memory then."""
        if self._ascending is None:
            order = self.values.argsort()
            self._ascending = order, Probe(self.values[order])
        return self._ascending

    def places(self, size: int) -> Places:
        """The word of each number in a filter of ``size`` words, and its two bits."""
        found = self._places.get(size)
        if found is None:
            if self._high is None or self._second is None:
                self._high = self.values >> np.uint64(32)
                self._second = _ONE << ((self.values >> np.uint64(_SECOND)) & np.uint64(_SIX))
            bits = (self._high * np.uint64(_WORD_BITS * size)) >> np.uint64(32)
            masks = self._second | (_ONE << (bits & np.uint64(_SIX)))
            found = self._places[size] = (bits >> np.uint64(6)).astype(np.int64), masks
        return found


_ONE = np.uint64(1)


@lru_cache(maxsize=64)
def probe_of(keys: tuple[int, ...]) -> Probe:
    """The probe of some keys. One verdict asks many records about the same ones."""
    return Probe(np.array(keys, np.uint64))


def second_bit(value: int) -> int:
    """The bit that a number sets beside that of its slice."""
    return 1 << ((value >> _SECOND) & _SIX)


class Filter:
    """One column's. Immutable."""

    __slots__ = ("_view", "_words")

    def __init__(self, content: Keys) -> None:
        self._words = content
        self._view = content.data

    @classmethod
    def of(cls, values: Keys, octave: int = 0) -> Filter:
        """The filter of a column, with 8 to 16 bits a number, or twice as many for each further ``octave``."""
        *_, content = cls._made(values, octave)
        return cls(content)

    @classmethod
    def in_steps(cls, values: Keys, octave: int = 0) -> Iterator[Filter | None]:
        """Make one in steps of a bounded size: ``None`` after each, the filter at the end."""
        for content in cls._made(values, octave):
            yield cls(content) if content.size else None

    @staticmethod
    def _made(values: Keys, octave: int) -> Iterator[Keys]:
        # Powers of two, so that most columns share a size.
        bits = max(_WORD_BITS, 8 << max(0, (values.size - 1).bit_length() + octave))
        flags = np.zeros(bits, np.bool_)
        for begin in range(0, values.size, 1 << STEP_BITS):
            some = values[begin : begin + (1 << STEP_BITS)]
            places = some >> np.uint64(32)
            places *= np.uint64(bits)
            places >>= np.uint64(32)
            # Signed they are taken as they are: unsigned ones would be copied to be indexes.
            flags[places.view(np.int64)] = True
            places &= np.uint64(-_WORD_BITS & (bits - 1))
            second = some >> np.uint64(_SECOND)
            second &= np.uint64(_SIX)
            places |= second
            flags[places.view(np.int64)] = True
            yield values[:0]
        yield np.packbits(flags, bitorder="little").view(WORD)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._words.nbytes

    @property
    def opened(self) -> tuple[memoryview, int]:
        """Its words and the number of its bits, for who asks many filters about one number."""
        return self._view, _WORD_BITS * len(self._view)

    def may_hold(self, value: int) -> bool:
        """Whether a number may be in the column."""
        bit = ((value >> 32) * _WORD_BITS * len(self._view)) >> 32
        mask = second_bit(value) | 1 << (bit & _SIX)
        word: int = self._view[bit >> 6]
        return word & mask == mask

    def passing(self, probe: Probe) -> Integers:
        """Which of the numbers may be in the column."""
        places, masks = probe.places(self._words.size)
        found: Integers = ((self._words.take(places) & masks) == masks).nonzero()[0]
        return found
