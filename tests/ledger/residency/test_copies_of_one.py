"""One block is judged by itself as it is among many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.residency.copies import REMOVALS, STATES, alternating, count_copies, residencies_of
from whymiss.ledger.residency.copies_of_one import residency_of_one
from whymiss.ledger.residency.resets import NO_RESETS, ResetColumns, ResetEffect
from whymiss.ledger.segment.operations import CountedOperations, SelectedOperations
from whymiss.model import Residency

LAST = 40

TURNS = st.integers(1, 4).map(lambda count: [number % 2 == 0 for number in range(count)])


def resets_of(effects: list[tuple[int, ResetEffect]]) -> ResetColumns:
    if not effects:
        return NO_RESETS
    column = np.array([effect for _, effect in effects], np.int8)
    return ResetColumns(
        np.array([at for at, _ in effects]),
        np.array([at * 10 for at, _ in effects]),
        column,
        np.concatenate((np.zeros(1, np.int64), (column == ResetEffect.HOLE).cumsum())),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, bool]], ResetColumns, int]:
    """Operations on one block, barriers between them, and a position after all operations."""
    kinds = draw(st.lists(st.sampled_from(["store", "remove", "nothing", *ResetEffect]), min_size=1, max_size=LAST))
    kinds = ["store", *kinds]
    operations = [(at, kind == "store") for at, kind in enumerate(kinds) if kind in {"store", "remove"}]
    effects = [(at, kind) for at, kind in enumerate(kinds) if isinstance(kind, ResetEffect)]
    return operations, resets_of(effects), draw(st.integers(operations[-1][0] + 1, LAST + 2))


@given(histories())
def test_one_block_is_judged_as_many_are(drawn: tuple[list[tuple[int, bool]], ResetColumns, int]) -> None:
    operations, resets, position = drawn
    ordinals, stores = (np.array(column) for column in zip(*operations, strict=True))
    nothing = np.zeros(ordinals.size, np.int64)
    hits = SelectedOperations(nothing, ordinals, stores, nothing - 1, np.zeros(ordinals.size, np.bool_))
    expected = residencies_of(count_copies(hits, resets, position), hits, resets)
    found = residency_of_one(operations, resets, position)
    assert found.state is STATES[expected.states[0]]
    assert found.removal is (None if expected.removals[0] < 0 else REMOVALS[expected.removals[0]])
    assert found.ordinal == expected.ordinals[0]
    assert found.at_reset == expected.at_reset[0]


@given(
    st.lists(TURNS | st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=6),
    st.lists(
        st.tuples(st.integers(0, 2 * LAST), st.sampled_from(ResetEffect)), max_size=2, unique_by=lambda pair: pair[0]
    ),
    st.just(LAST) | st.integers(0, LAST),
)
def test_blocks_that_were_stored_and_removed_in_turns_are_judged_as_if_they_were_counted(
    told: list[list[bool]], effects: list[tuple[int, ResetEffect]], begin: int
) -> None:
    stores = np.array([one for block in told for one in block])
    owners = np.array([owner for owner, block in enumerate(told) for _ in block]) * 3
    ordinals = np.arange(stores.size) * 2 + begin
    hits = CountedOperations(owners, stores, lambda: ordinals, begin)
    resets, position = resets_of(sorted(effects)), int(ordinals[-1]) + 2
    turns = alternating(hits, resets, position)
    alternate = all(store is (place % 2 == 0) for block in told for place, store in enumerate(block))
    assert (turns is not None) == (alternate and not any(begin <= at < position for at, _ in effects))
    if turns is not None:
        found = count_copies(hits, resets, position)
        expected = residencies_of(found, hits, resets)
        assert turns.owners.tolist() == found.owners.tolist()
        assert turns.states.tolist() == expected.states.tolist()
        assert turns.removals.tolist() == expected.removals.tolist()
        assert ordinals[turns.last].tolist() == expected.ordinals.tolist()
        assert not expected.at_reset.any()


def test_what_was_removed_after_a_hole_may_still_be_there() -> None:
    hits = CountedOperations(np.array([0, 0, 1]), np.array([True, False, True]), lambda: np.array([5, 6, 5]), 5)
    turns = alternating(hits, resets_of([(4, ResetEffect.HOLE)]), 7)
    assert turns is not None
    assert [STATES[state] for state in turns.states] == [Residency.AMBIGUOUS, Residency.RESIDENT]
    assert turns.removals.tolist() == [-1, -1]
