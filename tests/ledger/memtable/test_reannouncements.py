"""A session's store from the root that is resident as a whole says nothing new."""

from __future__ import annotations

from tests.ledger.batches import Fields, decode, stored
from whymiss.ledger.events import Keys, Stored
from whymiss.ledger.memtable.reannouncements import Reannouncements
from whymiss.ledger.segment.segment import Place
from whymiss.model import Tier

SESSION: Fields = {"session_id": "s", "group_idx": 0, "kv_cache_spec_kind": "full_attention"}
SLIDING: Fields = {"session_id": "s", "group_idx": 1, "kv_cache_spec_kind": "sliding_window"}


def decided(*events: Fields, resident: bool = True) -> tuple[list[bool], list[Place]]:
    """What is said of each store, and the places that were asked about."""
    asked: list[Place] = []

    def is_resident(place: Place, keys: Keys, ordinal: int) -> bool:
        assert keys.size > 0
        assert ordinal == 10
        asked.append(place)
        return resident

    batch = decode(*events)
    reannouncements = Reannouncements(batch, is_resident)
    stores = [event for event in batch.events if isinstance(event, Stored)]
    return [reannouncements.is_reannouncement(one, 10, dense=one.group == 0) for one in stores], asked


def test_only_what_is_resident_as_a_whole_is_repeated() -> None:
    assert decided(stored() | SESSION) == ([True], [(Tier.DEVICE, 0)])
    assert decided(stored() | SESSION, resident=False) == ([False], [(Tier.DEVICE, 0)])


def test_a_store_without_a_session_or_behind_a_parent_is_new() -> None:
    assert decided(stored(group_idx=0)) == ([False], [])
    assert decided(stored(parent_block_hash=9) | SESSION) == ([False], [])
    assert decided(stored(medium="CPU") | SESSION) == ([False], [])


def test_a_sparse_group_goes_with_the_dense_list_that_it_repeats() -> None:
    both = (stored() | SESSION, stored() | SLIDING)
    assert decided(*both) == ([True, True], [(Tier.DEVICE, 0)])
    assert decided(*both[::-1]) == ([True, True], [(Tier.DEVICE, 0)] * 2)
    assert decided(*both, resident=False) == ([False, False], [(Tier.DEVICE, 0)])
    assert decided(stored() | SESSION, stored((5,)) | SLIDING) == ([True, False], [(Tier.DEVICE, 0)])
