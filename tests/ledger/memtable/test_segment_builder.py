"""What only repeats, what comes under which parent, and what a chain continues."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from tests.ledger.batches import CLEARED, DIGESTER, Fields, decode, plain, removed, stored
from tests.ledger.decode.test_tolerance import BAD_EVENTS
from tests.ledger.test_sequencer import STREAM
from whymiss.ledger.events import KvBatch
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Residency, Tier

DENSE: Fields = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
SLIDING: Fields = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
SESSION: Fields = {"session_id": "s"}
A, B, C, D = 11, 12, 13, 14


def chain(keys: Iterable[int], parent: int | None = None, *more: Fields) -> Fields:
    """A store of consecutive blocks of two tokens; each block's tokens are its own key, twice."""
    listed = list(keys)
    tokens = tuple(key for key in listed for _ in range(2))
    event = stored(listed, tokens, parent_block_hash=parent)
    for fields in (DENSE, *more):
        event |= fields
    return event


def said(at: int, *events: object) -> KvBatch:
    return msgspec.structs.replace(decode(*events), unix_nanos=at)


def told(*batches: KvBatch) -> StreamRecord:
    one = StreamRecord(STREAM, DIGESTER, from_birth=True, begins_unix_nanos=1)
    for seq, batch in enumerate(batches):
        one.apply(batch, seq)
    return one


def state(one: StreamRecord, key: int, group: int = 0, tier: Tier = Tier.DEVICE) -> Residency:
    # Asked alone it is counted without columns, and behind another with them.
    behind = one.as_of((key + 1, key), one.end, tier, group)[1].state
    alone = one.as_of((key,), one.end, tier, group)[0].state
    assert alone is behind
    return alone


# --- re-announcements ---------------------------------------------------------------------------


def test_a_group_that_goes_with_a_repeated_list_gains_no_copy() -> None:
    listed = chain([A]), chain([A], None, SLIDING)
    for order in ((0, 1), (1, 0)):
        again = [{**listed[index], **SESSION} for index in order]
        one = told(said(10, *listed), said(20, *again), said(30, removed(A, group_idx=1)))
        assert (state(one, A), state(one, A, 1)) == (Residency.RESIDENT, Residency.EVICTED)


def test_a_group_that_goes_with_a_new_list_stores_it() -> None:
    one = told(said(10, chain([A], None, SESSION), chain([A], None, SLIDING, SESSION)))
    assert (state(one, A), state(one, A, 1)) == (Residency.RESIDENT, Residency.RESIDENT)


def test_what_a_session_stores_under_a_parent_is_another_copy() -> None:
    one = told(
        said(10, chain([A, B])),
        said(20, chain([A], None, SESSION), chain([B], A, SESSION)),
        said(30, removed(A), removed(B)),
    )
    assert (state(one, A), state(one, B)) == (Residency.EVICTED, Residency.RESIDENT)


def test_a_list_of_which_only_a_part_is_resident_is_stored_and_not_repeated() -> None:
    one = told(said(10, chain([A])), said(20, chain([A, B], None, SESSION)), said(30, removed(A)))
    assert (state(one, A), state(one, B)) == (Residency.RESIDENT, Residency.RESIDENT)


def test_what_a_reset_took_is_stored_again_and_not_repeated() -> None:
    one = told(said(10, chain([A])), said(20, CLEARED), said(30, chain([A], None, SESSION)))
    assert state(one, A) is Residency.RESIDENT


def test_to_repeat_a_block_is_not_to_touch_it() -> None:
    one = told(said(10, chain([A])), said(20, chain([A], None, SESSION)), said(30, chain([A])))
    assert [one.touched(A, position, position + 1) for position in range(3)] == [True, False, True]


def test_a_tier_below_stores_what_the_device_only_repeats() -> None:
    one = told(said(10, chain([A])), said(20, chain([A], None, SESSION), chain([A], None, {"medium": "CPU"}, SESSION)))
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


def test_masked_blocks_have_no_place_in_a_chain() -> None:
    one = told(said(10, stored([A], (1, 2, 3, 4), **DENSE)))
    assert [(store.keys, store.start) for store in one.stores_between(0, 10)] == [((A,), None)]
    assert one.block(A) is None


@pytest.mark.parametrize(
    ("between", "position"), [([], 0), ([CLEARED], 2), ([chain([C], D)], 2), ([CLEARED, removed(D)], 2)]
)
def test_a_lookup_came_before_the_removals_that_made_room_for_its_stores(between: list[Fields], position: int) -> None:
    one = told(said(10, removed(B), *between, chain([A])))
    assert [store.position for store in one.stores_between(0, 10) if store.keys == (A,)] == [position]


