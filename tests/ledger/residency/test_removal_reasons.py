"""Why a block left is said only where the record is sure of it."""

from __future__ import annotations

import msgspec
import pytest

from tests.ledger.batches import CLEARED, DIGESTER, decode, removed, stored
from whymiss.ledger.events import KvBatch
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Fact, Hole, Reason, Removal, Residency, StreamId, Tier

KEY = 7
HOLE = Hole(after_unix_nanos=20, until_unix_nanos=30, reason=Reason.EVENTS_DROPPED)


def record() -> StreamRecord:
    return StreamRecord(StreamId("engine", 0), DIGESTER, from_birth=True, begins_unix_nanos=1)


def said(at: int, event: object) -> KvBatch:
    return msgspec.structs.replace(decode(event), unix_nanos=at)


def store(at: int) -> KvBatch:
    return said(at, stored([KEY]))


def remove(at: int) -> KvBatch:
    return said(at, removed(KEY))


def emptied(one: StreamRecord, removal: Removal) -> None:
    """The device loses everything at 50."""
    if removal is Removal.RESTARTED:
        one.restart(50)
    else:
        one.apply(said(50, CLEARED))


def fact(one: StreamRecord) -> Fact:
    return one.as_of((KEY,), one.end, Tier.DEVICE, None)[0]


BARRIERS = pytest.mark.parametrize("removal", [Removal.CLEARED, Removal.RESTARTED])


@BARRIERS
def test_what_surely_was_there_left_with_what_took_everything(removal: Removal) -> None:
    one = record()
    one.apply(store(10))
    emptied(one, removal)
    assert (fact(one).state, fact(one).removal, fact(one).at_unix_nanos) == (Residency.EVICTED, removal, 50)


@BARRIERS
def test_what_surely_was_gone_before_did_not_leave_with_it(removal: Removal) -> None:
    one = record()
    one.apply(store(10))
    one.apply(remove(20))
    emptied(one, removal)
    assert (fact(one).state, fact(one).removal, fact(one).at_unix_nanos) == (Residency.EVICTED, Removal.REMOVED, 20)


@BARRIERS
def test_what_may_have_been_gone_before_is_gone_for_no_known_reason(removal: Removal) -> None:
    one = record()
    one.apply(store(10))
    one.add_hole(HOLE)
    one.apply(remove(40))
    assert fact(one).state is Residency.AMBIGUOUS
    emptied(one, removal)
    assert (fact(one).state, fact(one).removal) == (Residency.EVICTED, None)


@BARRIERS
def test_a_removal_too_many_leaves_no_reason_for_what_is_gone_later(removal: Removal) -> None:
    one = record()
    for batch in (store(10), remove(20), remove(30)):
        one.apply(batch)
    assert fact(one).state is Residency.AMBIGUOUS
    emptied(one, removal)
    assert (fact(one).state, fact(one).removal) == (Residency.EVICTED, None)


@BARRIERS
def test_what_was_stored_after_the_doubt_left_with_what_took_everything(removal: Removal) -> None:
    one = record()
    one.add_hole(HOLE)
    one.apply(store(40))
    emptied(one, removal)
    assert (fact(one).state, fact(one).removal) == (Residency.EVICTED, removal)
