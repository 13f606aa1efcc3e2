"""The blocks that a segment saw stored under a parent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..columnar.bloom_filter import probe_of
from ..columnar.kernels import NO_INTEGERS, Integers
from ..segment.chain_table import CONTINUES, PLACED, Chains
from ..segment.segment import Brood, Segment

BROOD = 64
"""Children that are listed in one go."""

BROODS_MAX = 32
"""Parents a segment whose first children are kept."""


def children_in(part: Segment, parent: int | None, position: int) -> Iterator[int]:
    """The children of a block that one segment saw stored before a position, in order."""
    brood = part.broods.get(parent)
    if brood is None:
        if len(part.broods) >= BROODS_MAX:
            part.broods.clear()
        brood = part.broods[parent] = _brood(part.chains, _rows_under(part, parent), 0)
    told = 0
    while True:
        for key, ordinal in zip(brood.keys, brood.ordinals, strict=True):
            if ordinal >= position:  # guard: children-position
                return
            yield key
        if not brood.more:  # guard: children-all
            return
        told += len(brood.keys)
        brood = _brood(part.chains, _rows_under(part, parent), told)


def _brood(chains: Chains, rows: Integers, begin: int) -> Brood:
    some = rows[begin : begin + BROOD]
    ordinals = chains.ordinals[chains.piece_of(some)]
    return Brood(tuple(chains.keys[some].tolist()), tuple(ordinals.tolist()), begin + some.size < rows.size)


def _rows_under(part: Segment, parent: int | None) -> Integers:
    """The rows of a block's children, or of all roots, in order."""
    chains = part.chains
    if parent is None:
        return chains.first[chains.roots].astype(np.int64)
    begun, following = chains.begun_under(parent), _followers(part, parent)
    if not begun.size and not following.size:
        return NO_INTEGERS
    rows = np.sort(np.concatenate((chains.first[begun].astype(np.int64), following)))
    placed: Integers = rows[(chains.flags_of(chains.piece_of(rows)) & PLACED) != 0]  # guard: children-placed
    return placed


def _followers(part: Segment, key: int) -> Integers:
    """Rows that follow a block inside one event."""
    chains = part.chains
    found = [NO_INTEGERS]
    for place, run in part.runs.items():
        if not run.chained or not run.filter.may_hold(key):
            continue
        hits = part.select(place, probe_of((key,)))
        if hits is not None:
            rows = hits.rows[hits.rows >= 0] + 1
            rows = rows[rows < len(chains)]
            pieces = chains.piece_of(rows)
            inside = (chains.first[pieces] < rows) | ((chains.flags_of(pieces) & CONTINUES) != 0)
            found.append(rows[inside])  # guard: children-inside
    return np.concatenate(found)
