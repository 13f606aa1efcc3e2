"""Merge compaction: neighbouring small segments become one, levelled by how often they were merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ..columnar.bloom_filter import BloomFilter
from ..columnar.bucket_index import BucketIndex
from ..columnar.kernels import Integers, Rows, ordered, split_by_value
from ..columnar.pacing import SORTING, TAKING, Steps, concatenated, filled, in_portions, prefaulted, step_parts
from ..segment.chain_table import ChainTable, digests_in_steps
from ..segment.operations import Run
from ..segment.segment import ORDINALS_MAX, Place, Segment

FANOUT_BITS = 3
FANOUT = 1 << FANOUT_BITS
"""Segments of one level that become one of the next."""

SMALLEST = 64
"""Rows below which no segment leaves the lowest level."""

ROWS_MAX = 1 << 21
"""Rows of the largest segment that is made: a question looks at every segment, but making one takes its room twice."""

EAGER_ROWS = 1 << 16
"""Rows from which a merged segment is put in order for every question at once."""


def mergeable(segments: Sequence[Segment], span_seconds: float) -> Iterator[Sequence[Segment]]:
    """The neighbours that are due to become one, the youngest first.

    Time is cut into spans, and no segment reaches over two of them. In the present one neighbours of one level are
    merged when there are enough of them, in those before it whatever is left. What is flushed for a question has any
    size: told apart by size, unlike neighbours would stay alone.
    """
    end = len(segments)
    present = segments[-1].newest // span_seconds if segments else 0.0
    while end:
        span, level = segments[end - 1].newest // span_seconds, segments[end - 1].level
        begin = end - 1
        while begin and segments[begin - 1].newest // span_seconds == span:  # guard: merging-spans
            if span == present and segments[begin - 1].level > level:  # guard: merging-level, merging-lower
                break
            begin -= 1
        group = segments[begin:end]
        if span < present:
            yield from _fitting(group)
        elif len(group) >= FANOUT and _fit(group[:FANOUT]):
            yield group[:FANOUT]
        end = begin


def _fitting(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Several neighbours that fit into one."""
    begin = 0
    while begin < len(segments):
        end = begin + 1
        while end < len(segments) and _fit(segments[begin : end + 1]):
            end += 1
        if end - begin > 1:
            yield segments[begin:end]
        begin = end


def level_of(segment: Segment) -> int:
    """The highest level that a segment of its size has."""
    rows = max(segment.rows, len(segment.chains))
    return -(-(rows // SMALLEST).bit_length() // FANOUT_BITS)


def _fit(group: Sequence[Segment]) -> bool:
    if any(segment.due or segment.busy for segment in group):  # guard: merging-due, merging-busy
        return False
    # guard: merging-rows-max
    if sum(segment.rows for segment in group) > ROWS_MAX or group[-1].end - group[0].begin >= ORDINALS_MAX:
        return False
    runs: dict[Place, list[Run]] = {}
    for segment in group:
        for place, run in segment.runs.items():
            runs.setdefault(place, []).append(run)
    return all(_alike(of_place) for of_place in runs.values())  # guard: merging-kinds


def _alike(runs: Sequence[Run]) -> bool:
    """Whether all stores of a place are of one kind: else its publisher began anew with another model in between."""
    if len({run.chained for run in runs}) == 1:
        return True
    return len({run.chained for run in runs if np.bitwise_or.reduce(run.codes) & 1}) <= 1


def merged(group: Sequence[Segment]) -> Iterator[Segment | None]:
    """Merge neighbours: ``None`` after each portion of the work, the merged segment at the end."""
    return in_portions(merged_in_steps(group))


def merged_in_steps(group: Sequence[Segment]) -> Steps[Segment]:
    """Merge neighbours in steps of a bounded size."""
    begin = group[0].begin
    rows = [0, *accumulate(len(segment.chains) for segment in group)]
    chains = yield from _joined([segment.chains for segment in group], rows)
    runs: dict[Place, Run] = {}
    for place in dict.fromkeys(place for segment in group for place in segment.runs):
        parts = [
            (run, segment.begin - begin, row)
            for segment, row in zip(group, rows, strict=False)
            if (run := segment.runs.get(place))
        ]
        runs[place] = yield from _one(parts)
    if len(chains) >= EAGER_ROWS:
        yield from chains.put_in_order()
    whole = Segment((begin, group[-1].end), runs, chains, times=(group[0].oldest, group[-1].newest))
    # guard: merging-small, merging-once
    whole.level = min(level_of(whole), 1 + max(segment.level for segment in group))
    return whole


def _one(parts: Sequence[tuple[Run, int, int]]) -> Steps[Run]:
    """One run of several with what their ordinals and rows grow by."""
    rows = sum(run.keys.size for run, _, _ in parts)
    keys = yield from prefaulted(np.empty(rows, np.uint64))
    codes = yield from prefaulted(np.empty(rows, np.uint32))
    begin = 0
    for slices in split_by_value([run.keys for run, _, _ in parts]):
        order, ascending = ordered(
            np.concatenate([run.keys[some] for (run, _, _), some in zip(parts, slices, strict=True)])
        )
        moved = np.concatenate([_moved(*part, some) for part, some in zip(parts, slices, strict=True)])
        end = begin + ascending.size
        keys[begin:end], codes[begin:end] = ascending, moved.take(order)
        begin = end
        yield ascending.size * (SORTING + TAKING)
    passing = yield from BloomFilter.in_steps(keys)
    sliced = yield from BucketIndex.in_steps(keys)
    return Run(keys, codes, chained=any(run.chained for run, _, _ in parts), passing=passing, buckets=sliced)


def _moved(run: Run, ordinals: int, rows: int, some: slice[int, int, None]) -> npt.NDArray[np.uint32] | Integers:
    """Some of a run's codes, counted from an earlier ordinal and an earlier row."""
    codes = run.codes[some]
    if not ordinals and not rows:
        return codes
    if not run.chained:
        return codes + np.uint32(2 * ordinals)
    # guard: merging-moved-rows, merging-moved-ordinals
    return codes + np.where(codes & 1, np.uint32(2 * rows), np.uint32(2 * ordinals))


def _first(parts: Sequence[ChainTable], rows: Sequence[int]) -> Iterator[Rows]:
    for part, row in zip(parts, rows, strict=False):
        for some in step_parts(part.first):
            yield some + np.uint32(row)


def _joined(parts: Sequence[ChainTable], rows: Sequence[int]) -> Steps[ChainTable]:
    keys = yield from concatenated([part.keys for part in parts])
    digests = yield from digests_in_steps(parts)
    first = yield from filled(np.empty(sum(part.first.size for part in parts), np.uint32), _first(parts, rows))
    ordinals = yield from concatenated([part.ordinals for part in parts])
    return ChainTable(keys, digests, first, ordinals, (yield from concatenated([part.pieces for part in parts])))
