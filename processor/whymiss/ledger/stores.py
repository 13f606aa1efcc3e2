"""The events that stored chains, put together again from their pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ..model import Store, Tier
from .chains import CONTINUES, HAS_PARENT, PLACED, REPORTED, TAIL, UNLISTED, Chains
from .filters import Probe
from .history import History
from .segments import Segment
from .sorting import Flags, Integers


class _Told(msgspec.Struct, frozen=True, eq=False):
    keys: tuple[int, ...]
    start: int | None
    parent: int | None
    ordinal: int
    position: int
    reported: bool


def stores(history: History, first: int, last: int) -> Sequence[Store]:
    """The stores of chains with ordinals in ``[first, last)``, in order."""
    told = [
        one
        for segment in history.segments
        if segment.begin < last and segment.end > first
        for one in _of(segment, first, last)
    ]
    if not told:
        return []
    ordinals = np.array([one.ordinal for one in told])
    nanos = history.nanos_of(ordinals, Tier.DEVICE).tolist()
    tails = _tails(history, told)
    return [
        Store(
            keys=one.keys,
            start=one.start,
            parent=one.parent,
            position=one.position,
            unix_nanos=at,
            reported=one.reported,
            parent_tail_unix_nanos=tail,
        )
        for one, at, tail in zip(told, nanos, tails, strict=True)
    ]


def _of(segment: Segment, first: int, last: int) -> Iterator[_Told]:
    chains = segment.chains
    begin, end = chains.ordinals.searchsorted(np.array([first, last])).tolist()
    if begin == end:
        return
    flags = chains.pieces["flags"][begin:end]
    begun = (np.flatnonzero((flags & CONTINUES) == 0) + begin).tolist()
    rows = chains.first[begin:end].tolist()
    rows.append(chains.end_of(end - 1))
    for piece, after in zip(begun, [*begun[1:], end], strict=True):
        entry = chains.pieces[piece]
        depth, marks, ordinal = int(entry["depth"]), int(entry["flags"]), int(chains.ordinals[piece])
        if depth != UNLISTED:
            yield _Told(
                tuple(chains.keys[rows[piece - begin] : rows[after - begin]].tolist()),
                depth if marks & PLACED else None,
                int(entry["parent"]) if marks & HAS_PARENT else None,
                ordinal,
                ordinal - int(entry["back"]),
                bool(marks & REPORTED),
            )


def _tails(history: History, told: Sequence[_Told]) -> Sequence[int | None]:
    """When each parent was last stored as the end of an event, before the event that continues it."""
    with_parent = [index for index, one in enumerate(told) if one.parent is not None]
    if not with_parent:
        return [None] * len(told)
    wanted = Probe(np.array([told[index].parent for index in with_parent], np.uint64))
    before = np.array([told[index].ordinal for index in with_parent])
    latest = np.full(before.size, -1)
    for part in history.parts():
        if part.begin >= int(before[-1]):
            break
        for place, run in part.runs.items():
            hits = part.select(place, wanted) if run.chained else None
            if hits is not None:
                ends = (hits.rows >= 0) & (hits.ordinals < before[hits.owners])
                ends[ends] = _are_tails(part.chains, hits.rows[ends])
                np.maximum.at(latest, hits.owners[ends], hits.ordinals[ends])
    nanos = history.nanos_of(latest[latest >= 0], Tier.DEVICE).tolist()
    found: list[int | None] = [None] * len(told)
    for index, at in zip(np.array(with_parent)[latest >= 0].tolist(), nanos, strict=True):
        found[index] = at
    return found


def _are_tails(chains: Chains, rows: Integers) -> Flags:
    pieces = chains.piece_of(rows)
    ends = np.concatenate((chains.first[1:], np.array([len(chains)], np.uint32)))[pieces]
    tails: Flags = ((chains.flags_of(pieces) & TAIL) != 0) & (rows + 1 == ends)
    return tails
