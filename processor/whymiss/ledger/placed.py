"""Where the blocks of a chain stand in the columns: their depths, what is known of them, and which rows count."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from .chains import HAS_OWN, HAS_PREFIX, PLACED, Chains
from .events import Keys
from .history import History
from .sorting import Flags, Integers

KNOWN = HAS_OWN | HAS_PREFIX | PLACED
"""Flags of a block whose depth and tokens from block 0 on are known."""


class Placed(msgspec.Struct, frozen=True, eq=False):
    """Where the first blocks of a chain stand, one entry a block."""

    depth: Integers
    own: Keys
    prefix: Keys
    extras: Keys
    flags: npt.NDArray[np.uint8]


def placed(history: History, keys: Keys) -> Placed:
    """The first blocks of a chain, as far as their places are known. Most lie side by side."""
    found: list[Placed] = []
    done = 0
    while done < keys.size and (located := history.locate(int(keys[done]))) is not None:
        chains, row = located
        beside = chains.keys[row : row + keys.size - done]
        same = beside == keys[done : done + beside.size]
        count = beside.size if same.all() else int(same.argmin())
        rows = np.arange(row, row + count)
        pieces = chains.piece_of(rows)
        flags = chains.flags_of(pieces)
        known = (flags & PLACED) != 0
        count = count if known.all() else int(known.argmin())
        rows = rows[:count]
        blank = np.zeros(count, np.uint64)
        found.append(
            Placed(
                depths(chains, rows, pieces[:count]),
                blank if chains.own is None else chains.own[rows],
                blank if chains.prefix is None else chains.prefix[rows],
                chains.pieces["extras"][pieces[:count]],
                flags[:count],
            )
        )
        done += count
    return Placed(
        np.concatenate([np.zeros(0, np.int64), *(part.depth for part in found)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.own for part in found)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.prefix for part in found)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.extras for part in found)]),
        np.concatenate([np.zeros(0, np.uint8), *(part.flags for part in found)]),
    )


def usable(chains: Chains, pieces: Integers, position: int) -> Flags:
    """Which rows, of these pieces, were stored before a position and can be compared."""
    found: Flags = ((chains.flags_of(pieces) & KNOWN) == KNOWN) & (chains.ordinals[pieces] < position)
    return found


def depths(chains: Chains, rows: Integers, pieces: Integers) -> Integers:
    """How deep the blocks of some rows, of these pieces, stand in their chains."""
    found: Integers = chains.pieces["depth"][pieces].astype(np.int64) + rows - chains.first[pieces]
    return found


def where(flags: Flags) -> Integers:
    """The places of what is true."""
    return flags.nonzero()[0]


def leading(ascending: Integers) -> int:
    """How many of ascending numbers are 0, 1, 2 and so on."""
    wrong = ascending != np.arange(ascending.size)
    return int(wrong.argmax()) if wrong.any() else ascending.size
