"""Events of one block each: gathered, they say what they say one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import CLEARED, DIGESTER, Fields, Plain, apart, decode, payload, plain, removed, stored
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.coalescing import FEWEST
from whymiss.ledger.events import KvBatch, Singles, Stored
from whymiss.ledger.segment.segment import Segment
from whymiss.ledger.stream import StreamRecord
from whymiss.model import SECOND, StreamId

ALIKE: Fields = {"extra_keys": [None], "group_idx": 0, "kv_cache_spec_kind": "full_attention"}
PLACE: Fields = {"group_idx": 0}

UNLIKE: Sequence[Fields] = (
    {"block_size": 1},
    {"block_size": 1, "token_ids": [7]},
    {"block_size": 3},
    {"block_size": None},
    {"block_size": 0, "token_ids": []},
    {"block_size": -2},
    {"parent_block_hash": None},
    {"parent_block_hash": b"short"},
    {"parent_block_hash": 5},
    {"token_ids": []},
    {"token_ids": [1, 2, 3, 4]},
    {"token_ids": [-1, 2]},
    {"token_ids": [1, "two"]},
    {"token_ids": None},
    {"medium": "CPU"},
    {"medium": ...},
    {"lora_name": "an adapter"},
    {"lora_name": ...},
    {"lora_id": 3},
    {"extra_keys": [["a salt"]]},
    {"extra_keys": [None, None]},
    {"extra_keys": None},
    {"extra_keys": ...},
    {"group_idx": 1},
    {"group_idx": None},
    {"group_idx": 1 << 16},
    {"kv_cache_spec_kind": "sliding_window"},
    {"kv_cache_spec_sliding_window": 8},
    {"locality": "REMOTE"},
    {"ownership": "owner"},
    {"session_id": "a session"},
    {"session_id": None},
    {"cache_salt": "a salt"},
    {"additional_salt": "a salt"},
    {"block_hashes": []},
    {"block_hashes": [7]},
    {"block_hashes": [2**64 - 5, 2**64 - 6]},
    {"block_hashes": [2**64 - 5, 2**64 - 6], "token_ids": [1, 2, 3, 4]},
    {"block_hashes": ["0x1f"]},
    {"block_hashes": [b"odd"]},
)
ELSEWHERE: Sequence[Fields] = (
    {"group_idx": 1},
    {"group_idx": None},
    {"medium": "CPU"},
    {"locality": "REMOTE"},
    {"ownership": "owner"},
    {"block_hashes": []},
    {"block_hashes": [2**64 - 5, 2**64 - 6]},
    {"block_hashes": [b"odd"]},
)


FIRST, PARENT, SECOND_ONE, THIRD, GONE = (2**63 + number for number in range(5))


def single(key: object = FIRST, parent: object = PARENT, **fields: object) -> Fields:
    """A store of one block that continues another."""
    return stored([key], (7, 8), **{**ALIKE, "parent_block_hash": parent, **fields})


ENOUGH = [single(2**63 + 50 + number, 2**63 + 60 + number) for number in range(FEWEST)]
"""So many that they are gathered, with whatever is like them beside them."""


def without(event: Fields) -> Fields:
    return {name: value for name, value in event.items() if value is not ...}


def one_by_one(events: Sequence[Fields], *, tokens: bool) -> tuple[Plain, int, int]:
    """What each of them says in a batch of its own, and how many are bad or unknown."""
    rows: Plain = []
    bad = unknown = 0
    for index, event in enumerate(events):
        batch = decode(event, tokens=tokens)
        bad, unknown = bad + batch.bad_events, unknown + batch.unknown_events
        rows += [(kind, cast("int", at) + index, *rest) for kind, at, *rest in plain(batch)]
    return rows, bad, unknown


def agrees(events: Sequence[Fields], *, tokens: bool = True) -> KvBatch:
    batch = decode(*events, tokens=tokens)
    assert (plain(batch), batch.bad_events, batch.unknown_events) == one_by_one(events, tokens=tokens)
    return batch


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("changes", UNLIKE, ids=str)
def test_a_store_that_says_something_else_is_none_of_them(changes: Fields, tokens: bool) -> None:
    one, other, third, gone = (
        single(),
        without(single(SECOND_ONE) | changes),
        single(THIRD, FIRST),
        removed(GONE, **PLACE),
    )
    for events in (
        [gone, gone, other, one],
        [one, other],
        [other, one],
        [one, other, third],
        [other, other, one, third],
        [one, third, other],
        [other] * FEWEST,
    ):
        agrees([*events, *ENOUGH, *events, *ENOUGH], tokens=tokens)


@pytest.mark.parametrize("changes", ELSEWHERE, ids=str)
def test_nor_is_a_removal_from_elsewhere(changes: Fields) -> None:
    for place in ({}, {"group_idx": None}, {"locality": "REMOTE"}):
        one, third = single(**place), single(THIRD, FIRST, **place)
        gone = without(removed(GONE, **PLACE) | changes)
        for events in ([one, gone], [one, gone, third], [gone, one, third, gone, gone], [gone, gone, *[gone, one] * 2]):
            agrees([*events, *(event | place for event in ENOUGH), *events, *(event | place for event in ENOUGH)])


@pytest.mark.parametrize("between", [CLEARED, {"type": "BlockMoved"}, {"type": 5}], ids=str)
def test_nor_is_what_changes_everything(between: Fields) -> None:
    agrees([*ENOUGH, between, *ENOUGH, between, removed(GONE, **PLACE), *ENOUGH])


def events_of(hashes: st.SearchStrategy[object]) -> st.SearchStrategy[list[Fields]]:
    """Stores and removals of one block each, whose hashes are all of one form; now and then one is unlike the others."""
    stores = st.builds(
        lambda key, parent, more: without(single(key, parent) | more),
        hashes,
        hashes,
        st.sampled_from([{}] * 4 * len(UNLIKE) + list(UNLIKE)),
    )
    removals = st.builds(
        lambda key, more: without(removed(key, **PLACE) | more),
        hashes,
        st.sampled_from([{}] * 4 * len(ELSEWHERE) + list(ELSEWHERE)),
    )
    return st.lists(stores | removals, max_size=16)


FORMS = st.sampled_from([st.integers(2**63, 2**64 - 1), st.binary(min_size=32, max_size=32)])


@given(FORMS.flatmap(events_of), st.booleans())
def test_events_of_one_batch_say_what_each_says_in_a_batch_of_its_own(events: list[Fields], tokens: bool) -> None:
    agrees(events, tokens=tokens)


PROMPT = stored(range(2**63, 2**63 + 3000), list(range(6000)), **{**ALIKE, "extra_keys": [None] * 3000})
"""So long that its batch's token ids are read as a column."""
NUMBERS_APART = single(SECOND_ONE, token_ids=[1, 2, 3])


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("between", [[], [NUMBERS_APART], [NUMBERS_APART] * 2, [removed(GONE, **PLACE)]], ids=str)
def test_so_they_do_beside_a_prompt_whose_token_ids_are_read_as_a_column(at: int, between: list[Fields]) -> None:
    events = [single(), *between, single(THIRD, FIRST), single(SECOND_ONE)]
    agrees([*events[:at], PROMPT, *events[at:], *ENOUGH])
    agrees([*ENOUGH, *events[:at], PROMPT, *events[at:]])


