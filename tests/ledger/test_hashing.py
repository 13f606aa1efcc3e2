from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.errors import BadInput
from whymiss.ledger.events import Keys
from whymiss.ledger.hashing import BLOCK_TOKENS_MAX, Digester, append_tokens, token_column

DIGESTER = Digester(b"a key of 16 byte")
OTHER = Digester(b"another 16 bytes")
MASK = 2**64 - 1

token = st.integers(0, 200_000) | st.integers(-(2**63), 2**64 - 1)
blocks = st.integers(1, 20).flatmap(
    lambda size: st.tuples(
        st.just(size), st.lists(st.lists(token, min_size=size, max_size=size), min_size=1, max_size=8)
    )
)
own_digests = st.lists(st.integers(0, MASK), max_size=12)


def own_of(tokens: list[int], size: int, digester: Digester = DIGESTER) -> list[int]:
    own: list[int] = digester.block_digests(tokens, size, len(tokens) // size).tolist()
    return own


def column(numbers: list[int]) -> Keys:
    return np.array(numbers, np.uint64)


def prefixes_of(own: list[int], parent: int = 0, depth: int = 0) -> list[int]:
    prefixes: list[int] = DIGESTER.prefix_digests(column(own), parent, depth).tolist()
    return prefixes


def multipliers(digester: Digester, purpose: bytes, count: int) -> list[int]:
    """The documented construction, a second time and without numpy."""
    key = hashlib.blake2b(b"a key of 16 byte", person=b"whymiss digests").digest()
    assert digester is DIGESTER
    stream = hashlib.shake_256(key + purpose).digest(8 * count)
    return [int.from_bytes(stream[8 * index : 8 * index + 8], "little") | 1 for index in range(count)]


@given(blocks)
def test_a_block_s_digest_is_the_documented_sum(drawn: tuple[int, list[list[int]]]) -> None:
    size, rows = drawn
    constant, per_token = multipliers(DIGESTER, b"constants", 2)
    factors = multipliers(DIGESTER, b"tokens", size)
    expected = [
        (constant + size * per_token + sum(factor * number for factor, number in zip(factors, row, strict=True))) & MASK
        for row in rows
    ]
    assert own_of([number for row in rows for number in row], size) == expected


@given(own_digests, st.integers(0, MASK), st.integers(0, 10_000))
def test_a_prefix_digest_is_the_documented_sum(own: list[int], parent: int, depth: int) -> None:
    factors = multipliers(DIGESTER, b"depths", depth + len(own))[depth:]
    expected, above = [], parent
    for factor, number in zip(factors, own, strict=True):
        above = (above + factor * number) & MASK
        expected.append(above)
    assert prefixes_of(own, parent, depth) == expected


@given(blocks, st.data())
def test_one_changed_token_always_changes_the_digest(drawn: tuple[int, list[list[int]]], data: st.DataObject) -> None:
    size, (row, *_) = drawn
    place = data.draw(st.integers(0, size - 1))
    changed = list(row)
    changed[place] = data.draw(token.filter(lambda number: (number - row[place]) & MASK))
    assert own_of(row, size) != own_of(changed, size)


@given(blocks)
def test_digests_do_not_depend_on_neighbours_or_on_how_tokens_are_packed(drawn: tuple[int, list[list[int]]]) -> None:
    size, rows = drawn
    flat = [number for row in rows for number in row]
    together = own_of(flat, size)
    assert together == [own_of(row, size)[0] for row in rows]
    packed = np.frombuffer(token_column(flat), np.uint64)
    assert together == DIGESTER.block_digests(packed, size, len(rows)).tolist()
    assert together == own_of([number & MASK for number in flat], size)


@given(own_digests, own_digests, st.integers(0, 2**13))
def test_a_chain_in_pieces_has_the_digests_of_the_whole(one: list[int], other: list[int], depth: int) -> None:
    whole = prefixes_of(one + other, 5, depth)
    first = prefixes_of(one, 5, depth)
    assert whole == first + prefixes_of(other, first[-1] if first else 5, depth + len(one))


def test_order_matters_in_a_block_and_in_a_chain() -> None:
    assert own_of([1, 2], 2) != own_of([2, 1], 2)
    assert prefixes_of([1, 2])[-1] != prefixes_of([2, 1])[-1]


def test_length_matters_where_the_rest_is_zero() -> None:
    assert own_of([1, 2], 2) != own_of([1, 2, 0, 0], 4)


def test_a_hundred_thousand_similar_blocks_have_as_many_digests() -> None:
    tokens = np.arange(100_000, dtype=np.uint64).repeat(16).reshape(-1, 16)
    tokens[:, 3] = 7
    tokens[:, 9] = tokens[:, 9] * np.uint64(2) + np.uint64(1)
    own = DIGESTER.block_digests(tokens.reshape(-1), 16, 100_000)
    assert np.unique(own).size == 100_000
    assert np.unique(DIGESTER.prefix_digests(own, 0, 0)).size == 100_000


def test_thue_and_morse_do_not_collide_a_chain() -> None:
    # The sequence and its complement collide any polynomial modulo 2^64, whatever its base.
    bits = [number.bit_count() & 1 for number in range(2**12)]
    one, other = own_of([1, 2], 1)
    sequence = prefixes_of([(one, other)[bit] for bit in bits])[-1]
    complement = prefixes_of([(other, one)[bit] for bit in bits])[-1]
    assert sequence != complement


def test_tables_grow_under_digests_already_given() -> None:
    fresh = Digester(b"a key of 16 byte")
    before = (own_of(list(range(1024)), 1024, fresh), fresh.prefix_digests(column([1, 2, 3]), 0, 4095).tolist())
    own_of([1] * 5000, 5000, fresh)
    fresh.prefix_digests(column([1]), 0, 1 << 19)
    after = (own_of(list(range(1024)), 1024, fresh), fresh.prefix_digests(column([1, 2, 3]), 0, 4095).tolist())
    assert before == after


def test_depth_is_bounded_and_a_deeper_chain_still_has_digests() -> None:
    deep = DIGESTER.prefix_digests(column([1, 2, 3]), 9, (1 << 40) + 7)
    assert deep.size == 3
    assert DIGESTER.prefix_digests(column([1] * 20), 0, (1 << 20) - 5).size == 20


def test_another_key_gives_other_digests() -> None:
    assert own_of([1, 2], 2) != own_of([1, 2], 2, OTHER)
    assert DIGESTER.extra_digest("lora", b"a") != OTHER.extra_digest("lora", b"a")
    assert prefixes_of([1]) != OTHER.prefix_digests(column([1]), 0, 0).tolist()


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_extra_keys_are_told_apart_by_kind_and_value(one: bytes, other: bytes) -> None:
    digests = {DIGESTER.extra_digest(kind, value) for kind in ("lora", "cache_salt") for value in (one, other)}
    assert len(digests) == (2 if one == other else 4)


def test_no_extra_keys_leave_a_chain_of_them_alone() -> None:
    none, some = DIGESTER.extras_digest(()), DIGESTER.extras_digest((("lora", 1),))
    assert none == 0
    assert some not in {0, DIGESTER.extras_digest((("cache_salt", 1),)), DIGESTER.extras_digest((("lora", 2),))}
    assert prefixes_of([some, none, none]) == prefixes_of([some]) * 3


@pytest.mark.parametrize("tokens", [[1, "2"], [None], [1.0]])
def test_what_is_no_token_id_appends_nothing(tokens: list[int]) -> None:
    packed = token_column([5])
    with pytest.raises(BadInput):
        append_tokens(tokens, packed)
    with pytest.raises(BadInput):
        append_tokens([*tokens, -1], packed)
    assert packed.tolist() == [5]


def test_a_short_key_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError):
        Digester(b"guess me")


def test_a_block_is_no_larger_than_the_largest() -> None:
    assert len(own_of([0] * BLOCK_TOKENS_MAX, BLOCK_TOKENS_MAX)) == 1
    with pytest.raises(AssertionError):
        own_of([0] * (BLOCK_TOKENS_MAX + 1), BLOCK_TOKENS_MAX + 1)
