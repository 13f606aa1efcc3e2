"""A chain's leading blocks are found wherever they were stored, up to the first whose place is not known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import DIGESTER
from tests.ledger.memtable.test_segment_builder import chain, said, told
from whymiss.ledger.query.chain_scan import KNOWN, comparable, depths_of, leading_count, scan_chain

KEYS = np.arange(100, 108, dtype=np.uint64)


@given(st.sets(st.integers(1, len(KEYS) - 1)), st.sets(st.integers(0, 7)), st.integers(1, len(KEYS)))
def test_a_chain_is_scanned_as_a_whole_however_it_was_cut(cuts: set[int], flushed: set[int], stored: int) -> None:
    bounds = [0, *sorted(cut for cut in cuts if cut < stored), stored]
    events = [
        (begin, KEYS[begin:end].tolist(), int(KEYS[begin - 1]) if begin else None) for begin, end in pairwise(bounds)
    ]
    record = told()
    for seq, (begin, keys, parent) in enumerate(events):
        record.apply(said(10 * seq + 10, chain(keys, parent)), seq)
        if begin in flushed:
            record.settle()
    record.settle()
    scanned = scan_chain(record.history, KEYS)
    assert scanned.depth.tolist() == list(range(stored))
    assert (scanned.flags & KNOWN == KNOWN).all()
    own = DIGESTER.block_digests([int(key) for key in KEYS[:stored] for _ in range(2)], 2, stored)
    assert scanned.own.tolist() == own.tolist()
    assert scanned.prefix.tolist() == DIGESTER.prefix_digests(own, 0, 0).tolist()


def test_behind_a_block_without_a_place_nothing_is_scanned() -> None:
    record = told(said(10, chain([100, 101])), said(20, chain([103], 102)))
    record.settle()
    assert scan_chain(record.history, KEYS).depth.tolist() == [0, 1]
    assert scan_chain(record.history, KEYS[3:]).depth.size == 0


def test_rows_can_be_compared_once_they_were_stored_with_all_digests() -> None:
    record = told(said(10, chain([100, 101])), said(20, chain([102], 101)), said(30, chain([200], 12345)))
    record.settle()
    (part,) = record.history.segments
    rows = np.arange(len(part.chains))
    pieces = part.chains.piece_of(rows)
    assert comparable(part.chains, pieces, 1).tolist() == [True, True, False, False]
    assert comparable(part.chains, pieces, record.end).tolist() == [True, True, True, False]
    assert depths_of(part.chains, rows, pieces)[:3].tolist() == [0, 1, 2]


@given(st.lists(st.booleans()))
def test_leading_flags_are_those_before_the_first_that_is_not_set(flags: list[bool]) -> None:
    expected = flags.index(False) if False in flags else len(flags)
    assert leading_count(np.array(flags, np.bool_)) == expected
