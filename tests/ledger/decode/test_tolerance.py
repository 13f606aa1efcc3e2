"""The shapes, spellings and faults that decoding puts up with."""

from __future__ import annotations

import msgspec
import pytest

from tests.ledger.batches import CLEARED, DIGESTER, apart, decode, one, own_of, payload, plain, removed, stored
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import Removed, Stored
from whymiss.model import Tier


def test_mooncake_without_the_compatible_names_is_read() -> None:
    event = {"event_type": "stored", "seq_hashes": [5], "parent_hash": 4, "block_size": 2, "token_ids": [1, 2]}
    store = one(event | {"medium": "disk", "additional_salt": "s"})
    assert (store.keys.tolist(), store.parent, store.tier) == ([5], 4, Tier.DISK)
    assert [kind for kind, _ in (store.extras or [()])[0]] == ["cache_salt"]
    (removal,) = decode({"event_type": "removed", "seq_hashes": [5], "medium": "disk"}).events
    assert isinstance(removal, Removed)
    assert removal.keys.tolist() == [5]


@pytest.mark.parametrize(("name", "keys"), [("0x2a", [42]), ("42", [42]), ("model/layer/7", [])])
def test_an_object_key_names_a_block_where_it_is_a_number(name: str, keys: list[int]) -> None:
    store = one({"event_type": "stored", "seq_hashes": [], "object_key": name, "medium": "cpu"})
    assert store.keys.tolist() == keys


def test_lmcache_s_records_state_loss_and_life() -> None:
    chunk = {"seq": 3, "kind": "stored", "medium": "CPU", "model_name": "m", "block_hashes": [b"\1" * 32]}
    records = [
        chunk | {"parent_block_hash": b"\2" * 32, "token_ids": [5] * 256},
        chunk | {"kind": "removed", "parent_block_hash": None, "token_ids": []},
    ]
    batch = decode_batch(
        msgspec.msgpack.encode({"enabled": True, "incarnation": 17, "next_cursor": 4, "lost": True, "events": records}),
        DIGESTER,
    )
    assert (batch.lost, batch.incarnation, batch.cursor, batch.unix_nanos) == (True, 17, 4, 0)
    store, removal = batch.events
    assert isinstance(store, Stored)
    assert (store.block_size, store.tier, store.parent) == (256, Tier.HOST, int.from_bytes(b"\2" * 8, "big"))
    assert store.own is not None
    assert isinstance(removal, Removed)
    assert removal.keys.tolist() == store.keys.tolist()


def test_a_lost_record_is_loss_and_not_an_unknown_event() -> None:
    batch = decode_batch(msgspec.msgpack.encode({"ts": 2.0, "events": [{"kind": "lost"}]}), DIGESTER)
    assert (batch.lost, batch.unknown_events, batch.unix_nanos) == (True, 0, 2_000_000_000)


def test_where_events_were_lost_between_others_the_batch_says_so() -> None:
    lost = {"kind": "lost"}
    before = decode_batch(msgspec.msgpack.encode({"ts": 2.0, "events": [lost, stored()]}), DIGESTER)
    between = decode_batch(msgspec.msgpack.encode({"ts": 2.0, "events": [stored(), lost]}), DIGESTER)
    assert (before.lost, before.lost_inside) == (True, False)
    assert (between.lost, between.lost_inside) == (True, True)


def test_a_batch_may_be_a_map() -> None:
    encoded = msgspec.msgpack.encode({"ts": 1.5, "events": [stored()], "data_parallel_rank": 3})
    batch = decode_batch(encoded, DIGESTER)
    assert (batch.unix_nanos, batch.rank, len(batch.events)) == (1_500_000_000, 3, 1)


def test_hashes_of_all_forms_are_the_same_keys() -> None:
    key = 0x0102030405060708
    digest = b"\xff" * 24 + key.to_bytes(8, "big")
    for form in (key, digest, digest[-16:], digest[-8:], str(key), hex(key)):
        store = one(stored([form], parent_block_hash=form))
        assert (store.keys.tolist(), store.parent) == ([key], key)


@pytest.mark.parametrize("tokens", [[], None, ...])
def test_no_token_ids_means_no_digest(tokens: object) -> None:
    store = one(stored(tokens=tokens))
    assert (store.own, store.sparse, store.placeholder) == (None, False, False)


def test_pairs_are_digested_whole() -> None:
    one_pair, other_pair = ([[1, 2], [2, 3]], [[1, 2], [2, 4]])
    own, other = (one(stored(tokens=pairs)).own for pairs in (one_pair, other_pair))
    assert own is not None
    assert other is not None
    assert own.tolist() == own_of([1 << 32 | 2, 2 << 32 | 3], 2)
    assert own.tolist() != other.tolist(), "the last token of a pair is part of the block's identity"


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(("count", "blocks_an_event"), [(1, 1), (8, 1), (3000, 1), (8, 4), (200, 4), (3, 300)])
def test_pairs_are_known_as_such_whether_tokens_are_wanted_or_not(
    tokens: bool, count: int, blocks_an_event: int
) -> None:
    ids = [[at % 50, (at + 1) % 50] for at in range(2 * count * blocks_an_event)]
    plain = [first for first, _ in ids]
    for said, pairs in ((ids, True), (plain, False)):
        width = 2 * blocks_an_event
        events = [
            stored(
                range(at + (1 << 63), at + (1 << 63) + blocks_an_event),
                said[at * width : (at + 1) * width],
                parent_block_hash=9,
            )
            for at in range(count)
        ]
        found = list(apart(decode(*events, tokens=tokens).events))
        assert [event.pairs for event in found if isinstance(event, Stored)] == [pairs] * count
        assert not any(event.sparse for event in found if isinstance(event, Stored))


