"""What a record still says after clocks that fall back, new lives, many holes and resets."""

from __future__ import annotations

import msgspec
import pytest

from tests.ledger.batches import CLEARED, DIGESTER, decode, removed, stored
from tests.ledger.test_sequencer import REPLAYED, STREAM, A, B, store
from whymiss.ledger.checkpoint import dump, load
from whymiss.ledger.events import KvBatch
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.ledger.stream import HOLES_MAX, StreamRecord
from whymiss.model import SECOND, Hole, Reason, Removal, Residency, StreamId, Tier

KEY = 7


def record() -> StreamRecord:
    return StreamRecord(STREAM, DIGESTER, from_birth=True, begins_unix_nanos=1)


def said(at: int, *events: object) -> KvBatch:
    return msgspec.structs.replace(decode(*events), unix_nanos=at)


def states(one: StreamRecord, tier: Tier = Tier.DEVICE) -> Residency:
    return one.as_of((KEY,), one.end, tier, None)[0].state


def test_a_clock_that_falls_back_moves_nothing_into_the_past() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(5, A))
    ledger.accept(STREAM, 1, store(3, B))
    positions = [ledger.stream(STREAM).position_at(at * SECOND) for at in (2, 3, 4, 5)]
    assert positions == [0, 0, 0, 2]
    assert ledger.stream(STREAM).confirmed_position(4 * SECOND) == 1
    assert ledger.stream(STREAM).coverage(0, SECOND).confirmed_unix_nanos == 5 * SECOND


@pytest.mark.parametrize("first", [0, 3])
def test_the_numbers_of_a_former_life_have_no_time_in_this_one(first: int) -> None:
    one = record()
    for seq in range(3):
        one.apply(said(10 + seq, stored([seq])), seq)
    time_index = one.history.time_index
    assert [time_index.time_of(seq) for seq in range(3)] == [10, 11, 12]
    one.restart(20)
    one.apply(said(20, stored([9])), first)
    former = {0, 1, 2} - {first}
    assert [time_index.time_of(seq) for seq in sorted(former)] == [None] * len(former)
    assert time_index.time_of(first) == 20


def test_of_many_holes_none_is_forgotten() -> None:
    one = record()
    holes = [
        Hole(after_unix_nanos=10 * number, until_unix_nanos=10 * number + 5, reason=Reason.EVENTS_DROPPED)
        for number in range(1, HOLES_MAX + 10)
    ]
    for hole in holes:
        one.add_hole(hole)
    for hole in holes:
        assert one.coverage(hole.after_unix_nanos, hole.until_unix_nanos).holes
    assert len(one.holes) == HOLES_MAX
    assert one.coverage(0, 10).holes == ()


def test_what_was_dropped_may_be_held_still() -> None:
    one = record()
    one.apply(said(10, stored([KEY])))
    one.settle()
    one.forget()
    one.apply(said(20, stored([KEY])))
    assert states(one) is Residency.RESIDENT
    one.apply(said(30, removed(KEY)))
    assert states(one) is Residency.AMBIGUOUS


def test_whether_a_reset_of_the_device_reaches_the_tiers_below_is_not_known() -> None:
    one = record()
    one.apply(said(10, stored([KEY]), stored([KEY], medium="CPU")))
    assert (states(one), states(one, Tier.HOST)) == (Residency.RESIDENT, Residency.RESIDENT)
    one.apply(said(20, CLEARED))
    assert (states(one), states(one, Tier.HOST)) == (Residency.EVICTED, Residency.UNKNOWN)


def test_a_reset_of_a_tier_below_leaves_the_device_alone() -> None:
    one = record()
    one.apply(said(10, stored([KEY]), stored([KEY], medium="CPU"), stored([KEY], medium="DISK")))
    one.apply(said(20, CLEARED | {"medium": "CPU"}))
    tiers = (Tier.DEVICE, Tier.HOST, Tier.DISK)
    assert [states(one, tier) for tier in tiers] == [Residency.RESIDENT, Residency.EVICTED, Residency.RESIDENT]


