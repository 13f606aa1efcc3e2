"""Sequence numbers: what is lost, repeated, replayed or begun anew, and what may be said after it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.agreement import agree, expire, run_compaction
from tests.ledger.naive import NaiveRecord
from tests.ledger.publisher import batches, keys_of
from whymiss.ledger.checkpoint import dump, load
from whymiss.ledger.events import Cleared, KvBatch, Removed, Stored
from whymiss.ledger.ledger import Arrival, Delivery, Ledger, SequencedBatch, StreamHealth
from whymiss.ledger.stream import StreamRecord
from whymiss.model import SECOND, Hole, Reason, Removal, Residency, StreamId, Tier

STREAM = StreamId("engine", 0)
ASKING = Delivery(can_replay=True)
REPLAYED = Delivery(can_replay=True, replayed=True)
A, B = 0x1111_2222_3333_4444, 0x9999_8888_7777_6666


def store(at: int, *keys: int, parent: int | None = None) -> KvBatch:
    event = Stored(
        index=0,
        keys=np.array(keys, np.uint64),
        parent=parent,
        block_size=16,
        own=np.array(keys, np.uint64),
        tier=Tier.DEVICE,
        medium="gpu",
        described=True,
    )
    return KvBatch(unix_nanos=at * SECOND, events=[event], count=1)


def remove(at: int, *keys: int) -> KvBatch:
    event = Removed(keys=np.array(keys, np.uint64), at=np.arange(len(keys)), tier=Tier.DEVICE, medium="gpu", group=0)
    return KvBatch(unix_nanos=at * SECOND, events=[event], count=len(keys))


def resumed(ledger: Ledger) -> Ledger:
    """The ledger after a restart of this process."""
    content = b"".join(dump(ledger, now=0.0, unix_nanos=0))
    anew = Ledger(digester=ledger.digester)
    load(content, anew, now=0.0, unix_nanos=0)
    return anew


def record_of(ledger: Ledger) -> StreamRecord:
    return dict(ledger.numbered())[STREAM].record


def state(ledger: Ledger, key: int) -> Residency:
    return ledger.stream(STREAM).as_of([key], record_of(ledger).end)[0].state


def take(naive: NaiveRecord, batch: KvBatch, *, broken: bool) -> None:
    torn = batch.bad_events > 0 or batch.lost_inside
    if broken or torn or batch.lost:
        after = naive.confirmed if naive.batches else 0
        naive.add_hole(Hole(after_unix_nanos=after, until_unix_nanos=batch.unix_nanos, reason=Reason.EVENTS_DROPPED))
    naive.apply(batch)
    if torn:
        naive.add_reset(batch.unix_nanos, None)


@st.composite
def said(draw: st.DrawFn) -> list[tuple[int, KvBatch]]:
    """What a publisher says in its lives, each numbered from 0."""
    script: list[tuple[int, KvBatch]] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        for seq in range(draw(st.integers(1, 8))):
            script.append((seq, draw(batches(number))))
            number += 1
    return script


FATES = ["heard"] * 4 + ["lost", "twice", "echo", "resumed", "tended", "expired"]


def grow_older(fate: str, record: StreamRecord, naive: NaiveRecord, data: st.DataObject) -> None:
    if fate in {"tended", "expired"}:
        record.settle()
        if fate == "tended":
            run_compaction(record, data.draw(st.integers(1, 30)))
        else:
            expire(record, naive, data.draw(st.integers(1, 3)))


@given(said(), st.data())
def test_lost_and_repeated_batches_leave_what_the_rest_says(
    script: list[tuple[int, KvBatch]], data: st.DataObject
) -> None:
    ledger, last, naive = Ledger(), -1, None
    before: list[tuple[int, KvBatch]] = []
    for seq, batch in script:
        fate = data.draw(st.sampled_from(FATES))
        if fate == "lost":
            continue
        accepted = ledger.accept(STREAM, seq, batch)
        if naive is None:
            naive = NaiveRecord(from_birth=seq == 0, begins_unix_nanos=batch.unix_nanos)
            take(naive, batch, broken=False)
            assert accepted.arrival is (Arrival.LATE_JOIN if seq else Arrival.APPLIED)
        elif seq <= last:
            naive.restart(batch.unix_nanos)
            take(naive, batch, broken=seq > 0)
            assert accepted.arrival is Arrival.RESTARTED
        else:
            take(naive, batch, broken=seq > last + 1)
            assert accepted.arrival is (Arrival.GAP if seq > last + 1 else Arrival.APPLIED)
        last = seq
        before.append((seq, batch))
        if fate == "resumed":
            ledger = resumed(ledger)
        grow_older(fate, record_of(ledger), naive, data)
        if fate == "twice":
            assert ledger.accept(STREAM, seq, batch).arrival is Arrival.DUPLICATE
        if fate == "echo":
            past, echoed = data.draw(st.sampled_from(before))
            if past <= last:
                assert ledger.accept(STREAM, past, echoed).arrival is Arrival.DUPLICATE
    if naive is not None:
        record_of(ledger).settle()
        agree(record_of(ledger), naive, keys_of([batch for _, batch in script]))


@given(st.data())
def test_a_replayed_gap_leaves_the_record_of_someone_who_missed_nothing(data: st.DataObject) -> None:
    script = [data.draw(batches(number)) for number in range(data.draw(st.integers(3, 10)))]
    first = data.draw(st.integers(1, len(script) - 2))
    last = data.draw(st.integers(first, len(script) - 2))
    naive = NaiveRecord(from_birth=True, begins_unix_nanos=script[0].unix_nanos)
    ledger = Ledger()
    for seq, batch in enumerate(script):
        take(naive, batch, broken=False)
        if not first <= seq <= last:
            accepted = ledger.accept(STREAM, seq, batch, ASKING)
            if seq == last + 1:
                assert accepted == SequencedBatch(arrival=Arrival.GAP, missing_first=first, missing_last=last)
    outcomes = [ledger.accept(STREAM, seq, script[seq], REPLAYED) for seq in range(first - 1, len(script))]
    assert outcomes[0].arrival is Arrival.DUPLICATE
    assert [one.filled for one in outcomes].index(True) == last - first + 1
    assert ledger.next_deadline is None
    record_of(ledger).settle()
    agree(record_of(ledger), naive, keys_of(script))


def test_a_gap_that_is_never_filled_is_a_hole_once_the_wait_is_over() -> None:
    ledger = Ledger(replay_wait_seconds=2.0)
    ledger.accept(STREAM, 0, store(1, A), ASKING)
    ledger.accept(STREAM, 2, store(3, B), msgspec.structs.replace(ASKING, now=10.0))
    assert ledger.next_deadline == 12.0
    assert ledger.health(10.0) == {STREAM: StreamHealth.WAITING}
    assert state(ledger, B) is Residency.NEVER_SEEN
    assert ledger.expire(11.9) == 0
    assert ledger.expire(12.0) == 1
    assert ledger.next_deadline is None
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.RESIDENT)
    (hole,) = ledger.stream(STREAM).coverage(0, 4 * SECOND).holes
    assert hole == Hole(after_unix_nanos=1 * SECOND, until_unix_nanos=3 * SECOND, reason=Reason.EVENTS_DROPPED)
    assert ledger.stream(STREAM).coverage(3 * SECOND, 4 * SECOND).holes == ()
    assert ledger.health(12.0) == {STREAM: StreamHealth.BROKEN}


def test_a_new_life_cannot_fill_the_gap_of_the_former_one() -> None:
    ledger = Ledger()
    for seq in range(3):
        ledger.accept(STREAM, seq, store(1 + seq, A + seq), ASKING)
    # It restarted, and had said 0 to 4 when we heard it again.
    assert ledger.accept(STREAM, 5, store(25, B), ASKING).arrival is Arrival.GAP
    anew = [ledger.accept(STREAM, seq, store(20 + seq, B + 1 + seq), REPLAYED) for seq in range(2, 5)]
    assert anew[0].arrival is Arrival.RESTARTED
    ledger.expire(1e9)
    (fact,) = ledger.stream(STREAM).as_of([A], record_of(ledger).end)
    assert fact.state in {Residency.UNKNOWN, Residency.EVICTED}
    assert state(ledger, B) is Residency.RESIDENT


def test_a_filled_gap_whose_former_batch_is_not_replayed_too_is_a_hole() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A), ASKING)
    ledger.accept(STREAM, 2, store(3, B), ASKING)
    ledger.accept(STREAM, 1, store(2, B), REPLAYED)
    assert ledger.next_deadline is None
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.RESIDENT)


def test_a_restart_ends_what_the_publisher_held() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A))
    ledger.accept(STREAM, 1, store(2, B))
    assert ledger.accept(STREAM, 0, store(9, B)).arrival is Arrival.RESTARTED
    (fact,) = ledger.stream(STREAM).as_of([A], record_of(ledger).end)
    assert (fact.state, fact.removal, fact.at_unix_nanos) == (Residency.EVICTED, Removal.RESTARTED, 9 * SECOND)
    assert state(ledger, B) is Residency.RESIDENT
    assert ledger.stream(STREAM).coverage(0, 10 * SECOND).holes == ()


def test_a_publisher_that_states_its_incarnation_restarts_with_a_new_one() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, msgspec.structs.replace(store(1, A), incarnation=7))
    accepted = ledger.accept(STREAM, 1, msgspec.structs.replace(store(2, B), incarnation=8))
    assert accepted.arrival is Arrival.RESTARTED
    assert state(ledger, A) in {Residency.EVICTED, Residency.UNKNOWN}


def test_what_a_publisher_says_is_lost_is_a_hole() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A))
    ledger.accept(STREAM, 1, msgspec.structs.replace(store(2, B), lost=True))
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.RESIDENT)
    assert len(ledger.stream(STREAM).coverage(0, 3 * SECOND).holes) == 1


def test_what_is_lost_inside_a_batch_may_concern_all_of_it() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A))
    ledger.accept(STREAM, 1, msgspec.structs.replace(store(2, B), lost=True, lost_inside=True))
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.UNKNOWN)
    assert len(ledger.stream(STREAM).coverage(0, 3 * SECOND).holes) == 1


def cleared(at: int, tier: Tier) -> KvBatch:
    return KvBatch(unix_nanos=at * SECOND, events=[Cleared(index=0, tier=tier)], count=1)


@pytest.mark.parametrize("tier", sorted(set(Tier) - {Tier.DEVICE}))
def test_a_clear_of_another_tier_leaves_the_blocks_of_the_device(tier: Tier) -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A))
    ledger.accept(STREAM, 1, cleared(2, tier))
    assert state(ledger, A) is Residency.RESIDENT
    assert not ledger.stream(STREAM).touched(A, 1, 2)
    ledger.accept(STREAM, 2, cleared(3, Tier.DEVICE))
    fact = ledger.stream(STREAM).as_of([A], record_of(ledger).end)[0]
    assert (fact.state, fact.removal, fact.at_unix_nanos) == (Residency.EVICTED, Removal.CLEARED, 3 * SECOND)


def test_nothing_in_a_batch_with_an_unreadable_event_is_relied_on() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A))
    ledger.accept(STREAM, 1, msgspec.structs.replace(store(2, B), bad_events=1, count=2))
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.UNKNOWN)


def test_a_batch_without_a_time_happened_when_it_came() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(0, A), Delivery(received_unix_nanos=77))
    assert ledger.stream(STREAM).position_at(76) == 0
    assert ledger.stream(STREAM).position_at(77) == 1


def test_a_store_of_a_fresh_chain_after_a_hole_is_resident_and_its_removal_ambiguous() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 4, store(1, A))
    assert state(ledger, A) is Residency.RESIDENT
    ledger.accept(STREAM, 5, remove(2, A))
    assert state(ledger, A) is Residency.AMBIGUOUS
    assert not ledger.stream(STREAM).coverage(0, SECOND).from_birth


@pytest.mark.parametrize("count", [1, 3])
def test_a_block_is_gone_when_all_its_copies_are(count: int) -> None:
    ledger = Ledger()
    for seq in range(count):
        ledger.accept(STREAM, seq, store(1 + seq, A))
    for seq in range(count):
        assert state(ledger, A) is Residency.RESIDENT
        ledger.accept(STREAM, count + seq, remove(10 + seq, A))
    assert state(ledger, A) is Residency.EVICTED


def test_a_flood_behind_a_gap_waits_within_bounds() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A), ASKING)
    flood = [ledger.accept(STREAM, seq, store(seq, B), ASKING).arrival for seq in range(2, 10_010)]
    assert flood.count(Arrival.GAP) == 1
    assert ledger.next_deadline is None
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.RESIDENT)


def test_a_silent_publisher_is_called_so_and_the_others_go_on() -> None:
    ledger = Ledger(silence_seconds=60.0)
    other = StreamId("other", 0)
    ledger.accept(STREAM, 0, store(1, A), Delivery(now=0.0))
    ledger.accept(other, 0, store(1, A), Delivery(now=59.0))
    assert ledger.health(60.0) == {STREAM: StreamHealth.SILENT, other: StreamHealth.WHOLE}


def test_one_publisher_s_restart_leaves_the_others_records_alone() -> None:
    ledger = Ledger()
    other = StreamId("other", 0)
    for stream in (STREAM, other):
        ledger.accept(stream, 0, store(1, A, B))
        ledger.accept(stream, 1, remove(2, B))
    ledger.accept(STREAM, 0, store(9, B))
    position = dict(ledger.numbered())[other].record.end
    assert [fact.state for fact in ledger.stream(other).as_of([A, B], position)] == [
        Residency.RESIDENT,
        Residency.EVICTED,
    ]
    assert ledger.stream(STREAM).as_of([A], record_of(ledger).end)[0].state is Residency.EVICTED
