"""Which of many columns a number cannot be in, without searching them.

A filter has one bit for each slice of the 64-bit range of numbers, set where the column has a number in the
slice. Numbers that are spread evenly, as hashes are, pass wrongly as often as bits are set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .events import Keys
from .sorting import STEP_BITS, Integers

Places: TypeAlias = tuple[Integers, Keys]


class Probe:
    """Some numbers that filters are asked about. Where they fall in a filter is reckoned once for each size."""

    __slots__ = ("_high", "_places", "first", "values")

    def __init__(self, values: Keys) -> None:
        self.values = values
        self.first = int(values[0]) if values.size else 0
        self._high = values >> np.uint64(32)
        self._places: dict[int, Places] = {}

    def places(self, size: int) -> Places:
        """The byte of each number in a filter of ``size`` bytes, and its bit."""
        found = self._places.get(size)
        if found is None:
            bits = (self._high * np.uint64(8 * size)) >> np.uint64(32)
            masks = np.uint8(128) >> (bits & np.uint64(7)).astype(np.uint8)
            found = self._places[size] = (bits >> np.uint64(3)).astype(np.int64), masks
        return found


class Filter:
    """One column's. Immutable."""

    __slots__ = ("_bytes", "_view")

    def __init__(self, content: npt.NDArray[np.uint8]) -> None:
        self._bytes = content
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
    def _made(values: Keys, octave: int) -> Iterator[npt.NDArray[np.uint8]]:
        # Powers of two, so that most columns share a size.
        size = max(1, 1 << max(0, (values.size - 1).bit_length() + octave))
        bits = np.zeros(8 * size, np.bool_)
        for begin in range(0, values.size, 1 << STEP_BITS):
            some = values[begin : begin + (1 << STEP_BITS)]
            bits[((some >> np.uint64(32)) * np.uint64(8 * size)) >> np.uint64(32)] = True
            yield bits[:0].view(np.uint8)
        yield np.packbits(bits)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._bytes.nbytes

    @property
    def opened(self) -> tuple[memoryview, int]:
        """Its bytes and the number of its bits, for who asks many filters about one number."""
        return self._view, 8 * len(self._view)

    def may_hold(self, value: int) -> bool:
        """Whether a number may be in the column."""
        bit = ((value >> 32) * 8 * len(self._view)) >> 32
        return bool(self._view[bit >> 3] & (128 >> (bit & 7)))

    def passing(self, probe: Probe) -> Integers:
        """Which of the numbers may be in the column."""
        places, masks = probe.places(self._bytes.size)
        found: Integers = (self._bytes[places] & masks).nonzero()[0]
        return found
