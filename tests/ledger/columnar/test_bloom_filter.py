"""A Bloom filter keeps nothing out that it holds, lets few others pass, and says the same however it is asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.columnar.bloom_filter import (
    FOR_DIGESTS,
    FOR_KEYS,
    BloomFilter,
    Density,
    GrowingBloomFilter,
    Probe,
    bytes_of,
    passing_many,
    passing_one,
)
from whymiss.ledger.columnar.kernels import Values

WIDE = st.integers(0, (1 << 64) - 1)
# Hashes are spread evenly; what is not, like small numbers or numbers that differ in their last bits, must do too.
NUMBERS = st.lists(WIDE | st.integers(0, 20) | st.integers(1 << 63, (1 << 63) + 20), min_size=1, max_size=200)
DENSITIES = st.sampled_from([FOR_KEYS, FOR_DIGESTS, Density(bits=2, marks=1)])


def column(numbers: list[int]) -> Values:
    return np.array(numbers, np.uint64)


@given(NUMBERS, NUMBERS, DENSITIES)
def test_a_filter_lets_pass_all_that_it_holds(held: list[int], others: list[int], density: Density) -> None:
    made = BloomFilter.of(column(held), density)
    assert made.passing(Probe(column(held))).tolist() == list(range(len(held)))
    assert all(made.may_hold(number) for number in held)
    passing = set(made.passing(Probe(column(others))).tolist())
    assert passing == {index for index, number in enumerate(others) if made.may_hold(number)}


@given(st.lists(NUMBERS, max_size=5), NUMBERS, DENSITIES)
def test_many_filters_asked_at_once_say_what_each_says(
    held: list[list[int]], asked: list[int], density: Density
) -> None:
    filters = [BloomFilter.of(column(numbers), density) for numbers in held]
    for value in asked[:20]:
        opened = [made.opened_for(number) for number, made in enumerate(filters)]
        expected = [number for number, made in enumerate(filters) if made.may_hold(value)]
        assert list(passing_one(opened, value, density)) == expected
    probe = Probe(column(asked))
    together = {number: passing.tolist() for number, passing in passing_many(filters, probe, density)}
    alone = {number: made.passing(probe).tolist() for number, made in enumerate(filters)}
    assert together == {number: passing for number, passing in alone.items() if passing}


@pytest.mark.parametrize(("density", "one_in"), [(FOR_KEYS, 300), (FOR_DIGESTS, 1200)])
@pytest.mark.parametrize("size", [1000, 4096, 5300, 8192, 50_000])
def test_the_false_positive_rate_is_what_the_filter_promises(density: Density, one_in: int, size: int) -> None:
    chance = np.random.default_rng(size)
    asked, passing = 0, 0
    for _ in range(3):
        made = BloomFilter.of(chance.integers(0, 1 << 64, size, np.uint64), density)
        absent = Probe(chance.integers(0, 1 << 64, 200_000, np.uint64))
        asked += absent.values.size
        passing += made.passing(absent).size
    # Not above the promise, and not so far below it that the promise would say little.
    assert asked / one_in / 2 < passing <= asked / one_in


@given(st.integers(0, 5000), DENSITIES)
def test_a_filter_holds_as_many_bytes_as_are_counted_for_it(size: int, density: Density) -> None:
    values = np.random.default_rng(size).integers(0, 1 << 64, size, np.uint64)
    held = BloomFilter.of(values, density).nbytes
    assert held == bytes_of(size, density)
    assert held * 8 <= max(64, size * density.bits * 5 / 4 + 64)


@given(st.lists(NUMBERS, min_size=1, max_size=4), NUMBERS)
def test_a_growing_filter_holds_what_was_added_until_it_is_cleared(parts: list[list[int]], asked: list[int]) -> None:
    growing = GrowingBloomFilter(sum(map(len, parts)))
    for part in parts:
        growing.add(column(part))
        assert all(growing.may_hold(number) for number in part)
    whole = BloomFilter.of(column([number for part in parts for number in part]))
    assert [growing.may_hold(number) for number in asked] == [whole.may_hold(number) for number in asked]
    growing.clear()
    assert not any(growing.may_hold(number) for number in asked)
