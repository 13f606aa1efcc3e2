"""Every emitter's payloads, and whatever else may arrive."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import DIGESTER, decode, own_of, payload, plain, stored
from whymiss.errors import BadInput
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import Cleared, KvBatch, Removed, Stored
from whymiss.model import Tier

GOLDEN = {
    "vllm_0_33": (
        "93cb3ff0000000000000938aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cfa1b2c3d4e5f60718b1706172656e745f"
        "626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055a96c"
        "6f72615f6e616d65c0aa65787472615f6b6579739191a673616c742d78a967726f75705f6964780084a474797065ac426c6f636b52656d6f766564ac"
        "626c6f636b5f68617368657391cfa1b2c3d4e5f60718a66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73"
        "436c656172656400"
    ),
    "legacy_pos": (
        "93cb3ff00000000000009397ab426c6f636b53746f7265649101c0940102030404c0a347505593ac426c6f636b52656d6f7665649101a347505591b0"
        "416c6c426c6f636b73436c656172656400"
    ),
    "sglang": (
        "93cb3ff00000000000009187a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391fdb1706172656e745f626c6f636b5f6861"
        "7368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756daa4350555f50494e4e454400"
    ),
    "llmd_fs": "92cb3ff000000000000091c42297ab426c6f636b53746f7265649107009000c0ae5348415245445f53544f52414745",
    "mooncake": (
        "93cf0000018bcfe5687b91de0014a86576656e745f696401a974696d657374616d70cf0000018bcfe5687baa6576656e745f74797065a673746f7265"
        "64a474797065ab426c6f636b53746f726564aa6d6f64656c5f6e616d65c0aa626c6f636b5f73697a65c0af6164646974696f6e616c5f73616c74c0a9"
        "6c6f72615f6e616d65c0a974656e616e745f6964a764656661756c74aa6261636b656e645f6964ac73746f72652d6e6f64652d31a867726f75705f69"
        "64c0a66d656469756da3637075a764705f72616e6bc0aa6f626a6563745f6b6579a53132333435aa7365715f68617368657391cd3039ac626c6f636b"
        "5f68617368657391cd3039ae626173655f626c6f636b5f69647800ab706172656e745f68617368c0a9746f6b656e5f696473c0b1706172656e745f62"
        "6c6f636b5f68617368c000"
    ),
    "vllm_keys": (
        "93cb3ff000000000000091de000ca474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573921516b1706172656e745f626c6f636b"
        "5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f696405a66d656469756da3475055a96c6f72615f6e"
        "616d65a26164aa65787472615f6b6579739294a2616492a36d6d3001a673616c742d78c402010291a26164a967726f75705f69647800b26b765f6361"
        "6368655f737065635f6b696e64ae66756c6c5f617474656e74696f6eaa73657373696f6e5f6964a2733100"
    ),
}


def golden(name: str) -> KvBatch:
    batch = decode_batch(bytes.fromhex(GOLDEN[name]), DIGESTER)
    assert (batch.bad_events, batch.unknown_events) == (0, 0)
    return batch


# --- Golden payloads --------------------------------------------------------------------------


def test_vllm_maps_are_read() -> None:
    batch = golden("vllm_0_33")
    assert (batch.unix_nanos, batch.rank, batch.count) == (1_000_000_000, 0, 3)
    store, removal, clear = batch.events
    assert isinstance(store, Stored)
    assert store.keys.tolist() == [0xA1B2C3D4E5F60718]
    assert (store.parent, store.block_size, store.tier, store.medium, store.group) == (None, 4, Tier.DEVICE, "gpu", 0)
    assert store.own is not None
    assert store.own.tolist() == own_of([1, 2, 3, 4], 4)
    assert store.extras is not None
    assert [[kind for kind, _ in extras] for extras in store.extras] == [["cache_salt"]]
    assert store.described
    assert isinstance(removal, Removed)
    assert (removal.keys.tolist(), removal.at.tolist(), removal.group) == ([0xA1B2C3D4E5F60718], [1], 0)
    assert isinstance(clear, Cleared)
    assert (clear.index, clear.tier) == (2, Tier.DEVICE)


def test_positional_arrays_are_read() -> None:
    store, removal, clear = golden("legacy_pos").events
    assert isinstance(store, Stored)
    assert (store.keys.tolist(), store.block_size, store.medium) == ([1], 4, "gpu")
    assert not store.described, "that release hashed extra keys and published none"
    assert isinstance(removal, Removed)
    assert (removal.keys.tolist(), removal.group) == ([1], None)
    assert isinstance(clear, Cleared)


def test_sglang_s_signed_hashes_are_unsigned_keys() -> None:
    (store,) = golden("sglang").events
    assert isinstance(store, Stored)
    assert store.keys.tolist() == [2**64 - 3]
    assert (store.tier, store.medium) == (Tier.HOST, "cpu_pinned")


def test_llm_d_s_event_inside_a_byte_string_is_a_placeholder() -> None:
    batch = golden("llmd_fs")
    assert batch.rank is None
    (store,) = batch.events
    assert isinstance(store, Stored)
    assert store.placeholder
    assert (store.keys.tolist(), store.parent, store.block_size, store.own) == ([7], None, 0, None)
    assert (store.tier, store.medium, store.described) == (Tier.REMOTE, "shared_storage", False)


def test_mooncake_s_time_is_milliseconds() -> None:
    batch = golden("mooncake")
    assert batch.unix_nanos == 1_700_000_000_123_000_000
    (store,) = batch.events
    assert isinstance(store, Stored)
    assert (store.keys.tolist(), store.tier, store.placeholder) == ([12345], Tier.HOST, True)


def test_vllm_extra_keys_are_told_apart_by_their_types() -> None:
    (store,) = golden("vllm_keys").events
    assert isinstance(store, Stored)
    assert store.extras is not None
    assert [[kind for kind, _ in extras] for extras in store.extras] == [
        ["lora", "mm", "cache_salt", "prompt_embeds"],
        ["lora"],
    ]
    assert store.extras[0][0] == store.extras[1][0]
    assert (store.kind, store.lora_name, store.session) == ("full_attention", "ad", True)


# --- What is not a batch ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\xc0",
        b"\x90",
        payload()[:-1],
        payload() + b"\x00",
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, 5]),
        msgspec.msgpack.encode({"ts": 1.0}),
        msgspec.msgpack.encode({1: 1.0, "events": []}),
        b"\x81\xa6events\xdd\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        payload({"text": "x" * 400})[:10] + msgspec.msgpack.encode({"text": "x" * 400}) + b"\0",
        b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff" + bytes(400),
    ],
    ids=lambda encoded: encoded[:12].hex(),
)
def test_what_is_no_batch_is_bad_input(encoded: bytes) -> None:
    with pytest.raises(BadInput):
        decode_batch(encoded, DIGESTER)


@pytest.mark.parametrize("ts", [None, "1", True, -1.0, float("nan"), float("inf"), 1e10, 1e13, 2**63])
def test_a_time_that_is_none_makes_no_batch(ts: object) -> None:
    with pytest.raises(BadInput):
        decode_batch(payload(stored(), ts=ts), DIGESTER)


@pytest.mark.parametrize(
    ("ts", "nanos"), [(0, 0), (1.5, 1_500_000_000), (1_700_000_000_123, 1_700_000_000_123_000_000)]
)
def test_magnitude_tells_seconds_from_milliseconds(ts: float, nanos: int) -> None:
    assert decode_batch(payload(ts=ts), DIGESTER).unix_nanos == nanos


# --- Properties -------------------------------------------------------------------------------

SECRET = "gold-tenant-salt"

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8) | st.binary(max_size=40)
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
field_names = st.sampled_from([*stored(), "extra_keys", "group_idx", "event_type", "kind", "cache_salt", "seq_hashes"])
kinds = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "stored", "removed", "lost", "Other"])
odd_events = st.one_of(
    values,
    st.builds(lambda kind, rest: [kind, *rest], kinds, st.lists(values, max_size=12)),
    st.builds(lambda kind, rest: rest | {"type": kind}, kinds, st.dictionaries(field_names, values, max_size=8)),
    st.builds(lambda name, value: stored() | {name: value}, field_names, values),
)


def survives(encoded: bytes) -> None:
    for tokens in (True, False):
        try:
            batch = decode_batch(encoded, DIGESTER, tokens=tokens)
        except BadInput:
            continue
        assert all(0 <= int(str(row[1])) < batch.count for row in plain(batch))
        assert 0 <= batch.unix_nanos < 2**63


@given(st.binary(max_size=200))
def test_random_bytes_are_a_batch_or_bad_input(encoded: bytes) -> None:
    survives(encoded)
    survives(b"\x93\xcb" + bytes(8) + encoded)


@given(st.sampled_from(sorted(GOLDEN)), st.data())
def test_mutated_payloads_are_a_batch_or_bad_input(name: str, data: st.DataObject) -> None:
    encoded = bytearray.fromhex(GOLDEN[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(encoded) - 1))
        if data.draw(st.booleans()):
            encoded[place] = data.draw(st.integers(0, 255))
        else:
            del encoded[place : place + data.draw(st.integers(1, 9))]
            encoded = encoded or bytearray(b"\0")
    survives(bytes(encoded))


@given(st.lists(odd_events, max_size=5))
def test_no_event_however_odd_harms_its_neighbours(events: list[object]) -> None:
    batch = decode(stored([1]), *events, stored([2]))
    assert batch.count == len(events) + 2
    first, last = batch.events[0], batch.events[-1]
    assert isinstance(first, Stored)
    assert isinstance(last, Stored)
    assert (first.keys.tolist(), last.keys.tolist()) == ([1], [2])
    assert first.own is not None
    assert last.own is not None
    assert first.own.tolist() == last.own.tolist() == own_of([7, 8], 2)


@given(st.lists(odd_events, max_size=4))
def test_how_an_event_is_read_does_not_depend_on_its_neighbours(events: list[object]) -> None:
    together = decode(*events)
    alone = [decode(event) for event in events]
    rows = [(row[0], index, *row[2:]) for index, batch in enumerate(alone) for row in plain(batch)]
    assert plain(together) == rows
    assert together.bad_events == sum(batch.bad_events for batch in alone)
    assert together.unknown_events == sum(batch.unknown_events for batch in alone)


hashes = st.lists(st.integers(0, 2**64 - 1) | st.binary(min_size=32, max_size=32), min_size=1, max_size=20)


@given(hashes, st.integers(1, 4), st.none() | st.integers(0, 2**64 - 1), st.data())
def test_a_position_and_a_name_say_the_same(
    blocks: list[object], size: int, parent: int | None, data: st.DataObject
) -> None:
    count = len(blocks) * size
    tokens = data.draw(st.lists(st.integers(0, 2**31), min_size=count, max_size=count))
    extras = data.draw(st.none() | st.just([None] * len(blocks)) | st.just([["ad", "salt"]] * len(blocks)))
    event = stored(blocks, tokens, parent_block_hash=parent, block_size=size, lora_name="ad", extra_keys=extras)
    event |= {"group_idx": 2, "kv_cache_spec_kind": "mla_attention", "kv_cache_spec_sliding_window": None}
    position = [event["type"], *[value for name, value in event.items() if name != "type"]]
    assert plain(decode(event)) == plain(decode(position)) == plain(decode(msgspec.msgpack.encode(position)))


@pytest.mark.parametrize(
    "event",
    [
        stored(extra_keys=[[SECRET]]),
        stored(cache_salt=SECRET, lora_name=...),
        {"event_type": "stored", "seq_hashes": [1], "additional_salt": SECRET, "block_size": 2, "token_ids": [7, 8]},
        stored(session_id=SECRET),
        stored(tokens=[86753090, 86753091]),
        stored(lookahead_token_ids=[86753090]),
    ],
)
def test_neither_salts_nor_sessions_nor_tokens_are_kept(event: object) -> None:
    kept = repr(decode(event))
    assert SECRET not in kept
    assert "8675309" not in kept


@pytest.mark.parametrize("field", ["medium", "parent_block_hash", "block_size", "group_idx", "token_ids"])
def test_errors_do_not_quote(field: str) -> None:
    for encoded in (payload(stored(), ts=SECRET), payload({SECRET: 1}, ts=[SECRET]), msgspec.msgpack.encode(SECRET)):
        with pytest.raises(BadInput) as caught:
            decode_batch(encoded, DIGESTER)
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert SECRET not in repr(decode(stored() | {field: {SECRET: SECRET}}))
