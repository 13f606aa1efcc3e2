"""Garbage collection of a fold: which operations of a segment and the base stay *live* at the low watermark.

Of a block of which so many copies are surely held where the window begins, that many of its last stores stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from ..columnar.kernels import NO_INTEGERS, Flags, Integers, ordered, split_by_value
from ..columnar.pacing import STEP_ROWS, Steps, concatenated
from ..events import Keys
from ..residency.copies import count_copies, out_of_turn
from ..residency.resets import ResetColumns
from ..segment.operations import CountedOperations, Run, SelectedOperations
from ..segment.segment import Place, Segment

COUNTED_ROWS = STEP_ROWS // 4
"""Operations that are looked at in one step."""

LOOKING = 12
"""What an operation costs that is looked at."""

COUNTING = 30
"""What an operation costs besides that is counted."""


class LiveOperations(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The operations of one place that stay, sorted by key."""

    keys: Keys
    ordinals: Integers
    stores: Flags
    rows: Integers
    """The store's chain row, counted through both segments; -1 where there is none."""
    surplus: Flags
    """The first store that stays of a block of which more copies were removed than had been stored."""
    chained: bool


_Part: TypeAlias = tuple[Segment, Run, int]
"""A segment, its run of the place, and what its chain rows grow by."""


def live_operations(base: Segment, segment: Segment, place: Place, resets: ResetColumns) -> Steps[LiveOperations]:
    """What stays live of a place where ``segment`` is folded into a base, in steps; columns are aligned, sorted by key."""
    parts: list[_Part] = [
        (part, run, first)
        for part, first in ((base, 0), (segment, len(base.chains)))
        if (run := part.runs.get(place)) is not None
    ]
    none = np.zeros(0, np.bool_)
    chained = any(run.chained for _, run, _ in parts)
    kept = [LiveOperations(np.zeros(0, np.uint64), NO_INTEGERS, none, NO_INTEGERS, none, chained)]
    for slices in split_by_value([run.keys for _, run, _ in parts], COUNTED_ROWS):
        some = _KeyRange(parts, slices)
        if not some.keys.size:
            continue
        stays, surplus, counted = _live(some, resets, segment.end)
        chosen = np.flatnonzero(stays)
        hits = some.decode_codes(chosen)
        kept.append(LiveOperations(some.keys[chosen], hits.ordinals, hits.stores, hits.rows, surplus[chosen], chained))
        yield some.keys.size * LOOKING + counted * COUNTING
    return LiveOperations(
        (yield from concatenated([part_kept.keys for part_kept in kept])),
        (yield from concatenated([part_kept.ordinals for part_kept in kept])),
        (yield from concatenated([part_kept.stores for part_kept in kept])),
        (yield from concatenated([part_kept.rows for part_kept in kept])),
        (yield from concatenated([part_kept.surplus for part_kept in kept])),
        chained,
    )


class _KeyRange:
    """Operations of both that count, sorted by key: those of some whole blocks."""

    def __init__(self, parts: Sequence[_Part], slices: Sequence[slice[int, int, None]]) -> None:
        keys: list[Keys] = []
        codes: list[Integers] = []
        for (part, run, _), some in zip(parts, slices, strict=True):
            named, coded = run.keys[some], run.codes[some].astype(np.int64)
            if run.chained and part.chains.has_reannouncements:
                counted = ~part.decode_codes(run, coded, coded).reported
                named, coded = named[counted], coded[counted]
            keys.append(named)
            codes.append(coded)
        order, self.keys = ordered(np.concatenate(keys))
        self._parts = parts
        self._codes = np.concatenate(codes).take(order)
        self._older = order < np.uint32(codes[0].size)
        self.stores = (self._codes & 1).astype(np.bool_)

    def decode_codes(self, chosen: Integers) -> SelectedOperations:
        """What some of them mean; their rows are counted through both segments, and each is its own owner."""
        codes, older = self._codes.take(chosen), self._older.take(chosen)
        ordinals, rows = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
        for (part, run, first), own in zip(self._parts, (older, ~older), strict=False):
            hits = part.decode_codes(run, NO_INTEGERS, codes[own])
            ordinals[own] = hits.ordinals
            rows[own] = np.where(hits.rows < 0, -1, hits.rows + first)
        return SelectedOperations(chosen, ordinals, self.stores.take(chosen), rows, np.zeros(codes.size, np.bool_))


def _live(some: _KeyRange, resets: ResetColumns, position: int) -> tuple[Flags, Flags, int]:
    """Which operations stay at a position, which have removals before them, and how many had to be counted."""
    begins = np.ones(some.keys.size, np.bool_)
    np.not_equal(some.keys[1:], some.keys[:-1], out=begins[1:])
    last = np.ones_like(begins)
    last[:-1] = begins[1:]
    # Where stores and removals take turns there never was more than one copy: it is there if its store is the last.
    stays, surplus = some.stores & last, np.zeros_like(begins)
    odd = np.append(~some.stores[:1], out_of_turn(some.stores, last))  # guard: fold-turns
    if resets.ordinals.size and resets.ordinals[0] < position:
        odd[:] = True  # guard: fold-turns-barrier
    if not odd.any():
        return stays, surplus, 0
    blocks = begins.cumsum() - 1
    counted = np.zeros(int(blocks[-1]) + 1, np.bool_)
    counted[blocks[odd]] = True
    chosen = np.flatnonzero(counted.take(blocks))
    hits = CountedOperations(blocks.take(chosen), some.stores.take(chosen), lambda: some.decode_codes(chosen).ordinals)
    stays[chosen], surplus[chosen] = _live_where_counted(hits, resets, position)
    return stays, surplus, chosen.size


def _live_where_counted(hits: CountedOperations, resets: ResetColumns, position: int) -> tuple[Flags, Flags]:
    """Which operations on some whole blocks stay at a position, and which have removals before them."""
    counts = count_copies(hits, resets, position)
    low = np.where(counts.reset < 0, counts.low, 0)  # guard: fold-barrier
    # Rank of each store among its block's, from the last one back.
    stores = (hits.stores & counts.counted).astype(np.int64)
    lengths = counts.last - counts.starts + 1
    running = stores.cumsum()
    rank = running[counts.last].repeat(lengths) - running
    stays = (stores > 0) & (rank < low.repeat(lengths))  # guard: fold-held, fold-copies
    odd = counts.surplus & (counts.reset < 0)
    stays[counts.last[odd & (low == 0)]] = True  # guard: fold-surplus
    return stays, odd.repeat(lengths) & hits.stores & (rank == (low - 1).repeat(lengths))
