"""Which of a stream's runs may name a block, by one look at the filter of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from .filters import FOR_KEYS, WORD, Probe, mask_of
from .segments import Place, Run, Segment
from .sorting import Integers

_Opened: TypeAlias = tuple[memoryview, int, Run, Segment]
"""A run, with the words of its filter and their number: who asks many filters about one number is spared a call each."""


class Passing:
    """The runs of some segments, which are given oldest first and never change."""

    def __init__(self, parts: Sequence[Segment]) -> None:
        self._parts = parts
        self._runs: dict[Place, list[_Opened]] = {}
        self._chained: list[_Opened] | None = None

    def of_any(self, place: Place, probe: Probe, last: int) -> Iterator[tuple[Run, Segment, Integers]]:
        """The runs of a place that begin before an ordinal and may name some blocks, oldest first, and which ones."""
        runs = [one for one in self._of(place) if one[3].begin < last]
        count = probe.values.size
        if not count:
            return
        words = np.empty((len(runs), count), WORD)
        for row, (_, size, run, _) in zip(words, runs, strict=True):
            run.filter.look_up(probe.words(size), row)
        marks = probe.marks(FOR_KEYS.marks)
        words &= marks
        found = (words == marks).ravel().nonzero()[0]
        bounds = found.searchsorted(np.arange(count, count * (len(runs) + 1), count)).tolist()
        begin = 0
        for number, end in enumerate(bounds):
            if begin < end:
                yield runs[number][2], runs[number][3], found[begin:end] - number * count
            begin = end

    def naming(self, place: Place, key: int) -> Iterator[tuple[Run, Segment]]:
        """The runs of a place that may name a block, oldest first."""
        return _passing(self._of(place), key)

    def chains_naming(self, key: int) -> Iterator[tuple[Run, Segment]]:
        """The runs of all chained places that may name a block, newest first."""
        if self._chained is None:
            runs = [(run, part) for part in reversed(self._parts) for run in part.runs.values() if run.chained]
            self._chained = [(*run.filter.opened, run, part) for run, part in runs]
        return _passing(self._chained, key)

    def _of(self, place: Place) -> Sequence[_Opened]:
        runs = self._runs.get(place)
        if runs is None:
            known = [(run, part) for part in self._parts if (run := part.runs.get(place)) is not None]
            runs = self._runs[place] = [(*run.filter.opened, run, part) for run, part in known]
        return runs


def _passing(runs: Sequence[_Opened], key: int) -> Iterator[tuple[Run, Segment]]:
    high, mask = key >> 32, mask_of(key, FOR_KEYS.marks)
    return ((run, part) for view, words, run, part in runs if view[(high * words) >> 32] & mask == mask)
