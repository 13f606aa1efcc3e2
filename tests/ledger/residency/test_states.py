"""Facts about many blocks are those about each of them, in the order in which the blocks were asked for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.residency.test_copies_of_one import resets_of
from whymiss.ledger.columnar.kernels import Integers
from whymiss.ledger.residency.copies_of_one import residency_of_one
from whymiss.ledger.residency.resets import ResetEffect
from whymiss.ledger.residency.states import facts_of
from whymiss.ledger.segment.operations import NO_OPERATIONS, CountedOperations
from whymiss.model import Fact, Residency

POSITION = 60
BLOCKS = 4


def nanos(ordinals: Integers) -> Integers:
    return ordinals * 7


@given(
    st.lists(st.tuples(st.integers(0, BLOCKS - 1), st.booleans()), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, POSITION), st.sampled_from(ResetEffect)), max_size=2, unique_by=lambda at: at[0]),
    st.permutations(range(BLOCKS)),
)
def test_many_blocks_are_said_what_each_is(
    events: list[tuple[int, bool]], effects: list[tuple[int, ResetEffect]], order: list[int]
) -> None:
    # Events have even ordinals; no reset shares one with an event of its own.
    resets = resets_of(sorted({(at | 1, effect) for at, effect in effects}, key=lambda pair: pair[0])[:1])
    operations = [(owner, 2 * number, stores) for number, (owner, stores) in enumerate(events)]
    operations.sort(key=lambda one: one[0])
    owners, ordinals, stores = (np.array(column) for column in zip(*operations, strict=True))
    hits = CountedOperations(owners, stores, lambda: ordinals)
    facts = facts_of(hits, np.array(order), resets, POSITION + 2, nanos)
    assert len(facts) == BLOCKS
    for owner, block in enumerate(order):
        own = [(ordinal, stores) for other, ordinal, stores in operations if other == owner]
        if not own:
            assert facts[block] == Fact(state=Residency.NEVER_SEEN)
            continue
        expected = residency_of_one(own, resets, POSITION + 2)
        fact = facts[block]
        assert (fact.state, fact.removal, fact.ordinal) == (expected.state, expected.removal, expected.ordinal)
        at_reset = int(resets.ordinals.searchsorted(expected.ordinal)) if expected.at_reset else -1
        assert fact.at_unix_nanos == (expected.ordinal * 7 if at_reset < 0 else int(resets.nanos[at_reset]))


def test_without_an_operation_no_block_was_ever_seen() -> None:
    facts = facts_of(NO_OPERATIONS, np.arange(3), resets_of([]), POSITION, nanos)
    assert list(facts) == [Fact(state=Residency.NEVER_SEEN)] * 3
