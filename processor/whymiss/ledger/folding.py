"""Folding a segment whose time is over into the base: only what is still held there is kept.

Of a block of which so many copies are surely held where the window begins, that many of its last stores
stay. A block without one is forgotten: nothing before the window is asked about. Only that more of its copies
were removed than had been stored stays known, as one removal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec
import numpy as np

from .barriers import BarrierColumns, Barriers
from .chains import CONTINUES, HAS_PARENT, TAIL, Chains, Pieces, digests_in_steps
from .events import Keys
from .filters import Filter
from .segments import Hits, Place, Run, Segment, joined
from .sorting import NO_INTEGERS, Flags, Integers, ordered
from .tally import tally

NanosOf: TypeAlias = Callable[[Integers], Integers]

_ALL = (1 << 8) - 1

SLICE_ROWS = 1 << 15
"""Operations of a segment that are counted in one step."""


class _Kept(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The operations of one place that stay, sorted by key."""

    keys: Keys
    ordinals: Integers
    stores: Flags
    rows: Integers
    """The store's chain row, counted through both segments; -1 where there is none."""
    surplus: Flags
    """The first store that stays of a block of which more copies were removed than had been stored."""
    chained: bool


def _united(some: Integers, others: Integers) -> Integers:
    """All numbers of both once, in order."""
    # The same as numpy's ``union1d``, which takes many times as long.
    whole = np.concatenate((some, others))
    whole.sort()
    return whole[np.concatenate((np.ones(1, np.bool_), whole[1:] != whole[:-1]))] if whole.size else whole


def fold(base: Segment, segment: Segment, barriers: Barriers, nanos_of: NanosOf) -> Iterator[Segment | None]:
    """Fold the oldest segment into a base: ``None`` after each step, the new base at the end.

    ``nanos_of`` says when events of either happened.
    """
    places: dict[Place, _Kept] = {}
    for place in dict.fromkeys((*base.runs, *segment.runs)):
        for kept in _surviving(base, segment, place, barriers.of(place[0])):
            if kept is None:
                yield None
            elif kept.keys.size:
                places[place] = kept
    yield None
    held = np.zeros(len(base.chains) + len(segment.chains), np.bool_)
    for kept in places.values():
        held[kept.rows[kept.rows >= 0]] = True
        yield None
    chains = base.chains
    for remaining in _remaining(base.chains, segment.chains, held):
        if remaining is None:
            yield None
        else:
            chains = remaining
    yield None
    row_of = np.zeros(held.size + 1, np.int64)
    np.cumsum(held, out=row_of[:-1])
    row_of[:-1] -= 1
    runs: dict[Place, Run] = {}
    ordinals = NO_INTEGERS
    for place, kept in places.items():
        yield None
        runs[place] = _run(kept, row_of)
        yield None
        ordinals = _united(ordinals, kept.ordinals)
    yield None
    nanos = nanos_of(ordinals)
    for _ in chains.put_in_order():
        yield None
    yield Segment((0, segment.end), runs, chains, stamps=(ordinals, nanos))


def _surviving(base: Segment, segment: Segment, place: Place, barriers: BarrierColumns) -> Iterator[_Kept | None]:
    chained = any(run.chained for part in (base, segment) if (run := part.runs.get(place)))
    kept: list[_Kept] = []
    for keys, hits in _slices(base, segment, place):
        if keys.size:
            kept.append(_held(keys, hits, barriers, segment.end, chained=chained))
        yield None
    if kept:
        yield _Kept(
            np.concatenate([one.keys for one in kept]),
            np.concatenate([one.ordinals for one in kept]),
            np.concatenate([one.stores for one in kept]),
            np.concatenate([one.rows for one in kept]),
            np.concatenate([one.surplus for one in kept]),
            chained,
        )


def _slices(base: Segment, segment: Segment, place: Place) -> Iterator[tuple[Keys, Hits]]:
    """The operations of both that count, some whole blocks at a time."""
    runs = [
        (part, run, offset)
        for part, offset in ((base, 0), (segment, len(base.chains)))
        if (run := part.runs.get(place)) is not None
    ]
    longest = max((run.keys for _, run, _ in runs), key=len)
    splits = longest[SLICE_ROWS::SLICE_ROWS]
    bounds = [[0, *run.keys.searchsorted(splits).tolist(), run.keys.size] for _, run, _ in runs]
    for number in range(splits.size + 1):
        columns: list[Keys] = []
        found: list[Hits] = []
        for (part, run, offset), bound in zip(runs, bounds, strict=True):
            begin, end = bound[number], bound[number + 1]
            hits = part.described(run, np.arange(end - begin), run.codes[begin:end].astype(np.int64))
            rows = np.where(hits.rows < 0, -1, hits.rows + offset)
            hits = Hits(hits.owners, hits.ordinals, hits.stores, rows, hits.reported)
            columns.append(run.keys[begin:end][~hits.reported])
            found.append(hits.taking(~hits.reported))
        order, keys = ordered(np.concatenate(columns))
        yield keys, joined(found).taking(order.astype(np.int64))


