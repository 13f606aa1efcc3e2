from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from tests.wire.messages import TEXTS
from whymiss.errors import BadInput
from whymiss.model import Attribute, Cause
from whymiss.wire.encode import delimited, encode_attribute, varint
from whymiss.wire.scan import read_varint


@given(st.integers(0, (1 << 64) - 1))
@example(127)
@example(128)
@example((1 << 14) - 1)
@example(1 << 14)
def test_varint_is_read_back(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


def test_negative_integers_are_their_twos_complement() -> None:
    assert varint(-1) == b"\xff" * 9 + b"\x01"


@given(st.binary(max_size=300))
def test_delimited_content_is_read_back(content: bytes) -> None:
    assert KeyValue.FromString(delimited(b"\x12", delimited(b"\x3a", content))).value.bytes_value == content


def expected(value: Attribute) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case None:
            return AnyValue()
        case _:
            return AnyValue(array_value=ArrayValue(values=[expected(item) for item in value]))


VALUES: st.SearchStrategy[Attribute] = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=200),
    st.lists(TEXTS, max_size=4),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4),
    st.lists(st.binary(max_size=40), max_size=4),
    st.none(),
)


@given(st.text(st.characters(codec="utf-8"), max_size=200), VALUES)
def test_attribute_is_what_protobuf_would_write(key: str, value: Attribute) -> None:
    assert KeyValue.FromString(encode_attribute(key, value)) == KeyValue(key=key, value=expected(value))


def test_equal_values_of_different_types_are_told_apart() -> None:
    assert len({encode_attribute("k", value) for value in (True, 1, 1.0, "1")}) == 4


def test_enumerated_text_is_text() -> None:
    assert encode_attribute("k", Cause.EVICTED) == encode_attribute("k", "evicted")


def test_text_without_utf8_becomes_a_question_mark() -> None:
    assert encode_attribute("k", "a\ud800b") == encode_attribute("k", "a?b")


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_integer_over_64_bits_is_bad_input(number: int) -> None:
    with pytest.raises(BadInput, match="64 bits"):
        encode_attribute("k", number)
