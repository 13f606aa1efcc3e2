"""Upkeep in steps makes what it would make in one go, and each step works on few rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whymiss.ledger.columnar.bloom_filter import FOR_DIGESTS, FOR_KEYS, BloomFilter
from whymiss.ledger.columnar.hash_index import HashIndex
from whymiss.ledger.columnar.kernels import NO_INTEGERS, Integers, order_of, partitioned, split_by_value
from whymiss.ledger.columnar.pacing import (
    LARGE_BYTES,
    PAGE_BYTES,
    PORTION,
    STEP_ROWS,
    TOUCHING,
    Result,
    Steps,
    at_once,
    concatenated,
    in_portions,
    prefaulted,
    step_slices,
    taken,
)
from whymiss.ledger.compaction.fold import fold, fold_in_steps
from whymiss.ledger.compaction.merge import EAGER_ROWS, FANOUT, merged, merged_in_steps
from whymiss.ledger.events import Keys
from whymiss.ledger.residency.resets import Resets
from whymiss.ledger.segment.chain_table import PIECE, PLACED, TAIL, ChainTable, empty_chain_table
from whymiss.ledger.segment.operations import sorted_run
from whymiss.ledger.segment.segment import Place, Segment
from whymiss.model import Tier

DEVICE, HOST = (Tier.DEVICE, 0), (Tier.HOST, 0)

SIZES = st.integers(0, 3 * STEP_ROWS)


def uniform(seed: int, rows: int) -> Keys:
    return np.random.default_rng(seed).integers(0, 1 << 64, rows, dtype=np.uint64)


def last_of(portions: Iterator[Result | None]) -> Result:
    *_, made = portions
    assert made is not None
    return made


def costliest(steps: Steps[Result]) -> int:
    return max(steps, default=0)


# --- columns ----------------------------------------------------------------------------------------


@given(SIZES)
def test_stretches_are_all_rows_and_each_is_short(size: int) -> None:
    found = list(step_slices(size))
    assert [row for some in found for row in range(some.start, some.stop)] == list(range(size))
    assert all(0 < some.stop - some.start <= STEP_ROWS for some in found)


@settings(max_examples=20)
@given(st.lists(SIZES, min_size=1, max_size=4), st.floats(0, 1))
def test_columns_that_are_joined_or_taken_from_in_steps_are_those_of_one_go(sizes: list[int], part: float) -> None:
    columns = [uniform(seed, size) for seed, size in enumerate(sizes)]
    whole = np.concatenate(columns)
    assert (at_once(concatenated(columns)) == whole).all()
    rows = np.flatnonzero(np.random.default_rng(9).random(whole.size) < part)
    assert (at_once(taken(columns, rows)) == whole[rows]).all()


@given(st.lists(st.integers(1, 9)), st.integers(1, 20))
def test_portions_end_where_what_was_spent_is_paid_for(costs: list[int], portion: int) -> None:
    seen: list[int] = []
    portions = 0

    def steps() -> Steps[str]:
        for cost in costs:
            seen.append(cost)
            yield cost
        return "made"

    for made in in_portions(steps(), portion):
        if made is None:
            portions += 1
            assert sum(seen[:-1]) < portions * portion <= sum(seen)
        else:
            assert made == "made"
            assert sum(seen) < (portions + 1) * portion


def test_each_large_page_of_a_column_is_a_step_of_its_own() -> None:
    pages = LARGE_BYTES // PAGE_BYTES
    assert list(prefaulted(np.empty(LARGE_BYTES // 8, np.uint64))) == [TOUCHING] * (pages + 1)
    assert list(prefaulted(np.empty(LARGE_BYTES // 8 - 1, np.uint64))) == []


@settings(max_examples=20)
@given(st.lists(st.tuples(SIZES, st.integers(1, 64)), min_size=1, max_size=5))
def test_columns_are_cut_between_values_into_slices_of_few_rows(shapes: list[tuple[int, int]]) -> None:
    # Numbers that are not spread evenly, of which many are the same.
    columns = [np.sort(uniform(seed, size) >> np.uint64(bits)) for seed, (size, bits) in enumerate(shapes)]
    slices = split_by_value(columns)
    for number, column in enumerate(columns):
        assert np.array_equal(np.concatenate([column[some[number]] for some in slices]), column)
    values = [np.concatenate([column[rows] for column, rows in zip(columns, some, strict=True)]) for some in slices]
    filled = [some for some in values if some.size]
    assert all(one.max() < other.min() for one, other in pairwise(filled))
    repeated = max((int(np.unique(some, return_counts=True)[1].max()) for some in filled), default=0)
    assert all(some.size <= STEP_ROWS + repeated for some in filled)


@settings(max_examples=20)
@given(st.integers(1, 5 * STEP_ROWS), st.integers(0, 64))
def test_an_index_made_in_steps_is_that_of_one_go(size: int, bits: int) -> None:
    column = uniform(size, size) >> np.uint64(min(bits, 63))
    groups = at_once(partitioned(column))
    highest = [np.concatenate(parts) for parts in groups]
    assert sorted(np.concatenate(highest).tolist()) == list(range(size))
    made, whole = at_once(HashIndex.in_steps(column)), HashIndex(column, order_of(column))
    for value in column[:: max(1, size // 50)].tolist():
        assert made.find_one(column, value).tolist() == whole.find_one(column, value).tolist()
    found = [index.find(column, np.unique(column), 3) for index in (made, whole)]
    assert [part.tolist() for part in found[0]] == [part.tolist() for part in found[1]]


# --- segments ---------------------------------------------------------------------------------------


def segment(seed: int, begin: int, rows: int, events: int, *, known: bool = True) -> Segment:
    """Chains of ``rows`` blocks in pieces, some of which are removed again, and what another tier stored of them."""
    chance = np.random.default_rng(seed)
    keys = uniform(seed, rows)
    first = np.unique(np.concatenate(([0], chance.integers(0, rows, events - 1))))
    pieces = np.zeros(first.size, PIECE)
    pieces["depth"], pieces["flags"] = chance.integers(0, 9, first.size), PLACED | TAIL
    ordinals = np.arange(first.size) + begin
    digests = (uniform(seed + 500, rows), uniform(seed + 900, rows), None) if known else None
    chains = ChainTable(keys, digests, first.astype(np.uint32), ordinals, pieces)
    stored = (2 * np.arange(rows) + 1).astype(np.uint32)
    gone = np.flatnonzero(chance.random(rows) < 0.5)
    end = first.size
    removed = np.full(gone.size, 2 * end, np.uint32)
    # In no order, so that a removal of what an earlier segment did not store is among them.
    strange = uniform(seed + 1, 5)
    device = sorted_run([keys, keys[gone], strange], [stored, removed, np.full(5, 2 * end, np.uint32)], chained=True)
    host = sorted_run([keys[::3]], [np.full(keys[::3].size, 1, np.uint32)], chained=False)
    return Segment(
        (begin, begin + end + 1), {DEVICE: device, HOST: host}, chains, times=(float(begin), float(begin + end))
    )


def parts(rows: list[int], *, known: bool = True) -> list[Segment]:
    found: list[Segment] = []
    for seed, count in enumerate(rows):
        begin = found[-1].end if found else 0
        found.append(segment(seed, begin, count, 1 + count // 7, known=known or seed > 0))
    return found


def columns_of(chains: ChainTable) -> list[list[object]]:
    named = (chains.keys, chains.own, chains.prefix, chains.first, chains.ordinals, chains.pieces)
    return [[] if column is None else column.tolist() for column in named]


def expected_chains(parts: list[Segment]) -> list[list[object]]:
    chains = [part.chains for part in parts]
    none = [np.zeros(len(one), np.uint64) for one in chains]
    rows = np.cumsum([0, *(len(one) for one in chains)])
    unknown = all(one.own is None for one in chains)
    columns = [
        np.concatenate([one.keys for one in chains]),
        np.concatenate([zeros if one.own is None else one.own for one, zeros in zip(chains, none, strict=True)]),
        np.concatenate([zeros if one.prefix is None else one.prefix for one, zeros in zip(chains, none, strict=True)]),
        np.concatenate([one.first + row for one, row in zip(chains, rows, strict=False)]),
        np.concatenate([one.ordinals for one in chains]),
        np.concatenate([one.pieces for one in chains]),
    ]
    return [[] if unknown and 0 < number < 3 else column.tolist() for number, column in enumerate(columns)]


SHAPES = [[40], [200, 300], [70_000, 20, 3000], [2500] * FANOUT]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("rows", SHAPES)
def test_what_is_merged_in_steps_is_all_operations_in_order(rows: list[int], known: bool) -> None:
    some = parts(rows, known=known)
    made = last_of(merged(some))
    assert (made.begin, made.end, made.oldest, made.newest) == (0, some[-1].end, 0.0, some[-1].newest)
    assert columns_of(made.chains) == expected_chains(some)
    for place in (DEVICE, HOST):
        whole = [operation for part in some for operation in told(part, place)]
        assert told(made, place) == sorted(whole, key=lambda one: one[0])
        assert all(made.runs[place].filter.may_hold(key) for key, _, _ in whole[:200])
    if known and sum(rows) >= EAGER_ROWS:
        own = some[0].chains.own
        assert own is not None
        assert made.chains.with_own(own[:5], 1)[1].tolist() == [0, 1, 2, 3, 4]


def told(part: Segment, place: Place) -> list[tuple[int, int, bool]]:
    """Keys, ordinals and kinds of all operations of a place, sorted by key and in order of events inside a key."""
    run = part.runs[place]
    hits = part.decode_codes(run, np.arange(run.keys.size), run.codes.astype(np.int64))
    return list(zip(run.keys.tolist(), hits.ordinals.tolist(), hits.stores.tolist(), strict=True))


def live_operations(operations: list[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """What of some operations stays when they leave the window, counted one by one."""
    found: list[tuple[int, int, bool]] = []
    by_key: dict[int, list[tuple[int, int, bool]]] = {}
    for one in operations:
        by_key.setdefault(one[0], []).append(one)
    for key in sorted(by_key):
        of_key = by_key[key]
        copies, fewest = 0, 0
        for _, _, stores in of_key:
            copies += 1 if stores else -1
            fewest = min(fewest, copies)
        low = copies - fewest
        held = [one for one in of_key if one[2]][-low:] if low else []
        if fewest < 0:
            found.append((key, held[0][1] if held else of_key[-1][1], False))
        found += held
    return found


def block(chains: ChainTable, row: int) -> tuple[object, ...]:
    piece = chains.piece_at(row)
    at = row - int(chains.first[piece])
    digests = () if chains.own is None or chains.prefix is None else (int(chains.own[row]), int(chains.prefix[row]))
    parent = int(chains.keys[row - 1]) if at else int(chains.pieces["parent"][piece])
    return int(chains.keys[row]), int(chains.pieces["depth"][piece]) + at, parent, digests


def blocks(part: Segment) -> dict[int, tuple[object, ...]]:
    """Each block that the device stored, as its chain tells it."""
    run = part.runs[DEVICE]
    stored = run.codes[(run.codes & 1).astype(np.bool_)] >> 1
    return {int(part.chains.keys[row]): block(part.chains, row) for row in stored.tolist()}


@pytest.mark.parametrize("rows", SHAPES)
def test_what_is_folded_in_steps_is_what_stays_live_at_the_window(rows: list[int]) -> None:
    base = Segment((0, 0), {}, empty_chain_table(), stamps=(NO_INTEGERS, NO_INTEGERS))
    before: dict[Place, list[tuple[int, int, bool]]] = {DEVICE: [], HOST: []}
    known: dict[int, tuple[object, ...]] = {}
    for part in parts(rows):
        known |= blocks(part)
        base = last_of(fold(base, part, Resets(), doubled))
        for place, operations in before.items():
            before[place] = live_operations(operations + told(part, place))
            assert told(base, place) == before[place]
    held = {key for key, _, stores in before[DEVICE] if stores}
    found = blocks(base)
    # A block whose parent is gone still names it.
    assert found == {key: known[key] for key in held}
    assert base.stamps is not None
    ordinals = sorted({ordinal for operations in before.values() for _, ordinal, _ in operations})
    assert base.stamps[0].tolist() == ordinals
    assert base.stamps[1].tolist() == [2 * ordinal for ordinal in ordinals]


def doubled(ordinals: Integers) -> Integers:
    return ordinals * 2


def test_no_step_costs_more_than_a_portion() -> None:
    wide = parts([5 * STEP_ROWS, 40, 3 * STEP_ROWS])
    whole = at_once(merged_in_steps(wide))
    base = at_once(fold_in_steps(wide[0], whole, Resets(), doubled))
    assert len(base.chains) > STEP_ROWS
    assert costliest(merged_in_steps(wide)) <= PORTION
    assert costliest(fold_in_steps(base, whole, Resets(), doubled)) <= PORTION
    column = uniform(1, 6 * STEP_ROWS)
    assert costliest(HashIndex.in_steps(column)) <= PORTION
    assert costliest(BloomFilter.in_steps(column, FOR_KEYS)) <= PORTION
    assert costliest(BloomFilter.in_steps(column, FOR_DIGESTS)) <= PORTION
