"""What only repeats, what hangs where, and what a chain continues."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tests.ledger.batches import DIGESTER, Fields, decode, removed, stored
from tests.ledger.test_numbering import STREAM
from whymiss.ledger.events import KvBatch
from whymiss.ledger.record import StreamRecord
from whymiss.model import Residency, Tier

DENSE = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
SLIDING = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
SESSION = {"session_id": "s"}
A, B, C, D = 11, 12, 13, 14


def chain(keys: Iterable[int], parent: int | None = None, **fields: object) -> Fields:
    """A store of consecutive blocks of two tokens; each block's tokens are its own key, twice."""
    listed = list(keys)
    tokens = tuple(key for key in listed for _ in range(2))
    return stored(listed, tokens, parent_block_hash=parent, **{**DENSE, **fields})


def said(at: int, *events: object) -> KvBatch:
    return msgspec.structs.replace(decode(*events), unix_nanos=at)


def told(*batches: KvBatch) -> StreamRecord:
    one = StreamRecord(STREAM, DIGESTER, from_birth=True, begins_unix_nanos=1)
    for seq, batch in enumerate(batches):
        one.apply(batch, seq)
    return one


def state(one: StreamRecord, key: int, group: int = 0, tier: Tier = Tier.DEVICE) -> Residency:
    return one.as_of((key,), one.end, tier, group)[0].state


# --- re-announcements ---------------------------------------------------------------------------


def test_a_group_that_goes_with_a_repeated_list_gains_no_copy() -> None:
    listed = chain([A]), chain([A], **SLIDING)
    for order in ((0, 1), (1, 0)):
        again = [{**listed[index], **SESSION} for index in order]
        one = told(said(10, *listed), said(20, *again), said(30, removed(A, group_idx=1)))
        assert (state(one, A), state(one, A, 1)) == (Residency.RESIDENT, Residency.EVICTED)


def test_a_group_that_goes_with_a_new_list_stores_it() -> None:
    one = told(said(10, chain([A], **SESSION), chain([A], **SLIDING, **SESSION)))
    assert (state(one, A), state(one, A, 1)) == (Residency.RESIDENT, Residency.RESIDENT)


def test_what_a_session_stores_under_a_parent_is_another_copy() -> None:
    one = told(
        said(10, chain([A, B])),
        said(20, chain([A], **SESSION), chain([B], A, **SESSION)),
        said(30, removed(A), removed(B)),
    )
    assert (state(one, A), state(one, B)) == (Residency.EVICTED, Residency.RESIDENT)


def test_a_tier_below_stores_what_the_device_only_repeats() -> None:
    one = told(said(10, chain([A])), said(20, chain([A], **SESSION), chain([A], medium="CPU", **SESSION)))
    assert state(one, A, tier=Tier.HOST) is Residency.RESIDENT


# --- chains ---------------------------------------------------------------------------------------


def test_a_chain_under_a_block_of_unknown_depth_has_none_either() -> None:
    one = told(said(10, chain([B], A), chain([C], B)))
    stores = one.stores_between(0, 10)
    assert [(store.keys, store.start) for store in stores] == [((B,), None), ((C,), None)]
    assert one.block(C) is None


def test_a_chain_under_a_block_of_known_depth_is_one_deeper() -> None:
    one = told(said(10, chain([A, B]), chain([C], A)))
    assert [store.start for store in one.stores_between(0, 10)] == [0, 1]
    assert [block.depth for key in (A, B, C) if (block := one.block(key)) is not None] == [0, 1, 1]


def test_only_the_last_block_of_a_store_is_a_tail_to_be_continued() -> None:
    one = told(said(10, chain([A, B])), said(20, chain([C], A)), said(30, chain([D], B)))
    assert [store.parent_tail_unix_nanos for store in one.stores_between(0, 30)] == [None, None, 10]


def test_what_is_stored_later_was_no_tail_yet() -> None:
    one = told(said(10, chain([C], B)), said(20, chain([A, B])), said(30, chain([D], B)))
    assert [store.parent_tail_unix_nanos for store in one.stores_between(0, 30)] == [None, None, 20]


def test_a_block_before_others_of_its_store_is_no_tail_although_its_salt_ends_with_it() -> None:
    salted = chain([A, B], extra_keys=[["salt"], None])
    one = told(said(10, salted), said(20, chain([C], A)), said(30, chain([D], B)))
    assert [store.keys for store in one.stores_between(0, 30)] == [(A, B), (C,), (D,)]
    assert [store.parent_tail_unix_nanos for store in one.stores_between(0, 30)] == [None, None, 10]


# --- groups ---------------------------------------------------------------------------------------


def kinds(one: StreamRecord) -> list[tuple[int, str, int | None]]:
    return [(spec.group, spec.kind, spec.block_size) for spec in one.groups()]


def test_a_group_keeps_its_kind_for_a_life() -> None:
    larger = stored([B], (1, 2, 3, 4), block_size=4, group_idx=0, kv_cache_spec_kind="sliding_window")
    one = told(said(10, chain([A])), said(20, larger))
    assert kinds(one) == [(0, "full_attention", 4)]


def test_a_new_life_may_serve_another_model() -> None:
    one = told(said(10, chain([A])))
    one.restart(20)
    one.apply(said(30, chain([A], **{**SLIDING, "group_idx": 0})), 0)
    assert kinds(one) == [(0, "sliding_window", 2)]


# --- what is left after everything was dropped -------------------------------------------------------


def test_a_record_that_dropped_everything_begins_there() -> None:
    one = told(said(10, chain([A])), said(20, chain([B])))
    one.settle()
    one.forget()
    coverage = one.coverage(0, 5)
    assert (coverage.expired, coverage.from_birth, coverage.begins_unix_nanos) == (True, False, 20)
