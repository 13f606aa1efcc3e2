"""Which of a stream's segments may name a block or know a digest, by one look at a filter of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from ..columnar.bloom_filter import FOR_DIGESTS, FOR_KEYS, WORD, BloomFilter, Density, Probe, mask_of
from ..columnar.kernels import Integers
from .operations import Run
from .segment import Place, Segment

_Opened: TypeAlias = tuple[memoryview, int, int, int, Run, Segment]
"""A run, with the words of its filter, their number, and where its segment begins and ends.

So who asks many filters about one number is spared some calls for each.
"""

_Digested: TypeAlias = tuple[memoryview, int, int, BloomFilter, Segment]
"""The words of a filter of digests, their number, and where its segment begins."""

_HALF = 32


class Pruning:
    """The segments and their runs, which are given oldest first and never change."""

    def __init__(self, parts: Sequence[Segment]) -> None:
        self._parts = parts
        self._runs: dict[Place, list[_Opened]] = {}
        self._chained: list[_Opened] | None = None
        self._digests: list[_Digested] | None = None

    def runs_naming_any(self, place: Place, probe: Probe, last: int) -> Iterator[tuple[Run, Segment, Integers]]:
        """The runs of a place that begin before an ordinal and may name some blocks, oldest first, and which ones."""
        runs = [(run, part) for _, _, begin, _, run, part in self._of(place) if begin < last]
        for number, some in _which([run.filter for run, _ in runs], probe, FOR_KEYS):
            yield *runs[number], some

    def segments_with_any_digest(self, probe: Probe, last: int) -> Sequence[tuple[Segment, Integers]]:
        """The segments that begin before an ordinal and may know some digests of own tokens, oldest first, and which."""
        known = [one for one in self._digested() if one[2] < last]
        return [(known[number][4], some) for number, some in _which([one[3] for one in known], probe, FOR_DIGESTS)]

    def segments_with_digest(self, digest: int, last: int) -> Sequence[Segment]:
        """The same of one digest."""
        high, mask = digest >> _HALF, mask_of(digest, FOR_DIGESTS.marks)
        return [
            part
            for view, words, begin, _, part in self._digested()
            if begin < last and view[(high * words) >> _HALF] & mask == mask
        ]

    def runs_naming(self, place: Place, key: int, first: int, last: int) -> Sequence[tuple[Run, Segment]]:
        """The runs of a place with events in ``[first, last)`` that may name a block, oldest first."""
        high, mask = key >> _HALF, mask_of(key, FOR_KEYS.marks)
        return [
            (run, part)
            for view, words, begin, end, run, part in self._of(place)
            if begin < last and end > first and view[(high * words) >> _HALF] & mask == mask
        ]

    def chained_runs_naming(self, key: int) -> Iterator[tuple[Run, Segment]]:
        """The runs of all chained places that may name a block, newest first: mostly the first one is enough."""
        if self._chained is None:
            self._chained = [
                _opened(run, part) for part in reversed(self._parts) for run in part.runs.values() if run.chained
            ]
        high, mask = key >> _HALF, mask_of(key, FOR_KEYS.marks)
        for view, words, _, _, run, part in self._chained:
            if view[(high * words) >> _HALF] & mask == mask:
                yield run, part

    def _of(self, place: Place) -> Sequence[_Opened]:
        runs = self._runs.get(place)
        if runs is None:
            known = [_opened(run, part) for part in self._parts if (run := part.runs.get(place)) is not None]
            runs = self._runs[place] = known
        return runs

    def _digested(self) -> Sequence[_Digested]:
        if self._digests is None:
            filters = [(found, part) for part in self._parts if (found := part.chains.own_filter) is not None]
            self._digests = [(*found.opened, part.begin, found, part) for found, part in filters]
        return self._digests


def _opened(run: Run, part: Segment) -> _Opened:
    return (*run.filter.opened, part.begin, part.end, run, part)


def _which(filters: Sequence[BloomFilter], probe: Probe, density: Density) -> Iterator[tuple[int, Integers]]:
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
