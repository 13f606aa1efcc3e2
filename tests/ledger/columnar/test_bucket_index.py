"""A sorted column that is cut into slices tells the same rows as one that is halved."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.columnar.bloom_filter import Probe
from whymiss.ledger.columnar.bucket_index import INDEXED_FROM, ROWS_A_BUCKET, BucketIndex
from whymiss.ledger.columnar.hash_index import HashIndex
from whymiss.ledger.columnar.kernels import CROWDED, FEW, expand_ranges, join_sorted, order_of
from whymiss.ledger.events import Keys
from whymiss.ledger.segment.operations import Run

LAST = (1 << 64) - 1
EDGES = st.sampled_from([0, 1, 1 << 32, (1 << 63) - 1, 1 << 63, LAST - 1, LAST])
VALUES = st.integers(0, LAST) | EDGES

COPIES = st.integers(1, CROWDED + 10)


@st.composite
def columns(draw: st.DrawFn) -> Keys:
    """Evenly spread hashes, beside which some come up often and some lie close together."""
    chance = np.random.default_rng(draw(st.integers(0, 1000)))
    even = chance.integers(0, LAST, draw(st.integers(0, 2)) * INDEXED_FROM, np.uint64, endpoint=True)
    often = [np.full(draw(COPIES), draw(VALUES), np.uint64) for _ in range(draw(st.integers(0, 4)))]
    begin = draw(st.integers(0, LAST - 10_000))
    close = np.arange(begin, begin + draw(st.sampled_from([0, 3, 100, 10_000])), dtype=np.uint64)
    return np.sort(np.concatenate([even, *often, close]))


def rows_by_looking(column: Keys, needles: Keys) -> list[tuple[int, int]]:
    return [(which, row) for which, one in enumerate(needles) for row in (column == one).nonzero()[0].tolist()]


@given(columns(), st.lists(VALUES, max_size=8), st.data())
def test_all_rows_of_a_value_are_found_and_no_other(column: Keys, others: list[int], data: st.DataObject) -> None:
    rows = st.integers(0, max(0, column.size - 1))
    held = [int(column[row]) for row in data.draw(st.lists(rows, max_size=20))] if column.size else []
    needles = np.array(sorted({*held, *others}), np.uint64)
    expected = rows_by_looking(column, needles)
    run = Run(column, np.zeros(column.size, np.uint32), chained=False)
    passing = np.arange(needles.size)
    found = run.join_passing(Probe(needles), passing)
    assert expected == ([] if found is None else list(zip(found[0].tolist(), found[1].tolist(), strict=True)))
    for which, one in enumerate(needles.tolist()):
        begin, end = run.rows_of(one)
        assert list(range(begin, end)) == [row for number, row in expected if number == which]


@given(columns(), st.lists(VALUES, max_size=8), st.integers(1, 20), st.data())
def test_an_index_finds_the_last_rows_of_a_value_and_no_other(
    ascending: Keys, others: list[int], limit: int, data: st.DataObject
) -> None:
    column = np.random.default_rng(ascending.size).permutation(ascending)
    held = column[:: max(1, column.size // data.draw(st.integers(1, 30)))].tolist()
    values = np.array(sorted({*held, *others}), np.uint64)
    index = HashIndex(column, order_of(column))
    owners, rows = index.find(column, values, limit)
    last = [found for one in values for found in [(column == one).nonzero()[0].tolist()[-limit:]]]
    expected = [(owner, row) for owner, found in enumerate(last) for row in found]
    assert list(zip(owners.tolist(), rows.tolist(), strict=True)) == expected


@given(columns())
def test_slices_are_made_of_a_long_column_only_and_take_little_room(column: Keys) -> None:
    made = BucketIndex.of(column)
    assert (made is None) == (column.size < INDEXED_FROM)
    assert made is None or made.nbytes <= 4 * (column.size / ROWS_A_BUCKET + 1)


def test_many_values_of_one_column_are_found_by_few_looks_as_by_halving() -> None:
    chance = np.random.default_rng(4)
    column = np.sort(chance.integers(0, LAST, 100_000, np.uint64, endpoint=True).repeat(2))
    made = BucketIndex.of(column)
    assert made is not None
    needles = np.unique(np.concatenate((column[::997], column[-1:], chance.integers(0, LAST, 50, np.uint64))))
    assert needles.size > FEW
    found, halved = made.find(column, needles), join_sorted(column, needles)
    assert found is not None
    assert halved is not None
    assert [some.tolist() for some in found] == [some.tolist() for some in halved]


@given(st.lists(st.integers(0, 3), max_size=8))
def test_an_owner_is_spread_over_as_many_rows_as_it_has(counts: list[int]) -> None:
    owners = np.arange(len(counts)) * 10
    begin = np.arange(len(counts)) * 100
    found = expand_ranges(owners, begin, np.array(counts, np.int64))
    expected = [(10 * one, 100 * one + row) for one, count in enumerate(counts) for row in range(count)]
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected


def test_of_evenly_spread_values_no_slice_is_crowded() -> None:
    column = np.sort(np.random.default_rng(5).integers(0, LAST, 1 << 18, np.uint64))
    made = BucketIndex.of(column)
    assert made is not None
    bounds = [made.bucket_of(one) for one in column[::64].tolist()]
    assert max(end - begin for begin, end in bounds) < CROWDED
    assert all(begin <= row < end for row, (begin, end) in zip(range(0, column.size, 64), bounds, strict=True))
