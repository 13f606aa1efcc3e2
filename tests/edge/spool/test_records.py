"""What was written is read back; what was damaged ends the reading, and is never taken for something else."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.edge.spool.records import (
    HEADER_BYTES,
    NOTE_BYTES,
    RECORD_BYTES,
    Damage,
    Notes,
    Reader,
    Record,
    decode_mark,
    decode_notes,
    encode_attempt,
    encode_header,
    encode_mark,
    encode_notes,
    encode_prefix,
)
from whymiss.redaction import Signal

requests = st.lists(st.tuples(st.sampled_from(Signal), st.binary(max_size=60)), max_size=6)
firsts = st.integers(1, 1 << 40)


def segment(first: int, written: list[tuple[Signal, bytes]]) -> tuple[bytes, list[Record]]:
    records = [Record(first + at, signal, body) for at, (signal, body) in enumerate(written)]
    content = b"".join(encode_prefix(one.sequence, one.signal, one.body) + one.body for one in records)
    return encode_header(first) + content, records


def read(content: bytes, first: int) -> tuple[list[Record], Reader]:
    reader = Reader(io.BytesIO(content), len(content), first)
    return list(reader), reader


def before(records: list[Record], at: int) -> list[Record]:
    """The records that end at or before an offset."""
    whole: list[Record] = []
    end = HEADER_BYTES
    for one in records:
        end += RECORD_BYTES + len(one.body)
        if end > at:
            break
        whole.append(one)
    return whole


@given(firsts, requests)
def test_what_was_written_is_read(first: int, written: list[tuple[Signal, bytes]]) -> None:
    content, records = segment(first, written)
    found, reader = read(content, first)
    assert found == records
    assert reader.damage is None
    assert (reader.sound_bytes, reader.next_sequence) == (len(content), first + len(records))


@given(firsts, requests)
def test_a_segment_cut_anywhere_gives_all_before_the_cut(first: int, written: list[tuple[Signal, bytes]]) -> None:
    content, records = segment(first, written)
    for at in range(len(content)):
        found, reader = read(content[:at], first)
        assert found == before(records, at)
        whole = at >= HEADER_BYTES and reader.sound_bytes == at
        assert reader.damage is (None if whole else Damage.TORN)


@given(firsts, requests, st.integers(1, 255))
def test_a_byte_changed_anywhere_costs_nothing_before_it_and_invents_nothing(
    first: int, written: list[tuple[Signal, bytes]], change: int
) -> None:
    content, records = segment(first, written)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= change
        found, reader = read(bytes(damaged), first)
        assert found == before(records, at)
        assert reader.damage is not None


@given(firsts, requests, st.binary(min_size=1, max_size=80))
def test_rubbish_behind_the_records_is_no_record(
    first: int, written: list[tuple[Signal, bytes]], rubbish: bytes
) -> None:
    content, records = segment(first, written)
    found, reader = read(content + rubbish, first)
    assert found == records
    assert reader.damage is not None
    assert reader.sound_bytes == len(content)


@given(firsts, st.binary(max_size=200))
def test_any_bytes_are_read_without_an_exception(first: int, content: bytes) -> None:
    assert read(content, first)[0] == []
    assert read(encode_header(first) + content, first)[0] == []


def test_zeros_that_a_power_failure_left_are_a_torn_end() -> None:
    content, records = segment(7, [(Signal.LOGS, b"l")])
    found, reader = read(content + bytes(4096), 7)
    assert found == records
    assert reader.damage is Damage.TORN


def test_the_record_of_another_place_is_not_taken_for_the_next() -> None:
    content, records = segment(7, [(Signal.TRACES, b"t")])
    for sequence in (7, 9, 0):
        found, reader = read(content + encode_prefix(sequence, Signal.TRACES, b"u") + b"u", 7)
        assert found == records
        assert reader.damage is Damage.CORRUPT


@pytest.mark.parametrize("first", [6, 8])
def test_a_segment_under_another_name_is_not_read(first: int) -> None:
    found, reader = read(segment(7, [(Signal.TRACES, b"t")])[0], first)
    assert (found, reader.damage) == ([], Damage.CORRUPT)


@given(
    st.frozensets(st.integers(0, (1 << 62) - 1), max_size=8),
    st.none() | firsts,
    st.integers(0, 200),
    st.integers(1, 255),
)
def test_a_damaged_note_settles_nothing_that_was_not_settled(
    settled: frozenset[int], end: int | None, at: int, change: int
) -> None:
    content = bytearray(encode_notes(settled, end))
    assert decode_notes(bytes(content)) == Notes(settled, end)
    assert len(content) == NOTE_BYTES * (len(settled) + (end is not None))
    if content:
        content[at % len(content)] ^= change
        notes = decode_notes(bytes(content))
        assert notes.settled <= settled
        assert notes.end in {end, None}
        assert len(settled - notes.settled) + (notes.end != end) == 1


@given(st.lists(st.integers(1, 9)), st.frozensets(st.integers(1, 9)), st.none() | firsts)
def test_attempts_are_counted_and_settle_nothing(tried: list[int], settled: frozenset[int], end: int | None) -> None:
    content = b"".join(map(encode_attempt, tried)) + encode_notes(settled, end)
    assert decode_notes(content) == Notes(settled, end, Counter(tried))


@given(firsts, st.integers(0, 20), st.integers(1, 255))
def test_a_mark_is_read_whole_or_not_at_all(sequence: int, at: int, change: int) -> None:
    content = bytearray(encode_mark(sequence))
    assert decode_mark(bytes(content)) == sequence
    content[at % len(content)] ^= change
    assert decode_mark(bytes(content)) == 0
    assert decode_mark(bytes(content[: at % len(content)])) == 0


def test_what_is_lost_is_counted_where_the_end_is_known() -> None:
    assert Notes(frozenset({1, 5}), 8).count_lost(4) == 3
    assert Notes(frozenset({1, 5}), 8).count_lost(8) == 0
    assert Notes(frozenset(), None).count_lost(4) == 1
