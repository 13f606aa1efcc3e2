"""Two requests side by side, and a template's chain: indexes and keyed digests, never a token."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.errors import BadInput
from whymiss.reference import (
    FORMAT,
    Comparison,
    Item,
    Reference,
    Serialised,
    chains,
    compare,
    compare_with,
    read_reference,
    read_request,
)

KEY = bytes(range(32))
TOKENS = tuple(range(1000, 1640))
tokens = st.lists(st.integers(0, 50), min_size=1, max_size=60).map(tuple)
sizes = st.integers(1, 8)


def asked(ids: tuple[int, ...] = TOKENS, /, **scope: Any) -> Serialised:
    return msgspec.structs.replace(Serialised(token_ids=ids), **scope)


def put(ids: tuple[int, ...], *places: int) -> tuple[int, ...]:
    return tuple(7 if at in places else token for at, token in enumerate(ids))


def between(one: Serialised, other: Serialised, size: int = 16) -> Comparison:
    return compare(one, other, size, KEY)


def test_a_timestamp_is_found_at_its_block_and_index_and_is_volatile() -> None:
    found = between(asked(), asked(put(TOKENS, 40, 41)))
    assert (found.block, found.token_index, found.blocks) == (2, 40, (40, 40))
    assert found.same_again == 37
    assert not found.same


def test_a_reordered_field_shifts_the_rest_and_nothing_is_the_same_again() -> None:
    found = between(asked(), asked((*TOKENS[:2], 1, *TOKENS[2:])))
    assert (found.block, found.token_index, found.same_again) == (0, 2, 0)


def test_a_shorter_request_differs_where_it_ends() -> None:
    found = between(asked(), asked(TOKENS[:100]))
    assert (found.token_index, found.block, found.same_again) == (100, 6, 0)


@pytest.mark.parametrize(
    ("change", "kind", "block"),
    [
        ({"adapter": "ad-2"}, "lora", 0),
        ({"cache_salt": "tenant-2"}, "cache_salt", 0),
        ({"prompt_embeds": "abc"}, "prompt_embeds", 0),
        ({"mm": (Item(identifier="image-2", offset=100),)}, "mm", 6),
        ({"mm": (Item(identifier="image-1", offset=101),)}, "mm", 6),
    ],
)
def test_extra_keys_differ_by_kind_and_keyed_digest(change: dict[str, object], kind: str, block: int) -> None:
    one = asked(adapter="ad-1", cache_salt="tenant-1", mm=(Item(identifier="image-1", offset=100),))
    found = between(one, msgspec.structs.replace(one, **change))
    assert (found.block, found.token_index) == (block, None)
    (difference,) = found.extra_keys
    assert (difference.kind, difference.block) == (kind, block)
    assert difference.one != difference.other
    text = msgspec.json.encode(found)
    assert not any(secret in text for secret in (b"ad-", b"tenant", b"image"))


@pytest.mark.parametrize("name", ["model", "tokenizer", "template"])
def test_requests_of_two_scopes_are_not_compared(name: str) -> None:
    with pytest.raises(BadInput, match=name):
        between(asked(**{name: "a"}), asked(**{name: "b"}))


@given(tokens, tokens, sizes)
def test_the_first_difference_is_where_the_requests_part(
    one: tuple[int, ...], other: tuple[int, ...], size: int
) -> None:
    found = between(asked(one), asked(other), size)
    assert found.same is (one == other)
    if found.token_index is not None:
        assert one[: found.token_index] == other[: found.token_index]
        assert one[found.token_index : found.token_index + 1] != other[found.token_index : found.token_index + 1]
        assert found.block == found.token_index // size


@given(tokens, tokens, sizes)
def test_comparing_is_symmetric(one: tuple[int, ...], other: tuple[int, ...], size: int) -> None:
    there, back = between(asked(one), asked(other), size), between(asked(other), asked(one), size)
    assert (there.block, there.token_index, there.same_again) == (back.block, back.token_index, back.same_again)


# --- references -------------------------------------------------------------------------------------


def reference(*requests: Serialised, size: int = 16) -> Reference:
    chain, own = chains(requests, size, KEY)
    return Reference(name="support", version="7", block_size=size, key_id="0", chain=chain, own=own)


def test_a_reference_holds_the_blocks_that_all_its_requests_share() -> None:
    known = reference(asked((*TOKENS[:64], 1, 2)), asked((*TOKENS[:64], 3, 4)), asked(TOKENS[:70]))
    assert len(known.chain) == 4
    assert known.chain == reference(asked(TOKENS[:64])).chain


def test_a_request_inside_the_template_is_compared_block_by_block() -> None:
    known = reference(asked(TOKENS[:320]))
    assert compare_with(known, asked(), KEY, "0").same
    found = compare_with(known, asked(put(TOKENS, 40)), KEY, "0")
    assert (found.block, found.token_index, found.same_again) == (2, None, 17)
    assert compare_with(known, asked(TOKENS[:100]), KEY, "0").block == 6


def test_a_line_in_one_mode_is_divergence_at_block_0_with_a_reference() -> None:
    known = reference(asked(TOKENS))
    found = compare_with(known, asked((*TOKENS[:2], 1, 2, 3, *TOKENS[2:])), KEY, "0")
    assert (found.block, found.same_again) == (0, 0)


def test_a_reference_of_another_key_or_scope_says_so() -> None:
    with pytest.raises(BadInput, match="another key"):
        compare_with(reference(asked()), asked(), KEY, "1")
    with pytest.raises(BadInput, match="model"):
        compare_with(reference(asked()), asked(model="m"), KEY, "0")


@given(tokens, sizes)
def test_a_digest_says_nothing_without_its_key(ids: tuple[int, ...], size: int) -> None:
    mine, _ = chains([asked(ids)], size, KEY)
    theirs, _ = chains([asked(ids)], size, bytes(32))
    assert not set(mine) & set(theirs)


@given(tokens, sizes, st.data())
def test_one_changed_token_changes_every_later_link_and_no_earlier_one(
    ids: tuple[int, ...], size: int, drawn: st.DataObject
) -> None:
    at = drawn.draw(st.integers(0, len(ids) - 1))
    before, _ = chains([asked(ids)], size, KEY)
    after, _ = chains([asked(tuple(99 if place == at else token for place, token in enumerate(ids)))], size, KEY)
    same = [one == other for one, other in zip(before, after, strict=True)]
    assert same == [block < at // size for block in range(len(same))]


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"token_ids": []}',
        b'{"token_ids": ["secret"]}',
        b'{"token_ids": [-1]}',
        b'{"token_ids": [4294967296]}',
        b'{"token_ids": [1], "text": "secret"}',
        b'{"text": "secret"}',
        b'{"token_ids": [1], "mm": [{"identifier": "secret", "offset": -1}]}',
        b"\xff",
    ],
)
def test_what_is_no_request_is_refused_without_being_quoted(content: bytes) -> None:
    with pytest.raises(BadInput) as raised:
        read_request(content, None)
    assert "secret" not in str(raised.value)


def test_text_goes_through_the_tokenizer() -> None:
    assert read_request(b'{"text": "ab"}', lambda text: [ord(letter) for letter in text]).token_ids == (97, 98)


def test_a_reference_is_read_as_it_was_written() -> None:
    known = reference(asked())
    assert read_reference(msgspec.json.encode(known)) == known
    for broken in (b"{}", b"x", msgspec.json.encode(msgspec.structs.replace(known, format=FORMAT + 1))):
        with pytest.raises(BadInput):
            read_reference(broken)
