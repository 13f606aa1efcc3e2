"""Token ids that are read as a column are those that are read one by one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import CLEARED, DIGESTER, Plain, own_of, payload, plain, removed, stored
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.token_column import (
    COVERED_TOKENS,
    EVENT_BYTES_MAX,
    GROUP_BYTES,
    READ_FROM,
    TokenField,
    cover_tokens,
    read_tokens,
)
from whymiss.ledger.events import Keys, Removed, Stored

encode = msgspec.msgpack.encode

MARKERS = [0xCC, 0xCD, 0xCE]
"""The bytes that begin wider numbers, which are bytes of other numbers as well."""

marked_bytes = st.lists(st.sampled_from([*MARKERS, 0x00, 0x01, 0x7F, 0x80, 0xCF, 0xFF]), min_size=4, max_size=4)
token_ids = (
    st.integers(0, 200)
    | st.integers(0, 160_000)
    | st.integers(0, (1 << 32) - 1)
    | marked_bytes.map(bytes).flatmap(
        lambda four: st.sampled_from([int.from_bytes(four[:width], "big") for width in (1, 2, 4)])
    )
)


def span_of(elements: bytes, count: int, begin: int = 0) -> TokenField:
    return TokenField(count, begin, begin, begin + len(elements))


def elements_of(tokens: list[int]) -> bytes:
    return b"".join(map(encode, tokens))


def large(*events: object) -> list[object]:
    """Events of a batch that is large enough by its first one."""
    wide = 100_000
    return [stored([1 << 40], list(range(wide, wide + READ_FROM // 4)), block_size=READ_FROM // 4), *events]


def alone(events: list[object], *, tokens: bool) -> tuple[Plain, int, int]:
    """What the events say that are each decoded in a batch of its own, and how many are bad and unknown."""
    rows: Plain = []
    bad = unknown = 0
    for index, event in enumerate(events):
        batch = decode_batch(payload(event), DIGESTER, tokens=tokens)
        rows.extend((kind, index, *rest) for kind, _, *rest in plain(batch))
        bad += batch.bad_events
        unknown += batch.unknown_events
    return rows, bad, unknown


def together(events: list[object], *, tokens: bool) -> tuple[Plain, int, int]:
    batch = decode_batch(payload(*events), DIGESTER, tokens=tokens)
    assert batch.count == len(events)
    return plain(batch), batch.bad_events, batch.unknown_events


@given(st.lists(st.lists(token_ids, min_size=1, max_size=40), min_size=1, max_size=5))
def test_token_ids_of_all_widths_are_read_as_they_were_written(events: list[list[int]]) -> None:
    parts = [elements_of(tokens) for tokens in events]
    spans, at = [], 0
    for tokens, part in zip(events, parts, strict=True):
        spans.append(span_of(part, len(tokens), at))
        at += len(part)
    found = read_tokens(b"".join(parts), spans)
    assert found is not None
    assert found.tolist() == [token for tokens in events for token in tokens]


@given(
    st.lists(st.sampled_from([*MARKERS, 0x00, 0x01, 0x7F, 0x80, 0xC0, 0xCF, 0xD1, 0xE0, 0xFF]), min_size=1, max_size=24)
)
def test_what_is_read_is_what_a_decoder_reads(content: list[int]) -> None:
    encoded = bytes(content)
    for count in range(1, len(encoded) + 1):
        found = read_tokens(encoded, [span_of(encoded, count)])
        if found is not None:
            assert found.tolist() == msgspec.msgpack.decode(b"\xdc" + count.to_bytes(2, "big") + encoded)


REPEATED = st.sampled_from([1, COVERED_TOKENS])
"""How often an event has its few token ids: so often that they are covered, or once."""

stores = st.builds(
    lambda hashes, tokens, times, size, fields: stored(hashes, tokens * times, block_size=size * times) | fields,
    st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=4),
    st.lists(token_ids, max_size=8),
    REPEATED,
    st.integers(0, 4),
    st.fixed_dictionaries(
        {},
        optional={
            "parent_block_hash": st.integers(1, 9),
            "extra_keys": st.just([["salt"]]),
            "medium": st.sampled_from(["GPU", "CPU", None]),
            "group_idx": st.integers(0, 2),
        },
    ),
)
odd_stores = st.builds(
    lambda tokens, times: stored([5], tokens * times if isinstance(tokens, list) else tokens, block_size=1),
    st.lists(token_ids | st.sampled_from([-1, 1 << 40, "7", None, 1.5, [7, 8], True, b"\xaablock_size"]), max_size=8)
    | st.sampled_from([None, ..., "7", 7, {}]),
    REPEATED,
)
others = st.sampled_from([removed(3), removed(4, 5), removed(3, group_idx=1), CLEARED, {"type": "Other"}, 7])


@given(st.lists(stores | others, max_size=12), st.booleans())
def test_a_large_batch_says_what_its_events_say_alone(events: list[object], tokens: bool) -> None:
    every = large(*events)
    assert together(every, tokens=tokens) == alone(every, tokens=tokens)


@given(st.lists(stores | odd_stores | others, max_size=8), st.booleans())
def test_so_it_does_where_some_of_them_are_odd(events: list[object], tokens: bool) -> None:
    every = large(*events)
    assert together(every, tokens=tokens) == alone(every, tokens=tokens)


@given(st.lists(stores, max_size=3), st.integers(8, 70), st.booleans())
def test_removals_among_large_stores_stay_runs(events: list[object], count: int, tokens: bool) -> None:
    every = large(*[removed(key) for key in range(count)], *events, *[removed(key) for key in range(count)])
    assert together(every, tokens=tokens) == alone(every, tokens=tokens)
    batch = decode_batch(payload(*every), DIGESTER, tokens=tokens)
    assert sum(isinstance(event, Removed) for event in batch.events) == (2 if events else 1)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("padding", [b"", b"\x00" * 6])
def test_a_hash_that_looks_like_token_ids_stays_a_hash(padding: bytes, tokens: bool) -> None:
    looking = b"\xa9token_ids\x94\x01\x02\x03\x04\xaablock_size"
    looking = padding + looking if padding else looking + b"\x00" * 6
    every = large(stored([b"\x01" * 32, looking], [1, 2, 3, 4]), stored([looking], [5, 6]))
    assert together(every, tokens=tokens) == alone(every, tokens=tokens)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(
    "odd", [b"\xc6\0\0\0\x03abc", b"\xdc\0\x40" + b"\1" * 64, b"\x92\1\2"], ids=["bytes", "many", "few"]
)
def test_a_salt_that_looks_like_token_ids_stays_a_salt(odd: bytes, tokens: bool) -> None:
    looking = b"\xa9token_ids\xdc\0\x40" + b"\1" * 64 + b"\xaablock_size"
    encoded = encode(stored([3], [9] * 2, cache_salt=looking))
    # What is named in another encoding is not seen, so that the salt is what is covered.
    hidden = msgspec.Raw(encoded.replace(b"\xa9token_ids\x92\x09\x09", b"\xd9\x09token_ids" + odd))
    every = large(hidden, stored([4], [9] * 2))
    assert together(every, tokens=tokens) == alone(every, tokens=tokens)


@pytest.mark.parametrize("tokens", [True, False])
def test_token_ids_under_a_name_of_another_encoding_are_not_taken_for_what_looks_like_them(tokens: bool) -> None:
    looking = b"\xa9token_ids\x94\x01\x02\x03\x04\xaablock_size" + b"\x00" * 6
    encoded = payload(*large(stored([looking], [9] * 8, block_size=8)))
    at = encoded.rindex(b"\xa9token_ids")
    batch = decode_batch(encoded[:at] + b"\xd9\x09" + encoded[at + 1 :], DIGESTER, tokens=tokens)
    event = batch.events[-1]
    assert isinstance(event, Stored)
    assert not event.sparse
    assert (None if event.own is None else event.own.tolist()) == (own_of([9] * 8, 8) if tokens else None)


@pytest.mark.parametrize(
    ("encoded", "spans"),
    [
        (b"\x01\x02\x03", [TokenField(2, 0, 0, 1), TokenField(1, 1, 1, 3)]),
        (b"\xcd\x01\x02\x05", [TokenField(1, 0, 0, 2), TokenField(1, 2, 2, 4)]),
    ],
    ids=["count", "reach"],
)
def test_numbers_belong_to_one_event_each(encoded: bytes, spans: list[TokenField]) -> None:
    assert read_tokens(encoded, spans) is None


def test_a_witness_sees_the_token_ids_of_a_large_batch() -> None:
    seen: list[tuple[list[int], int]] = []

    def witness(tokens: Keys, row: int, own: Keys) -> None:
        assert own.tolist() == DIGESTER.block_digests(tokens, row, len(tokens) // row).tolist()
        seen.append((tokens.tolist(), row))

    every = large(stored([1, 2], [7, 300, 70_000, 8]), stored([3], [1 << 31, 0]))
    decode_batch(payload(*every), DIGESTER, witness=witness)
    assert seen[1:] == [([7, 300, 70_000, 8], 2), ([1 << 31, 0], 2)]


def test_token_ids_of_large_batches_are_read_as_a_column() -> None:
    few, many = [7, 300, 70_000, 8], [7, 300, 70_000, 8] * (COVERED_TOKENS // 4)
    encoded = payload(*large(stored([1, 2], few), stored([3, 4], many), stored([5], few)))
    covered = cover_tokens(encoded, 4)
    assert covered is not None
    assert [span.numbers for span in covered.spans] == [READ_FROM // 4, COVERED_TOKENS]
    found = read_tokens(encoded, covered.spans)
    assert found is not None
    assert found.tolist()[-4:] == [7, 300, 70_000, 8]


def test_token_ids_of_many_small_events_are_not_covered() -> None:
    small = [stored([key], [key] * 16, block_size=16) for key in range(100)]
    assert cover_tokens(payload(*small), 100) is None
    assert cover_tokens(payload(*large(*small)), 101) is not None


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(
    "found",
    [[0xCDCD] * 4000, [0xCECECECE] * 3000, list(range(60_000, 60_000 + EVENT_BYTES_MAX // 2)), [7] * 5000],
    ids=["markers", "wide-markers", "too-many", "small"],
)
def test_token_ids_that_are_hard_to_tell_apart_are_read_all_the_same(found: list[int], tokens: bool) -> None:
    batch = decode_batch(payload(stored([1, 2], found, block_size=len(found) // 2)), DIGESTER, tokens=tokens)
    (event,) = batch.events
    assert isinstance(event, Stored)
    assert not event.sparse
    assert (event.own is None) if not tokens else (event.own is not None)
    if event.own is not None:
        assert event.own.tolist() == own_of(found, len(found) // 2)


def test_many_large_events_are_read_in_groups() -> None:
    numbers = [[70_000 + index] * (GROUP_BYTES // 20) for index in range(9)]
    encoded = payload(*[stored([index], part, block_size=len(part)) for index, part in enumerate(numbers)])
    covered = cover_tokens(encoded, len(numbers))
    assert covered is not None
    found = read_tokens(encoded, covered.spans)
    assert found is not None
    assert found.tolist() == [token for part in numbers for token in part]