def _held(keys: Keys, hits: Hits, barriers: BarrierColumns, position: int, *, chained: bool) -> _Kept:
    """The stores of some whole blocks that are still held at a position."""
    owners = np.concatenate((np.zeros(1, np.int64), (keys[1:] != keys[:-1]).cumsum()))
    hits = Hits(owners, hits.ordinals, hits.stores, hits.rows, hits.reported)
    found = tally(hits, barriers, position)
    low = np.where(found.barrier < 0, found.low, 0)
    # Rank of each store among its block's, from the last one back.
    stores = (hits.stores & found.counted).astype(np.int64)
    lengths = found.last - found.starts + 1
    running = stores.cumsum()
    rank = running[found.last].repeat(lengths) - running
    stays = (stores > 0) & (rank < low.repeat(lengths))
    odd = found.surplus & (found.barrier < 0)
    stays[found.last[odd & (low == 0)]] = True
    surplus = odd.repeat(lengths) & hits.stores & (rank == (low - 1).repeat(lengths))
    return _Kept(keys[stays], hits.ordinals[stays], hits.stores[stays], hits.rows[stays], surplus[stays], chained)


def _run(kept: _Kept, row_of: Integers) -> Run:
    codes = np.where(kept.stores & kept.chained, row_of[kept.rows], kept.ordinals) * 2 + kept.stores
    keys = kept.keys
    if kept.surplus.any():
        # One removal before the first store says it again.
        where = np.flatnonzero(kept.surplus)
        codes = np.insert(codes, where, kept.ordinals[where] * 2)
        keys = np.insert(keys, where, keys[where])
    return Run(keys, codes, chained=kept.chained)


def _remaining(older: Chains, newer: Chains, held: Flags) -> Iterator[Chains | None]:
    """The rows that are held, cut into pieces where others are missing."""
    rows = np.flatnonzero(held)
    first = np.concatenate((older.first, newer.first + np.uint32(len(older)))).astype(np.int64)
    pieces = np.concatenate((older.pieces, newer.pieces))
    ordinals = np.concatenate((older.ordinals, newer.ordinals))
    if not rows.size:
        none = np.zeros(0, np.uint64)
        yield Chains(none, None, np.zeros(0, np.uint32), ordinals[:0], pieces[:0])
        return
    yield None
    keys = np.concatenate((older.keys, newer.keys))
    yield None
    piece = first.searchsorted(rows, "right") - 1
    yield None
    follows = np.concatenate((np.zeros(1, np.bool_), (rows[1:] == rows[:-1] + 1)))
    begun = np.flatnonzero(~follows | np.concatenate((np.ones(1, np.bool_), piece[1:] != piece[:-1])))
    cut = _cut(pieces, (first, piece), rows, begun, keys)
    yield None
    found: tuple[Keys, Keys, Filter] | None = None
    for digests in digests_in_steps((older, newer), rows):
        yield None
        found = digests or found
    yield Chains(
        keys[rows],
        found,
        begun.astype(np.uint32),
        ordinals[piece[begun]],
        cut,
    )


def _cut(pieces: Pieces, of: tuple[Integers, Integers], rows: Integers, begun: Integers, keys: Keys) -> Pieces:
    """The pieces that begin where ``begun`` says, cut out of those whose first rows and whose rows ``of`` names."""
    first, source, row = of[0], of[1][begun], rows[begun]
    follows = rows[np.maximum(begun, 1) - 1] + 1 == row
    cut = pieces[source].copy()
    inside = row > first[source]
    cut["depth"] = np.where(cut["depth"] >= 0, cut["depth"] + (row - first[source]), cut["depth"])
    cut["parent"] = np.where(inside, keys[np.maximum(row, 1) - 1], cut["parent"])
    flags = np.where(inside, cut["flags"] | HAS_PARENT, cut["flags"])
    # A piece still continues its event only if the row before it is there.
    continues = ~inside & follows & ((flags & CONTINUES) != 0)
    flags = np.where(continues, flags, flags & (_ALL ^ CONTINUES))
    ends = np.concatenate((first[1:], np.array([keys.size]))) - 1
    last = rows[np.concatenate((begun[1:], np.array([rows.size]))) - 1]
    cut["flags"] = np.where(last == ends[source], flags, flags & (_ALL ^ TAIL))
    return cut
