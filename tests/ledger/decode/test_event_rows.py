"""Events are cut out of a batch's columns by the rows that were noted for them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.ledger.batches import Fields, removed, stored
from whymiss.ledger.decode.event_rows import RemovedSlot, StoredSlot, removed_of, same_medium, stored_of
from whymiss.ledger.decode.schema import WireRemoved, WireStoredUnread
from whymiss.model import Tier

KEYS = np.arange(10, 20, dtype=np.uint64)


def wire_stored(**fields: object) -> WireStoredUnread:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(stored() | fields), type=WireStoredUnread)


def wire_removed(**fields: object) -> WireRemoved:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(removed(1, **fields)), type=WireRemoved)


def slot(wire: WireStoredUnread, token_row: int = 2) -> StoredSlot:
    return StoredSlot(
        index=3, wire=wire, parent=9, first=4, end=6, extras=None, described=True, sparse=False, token_row=token_row,
        own_first=1,
    )  # fmt: skip


def test_a_store_takes_its_rows_of_the_keys_and_of_the_digests_of_its_token_column() -> None:
    digests = {2: np.array([70, 71, 72, 73], np.uint64), -2: np.zeros(9, np.uint64)}
    event = stored_of(slot(wire_stored(session_id="s", ownership="owned")), KEYS, digests)
    assert (event.index, event.keys.tolist(), event.parent) == (3, [14, 15], 9)
    assert event.own is not None
    assert event.own.tolist() == [71, 72]
    assert (event.tier, event.medium, event.block_size) == (Tier.DEVICE, "gpu", 2)
    assert (event.described, event.session, event.placeholder, event.ownership) == (True, True, False, "owned")


def test_without_a_token_column_a_store_has_no_digests_and_without_a_size_it_is_a_placeholder() -> None:
    event = stored_of(slot(wire_stored(block_size=None), token_row=0), KEYS, {})
    assert (event.own, event.block_size, event.placeholder, event.session) == (None, 0, True, False)


def test_removals_take_their_rows_of_the_keys_and_of_the_events() -> None:
    at = np.array([5, 5, 6, 8])
    event = removed_of(RemovedSlot(wire_removed(group_idx=1), first=2, end=4, at_first=1), KEYS, at)
    assert (event.keys.tolist(), event.at.tolist(), event.group) == ([12, 13], [5, 6], 1)


@pytest.mark.parametrize("other", [{"medium": "CPU"}, {"group_idx": 1}, {"locality": "REMOTE"}, {"ownership": "owned"}])
def test_removals_of_another_medium_group_locality_or_owner_are_another_run(other: Fields) -> None:
    assert same_medium(wire_removed(), wire_removed())
    assert not same_medium(wire_removed(), wire_removed(**other))