@pytest.mark.parametrize("between", [CLEARED, removed(D)])
def test_what_comes_between_two_stores_under_one_block_parts_their_lookups(between: Fields) -> None:
    one = told(said(10, chain([A]), chain([B], A), between, chain([C], A)))
    assert [store.position for store in one.stores_between(0, 10)] == [0, 1, 2 if between != CLEARED else 3]


@pytest.mark.parametrize(
    "other",
    [{**SLIDING, "block_size": 4}, {"medium": "CPU", "block_size": 4}, {"block_size": 0, "token_ids": []}],
    ids=str,
)
def test_the_block_size_is_that_of_the_dense_group_on_the_device(other: Fields) -> None:
    one = told(said(10, chain([A])), said(20, chain([B], None, other)))
    assert one.block_size() == 2


def test_only_the_last_block_of_a_store_is_a_tail_to_be_continued() -> None:
    one = told(said(10, chain([A, B])), said(20, chain([C], A)), said(30, chain([D], B)))
    assert [store.parent_tail_unix_nanos for store in one.stores_between(0, 30)] == [None, None, 10]


def test_what_is_stored_later_was_no_tail_yet() -> None:
    one = told(said(10, chain([C], B)), said(20, chain([A, B])), said(30, chain([D], B)))
    assert [store.parent_tail_unix_nanos for store in one.stores_between(0, 30)] == [None, None, 20]


def test_a_block_before_others_of_its_store_is_no_tail_although_its_salt_ends_with_it() -> None:
    salted = chain([A, B], None, {"extra_keys": [["salt"], None]})
    one = told(said(10, salted), said(20, chain([C], A)), said(30, chain([D], B)))
    assert [store.keys for store in one.stores_between(0, 30)] == [(A, B), (C,), (D,)]
    assert [store.parent_tail_unix_nanos for store in one.stores_between(0, 30)] == [None, None, 10]


# --- what cannot be read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [*BAD_EVENTS.values(), stored([5, 6, 1.5]), stored([5, 6], tokens=[1, 2, 3, "b"]), removed(5, 6, 1.5)],
)
def test_what_cannot_be_read_between_two_removals_leaves_nothing(event: object) -> None:
    batch = decode(removed(1), event, removed(2))
    assert plain(batch) == plain(decode(removed(1), stored([1.5]), removed(2)))
    assert [row[:3] for row in plain(batch)] == [("removed", 0, 1), ("removed", 2, 2)]


def test_neighbouring_removals_of_different_places_stay_apart() -> None:
    events = removed(1), removed(2, medium="CPU"), removed(3, medium="CPU", group_idx=1), removed(4, group_idx=1)
    rows = [row for number, event in enumerate(events) for row in plain(decode(*[{}] * number, event))]
    assert plain(decode(*events)) == rows
    assert [row[2:6] for row in rows] == [
        (1, Tier.DEVICE, "gpu", None),
        (2, Tier.HOST, "cpu", None),
        (3, Tier.HOST, "cpu", 1),
        (4, Tier.DEVICE, "gpu", 1),
    ]


# --- groups ---------------------------------------------------------------------------------------


def kinds(one: StreamRecord) -> list[tuple[int, str, int | None]]:
    return [(spec.group, spec.kind, spec.block_size) for spec in one.groups()]


def test_a_group_keeps_its_kind_for_a_life() -> None:
    larger = stored([B], (1, 2, 3, 4), block_size=4, group_idx=0, kv_cache_spec_kind="sliding_window")
    for parent, size in ((None, 2), (D, 4)):
        one = told(said(10, chain([A], parent)), said(20, larger))
        assert kinds(one) == [(0, "full_attention", size)]


def test_a_new_life_may_serve_another_model() -> None:
    one = told(said(10, chain([A])))
    one.restart(20)
    one.apply(said(30, chain([A], None, SLIDING, {"group_idx": 0})), 0)
    assert kinds(one) == [(0, "sliding_window", 2)]


# --- what is left after everything was dropped -------------------------------------------------------


def test_a_record_that_dropped_everything_begins_there() -> None:
    one = told(said(10, chain([A])), said(20, chain([B])))
    one.settle()
    one.forget()
    coverage = one.coverage(0, 5)
    assert (coverage.expired, coverage.from_birth, coverage.begins_unix_nanos) == (True, False, 20)
