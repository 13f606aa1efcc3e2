"""What stays of a place is as many of a block's last stores as copies of it are surely held."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.columnar.kernels import NO_INTEGERS
from whymiss.ledger.columnar.pacing import at_once
from whymiss.ledger.compaction.live_operations import live_operations
from whymiss.ledger.residency.resets import NO_RESETS
from whymiss.ledger.segment.chain_table import empty_chain_table
from whymiss.ledger.segment.operations import sorted_run
from whymiss.ledger.segment.segment import Place, Segment
from whymiss.model import Tier

PLACE: Place = (Tier.HOST, 0)
EMPTY = Segment((0, 0), {}, empty_chain_table(), stamps=(NO_INTEGERS, NO_INTEGERS))


def segment(events: list[tuple[int, bool]]) -> Segment:
    keys = np.array([key for key, _ in events], np.uint64)
    codes = np.array([2 * at + stores for at, (_, stores) in enumerate(events)], np.uint32)
    return Segment((0, len(events)), {PLACE: sorted_run([keys], [codes], chained=False)}, empty_chain_table())


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40))
def test_the_last_stores_stay_one_a_copy_and_a_surplus_of_removals_is_marked(events: list[tuple[int, bool]]) -> None:
    live = at_once(live_operations(EMPTY, segment(events), PLACE, NO_RESETS))
    expected: list[tuple[int, int, bool]] = []
    by_key: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for at, (key, stores) in enumerate(events):
        by_key[key].append((at, stores))
    for key, operations in sorted(by_key.items()):
        copies, surplus, stored = 0, False, list[int]()
        for at, stores in operations:
            surplus |= not stores and not copies
            copies = copies + 1 if stores else max(0, copies - 1)
            stored += [at] if stores else []
        expected += [(key, at, True) for at in stored[len(stored) - copies :]]
        if surplus and not copies:
            # That more were removed than stored stays known, as one removal or the last store.
            expected.append((key, operations[-1][0], operations[-1][1]))
    found = zip(live.keys.tolist(), live.ordinals.tolist(), live.stores.tolist(), strict=True)
    assert list(found) == expected
    assert not live.chained
    assert (live.rows == -1).all()
