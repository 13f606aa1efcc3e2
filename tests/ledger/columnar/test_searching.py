"""What makes searches quick never changes what they find."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.columnar.bloom_filter import Probe
from whymiss.ledger.columnar.hash_index import HashIndex
from whymiss.ledger.columnar.kernels import DUPLICATES_SCANNED, join_sorted, order_of
from whymiss.ledger.columnar.pacing import at_once
from whymiss.ledger.events import Keys
from whymiss.ledger.residency.copies import STATES
from whymiss.ledger.residency.facts import ColumnFacts, Details, LazyChainFacts
from whymiss.ledger.segment.operations import Run
from whymiss.model import Residency

WIDE = st.integers(0, (1 << 64) - 1)
# Hashes are spread evenly; what is not, like small numbers or numbers that differ in their last bits, must do too.
NUMBERS = st.lists(WIDE | st.integers(0, 20) | st.integers(1 << 63, (1 << 63) + 20), min_size=1, max_size=200)


def column(numbers: list[int]) -> Keys:
    return np.array(numbers, np.uint64)


@given(NUMBERS, NUMBERS, st.booleans())
def test_an_index_finds_every_row_of_a_value_and_no_other(held: list[int], asked: list[int], stepwise: bool) -> None:
    rows_of = column(held)
    index = at_once(HashIndex.in_steps(rows_of)) if stepwise else HashIndex(rows_of, order_of(rows_of))
    wanted = column(sorted({*asked, *held[:8]}))
    owners, rows = index.find(rows_of, wanted, len(held))
    found = sorted(zip(wanted[owners].tolist(), rows.tolist(), strict=True))
    assert found == sorted((one, row) for row, one in enumerate(held) if one in set(wanted.tolist()))
    for one in wanted.tolist():
        assert sorted(index.find_one(rows_of, one).tolist()) == [row for row, other in enumerate(held) if other == one]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6 * DUPLICATES_SCANNED), st.sets(st.integers(0, 8), min_size=1))
def test_all_rows_of_a_block_are_found_however_many_there_are(held: list[int], asked: set[int]) -> None:
    ascending, needles = np.sort(column(held)), column(sorted(asked))
    found = join_sorted(ascending, needles)
    told = [] if found is None else list(zip(needles[found[0]].tolist(), found[1].tolist(), strict=True))
    assert told == [(one, row) for row, one in enumerate(ascending.tolist()) if one in asked]


def test_a_large_run_answers_many_as_it_answers_each() -> None:
    chance = np.random.default_rng(2)
    keys = np.sort(chance.integers(0, 1 << 64, 20_000, np.uint64))
    keys[100:120] = keys[100]
    run = Run(keys, np.zeros(keys.size, np.uint32), chained=False)
    asked = np.concatenate([keys[90:130:3], chance.integers(0, 1 << 64, 8, np.uint64)])
    found = run.find(Probe(asked))
    assert found is not None
    together = sorted(zip(found[0].tolist(), found[1].tolist(), strict=True))
    alone = []
    for index, one in enumerate(asked):
        rows = run.find(Probe(np.array([one])))
        alone.extend([] if rows is None else [(index, row) for row in rows[1].tolist()])
    assert together == sorted(alone)


@given(st.lists(st.sampled_from(STATES), max_size=20), st.sets(st.sampled_from(STATES)))
def test_leading_blocks_are_those_before_the_first_other_state(states: list[Residency], wanted: set[Residency]) -> None:
    codes = np.array([STATES.index(state) for state in states], np.int8)
    said = ColumnFacts(codes, lambda: Details.none_of(len(states)))
    expected = next((index for index, state in enumerate(states) if state not in wanted), len(states))
    assert said.leading(wanted) == expected
    assert LazyChainFacts(lambda: said[0], lambda: said, len(states)).leading(wanted) == expected
