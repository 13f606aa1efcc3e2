"""Which of a stream's segments may name a block or know a digest, by one look at a filter of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from .filters import FOR_DIGESTS, FOR_KEYS, WORD, Density, Filter, Probe, mask_of
from .segments import Place, Run, Segment
from .sorting import Integers

_Opened: TypeAlias = tuple[memoryview, int, Run, Segment]
"""A run, with the words of its filter and their number: who asks many filters about one number is spared a call each."""

_Digested: TypeAlias = tuple[memoryview, int, Filter, Segment]
"""The same of the digests of a segment's blocks."""


class Passing:
    """The segments and their runs, which are given oldest first and never change."""

    def __init__(self, parts: Sequence[Segment]) -> None:
        self._parts = parts
        self._runs: dict[Place, list[_Opened]] = {}
        self._chained: list[_Opened] | None = None
        self._digests: list[_Digested] | None = None

    def of_any(self, place: Place, probe: Probe, last: int) -> Iterator[tuple[Run, Segment, Integers]]:
        """The runs of a place that begin before an ordinal and may name some blocks, oldest first, and which ones."""
        runs = [one for one in self._of(place) if one[3].begin < last]
        for number, some in _which([run.filter for _, _, run, _ in runs], probe, FOR_KEYS):
            yield runs[number][2], runs[number][3], some

    def with_any_digest(self, probe: Probe, last: int) -> Sequence[tuple[Segment, Integers]]:
        """The segments that begin before an ordinal and may know some digests of own tokens, oldest first, and which."""
        known = [one for one in self._digested() if one[3].begin < last]
        return [(known[number][3], some) for number, some in _which([one[2] for one in known], probe, FOR_DIGESTS)]

    def with_digest(self, digest: int, last: int) -> Iterator[Segment]:
        """The same of one digest."""
        high, mask = digest >> 32, mask_of(digest, FOR_DIGESTS.marks)
        for view, words, _, part in self._digested():
            if part.begin >= last:
                break
            if view[(high * words) >> 32] & mask == mask:
                yield part

    def _digested(self) -> Sequence[_Digested]:
        if self._digests is None:
            filters = [(found, part) for part in self._parts if (found := part.chains.own_filter) is not None]
            self._digests = [(*found.opened, found, part) for found, part in filters]
        return self._digests

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


def _which(filters: Sequence[Filter], probe: Probe, density: Density) -> Iterator[tuple[int, Integers]]:
    """The filters of one density that let some of the numbers pass, and which ones: all are asked at once."""
    count = probe.values.size
    if not count or not filters:
        return
    words = np.empty((len(filters), count), WORD)
    for row, one in zip(words, filters, strict=True):
        one.look_up(probe, row)
    marks = probe.marks(density.marks)
    words &= marks
    found = (words == marks).ravel().nonzero()[0]
    begin = 0
    for number, end in enumerate(found.searchsorted(np.arange(count, count * len(filters) + 1, count)).tolist()):
        if begin < end:
            yield number, found[begin:end] - number * count
        begin = end
