from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.errors import BadInput
from whymiss.ledger.decode.block_keys import append_keys, array_header, encode, key_of, read_anything

MASK = 2**64 - 1

integers = st.integers(-(2**63), 2**64 - 1)
wide = st.integers(2**32, 2**64 - 1) | st.integers(-(2**63), -(2**31) - 1)
digests = st.binary(min_size=32, max_size=32)
hashes = st.one_of(
    st.lists(wide), st.lists(digests), st.lists(integers | digests | st.binary(min_size=8, max_size=8), max_size=40)
)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (0, 0),
        (2**64 - 1, 2**64 - 1),
        (-3, 2**64 - 3),
        (-(2**63), 2**63),
        (bytes(range(32)), 1736447835066146335),
        (bytes(range(16)), 0x08090A0B0C0D0E0F),
        (bytes(range(8)), 0x0001020304050607),
        ("18446744073709551615", 2**64 - 1),
        ("-1", 2**64 - 1),
        ("0x2A", 42),
        ("0X2a", 42),
        ("0x" + "f" * 64, 2**64 - 1),
    ],
)
def test_a_hash_of_any_family_is_a_key(value: object, key: int) -> None:
    assert key_of(value) == key


@pytest.mark.parametrize(
    "value",
    [None, True, 1.0, 2**64, -(2**63) - 1, b"", b"1234567", bytes(20), "", "x", "0x", "0x_1", "1_0", "+1", "--1", " 1",
     "٣", "18446744073709551616", "-9223372036854775809", "0x" + "f" * 65, "9" * 5000, [1]],
)  # fmt: skip
def test_what_is_no_hash_is_bad_input(value: object) -> None:
    with pytest.raises(BadInput):
        key_of(value)


@given(hashes, st.binary(max_size=9))
def test_the_fast_ways_agree_with_one_key_at_a_time(blocks: list[object], before: bytes) -> None:
    column = bytearray(before)
    assert append_keys(msgspec.msgpack.encode(blocks), column) == len(blocks)
    assert column == before + b"".join(key_of(block).to_bytes(8, "big") for block in blocks)


@given(hashes.filter(bool), st.sampled_from([None, 1.5, True, b"three", [1]]), st.data())
def test_one_wrong_hash_appends_nothing(blocks: list[object], wrong: object, data: st.DataObject) -> None:
    blocks = list(blocks)
    blocks[data.draw(st.integers(0, len(blocks) - 1))] = wrong
    column = bytearray(b"before")
    with pytest.raises(BadInput):
        append_keys(msgspec.msgpack.encode(blocks), column)
    assert column == b"before"


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_the_header_tells_count_and_length(count: int) -> None:
    encoded = msgspec.msgpack.encode([None] * count)
    assert array_header(encoded) == (count, len(encoded) - count)


@pytest.mark.parametrize("encoded", [b"", b"\xc0", b"\x80", b"\xa1a", b"\x01"])
def test_only_an_array_has_an_array_s_header(encoded: bytes) -> None:
    with pytest.raises(BadInput):
        array_header(encoded)


def test_what_can_be_read_can_be_too_deep_to_write() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadInput):
        encode(deep)


@pytest.mark.parametrize("encoded", [b"", b"\xc1", b"\x91", b"\xa1\xff", b"\x91" * 100_000, b"\x81\x80\x01"])
def test_what_is_no_msgpack_is_bad_input(encoded: bytes) -> None:
    with pytest.raises(BadInput):
        read_anything(encoded)
