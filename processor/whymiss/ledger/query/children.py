"""Scan by parent: the blocks that a segment saw stored under a parent, in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..columnar.bloom_filter import probe_of
from ..columnar.kernels import NO_INTEGERS, Integers
from ..segment.chain_table import CONTINUES, PLACED, ChainTable
from ..segment.segment import Children, Segment

CHILDREN_AT_ONCE = 64
"""Children that are listed in one go."""

PARENTS_MAX = 32
"""Parents a segment whose first children are kept."""


def children_in(part: Segment, parent: int | None, position: int) -> Iterator[int]:
    """The children of a block that one segment saw stored before a position, in order."""
    children = part.children_known.get(parent)
    if children is None:
        if len(part.children_known) >= PARENTS_MAX:
            part.children_known.clear()
        children = part.children_known[parent] = _children_from(part.chains, _rows_under(part, parent), 0)
    listed = 0
    while True:
        for key, ordinal in zip(children.keys, children.ordinals, strict=True):
            if ordinal >= position:  # guard: children-position
                return
            yield key
        if not children.more:  # guard: children-all
            return
        listed += len(children.keys)
        children = _children_from(part.chains, _rows_under(part, parent), listed)


def _children_from(chains: ChainTable, rows: Integers, begin: int) -> Children:
    some = rows[begin : begin + CHILDREN_AT_ONCE]
    ordinals = chains.ordinals[chains.piece_of(some)]
    return Children(tuple(chains.keys[some].tolist()), tuple(ordinals.tolist()), begin + some.size < rows.size)


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
    followers = [NO_INTEGERS]
    for place, run in part.runs.items():
        if not run.chained or not run.filter.may_hold(key):
            continue
        hits = part.select(place, probe_of((key,)))
        if hits is not None:
            rows = hits.rows[hits.rows >= 0] + 1
            rows = rows[rows < len(chains)]
            pieces = chains.piece_of(rows)
            inside = (chains.first[pieces] < rows) | ((chains.flags_of(pieces) & CONTINUES) != 0)
            followers.append(rows[inside])  # guard: children-inside
    return np.concatenate(followers)
