"""How far a publisher's clock is from ours, as its messages show it."""

from __future__ import annotations

from whymiss.ledger.events import KvBatch
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.model import SECOND, StreamId

FAST, RIGHT = StreamId("fast", 0), StreamId("right", 0)


def test_the_quickest_message_shows_the_offset() -> None:
    ledger = Ledger()
    for seq, delay in enumerate((5, 2, 9)):
        at = (100 + seq) * SECOND
        batch = KvBatch(unix_nanos=at, events=[])
        ledger.accept(RIGHT, seq, batch, Delivery(received_unix_nanos=at + delay))
    assert ledger.stream(RIGHT).clock_offset == 2


def test_a_clock_that_runs_ahead_is_seen_beside_one_that_does_not() -> None:
    ledger = Ledger()
    ledger.accept(FAST, 0, KvBatch(unix_nanos=102 * SECOND, events=[]), Delivery(received_unix_nanos=100 * SECOND))
    ledger.accept(RIGHT, 0, KvBatch(unix_nanos=100 * SECOND, events=[]), Delivery(received_unix_nanos=100 * SECOND))
    fast, right = ledger.stream(FAST).clock_offset, ledger.stream(RIGHT).clock_offset
    assert fast is not None
    assert right is not None
    assert right - fast == 2 * SECOND


def test_without_times_nothing_is_claimed() -> None:
    ledger = Ledger()
    ledger.accept(RIGHT, 0, KvBatch(unix_nanos=0, events=[]), Delivery(received_unix_nanos=100 * SECOND))
    ledger.accept(FAST, 0, KvBatch(unix_nanos=100 * SECOND, events=[]))
    assert ledger.stream(RIGHT).clock_offset is None
    assert ledger.stream(FAST).clock_offset is None