@pytest.mark.parametrize("odd", [1.5e300, "12345678", [b"0123456"]], ids=str)
def test_hashes_that_only_take_the_same_room_are_looked_at_one_by_one(odd: object) -> None:
    events = [single(), single(odd), removed(GONE, **PLACE), single(THIRD)]
    for order in (events, events[::-1], events[:2] * 3):
        agrees([*order, *ENOUGH])
        agrees([*ENOUGH, *order])


def test_a_long_run_of_removals_is_one_of_its_own() -> None:
    events = [single(), *(removed(2**63 + 100 + number, **PLACE) for number in range(40))]
    assert [type(event).__name__ for event in agrees(events).events] == ["Stored", "Removed"]


def growing(count: int) -> list[Fields]:
    """Stores that running requests make, with a removal before each."""
    events: list[Fields] = []
    for number in range(count):
        events.append(removed(2**63 + 1000 + number, **PLACE))
        events.append(stored([2**63 + number], (number, 8), **{**ALIKE, "parent_block_hash": 2**63 + 500 + number}))
    return events


def test_those_that_differ_in_their_block_only_are_one() -> None:
    (rest,) = decode(*growing(9)).events
    assert isinstance(rest, Singles)
    assert rest.keys.size == 18
    assert [parent for parent in rest.parents if parent is not None] == [2**63 + 500 + number for number in range(9)]
    assert list(rest.at) == list(range(18))


def test_so_they_are_beside_a_prompt() -> None:
    batch = decode_batch(payload(PROMPT, *growing(9)), DIGESTER)
    assert [type(event).__name__ for event in batch.events] == ["Stored", "Singles"]


def test_a_witness_sees_the_tokens_of_each() -> None:
    seen: list[tuple[list[int], int, list[int]]] = []

    def witness(tokens: object, block_size: int, own: object) -> None:
        seen.append((cast("np.ndarray", tokens).tolist(), block_size, cast("np.ndarray", own).tolist()))

    batch = decode_batch(payload(*growing(3)), DIGESTER, witness=witness)
    own = [event.own.tolist() for event in apart(batch.events) if isinstance(event, Stored) and event.own is not None]
    assert seen == [([number, 8], 2, own[number]) for number in range(3)]