@pytest.mark.parametrize("size", [0, None])
def test_a_placeholder_sets_nothing(size: int | None) -> None:
    store = one(stored(tokens=[], block_size=size, parent_block_hash=0))
    assert (store.placeholder, store.block_size, store.parent, store.described) == (True, 0, None, False)


def test_a_parent_of_hash_zero_is_a_parent() -> None:
    assert one(stored(parent_block_hash=0)).parent == 0


@pytest.mark.parametrize("rank", [None, -1, "0", 1 << 20, 1.0, True])
def test_a_rank_that_is_none_is_left_to_topic_and_port(rank: object) -> None:
    assert decode_batch(payload(stored(), rank=rank), DIGESTER).rank is None


def test_masked_blocks_are_sparse_and_not_digested() -> None:
    store = one(stored([6, 7], tokens=list(range(16)), kv_cache_spec_kind="sliding_window", group_idx=1))
    assert (store.sparse, store.own, store.group) == (True, None, 1)
    assert one(stored([], tokens=[1, 2])).sparse


def test_remote_locality_overrides_the_medium() -> None:
    store = one(stored(locality="REMOTE", ownership="tier-2"))
    assert (store.tier, store.medium, store.remote, store.ownership) == (Tier.REMOTE, "gpu", True, "tier-2")


def test_unknown_keys_are_ignored() -> None:
    assert plain(decode(stored(lookahead_token_ids=[9], future={"a": 1}))) == plain(decode(stored()))


def test_unknown_types_are_counted_and_not_fatal() -> None:
    batch = decode(stored(), {"type": "BlockMoved", "block_hashes": [1]}, ["BlockMoved", [1]], stored([2]))
    assert (batch.unknown_events, batch.bad_events, batch.count) == (2, 0, 4)
    assert [event.index for event in batch.events if isinstance(event, Stored)] == [0, 3]


BAD_EVENTS = {
    "number": 5,
    "empty array": [],
    "no type": {"block_hashes": [1]},
    "type is a number": {"type": 1},
    "no hashes": {"type": "BlockStored", "block_size": 2, "token_ids": [1, 2]},
    "no hashes by position": ["BlockStored"],
    "hashes are nil": stored() | {"block_hashes": None},
    "nothing removed": {"type": "BlockRemoved"},
    "hashes are a number": stored() | {"block_hashes": 3},
    "hash is a float": stored([1.5]),
    "hash is a bool": stored([True]),
    "hash of three bytes": stored([b"abc"]),
    "hash is a word": removed("word"),
    "negative block size": stored(block_size=-1),
    "group out of range": removed(1, group_idx=-1),
    "stored group out of range": stored(group_idx=1 << 16),
    "parent is an array": stored(parent_block_hash=[1]),
    "medium is a number": stored(medium=1),
    "tokens are a string": stored(tokens="ab"),
    "a token is a string": stored(tokens=[1, "b"]),
    "triples of tokens": stored(tokens=[[1, 2, 3], [4]]),
    "a pair is a number": stored(tokens=[[1, 2], 3]),
    "pairs of strings": stored(tokens=["ab", "cd"]),
    "bytes that are no msgpack": b"\xc1",
    "bytes in bytes": msgspec.msgpack.encode(b"\x01"),
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_a_bad_event_loses_itself_only(name: str) -> None:
    batch = decode(stored([1]), BAD_EVENTS[name], removed(1), CLEARED)
    assert (batch.bad_events, batch.unknown_events, batch.count) == (1, 0, 4)
    rows = plain(decode(stored([1]), CLEARED, removed(1), CLEARED))
    assert plain(batch) == [rows[0], *rows[2:]]


def test_skipping_tokens_leaves_out_their_digests_and_nothing_else() -> None:
    events = [
        stored([1, 2], (1, 2, 3, 4)),
        stored([3], tokens=[[1, 2], [2, 3]]),
        stored([4, 5], tokens=[1, 2], extra_keys=[["s"], None]),
        ["BlockStored", [6], None, [1, 2], 2],
        stored([7], tokens=None),
        {"type": "Unknown"},
        removed(1),
    ]
    batch = decode(*events, tokens=False)
    assert all(event.own is None for event in batch.events if isinstance(event, Stored))
    expected = [event for event in decode(*events).events if isinstance(event, Stored)]
    found = [event for event in batch.events if isinstance(event, Stored)]
    assert [event.sparse for event in found] == [event.sparse for event in expected]
    assert [event.keys.tolist() for event in found] == [event.keys.tolist() for event in expected]
    assert [event.extras for event in found] == [event.extras for event in expected]


def test_blocks_too_large_to_digest_are_kept() -> None:
    size = (1 << 17) + 1
    store = one(stored(tokens=[1] * size, block_size=size))
    assert (store.keys.tolist(), store.own, store.sparse) == ([1], None, False)
