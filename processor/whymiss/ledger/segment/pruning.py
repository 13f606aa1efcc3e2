"""Pruning: which segments and runs of a stream a question can leave out, proved from Bloom filters and ordinals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Generic, TypeAlias

from ..columnar.bloom_filter import FOR_DIGESTS, FOR_KEYS, BloomFilter, Opened, Probe, Target, passing_many, passing_one
from ..columnar.kernels import Integers
from .operations import Run
from .segment import Place, Segment

RunOf: TypeAlias = tuple[Run, Segment]
DigestsOf: TypeAlias = tuple[BloomFilter, Segment]


class _Filters(Generic[Target]):
    """Filters of segments, oldest first, and the ordinals between which the segments lie."""

    __slots__ = ("_begins", "_ends", "_opened")

    def __init__(self, filters: Sequence[tuple[BloomFilter, Segment, Target]]) -> None:
        self._opened = [own.opened_for(target) for own, _, target in filters]
        self._begins = [part.begin for _, part, _ in filters]
        self._ends = [part.end for _, part, _ in filters]

    def between(self, first: int, last: int) -> Sequence[Opened[Target]]:
        """Those of segments with events in ``[first, last)``."""
        begin = bisect_right(self._ends, first) if first else 0
        end = bisect_left(self._begins, last)
        return self._opened if not begin and end == len(self._opened) else self._opened[begin:end]


class Pruning:
    """The segments and their runs, which are given oldest first and never change."""

    def __init__(self, parts: Sequence[Segment]) -> None:
        self._parts = parts
        self._runs: dict[Place, _Filters[RunOf]] = {}
        self._chained: list[Opened[RunOf]] | None = None
        self._digests: _Filters[DigestsOf] | None = None

    def runs_naming_any(self, place: Place, probe: Probe, last: int) -> Iterator[tuple[Run, Segment, Integers]]:
        """The runs of a place that begin before ordinal ``last`` and may name keys of a probe, oldest first.

        With each its segment and the indexes of those keys in the probe: int64, ascending.
        """
        runs = [target for _, _, target in self._of(place).between(0, last)]
        for number, passing in passing_many([run.filter for run, _ in runs], probe, FOR_KEYS):
            yield *runs[number], passing

    def segments_with_any_digest(self, probe: Probe, last: int) -> Sequence[tuple[Segment, Integers]]:
        """The segments that begin before ordinal ``last`` and may know digests of own tokens in a probe, oldest first.

        With each the indexes of those digests in the probe: int64, ascending.
        """
        digests = [target for _, _, target in self._of_digests().between(0, last)]
        passing = passing_many([filter_ for filter_, _ in digests], probe, FOR_DIGESTS)
        return [(digests[number][1], indexes) for number, indexes in passing]

    def segments_with_digest(self, digest: int, last: int) -> Sequence[Segment]:
        """The same of one digest."""
        return [part for _, part in passing_one(self._of_digests().between(0, last), digest, FOR_DIGESTS)]

    def runs_naming(self, place: Place, key: int, first: int, last: int) -> Iterator[RunOf]:
        """The runs of a place with events in ``[first, last)`` that may name a block, oldest first."""
        return passing_one(self._of(place).between(first, last), key, FOR_KEYS)

    def chained_runs_naming(self, key: int) -> Iterator[RunOf]:
        """The runs of all chained places that may name a block, newest first: mostly the first one is enough."""
        if self._chained is None:
            self._chained = [
                run.filter.opened_for((run, part))
                for part in reversed(self._parts)
                for run in part.runs.values()
                if run.chained
            ]
        return passing_one(self._chained, key, FOR_KEYS)

    def _of(self, place: Place) -> _Filters[RunOf]:
        runs = self._runs.get(place)
        if runs is None:
            of_place = [(run, part) for part in self._parts if (run := part.runs.get(place)) is not None]
            runs = self._runs[place] = _Filters([(run.filter, part, (run, part)) for run, part in of_place])
        return runs

    def _of_digests(self) -> _Filters[DigestsOf]:
        if self._digests is None:
            known = [(own, part) for part in self._parts if (own := part.chains.own_filter) is not None]
            self._digests = _Filters([(own, part, (own, part)) for own, part in known])
        return self._digests
