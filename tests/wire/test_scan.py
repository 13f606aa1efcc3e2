from __future__ import annotations

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.wire.messages import encoded, messages
from whymiss.errors import BadInput
from whymiss.wire.scan import fields, read_varint


def upb_reads(raw: bytes) -> bool:
    try:
        Empty.FromString(raw)
    except DecodeError:
        return False
    return True


def scan_reads(raw: bytes) -> bool:
    try:
        fields(raw)
    except BadInput:
        return False
    return True


# Wire-level noise: tags with all wire types, short lengths, groups that may or may not close.
NOISE = st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 15, 16, 18, 0x80, 0xFF]), max_size=14).map(bytes)


@given(st.binary(max_size=40) | NOISE)
@example(b"")
@example(b"\x0b\x0c")
@example(b"\x0b\x0b\x0c\x0c")
@example(b"\x0b\x14")
@example(b"\x0b")
@example(b"\x0c")
@example(b"\x00\x00")
@example(b"\x0b\x00\x00\x0c")
@example(b"\x0a\x05abc")
@example(b"\x0a\x85\x80\x00abcde")
@example(b"\x8a\x80\x80\x80\x00\x00")
@example(b"\x8a\x80\x80\x80\x80\x00\x00")
@example(b"\xfa\xff\xff\xff\x0f\x00")
@example(b"\xfa\xff\xff\xff\x1f\x00")
@example(b"\x08" + b"\xff" * 9 + b"\x01")
@example(b"\x08" + b"\xff" * 10 + b"\x01")
@example(b"\x09" + b"x" * 7)
@example(b"\x0d" + b"x" * 4)
@example(b"\x0b" * 150 + b"\x0c" * 150)
@example(b"\x0b" * 60 + b"\x0c" * 60)
def test_scan_reads_what_upb_reads(raw: bytes) -> None:
    assert scan_reads(raw) == upb_reads(raw)


@given(messages(Span))
def test_fields_cover_the_message_without_a_gap(span: Span) -> None:
    raw = encoded(span)
    found = fields(raw)
    assert b"".join(raw[start:end] for _, start, _, end in found) == raw
    assert {tag >> 3 for tag, _, _, _ in found} == {field.number for field, _ in span.ListFields()}


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_a_part_is_scanned_as_if_it_stood_alone(before: bytes, after: bytes) -> None:
    raw = b"\x0a\x02ab\x10\x05"
    shifted = [
        (tag, start - len(before), value - len(before), end - len(before))
        for tag, start, value, end in fields(before + raw + after, len(before), len(before) + len(raw))
    ]
    assert shifted == fields(raw)


def test_a_field_must_not_reach_beyond_its_part() -> None:
    with pytest.raises(BadInput) as caught:
        fields(b"\x0a\x05abcde", 0, 4)
    assert caught.value.offset == 0


def test_the_offset_is_where_the_bad_field_begins() -> None:
    with pytest.raises(BadInput, match="at byte 4"):
        fields(b"\x0a\x02ab\x0a\x09abc")


@given(st.integers(0, (1 << 64) - 1))
def test_varints_are_read_back(number: int) -> None:
    padded = bytes([number >> shift & 127 | 128 for shift in range(0, 63, 7)] + [number >> 63])
    assert read_varint(b"x" + padded, 1) == (number, 11)
