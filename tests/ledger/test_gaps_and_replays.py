"""Which batches wait behind a gap, for what, and what a gap costs that is never filled."""

from __future__ import annotations

import pytest

from tests.ledger.test_sequencer import ASKING, REPLAYED, STREAM, A, B, record_of, state, store
from whymiss.ledger.events import KvBatch
from whymiss.ledger.ledger import Arrival, Delivery, Ledger, SequencedBatch, StreamHealth
from whymiss.model import SECOND, Hole, Reason, Removal, Residency

C, D = A + 1, B + 1
ALL = (0, 100 * SECOND)


def told(*said: tuple[int, KvBatch], delivery: Delivery = ASKING, ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger()
    for seq, batch in said:
        ledger.accept(STREAM, seq, batch, delivery)
    return ledger


def gap() -> Ledger:
    """Number 1 is missing, 2 waits."""
    return told((0, store(1, A)), (2, store(3, B)))


def states(ledger: Ledger, *keys: int) -> list[Residency]:
    return [state(ledger, key) for key in keys]


def test_what_waits_and_comes_again_is_known_already() -> None:
    ledger = gap()
    for again in (ASKING, REPLAYED):
        assert ledger.accept(STREAM, 2, store(3, C), again).arrival is Arrival.DUPLICATE
    ledger.expire(1e9)
    assert states(ledger, B, C) == [Residency.RESIDENT, Residency.NEVER_SEEN]


def test_a_number_that_waits_with_another_time_begins_a_new_life() -> None:
    ledger = gap()
    assert ledger.accept(STREAM, 2, store(9, C), ASKING).arrival is Arrival.RESTARTED
    ledger.expire(60.0)
    (fact,) = ledger.stream(STREAM).as_of([B], record_of(ledger).end)
    assert states(ledger, A, C) == [Residency.UNKNOWN, Residency.RESIDENT]
    assert fact.state is Residency.UNKNOWN, "the new life's first two batches are missing"


def test_a_replay_that_ends_before_the_gap_is_filled_leaves_a_hole() -> None:
    ledger = gap()
    assert ledger.accept(STREAM, 0, store(1, A), REPLAYED).arrival is Arrival.DUPLICATE
    assert ledger.settle() == 1
    assert states(ledger, A, B) == [Residency.UNKNOWN, Residency.RESIDENT]
    assert [hole.reason for hole in ledger.stream(STREAM).coverage(*ALL).holes] == [Reason.EVENTS_DROPPED]


def test_behind_a_hole_what_follows_each_other_is_whole() -> None:
    ledger = told((3, store(4, C)), ledger=gap())
    ledger.expire(1e9)
    assert ledger.stream(STREAM).coverage(*ALL).holes == (
        Hole(after_unix_nanos=1 * SECOND, until_unix_nanos=3 * SECOND, reason=Reason.EVENTS_DROPPED),
    )
    assert states(ledger, B, C) == [Residency.RESIDENT, Residency.RESIDENT]


def test_a_record_whose_beginning_is_not_replayed_is_not_from_birth() -> None:
    ledger = told((3, store(4, A)))
    assert ledger.settle() == 1
    assert not ledger.stream(STREAM).coverage(4 * SECOND, 5 * SECOND).from_birth
    assert ledger.health(0.0) == {STREAM: StreamHealth.BROKEN}


def test_a_record_whose_beginning_is_replayed_is_from_birth() -> None:
    ledger = told((2, store(3, A)))
    told((0, store(1, B)), (1, store(2, C)), delivery=REPLAYED, ledger=ledger)
    coverage = ledger.stream(STREAM).coverage(*ALL)
    assert (coverage.from_birth, coverage.holes, ledger.next_deadline) == (True, (), None)
    assert states(ledger, A, B, C) == [Residency.RESIDENT] * 3


def test_an_old_time_under_a_number_that_falls_back_begins_no_new_life() -> None:
    ledger = told((0, store(1, A)), (1, store(5, B)))
    assert ledger.accept(STREAM, 0, store(3, C)).arrival is Arrival.DUPLICATE
    assert states(ledger, A, B, C) == [Residency.RESIDENT, Residency.RESIDENT, Residency.NEVER_SEEN]


def test_a_new_life_that_is_heard_live_ends_the_one_that_waits() -> None:
    ledger = gap()
    assert ledger.accept(STREAM, 0, store(9, C), ASKING).arrival is Arrival.RESTARTED
    assert ledger.next_deadline is None
    (fact,) = ledger.stream(STREAM).as_of([B], record_of(ledger).end)
    assert (fact.state, fact.removal) == (Residency.EVICTED, Removal.RESTARTED)
    assert len(ledger.stream(STREAM).coverage(0, 4 * SECOND).holes) == 1


def test_a_new_life_whose_beginning_was_missed_has_a_hole() -> None:
    ledger = told((0, store(1, A)), (1, store(2, B)), (2, store(3, C)), delivery=Delivery())
    heard = ledger.accept(STREAM, 1, store(9, D))
    assert heard == SequencedBatch(arrival=Arrival.RESTARTED, missing_first=0, missing_last=0, operations=1)
    assert states(ledger, A, D) == [Residency.UNKNOWN, Residency.RESIDENT]
    assert len(ledger.stream(STREAM).coverage(4 * SECOND, 9 * SECOND).holes) == 1


def test_a_new_life_whose_beginning_was_missed_waits_for_it() -> None:
    ledger = told((0, store(1, A)), (1, store(2, B)), (2, store(3, C)), (1, store(9, D)))
    assert ledger.health(0.0) == {STREAM: StreamHealth.WAITING}
    first = ledger.accept(STREAM, 0, store(8, A), REPLAYED)
    assert (first.filled, states(ledger, A, D)) == (True, [Residency.RESIDENT] * 2)
    assert ledger.stream(STREAM).coverage(*ALL).holes == ()


def test_what_waits_follows_the_new_life_that_is_replayed() -> None:
    ledger = told((0, store(1, A)), (2, store(22, D)))
    assert ledger.accept(STREAM, 0, store(20, B), REPLAYED).arrival is Arrival.RESTARTED
    assert ledger.next_deadline is not None
    assert ledger.accept(STREAM, 1, store(21, C), REPLAYED).filled
    assert states(ledger, B, C, D) == [Residency.RESIDENT] * 3
    assert not ledger.stream(STREAM).coverage(*ALL).holes
    assert ledger.next_deadline is None


def test_what_waits_follows_at_once_where_the_new_life_s_first_batch_is_all_that_was_missing() -> None:
    ledger = told((0, store(1, A)), (1, store(2, B)), (2, store(3, C)), (1, store(21, D)))
    assert ledger.health(0.0) == {STREAM: StreamHealth.WAITING}
    ledger.accept(STREAM, 0, store(20, B), REPLAYED)
    assert (states(ledger, B, D), ledger.next_deadline) == ([Residency.RESIDENT] * 2, None)


@pytest.mark.parametrize(("last", "known"), [(3, Residency.UNKNOWN), (5, Residency.RESIDENT), (7, Residency.RESIDENT)])
def test_a_publisher_that_is_asked_no_more_keeps_no_batch_waiting(last: int, known: Residency) -> None:
    ledger = told((0, store(1, A)), (4, store(5, B)), (6, store(7, C)))
    heard = ledger.accept(STREAM, last, store(1 + last, D), Delivery())
    assert (heard.arrival, heard.operations, ledger.next_deadline) == (Arrival.GAP, 3, None)
    # Whatever is behind the last hole is known, and nothing before it.
    assert states(ledger, A, C, D) == [Residency.UNKNOWN, Residency.RESIDENT, known]
    times = list(record_of(ledger).history.time_index.nanos)
    assert times == sorted(SECOND * (1 + seq) for seq in (0, 4, 6, last))
