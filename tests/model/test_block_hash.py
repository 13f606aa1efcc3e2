from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from whymiss.model.block_hash import KEY_MAX, NoKeys, keys_of

BOTH = "1234567890123456"
"""A number in decimal and another one in hexadecimal."""

keys = st.integers(0, KEY_MAX)
short = st.integers(10**15, 10**16 - 1)
"""Keys that have sixteen digits in decimal."""


def signed(key: int) -> int:
    return key - (1 << 64) if key >> 63 else key


TEXTS: dict[str, Callable[[int], str]] = {
    "decimal": str,
    "signed decimal": lambda key: str(signed(key)),
    "hexadecimal": lambda key: f"{key:016x}",
    "upper case": lambda key: f"{key:016X}",
    "32 digits": lambda key: f"{'5' * 16}{key:016x}",
    "64 digits": lambda key: f"{'5' * 48}{key:016x}",
    "0x": hex,
    "0X": lambda key: f"0X{key:X}",
    "0x of 256 bits": lambda key: f"0x{'5' * 48}{key:016x}",
}
TYPED: dict[str, Callable[[int], int | bytes]] = {
    "integer": lambda key: key,
    "signed integer": signed,
    "8 bytes": lambda key: key.to_bytes(8, "big"),
    "16 bytes": lambda key: b"\5" * 8 + key.to_bytes(8, "big"),
    "32 bytes": lambda key: b"\5" * 24 + key.to_bytes(8, "big"),
}


@pytest.mark.parametrize("notation", [*TEXTS, *TYPED])
@given(st.lists(keys, max_size=8))
def test_a_chain_is_read_in_the_notation_it_is_told_in_or_not_at_all(notation: str, chain: Sequence[int]) -> None:
    write = (TEXTS | TYPED)[notation]
    read = keys_of([write(key) for key in chain])
    assert read == tuple(chain) or (notation in TEXTS and read is NoKeys.UNDECIDABLE)


@pytest.mark.parametrize("write", TYPED.values(), ids=TYPED)
@given(st.lists(keys | short, max_size=8))
def test_what_has_a_type_is_always_decided(write: Callable[[int], int | bytes], chain: Sequence[int]) -> None:
    assert keys_of([write(key) for key in chain]) == tuple(chain)


@given(st.lists(short, min_size=1, max_size=8), st.integers(10**16, KEY_MAX), st.data())
def test_one_longer_decimal_decides_a_chain(chain: list[int], longer: int, data: st.DataObject) -> None:
    assert keys_of(map(str, chain)) is NoKeys.UNDECIDABLE
    chain.insert(data.draw(st.integers(0, len(chain))), longer)
    assert keys_of(map(str, chain)) == tuple(chain)


@given(st.lists(short, min_size=1, max_size=8), keys, st.data())
def test_one_letter_decides_a_chain(digits: list[int], key: int, data: st.DataObject) -> None:
    chain = [str(number) for number in digits]
    written = f"{key:016x}"
    assume(not written.isdigit())
    chain.insert(data.draw(st.integers(0, len(chain))), written)
    assert keys_of(chain) == tuple(int(one, 16) for one in chain)


@given(st.permutations(list(TEXTS.items())), keys, keys)
def test_two_notations_in_one_chain_are_none(
    notations: list[tuple[str, Callable[[int], str]]], one: int, other: int
) -> None:
    families = {"decimal": 0, "signed decimal": 0, "0x": 1, "0X": 1, "0x of 256 bits": 1}
    (first, write), (second, write_other) = notations[:2]
    read = keys_of([write(one), write_other(other)])
    if families.get(first, 2) == families.get(second, 2):
        assert read in {(one, other), NoKeys.UNDECIDABLE}
    else:
        # Sixteen digits fit the other notation too.
        assert read is NoKeys.MIXED or write(one).isdigit() or write_other(other).isdigit()
        assert read != (one, other) or not (write(one) + write_other(other)).isdigit()


@given(
    st.lists(keys, max_size=6), st.sampled_from([None, True, 1.0, b"", b"1234567", bytes(20), "", [1], 1 << 64, "x"])
)
def test_one_element_that_is_no_hash_leaves_no_chain(chain: list[int], wrong: object) -> None:
    assert keys_of([*chain, wrong]) is NoKeys.MALFORMED
    assert keys_of([wrong, *map(hex, chain)]) is NoKeys.MALFORMED


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0", 0),
        ("42", 42),
        ("-1", KEY_MAX),
        ("-1234567890123456", KEY_MAX + 1 - 1234567890123456),
        ("18446744073709551615", KEY_MAX),
        ("0x2A", 42),
        ("0X2a", 42),
        ("0x" + "f" * 64, KEY_MAX),
        ("000000000000000A", 10),
        # No decimal begins with a zero.
        ("0234567890123456", 0x0234567890123456),
        ("0" * 16, 0),
        # No number of 64 bits has so many digits.
        ("1" * 32, 0x1111111111111111),
    ],
)
def test_a_text_that_has_one_reading_is_a_key(text: str, key: int) -> None:
    assert keys_of([text]) == (key,)


@pytest.mark.parametrize(
    "text",
    ["", "x", "0x", "0x_1", "1_0", "+1", "--1", "-", " 1", "1 ", "1\n", "٣", "१" * 16, "-0", "007", "a", "abc", "f" * 15,
     "f" * 17, "f" * 40, "f" * 63, "-" + "f" * 15, "18446744073709551616", "-9223372036854775809", "0x" + "f" * 65,
     "9" * 5000, BOTH + "\n"],
)  # fmt: skip
def test_a_text_that_has_no_reading_is_no_key(text: str) -> None:
    assert keys_of([text]) is NoKeys.MALFORMED


def test_sixteen_digits_alone_are_no_key() -> None:
    assert keys_of([BOTH]) is NoKeys.UNDECIDABLE
    assert keys_of([BOTH, 7, bytes(8)]) is NoKeys.UNDECIDABLE
    assert keys_of([BOTH, "1" * 32]) == (0x1234567890123456, 0x1111111111111111)
    assert keys_of([BOTH, "0x1"]) is NoKeys.MIXED


def test_an_empty_chain_has_no_keys() -> None:
    assert keys_of([]) == ()