# --- in a segment ----------------------------------------------------------------------------------


CONTINUES: Fields = {"parent_block_hash": ...}
BEGINS: Sequence[Fields] = (
    {"parent_block_hash": None},
    {"parent_block_hash": None, "extra_keys": [["a salt"]]},
    {"parent_block_hash": None, "extra_keys": ...},
    {"parent_block_hash": None, "lora_name": ..., "extra_keys": ...},
    {"parent_block_hash": ..., "extra_keys": [["an image", 3]]},
)


@st.composite
def scripts(draw: st.DrawFn) -> list[KvBatch]:
    """Batches in which few blocks are stored, continued, salted and removed in all ways."""
    blocks = [2**63 + number for number in range(6)]
    found = []
    for number in range(draw(st.integers(1, 4))):
        events: list[Fields] = []
        for _ in range(draw(st.integers(0, 16))):
            one, parent = draw(st.sampled_from(blocks)), draw(st.sampled_from(blocks))
            fields = draw(st.sampled_from([*[CONTINUES] * 6, *BEGINS])) | {}
            if fields.get("parent_block_hash") is ...:
                fields["parent_block_hash"] = parent
            event = stored([one], [draw(st.integers(0, 3)), 8], **{**ALIKE, **fields})
            events.append(draw(st.sampled_from([event, event, removed(one, **PLACE)])))
        if draw(st.integers(0, 5)) == 0:
            events = [event | {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"} for event in events]
        if draw(st.integers(0, 5)) == 0:
            events = [event | {"medium": "CPU"} for event in events]
        batch = decode(*events, tokens=bool(draw(st.integers(0, 5))))
        found.append(msgspec.structs.replace(batch, unix_nanos=(number + 1) * SECOND))
    return found


def columns_of(segment: Segment) -> list[object]:
    """All that a segment holds, as numbers."""
    chains = segment.chains
    digests = [None if column is None else column.tolist() for column in (chains.own, chains.prefix)]
    runs = {place: (run.keys.tolist(), run.codes.tolist(), run.chained) for place, run in segment.runs.items()}
    columns = [column.tolist() for column in (chains.keys, chains.first, chains.ordinals, chains.pieces)]
    return [(segment.begin, segment.end), runs, columns, digests]


def laid_out_alike(batches: Sequence[KvBatch], settled: Collection[int] = ()) -> None:
    gathered, alone = (
        StreamRecord(StreamId("engine", 0), DIGESTER, from_birth=True, begins_unix_nanos=1) for _ in range(2)
    )
    for number, batch in enumerate(batches):
        gathered.apply(batch, number)
        alone.apply(msgspec.structs.replace(batch, events=list(apart(batch.events))), number)
        if number in settled:
            gathered.settle()
            alone.settle()
    gathered.settle()
    alone.settle()
    assert list(map(columns_of, gathered.history.segments)) == list(map(columns_of, alone.history.segments))
    assert gathered.cache_groups.specs == alone.cache_groups.specs


@pytest.mark.parametrize("settled", [(), (0,)])
@pytest.mark.parametrize(
    "root",
    [
        {},
        {"extra_keys": [["a salt"]]},
        {"extra_keys": ..., "lora_name": ...},
        {"token_ids": None},
        {"token_ids": [1, 2, 3, 4]},
        {"parent_block_hash": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "like",
    [{}, {"lora_name": ...}, {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}, {"medium": "CPU"}],
    ids=str,
)
def test_what_continues_a_root_is_laid_out_as_one_by_one(settled: Sequence[int], root: Fields, like: Fields) -> None:
    begin = without(single(PARENT, None) | root)
    place = {name: value for name, value in like.items() if name in {"group_idx", "medium"}}
    gone = removed(GONE, **{**PLACE, **place})
    one, other, third, fourth = (
        without(single(key, parent) | like)
        for key, parent in ((FIRST, PARENT), (SECOND_ONE, FIRST), (THIRD, 99), (SECOND_ONE, 99))
    )
    later = [one, gone, other, gone, gone, third]
    again = [without(single(key, SECOND_ONE) | like) for key in (GONE, 99)] + [gone, fourth, gone]
    laid_out_alike([decode(begin), decode(*later), decode(*again), decode(*later, tokens=False)], settled)
    laid_out_alike([decode(begin, *later, *again, begin)])


@given(scripts(), st.sets(st.integers(0, 3)))
def test_gathered_events_are_laid_out_as_one_by_one(batches: list[KvBatch], settled: set[int]) -> None:
    laid_out_alike(batches, settled)