def test_a_new_process_has_nothing_in_its_own_memory_and_finds_what_is_on_disk() -> None:
    one = record()
    one.apply(said(10, *(stored([KEY], medium=medium) for medium in ("GPU", "CPU", "DISK"))))
    one.restart(20)
    facts = [one.as_of((KEY,), one.end, tier, None)[0] for tier in (Tier.DEVICE, Tier.HOST, Tier.DISK)]
    assert [(fact.state, fact.removal) for fact in facts] == [
        (Residency.EVICTED, Removal.RESTARTED),
        (Residency.EVICTED, Removal.RESTARTED),
        (Residency.UNKNOWN, None),
    ]


def test_a_replayed_message_shows_nothing_of_the_clock() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A), msgspec.structs.replace(REPLAYED, received_unix_nanos=90 * SECOND))
    assert ledger.stream(STREAM).clock_offset is None


def test_a_worker_s_fleet_is_those_of_its_model_and_those_of_no_named_one() -> None:
    ledger = Ledger()
    one, same, other, unnamed = (StreamId(name, 0) for name in ("a", "b", "c", "d"))
    for stream, model in ((one, "m"), (same, "m"), (other, "n"), (unnamed, None)):
        ledger.accept(stream, 0, store(1, A), Delivery(model=model))
    assert [peer.stream for peer in ledger.peers(one, 16)] == [same, unnamed]
    assert [peer.stream for peer in ledger.peers(other, 16)] == [unnamed]
    assert [peer.stream for peer in ledger.peers(unnamed, 16)] == [one, same, other]


def test_blocks_of_another_size_are_other_blocks_as_soon_as_a_batch_says_so() -> None:
    ledger = Ledger()
    small, large, silent = (StreamId(name, 0) for name in ("a", "b", "c"))
    ledger.accept(silent, 0, KvBatch(unix_nanos=SECOND, events=[]))
    for stream, size in ((small, 4), (large, 8)):
        ledger.accept(stream, 0, said(SECOND, stored([1], tokens=tuple(range(size)), block_size=size)))
    assert [peer.stream for peer in ledger.peers(small, 4)] == [silent], "who has stored nothing may have such blocks"
    assert [peer.stream for peer in ledger.peers(small, 8)] == [large, silent]


def test_a_hybrid_model_matches_in_common_multiples_of_its_blocks() -> None:
    ledger = Ledger()
    groups = [
        stored([group], tokens=tuple(range(size)), block_size=size, group_idx=group) for group, size in ((0, 4), (1, 6))
    ]
    ledger.accept(STREAM, 0, said(SECOND, *groups))
    assert ledger.stream(STREAM).match_unit() == 12


@pytest.mark.parametrize("taken", [False, True])
def test_a_tier_is_seen_to_let_go_once_a_removal_of_it_was_published(taken: bool) -> None:
    ledger = Ledger()
    events = [stored([KEY], medium="CPU"), stored([KEY]), removed(KEY)]
    ledger.accept(STREAM, 0, said(10, *events, *([removed(KEY, medium="CPU")] if taken else [])))
    again = Ledger()
    load(b"".join(dump(ledger, now=0.0, unix_nanos=0)), again, now=0.0, unix_nanos=0)
    for one in (ledger, again):
        assert one.releases(STREAM, Tier.HOST) is taken
        assert not one.releases(STREAM, Tier.DISK)


def test_what_was_stored_with_the_same_tokens_is_found_when_it_is_no_longer_held() -> None:
    ledger = Ledger(digester=DIGESTER)
    salted = stored([KEY + 1], extra_keys=[["salt"]])
    ledger.accept(STREAM, 0, said(10, salted, removed(KEY + 1), stored([KEY]), stored([KEY + 2], tokens=(8, 9))))
    mine = ledger.stream(STREAM).block(KEY)
    assert mine is not None
    assert [one.key for one in ledger.stored_like(STREAM, mine, 3)] == [KEY + 1]
    assert ledger.stored_like(STREAM, mine, 0) == []
    assert ledger.stream(STREAM).same_tokens(KEY, 3) == []
