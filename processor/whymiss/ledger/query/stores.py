"""Range scan by ordinal: the events that stored chains, put together again from their pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ...model import Store
from ..segment.chain_table import CONTINUES, HAS_PARENT, PLACED, REPORTED, SESSION, TAIL, UNLISTED
from ..segment.segment import Segment
from ..segment_store import SegmentStore


class _StoreEvent(msgspec.Struct, frozen=True, eq=False):
    keys: tuple[int, ...]
    start: int | None
    parent: int | None
    ordinal: int
    position: int
    reported: bool
    session: bool


def stores(history: SegmentStore, first: int, last: int, *, with_tails: bool = True) -> Sequence[Store]:
    """The stores of chains with ordinals in ``[first, last)``, in order.

    Without ``with_tails`` it is not looked up when their parents were stored.
    """
    events = [
        event
        for segment in history.segments
        if segment.begin < last and segment.end > first
        for event in _of(segment, first, last)
    ]
    if not events:
        return []
    return [
        Store(
            keys=event.keys,
            start=event.start,
            parent=event.parent,
            position=event.position,
            unix_nanos=history.nanos_at(event.ordinal),
            reported=event.reported,
            parent_tail_unix_nanos=_parent_tail_nanos(history, event) if with_tails else None,
            ordinal=event.ordinal,
            session=event.session,
        )
        for event in events
    ]


def _of(segment: Segment, first: int, last: int) -> Iterator[_StoreEvent]:
    chains = segment.chains
    begin, end = chains.ordinals.searchsorted(np.array([first, last])).tolist()
    if begin == end:
        return
    flags = chains.pieces["flags"][begin:end]
    begun = (np.flatnonzero((flags & CONTINUES) == 0) + begin).tolist()  # guard: stores-continues
    rows = chains.first[begin:end].tolist()
    rows.append(chains.end_of(end - 1))
    for piece, after in zip(begun, [*begun[1:], end], strict=True):
        entry, ordinal = chains.entry(piece), int(chains.ordinals[piece])
        if entry.depth != UNLISTED:  # guard: stores-unlisted
            # guard: stores-placed
            yield _StoreEvent(
                tuple(chains.keys[rows[piece - begin] : rows[after - begin]].tolist()),
                entry.depth if entry.flags & PLACED else None,
                entry.parent if entry.flags & HAS_PARENT else None,
                ordinal,
                ordinal - entry.back,
                bool(entry.flags & REPORTED),
                bool(entry.flags & SESSION),
            )


def _parent_tail_nanos(history: SegmentStore, event: _StoreEvent) -> int | None:
    """When a parent was last stored as the end of an event, before the event that continues it."""
    if event.parent is None:
        return None
    for part, row in history.located(event.parent):
        piece = part.chains.piece_at(row)
        ordinal = int(part.chains.ordinals[piece])
        if ordinal >= event.ordinal:  # guard: stores-tail-before
            continue
        # guard: stores-tail-end, stores-tail-cut
        if part.chains.entry(piece).flags & TAIL and row + 1 == part.chains.end_of(piece):
            return history.nanos_at(ordinal)
    return None


def keys_at_depth(history: SegmentStore, depth: int, before: int, limit: int) -> Sequence[int] | None:
    """Blocks that were stored at a depth before an ordinal, the latest segments first; ``None`` beyond ``limit``."""
    found: dict[int, None] = {}
    for segment in reversed(history.parts()):
        chains = segment.chains
        if not chains.ordinals.size or segment.begin >= before:
            continue
        starts = chains.pieces["depth"]
        ends = starts + np.diff(chains.first.astype(np.int64), append=chains.keys.size)
        # guard: depth-placed, depth-before
        holding = (
            (starts <= depth) & (depth < ends) & ((chains.pieces["flags"] & PLACED) != 0) & (chains.ordinals < before)
        )
        pieces = np.flatnonzero(holding)
        if pieces.size > limit:
            return None
        rows = chains.first[pieces].astype(np.int64) + (depth - starts[pieces])
        found.update(dict.fromkeys(chains.keys[rows].tolist()))
        if len(found) > limit:
            return None
    return list(found)
