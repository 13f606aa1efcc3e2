"""Merging small segments into larger ones, so that a question meets few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .chains import Chains, digests_of
from .segments import SPAN_MAX, Place, Run, Segment
from .sorting import Integers, ordered

FANOUT = 8
"""Segments of one size that become one of the next."""

SMALLEST = 64
"""Rows below which all segments count as of one size."""

ROWS_MAX = 1 << 19
"""Rows of the largest segment that is made: sorting one of its columns takes a few milliseconds."""

EAGER_ROWS = 1 << 16
"""Rows from which a merged segment is put in order for every question at once."""


def mergeable(segments: Sequence[Segment], span_seconds: float) -> Sequence[Segment]:
    """The youngest neighbours of one size that are due to become one; empty if there are none."""
    end = len(segments)
    while end:
        size = _size(segments[end - 1])
        begin = end - 1
        while begin and _size(segments[begin - 1]) == size:
            begin -= 1
        group = segments[begin:end][:FANOUT] if end - begin >= FANOUT else []
        if group and _fit(group, span_seconds):
            return group
        end = begin
    return []


def _size(segment: Segment) -> int:
    size, rows = 0, max(segment.rows, len(segment.chains)) // SMALLEST
    while rows:
        rows //= FANOUT
        size += 1
    return size


def _fit(group: Sequence[Segment], span_seconds: float) -> bool:
    if any(segment.due for segment in group):
        return False
    kinds: dict[Place, bool] = {}
    for segment in group:
        for place, run in segment.runs.items():
            if (run.codes & 1).any() and kinds.setdefault(place, run.chained) != run.chained:
                # The publisher began anew with another model in between.
                return False
    return (
        sum(segment.rows for segment in group) <= ROWS_MAX
        and group[-1].end - group[0].begin < SPAN_MAX
        and group[-1].newest - group[0].oldest <= span_seconds
    )


def merged(group: Sequence[Segment]) -> Iterator[Segment | None]:
    """Merge neighbours: ``None`` after each step, the merged segment at the end."""
    begin = group[0].begin
    rows = np.array([0, *(len(segment.chains) for segment in group)]).cumsum()
    chains = _joined([segment.chains for segment in group], rows)
    yield None
    runs: dict[Place, Run] = {}
    for place in dict.fromkeys(place for segment in group for place in segment.runs):
        parts = [
            (segment, run, int(row))
            for segment, row in zip(group, rows, strict=False)
            if (run := segment.runs.get(place))
        ]
        keys = np.concatenate([run.keys for _, run, _ in parts])
        codes = np.concatenate([_moved(run, segment.begin - begin, row) for segment, run, row in parts])
        yield None
        order, keys = ordered(keys)
        yield None
        chained = any(run.chained for _, run, _ in parts)
        runs[place] = Run(keys, codes[order], chained)
        yield None
    if len(chains) >= EAGER_ROWS:
        for _ in chains.put_in_order():
            yield None
    yield Segment((begin, group[-1].end), runs, chains, times=(group[0].oldest, group[-1].newest))


def _moved(run: Run, ordinals: int, rows: int) -> npt.NDArray[np.uint32] | Integers:
    """A run's codes counted from an earlier ordinal and an earlier row."""
    if not ordinals and not rows:
        return run.codes
    if not run.chained:
        return run.codes + np.uint32(2 * ordinals)
    return run.codes + np.where(run.codes & 1, np.uint32(2 * rows), np.uint32(2 * ordinals))


def _joined(parts: Sequence[Chains], rows: Integers) -> Chains:
    return Chains(
        np.concatenate([part.keys for part in parts]),
        digests_of(parts),
        np.concatenate([part.first + np.uint32(row) for part, row in zip(parts, rows, strict=False)]),
        np.concatenate([part.ordinals for part in parts]),
        np.concatenate([part.pieces for part in parts]),
    )
