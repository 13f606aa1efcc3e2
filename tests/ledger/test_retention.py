"""What leaves the window, what stays after it, and that neither keeps a batch waiting."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ledger.test_sequencer import A, B, record_of, remove, state, store
from whymiss.ledger.compaction.merge import FANOUT, ROWS_MAX
from whymiss.ledger.events import KvBatch, Stored
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.ledger.retention import LATE_SECONDS
from whymiss.ledger.stream import PENDING_ROWS
from whymiss.model import SECOND, Residency, StreamId, Tier

STREAM = StreamId("engine", 0)
WINDOW = 800.0


def at(now: float) -> Delivery:
    return Delivery(now=now)


def many(number: int, rows: int) -> KvBatch:
    rng = np.random.default_rng(number)
    event = Stored(
        index=0,
        keys=rng.integers(0, 1 << 64, rows, dtype=np.uint64),
        parent=None,
        block_size=16,
        own=rng.integers(0, 1 << 64, rows, dtype=np.uint64),
        tier=Tier.DEVICE,
        medium="gpu",
        described=True,
    )
    return KvBatch(unix_nanos=number * SECOND, events=[event], count=1)


def lived(ledger: Ledger, until: float) -> None:
    """Let time pass in the steps in which a service would notice it."""
    for now in np.arange(0.0, until, WINDOW / 16):
        ledger.expire(float(now))
    ledger.expire(until)


def test_what_was_evicted_before_the_window_is_forgotten_and_what_is_held_is_not() -> None:
    ledger = Ledger(window_seconds=WINDOW)
    ledger.accept(STREAM, 0, store(1, A, B), at(1.0))
    ledger.accept(STREAM, 1, remove(2, B), at(2.0))
    lived(ledger, WINDOW + LATE_SECONDS)
    assert (state(ledger, A), state(ledger, B)) == (Residency.RESIDENT, Residency.EVICTED)
    assert not ledger.stream(STREAM).coverage(0, SECOND).expired
    lived(ledger, 2 * WINDOW + LATE_SECONDS)
    assert (state(ledger, A), state(ledger, B)) == (Residency.RESIDENT, Residency.NEVER_SEEN)
    coverage = ledger.stream(STREAM).coverage(0, SECOND)
    assert (coverage.expired, coverage.from_birth, coverage.begins_unix_nanos) == (True, False, 2 * SECOND)
    block = ledger.stream(STREAM).block(A)
    assert block is not None
    assert block.depth == 0
    assert ledger.stream(STREAM).block(B) is None
    assert ledger.stream(STREAM).stores_between(0, 9 * SECOND) == []


def test_nothing_is_said_of_a_moment_before_the_window() -> None:
    ledger = Ledger(window_seconds=WINDOW)
    ledger.accept(STREAM, 0, store(1, A), at(1.0))
    ledger.accept(STREAM, 1, store(2, B), at(2.0))
    lived(ledger, 2 * WINDOW + LATE_SECONDS)
    assert ledger.stream(STREAM).position_at(SECOND) == 0
    assert ledger.stream(STREAM).as_of([A], 0)[0].state is Residency.UNKNOWN


def test_what_is_kept_is_removed_later_as_ever() -> None:
    ledger = Ledger(window_seconds=WINDOW)
    ledger.accept(STREAM, 0, store(1, A), at(1.0))
    ledger.accept(STREAM, 1, store(2, A), at(2.0))
    lived(ledger, 2 * WINDOW + LATE_SECONDS)
    ledger.accept(STREAM, 2, remove(2000, A), at(2000.0))
    assert state(ledger, A) is Residency.RESIDENT
    ledger.accept(STREAM, 3, remove(2001, A), at(2001.0))
    assert state(ledger, A) is Residency.EVICTED


def test_over_its_bytes_the_oldest_history_goes_first() -> None:
    ledger = Ledger(window_seconds=WINDOW, bytes_max=2_000_000)
    for seq in range(40):
        ledger.accept(STREAM, seq, many(seq, PENDING_ROWS), at(float(seq)))
    for now in range(40, 140):
        ledger.expire(float(now))
    coverage = ledger.stream(STREAM).coverage(0, 40 * SECOND)
    assert coverage.expired
    assert coverage.begins_unix_nanos > 0


def test_what_is_held_at_once_can_be_too_much_and_then_nothing_is_known() -> None:
    ledger = Ledger(window_seconds=WINDOW, bytes_max=300_000)
    for seq in range(4):
        ledger.accept(STREAM, seq, many(seq, PENDING_ROWS), at(float(seq)))
    for now in range(4, 40):
        ledger.expire(float(now))
    key = int(many(0, 1).events[0].keys[0])  # type: ignore[union-attr]
    assert ledger.retained_bytes <= 300_000
    assert state(ledger, key) is Residency.NEVER_SEEN
    assert ledger.stream(STREAM).coverage(0, 4 * SECOND).expired
    ledger.accept(STREAM, 4, remove(50, key), at(50.0))
    assert state(ledger, key) is Residency.AMBIGUOUS


def test_what_is_never_removed_stays_within_the_limit_too() -> None:
    ledger = Ledger(window_seconds=WINDOW, bytes_max=1 << 20)
    for seq in range(60):
        ledger.accept(STREAM, seq, many(seq, PENDING_ROWS), at(float(seq)))
        assert ledger.retained_bytes <= 1 << 20
    newest, oldest = (int(many(seq, 1).events[0].keys[0]) for seq in (59, 0))  # type: ignore[union-attr]
    assert (state(ledger, newest), state(ledger, oldest)) == (Residency.RESIDENT, Residency.NEVER_SEEN)
    coverage = ledger.stream(STREAM).coverage(0, 61 * SECOND)
    assert (coverage.expired, coverage.from_birth) == (True, False)
    ledger.accept(STREAM, 60, remove(61, oldest), at(60.0))
    assert state(ledger, oldest) is Residency.AMBIGUOUS


@pytest.mark.parametrize("rows", [(64,), (PENDING_ROWS,), (500, 1000, 40, 700, 200), (1,)])
def test_a_question_meets_few_segments(rows: tuple[int, ...]) -> None:
    ledger = Ledger(window_seconds=WINDOW)
    sizes = [rows[seq % len(rows)] for seq in range(300)]
    for seq, size in enumerate(sizes):
        ledger.accept(STREAM, seq, many(seq, size), at(seq / 10))
        record_of(ledger).settle()
    segments = record_of(ledger).history.segments
    assert sum(segment.rows for segment in segments) == sum(sizes)
    assert len(segments) <= sum(sizes) / ROWS_MAX * FANOUT + 4 * FANOUT
    for seq in (0, 123, 299):
        keys = many(seq, sizes[seq]).events[0].keys.tolist()  # type: ignore[union-attr]
        states = {fact.state for fact in ledger.stream(STREAM).as_of(keys[:5], record_of(ledger).end)}
        assert states == {Residency.RESIDENT}
