"""What is still known of a block once all that was said of it left the window."""

from __future__ import annotations

import msgspec

from tests.ledger.agreement import run_compaction
from tests.ledger.batches import CLEARED, DIGESTER, Fields, decode, removed, stored
from tests.ledger.test_sequencer import STREAM
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Residency, Tier

KEY = 7
STORED, REMOVED = stored([KEY]), removed(KEY)


def told(*events: Fields) -> StreamRecord:
    one = StreamRecord(STREAM, DIGESTER, from_birth=True, begins_unix_nanos=1)
    tell(one, *events)
    return one


def tell(one: StreamRecord, *events: Fields) -> None:
    for event in events:
        one.apply(msgspec.structs.replace(decode(event), unix_nanos=10 * (one.end + 1)))


def folded(*events: Fields) -> StreamRecord:
    """All of it has left the window."""
    one = told(*events)
    one.settle()
    for segment in one.history.segments:
        segment.due = True
    run_compaction(one, 100)
    assert one.history.edge == one.end
    return one


def state(one: StreamRecord) -> Residency:
    return one.as_of((KEY,), one.end, Tier.DEVICE, None)[0].state


def test_what_is_held_stays_after_the_window_with_as_many_copies_as_there_are() -> None:
    one = folded(STORED, STORED, STORED, REMOVED)
    seen = [state(one)]
    for _ in range(2):
        tell(one, REMOVED)
        seen.append(state(one))
    assert seen == [Residency.RESIDENT, Residency.RESIDENT, Residency.EVICTED]


def test_what_a_reset_took_does_not_outlive_the_window() -> None:
    one = folded(STORED, CLEARED)
    assert state(one) is Residency.NEVER_SEEN
    tell(one, STORED, REMOVED)
    assert state(one) is Residency.EVICTED


def test_what_was_gone_does_not_outlive_the_window() -> None:
    assert state(folded(STORED, REMOVED)) is Residency.NEVER_SEEN


def test_that_more_was_removed_than_stored_stays_known_after_the_window() -> None:
    one = folded(STORED, REMOVED, REMOVED)
    assert state(one) is Residency.AMBIGUOUS
    tell(one, STORED)
    assert state(one) is Residency.RESIDENT
    tell(one, REMOVED)
    assert state(one) is Residency.AMBIGUOUS


def test_that_the_copies_of_what_is_held_are_not_sure_stays_known_after_the_window() -> None:
    one = folded(STORED, REMOVED, REMOVED, STORED)
    assert state(one) is Residency.RESIDENT
    tell(one, REMOVED)
    assert state(one) is Residency.AMBIGUOUS


def test_after_the_window_a_record_knows_that_it_is_not_from_birth() -> None:
    coverage = folded(STORED, REMOVED).coverage(0, 5)
    assert (coverage.expired, coverage.from_birth, coverage.begins_unix_nanos) == (True, False, 20)
