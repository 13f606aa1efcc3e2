"""From a publisher's time to a position and back, as a list of batches says it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.time_index import TimeIndex

BATCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=20)


def filled(batches: list[tuple[int, int]]) -> tuple[TimeIndex, list[tuple[int, int]]]:
    """An index, and its batches as (time, position after it): a clock that falls back is held."""
    index = TimeIndex()
    listed: list[tuple[int, int]] = []
    end = highest = 0
    for seq, (nanos, count) in enumerate(batches):
        end += count
        highest = max(highest, nanos)
        index.append(seq, nanos, end)
        listed.append((highest, end))
    return index, listed


@given(BATCHES, st.integers(-1, 31))
def test_positions_are_those_of_the_batches_before_and_after_a_time(batches: list[tuple[int, int]], at: int) -> None:
    index, listed = filled(batches)
    assert index.position_at(at) == max((end for nanos, end in listed if nanos <= at), default=0)
    assert index.confirmed_position(at) == next((end for nanos, end in listed if nanos > at), None)
    assert index.published_before(at) == max((nanos for nanos, _ in listed if nanos < at), default=None)


@given(BATCHES)
def test_an_event_happened_when_its_batch_was_published(batches: list[tuple[int, int]]) -> None:
    index, listed = filled(batches)
    ordinals = np.arange(listed[-1][1])
    expected = [next(nanos for nanos, end in listed if end > ordinal) for ordinal in ordinals.tolist()]
    assert index.nanos_of(ordinals).tolist() == expected
    assert [index.nanos_at(ordinal) for ordinal in ordinals.tolist()] == expected


@given(BATCHES, st.integers(0, 80))
def test_what_is_forgotten_changes_no_answer_about_what_is_kept(batches: list[tuple[int, int]], edge: int) -> None:
    index, listed = filled(batches)
    dropped = index.forget(edge)
    kept = [(seq, nanos, end) for seq, (nanos, end) in enumerate(listed)][dropped:]
    assert len(index) == len(kept) > 0
    assert all(end <= edge for _, end in listed[:dropped])
    assert [index.time_of(seq) for seq, _, _ in kept] == [nanos for _, nanos, _ in kept]
    assert [index.time_of(seq) for seq in range(dropped)] == [None] * dropped
    for ordinal in range(edge, listed[-1][1]):
        assert index.nanos_at(ordinal) == next(nanos for nanos, end in listed if end > ordinal)


def test_a_number_of_a_former_life_names_no_batch_of_this_one() -> None:
    index = TimeIndex()
    index.append(0, 10, 1)
    index.append(1, 20, 2)
    index.begin_life()
    assert (index.time_of(0), index.time_of(1)) == (None, None)
    index.append(0, 30, 3)
    assert (index.time_of(0), index.time_of(1)) == (30, None)
