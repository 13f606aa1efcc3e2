"""Which of many columns a number cannot be in, without searching them.

A filter has one bit for each slice of the 64-bit range of numbers, set where the column has a number in the
slice. Numbers that are spread evenly, as hashes are, pass wrongly as often as bits are set.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from .events import Keys
from .sorting import Integers

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

    def __init__(self, values: Keys, octave: int = 0) -> None:
        """Of 8 to 16 bits a number, or twice as many for each further ``octave``."""
        # Powers of two, so that most columns share a size.
        size = max(1, 1 << max(0, (values.size - 1).bit_length() + octave))
        bits = np.zeros(8 * size, np.bool_)
        bits[((values >> np.uint64(32)) * np.uint64(8 * size)) >> np.uint64(32)] = True
        self._bytes = np.packbits(bits)
        self._view = self._bytes.data

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
