"""Run decoding of removals: neighbouring one-block removals read as a table of bytes.

A full cache evicts for every block that it stores, and vLLM writes an event a block: more of the bytes
and most of the events are then removals that differ in eight or thirty-two bytes each. Neighbours of
one length are the rows of a table; where rows agree in all but the hash, the first is decoded
and the keys of the others are a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from ...errors import BadInput
from .schema import WireRemoved

_SHORTEST = 4
_INTEGERS = (b"\x91\xcf", b"\x91\xd3")
_DIGEST = b"\x91\xc4\x20"


class RemovalRun(msgspec.Struct, gc=False):
    """Neighbouring removals that differ in their one key only; ``first`` is the first of them."""

    index: int
    first: WireRemoved
    keys: bytes
    """Eight big-endian bytes a removal."""
    count: int


class OtherEvents(msgspec.Struct, gc=False):
    """Neighbouring events that are not such a run."""

    index: int
    events: Sequence[Raw]


def split_removal_runs(events: Sequence[Raw], read: Callable[[Raw], object]) -> Iterator[RemovalRun | OtherEvents]:
    """Cut encoded events into runs and what is between them, in order.

    ``read`` decodes one event to a ``WireRemoved`` or to anything else; it may raise ``BadInput``.
    """
    index = 0
    for _, group in groupby(events, len):
        same_length = list(group)
        if len(same_length) < _SHORTEST or b"BlockRemoved" not in bytes(same_length[0]):
            yield OtherEvents(index, same_length)
        else:
            yield from _split_table(index, same_length, read)
        index += len(same_length)


def _split_table(index: int, events: list[Raw], read: Callable[[Raw], object]) -> Iterator[RemovalRun | OtherEvents]:
    place, first = _read_removal(events[0], read)
    if place is None:
        yield OtherEvents(index, events)
        return
    joined = b"".join(events)
    table = np.frombuffer(joined, np.uint8).reshape(len(events), -1)
    alike = table == table[0]
    alike[:, place.start : place.stop] = True
    if first is not None and alike.all():
        yield RemovalRun(index, first, table[:, place.stop - 8 : place.stop].tobytes(), len(events))
        return
    width = table.shape[1]
    differs = _differs(joined, width, 0, place.start) | _differs(joined, width, place.stop, width)
    bounds = [0, *(differs.nonzero()[0] + 1).tolist(), len(events)]
    for begin, end in pairwise(bounds):
        stretch = events[begin:end]
        place_here, first = _read_removal(stretch[0], read) if len(stretch) >= _SHORTEST else (None, None)
        # Rows of one length may still keep their keys elsewhere.
        if first is not None and place_here == place:
            keys = table[begin:end, place.stop - 8 : place.stop].tobytes()
            yield RemovalRun(index + begin, first, keys, len(stretch))
        else:
            yield OtherEvents(index + begin, stretch)


def _differs(joined: bytes, width: int, begin: int, end: int) -> npt.NDArray[np.bool_]:
    """Which rows of a table of bytes are unlike the row before them, between two columns."""
    rows = len(joined) // width
    if begin == end:
        return np.zeros(rows - 1, np.bool_)
    # As strings of one length they are compared whole; that numpy overlooks zeros at the end is no harm then.
    cells = np.ndarray(rows, np.dtype(("S", end - begin)), joined, begin, width)
    differs: npt.NDArray[np.bool_] = cells[1:] != cells[:-1]
    return differs


def _read_removal(encoded: Raw, read: Callable[[Raw], object]) -> tuple[range | None, WireRemoved | None]:
    """A removal, and where the bytes of its one key are if they have a fixed size."""
    try:
        event = read(encoded)
    except BadInput:
        return None, None
    if not isinstance(event, WireRemoved):
        return None, None
    hashes = bytes(event.block_hashes)
    if len(hashes) == 10 and hashes.startswith(_INTEGERS):
        head = 2
    elif len(hashes) == 35 and hashes.startswith(_DIGEST):
        head = 3
    else:
        return None, event
    event_bytes = bytes(encoded)
    if event_bytes.count(hashes) != 1:
        return None, event
    at = event_bytes.index(hashes)
    return range(at + head, at + len(hashes)), event
