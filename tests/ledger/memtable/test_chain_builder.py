"""The chain table of a segment says of each block what its events said, however the blocks came."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import DIGESTER, one
from tests.ledger.memtable.test_segment_builder import A, B, C, D, chain
from whymiss.ledger.memtable.chain_builder import ChainBuilder
from whymiss.ledger.memtable.chain_tails import ChainTails
from whymiss.ledger.segment.chain_table import HAS_PARENT, PLACED, REPORTED, TAIL, UNPLACED, ChainTable
from whymiss.ledger.segment_store import SegmentStore


def builder(begin: int = 0) -> ChainBuilder:
    return ChainBuilder(ChainTails(SegmentStore(), DIGESTER), DIGESTER, begin)


def depths(chains: ChainTable) -> list[int]:
    rows = np.arange(len(chains))
    pieces = chains.piece_of(rows)
    return (chains.pieces["depth"][pieces] + rows - chains.first[pieces]).tolist()  # type: ignore[no-any-return]


@given(st.sets(st.integers(1, 7)))
def test_a_chain_has_the_same_depths_and_digests_however_it_is_cut(cuts: set[int]) -> None:
    keys = list(range(100, 108))
    bounds = [0, *sorted(cuts), len(keys)]
    parts = builder()
    codes: list[int] = []
    for ordinal, (begin, end) in enumerate(pairwise(bounds)):
        event = one(chain(keys[begin:end], keys[begin - 1] if begin else None))
        codes += parts.add(event, ordinal, ordinal, reported=False).tolist()
    cut, whole = parts.end(), builder()
    whole.add(one(chain(keys)), 0, 0, reported=False)
    uncut = whole.end()
    # A code is twice the row, plus one for a store.
    assert codes == [2 * row + 1 for row in range(len(keys))]
    assert cut.keys.tolist() == uncut.keys.tolist() == keys
    assert depths(cut) == depths(uncut) == list(range(len(keys)))
    assert cut.prefix is not None
    assert uncut.prefix is not None
    assert cut.prefix.tolist() == uncut.prefix.tolist()
    assert cut.ordinals.tolist() == list(range(len(bounds) - 1))


def test_a_piece_says_its_parent_its_lookup_and_what_kind_of_store_it_is() -> None:
    parts = builder()
    parts.add(one(chain([A, B])), 3, 1, reported=True)
    parts.add(one(chain([C], D)), 4, 4, reported=False)
    chains = parts.end()
    root, orphan = chains.entry(0), chains.entry(1)
    assert (root.depth, root.back, root.flags & (PLACED | HAS_PARENT)) == (0, 2, PLACED)
    assert root.flags & (REPORTED | TAIL) == REPORTED | TAIL
    assert (orphan.depth, orphan.parent, orphan.flags & (PLACED | HAS_PARENT)) == (UNPLACED, D, HAS_PARENT)
    assert chains.has_reannouncements


def test_what_it_holds_is_what_was_added() -> None:
    parts = builder()
    assert not parts.holds(A)
    assert len(parts.end()) == 0
    parts.add(one(chain([A])), 0, 0, reported=False)
    assert (parts.holds(A), parts.holds(B), len(parts)) == (True, False, 1)


def test_a_later_segment_continues_a_chain_by_its_tail() -> None:
    tails = ChainTails(SegmentStore(), DIGESTER)
    first, second = ChainBuilder(tails, DIGESTER, 0), ChainBuilder(tails, DIGESTER, 1)
    first.add(one(chain([A, B])), 0, 0, reported=False)
    head = first.end()
    second.add(one(chain([C], B)), 1, 1, reported=False)
    rest = second.end()
    whole = builder()
    whole.add(one(chain([A, B, C])), 0, 0, reported=False)
    expected = whole.end().prefix
    assert depths(rest) == [2]
    assert head.prefix is not None
    assert rest.prefix is not None
    assert expected is not None
    assert [*head.prefix.tolist(), *rest.prefix.tolist()] == expected.tolist()
