"""Folding a segment whose time is over into the base: only what is still held there is kept.

Of a block of which so many copies are surely held where the window begins, that many of its last stores
stay. A block without one is forgotten: nothing before the window is asked about. Only that more of its copies
were removed than had been stored stays known, as one removal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..model import Tier
from .barriers import BarrierColumns
from .chains import CONTINUES, HAS_PARENT, PIECE, TAIL, Chains, digests_of
from .events import Keys
from .segments import Hits, Place, Run, Segment
from .sorting import Flags, Integers, Rows, order_of
from .tally import tally

if TYPE_CHECKING:
    from .history import History


_ALL = (1 << 8) - 1

SLICE_ROWS = 1 << 16
"""Operations that are counted in one step."""


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


def fold(base: Segment, segment: Segment, history: History) -> Iterator[Segment | None]:
    """Fold the oldest segment into a base: ``None`` after each step, the new base at the end."""
    places: dict[Place, _Kept] = {}
    for place in dict.fromkeys((*base.runs, *segment.runs)):
        for kept in _surviving(base, segment, place, history):
            if kept is None:
                yield None
            elif kept.keys.size:
                places[place] = kept
    held = np.zeros(len(base.chains) + len(segment.chains), np.bool_)
    for kept in places.values():
        held[kept.rows[kept.rows >= 0]] = True
    yield None
    chains = _remaining(base.chains, segment.chains, held)
    yield None
    row_of = np.append(held.cumsum() - 1, 0)
    runs = {place: _run(kept, row_of) for place, kept in places.items()}
    ordinals = np.unique(np.concatenate([np.zeros(0, np.int64), *(kept.ordinals for kept in places.values())]))
    yield None
    nanos = history.nanos_of(ordinals, Tier.DEVICE)
    for _ in chains.put_in_order():
        yield None
    yield Segment((0, segment.end), runs, chains, stamps=(ordinals, nanos))


def _surviving(base: Segment, segment: Segment, place: Place, history: History) -> Iterator[_Kept | None]:
    parts: list[tuple[Keys, Hits]] = []
    offset = 0
    for part in (base, segment):
        run = part.runs.get(place)
        if run is not None:
            hits = part.described(run, np.arange(run.keys.size), run.codes.astype(np.int64))
            rows = np.where(hits.rows < 0, -1, hits.rows + offset)
            parts.append((run.keys, Hits(hits.owners, hits.ordinals, hits.stores, rows, hits.reported)))
        offset = len(base.chains)
    yield None
    keys = np.concatenate([column for column, _ in parts])
    order: Rows = order_of(keys)
    yield None
    merged = Hits(
        order.astype(np.int64),
        np.concatenate([hits.ordinals for _, hits in parts])[order],
        np.concatenate([hits.stores for _, hits in parts])[order],
        np.concatenate([hits.rows for _, hits in parts])[order],
        np.concatenate([hits.reported for _, hits in parts])[order],
    )
    keys = keys[order]
    counts = ~merged.reported
    keys, merged = keys[counts], merged.taking(counts)
    yield None
    chained = any(run.chained for part in (base, segment) if (run := part.runs.get(place)))
    barriers = history.barriers.of(place[0])
    slices: list[_Kept] = []
    begin = 0
    while begin < keys.size:
        end = int(keys.searchsorted(keys[min(begin + SLICE_ROWS, keys.size) - 1], "right"))
        slices.append(_held(keys[begin:end], merged.taking(slice(begin, end)), barriers, segment.end, chained=chained))
        begin = end
        yield None
    if slices:
        yield _Kept(
            np.concatenate([kept.keys for kept in slices]),
            np.concatenate([kept.ordinals for kept in slices]),
            np.concatenate([kept.stores for kept in slices]),
            np.concatenate([kept.rows for kept in slices]),
            np.concatenate([kept.surplus for kept in slices]),
            chained,
        )


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
    return Run(keys, codes, kept.chained)


def _remaining(older: Chains, newer: Chains, held: Flags) -> Chains:
    """The rows that are held, cut into pieces where others are missing."""
    rows = np.flatnonzero(held)
    keys = np.concatenate((older.keys, newer.keys))
    first = np.concatenate((older.first, newer.first + np.uint32(len(older)))).astype(np.int64)
    pieces = np.concatenate((older.pieces, newer.pieces))
    ordinals = np.concatenate((older.ordinals, newer.ordinals))
    if not rows.size:
        none = np.zeros(0, np.uint64)
        return Chains(none, None, np.zeros(0, np.uint32), ordinals[:0], np.zeros(0, PIECE))
    piece = first.searchsorted(rows, "right") - 1
    follows = np.concatenate((np.zeros(1, np.bool_), (rows[1:] == rows[:-1] + 1)))
    starts = ~follows | np.concatenate((np.ones(1, np.bool_), piece[1:] != piece[:-1]))
    begun = np.flatnonzero(starts)
    source, row = piece[begun], rows[begun]
    cut = pieces[source].copy()
    inside = row > first[source]
    cut["depth"] = np.where(cut["depth"] >= 0, cut["depth"] + (row - first[source]), cut["depth"])
    cut["parent"] = np.where(inside, keys[np.maximum(row, 1) - 1], cut["parent"])
    flags = np.where(inside, cut["flags"] | HAS_PARENT, cut["flags"])
    # A piece still continues its event only if the row before it is there.
    continues = ~inside & follows[begun] & ((flags & CONTINUES) != 0)
    flags = np.where(continues, flags, flags & (_ALL ^ CONTINUES))
    ends = np.concatenate((first[1:], np.array([keys.size]))) - 1
    last = rows[np.concatenate((begun[1:], np.array([rows.size]))) - 1]
    cut["flags"] = np.where(last == ends[source], flags, flags & (_ALL ^ TAIL))
    digests = digests_of((older, newer))
    return Chains(
        keys[rows],
        None if digests is None else (digests[0][rows], digests[1][rows]),
        begun.astype(np.uint32),
        ordinals[source],
        cut,
    )
