"""Merging small segments into larger ones, so that a question meets few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .chains import Chains, digests_in_steps
from .events import Keys
from .filters import Filter
from .segments import SPAN_MAX, Place, Run, Segment
from .sorting import Integers, order_slices

FANOUT_BITS = 3
FANOUT = 1 << FANOUT_BITS
"""Segments of one size that become one of the next."""

SMALLEST = 64
"""Rows below which all segments count as of one size."""

ROWS_MAX = 1 << 20
"""Rows of the largest segment that is made: gathering one of its columns takes a few milliseconds."""

EAGER_ROWS = 1 << 16
"""Rows from which a merged segment is put in order for every question at once."""


def mergeable(segments: Sequence[Segment], span_seconds: float) -> Iterator[Sequence[Segment]]:
    """The neighbours that are due to become one, the youngest first.

    Time is cut into spans, and no segment reaches over two of them. In the present one neighbours of one size are
    merged when there are enough of them, in those before it whatever is left.
    """
    end = len(segments)
    present = segments[-1].newest // span_seconds if segments else 0.0
    while end:
        span, size = segments[end - 1].newest // span_seconds, _size(segments[end - 1])
        begin = end - 1
        while begin and segments[begin - 1].newest // span_seconds == span:
            if span == present and _size(segments[begin - 1]) != size:
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


def _size(segment: Segment) -> int:
    bits = (max(segment.rows, len(segment.chains)) // SMALLEST).bit_length()
    return -(-bits // FANOUT_BITS)


def _fit(group: Sequence[Segment]) -> bool:
    if any(segment.due or segment.busy for segment in group):
        return False
    kinds: dict[Place, bool] = {}
    for segment in group:
        for place, run in segment.runs.items():
            if (run.codes & 1).any() and kinds.setdefault(place, run.chained) != run.chained:
                # The publisher began anew with another model in between.
                return False
    return sum(segment.rows for segment in group) <= ROWS_MAX and group[-1].end - group[0].begin < SPAN_MAX


def merged(group: Sequence[Segment]) -> Iterator[Segment | None]:
    """Merge neighbours: ``None`` after each step, the merged segment at the end."""
    begin = group[0].begin
    rows = np.array([0, *(len(segment.chains) for segment in group)]).cumsum()
    chains = group[0].chains
    for joined in _joined([segment.chains for segment in group], rows):
        yield None
        chains = joined or chains
    runs: dict[Place, Run] = {}
    for place in dict.fromkeys(place for segment in group for place in segment.runs):
        parts = [
            (run, segment.begin - begin, int(row))
            for segment, row in zip(group, rows, strict=False)
            if (run := segment.runs.get(place))
        ]
        for run in _one(parts):
            yield None
            if run is not None:
                runs[place] = run
    if len(chains) >= EAGER_ROWS:
        for _ in chains.put_in_order():
            yield None
    yield Segment((begin, group[-1].end), runs, chains, times=(group[0].oldest, group[-1].newest))


def _one(parts: Sequence[tuple[Run, int, int]]) -> Iterator[Run | None]:
    """One run of several with what their ordinals and rows grow by."""
    keys = np.concatenate([run.keys for run, _, _ in parts])
    yield None
    codes = np.concatenate([_moved(run, ordinals, rows) for run, ordinals, rows in parts])
    yield None
    sorted_keys, sorted_codes = np.empty_like(keys), np.empty_like(codes)
    begin = 0
    for rows, found in order_slices(keys):
        end = begin + rows.size
        sorted_keys[begin:end], sorted_codes[begin:end] = found, codes.take(rows)
        begin = end
        yield None
    for passing in Filter.in_steps(sorted_keys):
        if passing is None:
            yield None
        else:
            chained = any(run.chained for run, _, _ in parts)
            yield Run(sorted_keys, sorted_codes, chained=chained, passing=passing)


def _moved(run: Run, ordinals: int, rows: int) -> npt.NDArray[np.uint32] | Integers:
    """A run's codes counted from an earlier ordinal and an earlier row."""
    if not ordinals and not rows:
        return run.codes
    if not run.chained:
        return run.codes + np.uint32(2 * ordinals)
    return run.codes + np.where(run.codes & 1, np.uint32(2 * rows), np.uint32(2 * ordinals))


def _joined(parts: Sequence[Chains], rows: Integers) -> Iterator[Chains | None]:
    found: tuple[Keys, Keys, Filter] | None = None
    for digests in digests_in_steps(parts):
        yield None
        found = digests or found
    yield Chains(
        np.concatenate([part.keys for part in parts]),
        found,
        np.concatenate([part.first + np.uint32(row) for part, row in zip(parts, rows, strict=False)]),
        np.concatenate([part.ordinals for part in parts]),
        np.concatenate([part.pieces for part in parts]),
    )
