from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import one, payload, stored
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import ExtraKey, Stored
from whymiss.ledger.hashing import Digester

Extras = list[tuple[ExtraKey, ...]]


def extras_of(event: object) -> Extras | None:
    return one(event).extras


def kinds_of(event: object) -> list[list[str]]:
    return [[kind for kind, _ in extras] for extras in extras_of(event) or []]


def two(**fields: object) -> dict[str, object]:
    """A store of two blocks."""
    return stored([1, 2], (1, 2, 3, 4), **fields)


@pytest.mark.parametrize("listed", [None, [None, None], [[], []], ...])
def test_no_extra_keys_are_none(listed: object) -> None:
    store = one(two(extra_keys=listed))
    assert not any(store.extras or [])
    assert store.described


@pytest.mark.parametrize(
    ("adapter", "entry", "kinds"),
    [
        (None, ["s"], ["cache_salt"]),
        ("ad", ["ad"], ["lora"]),
        ("ad", ["ad", "ad"], ["lora", "cache_salt"]),
        ("ad", ["s"], ["cache_salt"]),
        ("ad", [["image", -3], "ad"], ["mm", "cache_salt"]),
        (None, [["a", 0], ["b", 7], "s", b"\1" * 32], ["mm", "mm", "cache_salt", "prompt_embeds"]),
    ],
)
def test_the_wire_type_tells_the_kind(adapter: str | None, entry: list[object], kinds: list[str]) -> None:
    assert kinds_of(two(lora_name=adapter, extra_keys=[entry, None])) == [kinds, []]


def test_a_salt_beside_the_event_holds_for_all_of_its_blocks() -> None:
    assert kinds_of(two(cache_salt="s", lora_name=...)) == [["cache_salt"], ["cache_salt"]]
    beside = extras_of(two(cache_salt="s"))
    assert beside == extras_of(two(extra_keys=[["s"], ["s"]]))
    assert extras_of(two(cache_salt="")) is None


def test_releases_without_extra_keys_still_name_the_adapter() -> None:
    by_name = extras_of(two(lora_name="ad"))
    assert by_name == extras_of(two(lora_name="ad", extra_keys=[["ad"], ["ad"]]))
    by_number = extras_of(two(lora_id=5))
    assert kinds_of(two(lora_id=5)) == [["lora"], ["lora"]]
    assert by_number != by_name
    assert extras_of(two(lora_id=0)) is None


@pytest.mark.parametrize(
    ("event", "described"),
    [
        (two(), True),
        (two(lora_name=...), False),
        (two(lora_name=..., cache_salt="s"), True),
        (two(lora_name=..., extra_keys=[None, ["s"]]), True),
        (["BlockStored", [1], None, [1, 2], 2, None, "GPU", "ad"], True),
        (["BlockStored", [1], None, [1, 2], 2, None, "GPU", None], False),
        (["BlockStored", [1], None, [1, 2], 2, None, "GPU", None, None], True),
        (two(block_size=0, token_ids=[]), False),
    ],
)
def test_absence_proves_something_only_where_there_is_a_place_for_extra_keys(event: object, described: bool) -> None:
    assert one(event).described is described


@pytest.mark.parametrize("listed", [[None], [None, 5], ["ad", None], [[1.5], None], [[["a", 1, 2]], None], "no", {}])
def test_extra_keys_that_cannot_be_read_prove_nothing(listed: object) -> None:
    store = one(two(extra_keys=listed))
    assert (store.keys.tolist(), store.extras, store.described) == ([1, 2], None, False)
    assert store.own is not None


values = st.text(max_size=5) | st.binary(max_size=5) | st.tuples(st.text(max_size=5), st.integers(-9, 9)).map(list)
entries = st.none() | st.lists(values, max_size=3)


@given(st.lists(entries, min_size=1, max_size=20), st.none() | st.text(max_size=2))
def test_a_block_s_extra_keys_do_not_depend_on_its_neighbours(listed: list[object], adapter: str | None) -> None:
    def of(blocks: list[object]) -> Extras:
        tokens = tuple(range(2 * len(blocks)))
        event = stored(range(len(blocks)), tokens, extra_keys=blocks, lora_name=adapter)
        return extras_of(event) or [()] * len(blocks)

    assert of(listed) == [of([entry])[0] for entry in listed]
    assert of([listed[0]] * 20) == of([listed[0]]) * 20


@given(values, values)
def test_equal_values_of_a_kind_have_equal_digests(one_value: object, other_value: object) -> None:
    first, second = extras_of(two(extra_keys=[[one_value], [other_value]])) or [(), ()]
    assert (first == second) == (msgspec.msgpack.encode(one_value) == msgspec.msgpack.encode(other_value))


def test_another_process_has_other_digests() -> None:
    event = two(extra_keys=[["s"], None])
    (other,) = decode_batch(payload(event), Digester(b"another 16 bytes")).events
    assert isinstance(other, Stored)
    assert one(event).extras != other.extras
