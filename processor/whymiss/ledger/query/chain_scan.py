"""Chain scan: the rows of a chain's leading blocks in the chain tables, most of which lie side by side."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ..columnar.kernels import Flags, Integers
from ..events import Keys
from ..segment.chain_table import HAS_OWN, HAS_PREFIX, PLACED, ChainTable
from ..segment_store import SegmentStore

KNOWN = HAS_OWN | HAS_PREFIX | PLACED
"""Flags of a block whose depth and tokens from block 0 on are known."""


class ChainScan(msgspec.Struct, frozen=True, eq=False):
    """Columns of the leading blocks of a chain, one entry a block, in chain order."""

    depth: Integers
    own: Keys
    prefix: Keys
    extras: Keys
    flags: npt.NDArray[np.uint16]


def scan_chain(history: SegmentStore, keys: Keys) -> ChainScan:
    """Scans the leading blocks of a chain, up to the first whose place is not known. Most lie side by side."""
    scanned: list[ChainScan] = []
    done = 0
    while done < keys.size and (located := history.locate(int(keys[done]))) is not None:
        some = _scan_adjacent(*located, keys[done:])
        scanned.append(some)
        done += some.flags.size
    if len(scanned) == 1:
        return scanned[0]
    return ChainScan(
        np.concatenate([np.zeros(0, np.int64), *(part.depth for part in scanned)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.own for part in scanned)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.prefix for part in scanned)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.extras for part in scanned)]),
        np.concatenate([np.zeros(0, np.uint16), *(part.flags for part in scanned)]),
    )


def _scan_adjacent(chains: ChainTable, row: int, keys: Keys) -> ChainScan:
    """Those of the first blocks of a chain that lie side by side from a row on, whose place is known."""
    rows = chains.keys[row : row + keys.size]
    same = rows == keys[: rows.size]
    end = row + (rows.size if same.all() else int(same.argmin()))
    first = chains.piece_at(row)
    begins = [row, *chains.first[first + 1 : chains.piece_at(end - 1) + 1].tolist()]
    pieces = chains.pieces[first : first + len(begins)]
    known = ((pieces["flags"] & PLACED) != 0).tolist()
    if not all(known):
        count = known.index(False)
        pieces, begins, end = pieces[:count], begins[:count], begins[count]
    lengths = np.array([*begins[1:], end]) - begins
    # Of the first piece the blocks before the row are left out.
    depth = pieces["depth"] - np.array([int(chains.first[first]), *begins[1:]])
    blank = np.zeros(end - row, np.uint64)
    return ChainScan(
        depth.repeat(lengths) + np.arange(row, end),
        blank if chains.own is None else chains.own[row:end],
        blank if chains.prefix is None else chains.prefix[row:end],
        pieces["extras"].repeat(lengths),
        pieces["flags"].repeat(lengths),
    )


def comparable(chains: ChainTable, pieces: Integers, position: int) -> Flags:
    """Which rows, whose pieces these are, were stored before a position with all digests known: bool, aligned."""
    # guard: placed-position
    found: Flags = ((chains.flags_of(pieces) & KNOWN) == KNOWN) & (chains.ordinals[pieces] < position)
    return found


def depths_of(chains: ChainTable, rows: Integers, pieces: Integers) -> Integers:
    """Depths of the blocks of some rows, whose pieces these are: int64, aligned with ``rows``."""
    found: Integers = chains.pieces["depth"][pieces].astype(np.int64) + rows - chains.first[pieces]
    return found


def leading_count(flags: Flags) -> int:
    """How many of the first flags are set."""
    first = int(flags.argmin()) if flags.size else 0
    return first if flags.size and not flags[first] else flags.size
