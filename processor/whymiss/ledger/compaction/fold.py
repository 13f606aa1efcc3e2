"""Folds an expired segment into the base snapshot: only what is still held there is kept.

A block without a copy that is held is forgotten: nothing before the window is asked about. Only that more of its
copies were removed than had been stored stays known, as one removal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ..columnar.bloom_filter import BloomFilter
from ..columnar.bucket_index import BucketIndex
from ..columnar.kernels import NO_INTEGERS, Integers, Rows, distinct, split_by_value
from ..columnar.pacing import SORTING, TAKING, Steps, concatenated, filled, in_portions, step_parts, step_slices, taken
from ..events import Keys
from ..residency.resets import Resets
from ..residency.states import NanosOf
from ..segment.chain_table import CONTINUES, HAS_PARENT, TAIL, ChainTable, Pieces, digests_in_steps
from ..segment.operations import Run
from ..segment.segment import Place, Segment
from .live_operations import LiveOperations, live_operations

_ALL = (1 << 8) - 1

CUTTING = 12
"""What a row or a piece costs that is cut."""


def fold(base: Segment, segment: Segment, resets: Resets, nanos_of: NanosOf) -> Iterator[Segment | None]:
    """Fold the oldest segment into a base: ``None`` after each portion of the work, the new base at the end.

    ``nanos_of`` says when events of either happened.
    """
    return in_portions(fold_in_steps(base, segment, resets, nanos_of))


def fold_in_steps(base: Segment, segment: Segment, resets: Resets, nanos_of: NanosOf) -> Steps[Segment]:
    """The same in steps of a bounded size."""
    places: dict[Place, LiveOperations] = {}
    for place in dict.fromkeys((*base.runs, *segment.runs)):
        kept = yield from live_operations(base, segment, place, resets.of(place[0]))
        if kept.keys.size:
            places[place] = kept
    rows, row_of = yield from _numbered(len(base.chains) + len(segment.chains), places.values())
    chains = yield from _remaining(base.chains, segment.chains, rows)
    runs: dict[Place, Run] = {}
    for place, kept in places.items():
        runs[place] = yield from _run(kept, row_of)
    ordinals = yield from _united([kept.ordinals for kept in places.values()])
    nanos = yield from filled(np.empty_like(ordinals), (nanos_of(some) for some in step_parts(ordinals)), TAKING)
    yield from chains.put_in_order()
    return Segment((0, segment.end), runs, chains, stamps=(ordinals, nanos))


def _numbered(size: int, places: Collection[LiveOperations]) -> Steps[tuple[Integers, Rows]]:
    """The chain rows of both segments that are held, and how many of them are before each row."""
    held = np.zeros(size, np.bool_)
    for kept in places:
        for some in step_parts(kept.rows):
            held[some[some >= 0]] = True
            yield some.size * TAKING
    held_rows: list[Integers] = []
    before = np.empty(size, np.uint32)
    count = 0
    for stretch in step_slices(size):
        here = held[stretch]
        held_rows.append(np.flatnonzero(here) + stretch.start)
        before[stretch] = here.cumsum() - here + count
        count += held_rows[-1].size
        yield here.size * TAKING
    return (yield from filled(np.empty(count, np.int64), held_rows)), before


def _run(kept: LiveOperations, row_of: Rows) -> Steps[Run]:
    keys: list[Keys] = []
    codes: list[Integers] = []
    for some in step_slices(kept.keys.size):
        ordinals, stores, surplus = kept.ordinals[some], kept.stores[some], kept.surplus[some]
        values = ordinals.copy()
        if kept.chained:
            values[stores] = row_of[kept.rows[some][stores]]
        coded, named = values * 2 + stores, kept.keys[some]
        if surplus.any():  # guard: fold-surplus-held
            # One removal before the first store says it again.
            where = np.flatnonzero(surplus)
            coded = np.insert(coded, where, ordinals[where] * 2)
            named = np.insert(named, where, named[where])
        keys.append(named)
        codes.append(coded)
        yield named.size * 2 * TAKING
    column = yield from concatenated(keys)
    coded = yield from concatenated(codes)
    passing = yield from BloomFilter.in_steps(column)
    sliced = yield from BucketIndex.in_steps(column)
    return Run(column, coded, chained=kept.chained, passing=passing, buckets=sliced)


def _united(columns: Sequence[Integers]) -> Steps[Integers]:
    """All numbers once, in order."""
    parts = [NO_INTEGERS]
    for some in (some for column in columns for some in step_parts(column)):
        parts.append(distinct(some))
        yield some.size * SORTING
    merged_parts: list[Integers] = []
    for slices in split_by_value(parts):
        merged_parts.append(distinct(np.concatenate([part[some] for part, some in zip(parts, slices, strict=True)])))
        yield merged_parts[-1].size * SORTING
    return (yield from concatenated(merged_parts))


def _remaining(older: ChainTable, newer: ChainTable, rows: Integers) -> Steps[ChainTable]:
    """The rows that are held, cut into pieces where others are missing."""
    if not rows.size:
        return ChainTable(np.zeros(0, np.uint64), None, np.zeros(0, np.uint32), NO_INTEGERS, older.pieces[:0])
    total = len(older) + len(newer)
    moved = (
        some + np.int64(first) for part, first in ((older, 0), (newer, len(older))) for some in step_parts(part.first)
    )
    first = yield from filled(np.empty(older.first.size + newer.first.size + 1, np.int64), moved)
    first[-1] = total
    bounds, source = yield from _begun(rows, first)
    keys = yield from taken((older.keys, newer.keys), rows)
    digests = yield from digests_in_steps((older, newer), rows)
    ordinals = yield from taken((older.ordinals, newer.ordinals), source)
    begun = yield from filled(
        np.empty(source.size, np.uint32), (some.astype(np.uint32) for some in step_parts(bounds[:-1]))
    )
    pieces = yield from taken((older.pieces, newer.pieces), source)
    above = yield from filled(
        np.empty(source.size, np.int64), (np.maximum(rows[some], 1) - 1 for some in step_parts(bounds[:-1]))
    )
    parents = yield from taken((older.keys, newer.keys), above)
    for some in step_slices(source.size):
        _cut(pieces[some], parents[some], rows, bounds[some.start : some.stop + 1], (first, source[some]))
        yield source[some].size * CUTTING
    return ChainTable(keys, digests, begun, ordinals, pieces)


def _begun(rows: Integers, first: Integers) -> Steps[tuple[Integers, Integers]]:
    """Where pieces begin among the rows that are held, and where the last one ends; and which pieces they are cut from."""
    bounds: list[Integers] = []
    source: list[Integers] = []
    before, of = -1, -1
    for some in step_slices(rows.size):
        row = rows[some]
        piece = first.searchsorted(row, "right") - 1
        begun = np.ones(row.size, np.bool_)
        begun[0] = row[0] != before + 1 or piece[0] != of
        begun[1:] = (row[1:] != row[:-1] + 1) | (piece[1:] != piece[:-1])
        where = np.flatnonzero(begun)
        bounds.append(where + some.start)
        source.append(piece[where])
        before, of = row[-1], piece[-1]
        yield row.size * CUTTING
    bounds.append(np.array([rows.size]))
    return (yield from concatenated(bounds)), (yield from concatenated(source))


def _cut(pieces: Pieces, parents: Keys, rows: Integers, bounds: Integers, of: tuple[Integers, Integers]) -> None:
    """Cut pieces, copies of those that ``of`` names in order, to the rows between bounds; it has all first rows, too."""
    first, source = of
    begun, last = bounds[:-1], rows[bounds[1:] - 1]
    row, begins = rows[begun], first[source]
    follows = rows[np.maximum(begun, 1) - 1] + 1 == row
    inside = row > begins
    pieces["depth"] = np.where(pieces["depth"] >= 0, pieces["depth"] + (row - begins), pieces["depth"])
    pieces["parent"] = np.where(inside, parents, pieces["parent"])
    flags = np.where(inside, pieces["flags"] | HAS_PARENT, pieces["flags"])
    # A piece still continues its event only if the row before it is there.
    continues = ~inside & follows & ((flags & CONTINUES) != 0)
    flags = np.where(continues, flags, flags & (_ALL ^ CONTINUES))
    pieces["flags"] = np.where(last == first[source + 1] - 1, flags, flags & (_ALL ^ TAIL))
