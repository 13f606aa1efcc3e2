"""The digests of a segment's blocks are those that each chain has when it is summed by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import DIGESTER
from whymiss.ledger.memtable.prefix_digests import PrefixDigests

OWN = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=5)


@given(st.lists(st.tuples(OWN, st.integers(0, 9), st.booleans()), min_size=1, max_size=8))
def test_one_sum_over_all_events_gives_what_a_sum_of_each_gives(events: list[tuple[list[int], int, bool]]) -> None:
    prefixes = PrefixDigests(DIGESTER)
    expected: list[int] = []
    lasts: list[int] = []
    depths: list[int] = []
    for number, (own, depth, continues) in enumerate(events):
        column = np.array(own, np.uint64)
        if continues and number:
            # Behind the last block of the event before, whose digest is not summed yet.
            above, begin, parent = ~(number - 1), depths[-1], lasts[-1]
        else:
            above, begin, parent = 12345, depth, 12345
        prefixes.add(column, above, begin)
        sums = DIGESTER.prefix_digests(column, parent, begin).tolist()
        expected += sums
        lasts.append(sums[-1])
        depths.append(begin + len(own))
    digests, ends = prefixes.column(prefixes.own())
    assert digests.tolist() == expected
    assert ends == lasts


def test_what_is_not_known_leaves_the_others_alone() -> None:
    known, unknown = np.array([5, 6], np.uint64), np.array([7], np.uint64)
    prefixes = PrefixDigests(DIGESTER)
    prefixes.add(known, 3, 0)
    prefixes.add_unknown(unknown, 1)
    prefixes.add_unknown(None, 2)
    prefixes.add_singles(np.array([8, 9], np.uint64), [3, 0], [4, -1])
    digests, ends = prefixes.column(prefixes.own())
    assert prefixes.own().tolist() == [5, 6, 7, 0, 0, 8, 9]
    first, single = DIGESTER.prefix_digests(known, 3, 0), DIGESTER.prefix_digests(np.array([8], np.uint64), 3, 4)
    assert digests[:2].tolist() == first.tolist()
    assert digests[5] == single[0]
    assert digests[[2, 3, 4, 6]].tolist() == [0, 0, 0, 0]
    assert ends == [int(first[1]), 0, 0, int(single[0]), 0]
