"""What is merged with what, that it says the same afterwards, and who gives way when there is too much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.agreement import agree, run_compaction
from tests.ledger.compaction.test_fold import folded, tell
from tests.ledger.memtable.test_segment_builder import DENSE, SLIDING, chain
from tests.ledger.naive import NaiveRecord
from tests.ledger.publisher import batches, keys_of
from tests.ledger.test_retention import WINDOW, at, lived, many
from tests.ledger.test_sequencer import STREAM, A, B, record_of, remove, state, store
from whymiss.ledger.compaction.merge import FANOUT, ROWS_MAX, mergeable, merged
from whymiss.ledger.events import KvBatch
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Ledger
from whymiss.ledger.retention import LATE_SECONDS, PARTS
from whymiss.ledger.segment.chain_table import empty_chain_table
from whymiss.ledger.segment.operations import sorted_run
from whymiss.ledger.segment.segment import Segment
from whymiss.ledger.stream import StreamRecord
from whymiss.model import SECOND, Residency, StreamId, Tier

DEVICE = (Tier.DEVICE, 0)


def record() -> StreamRecord:
    return StreamRecord(STREAM, Digester(bytes(32)), from_birth=True, begins_unix_nanos=1)


# --- what is merged ---------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.data())
def test_merged_segments_say_what_each_of_them_said(data: st.DataObject) -> None:
    one, naive = record(), NaiveRecord(from_birth=True, begins_unix_nanos=1)
    script = [data.draw(batches(number)) for number in range(data.draw(st.integers(FANOUT, 3 * FANOUT)))]
    for batch in script:
        one.apply(batch)
        naive.apply(batch)
        one.settle()
    before = len(one.history.segments)
    run_compaction(one, 1000)
    assert before < FANOUT or len(one.history.segments) < before
    agree(one, naive, keys_of(script))


def test_a_place_that_was_of_another_kind_in_a_former_life_is_merged_with_none_of_it() -> None:
    one = record()
    for number in range(FANOUT):
        if number == FANOUT // 2:
            one.restart(10 * one.end)
        tell(one, chain([100 + number], None, DENSE if number < FANOUT // 2 else SLIDING, {"group_idx": 0}))
        one.settle()
    before = [one.as_of([100 + number], one.end, Tier.DEVICE, 0)[0] for number in range(FANOUT)]
    run_compaction(one, 1000)
    assert [one.as_of([100 + number], one.end, Tier.DEVICE, 0)[0] for number in range(FANOUT)] == before
    assert [fact.state for fact in before] == [Residency.EVICTED] * 4 + [Residency.RESIDENT] * 4


def test_what_is_being_merged_is_merged_with_nothing_else() -> None:
    one = record()
    for number in range(FANOUT):
        tell(one, chain([100 + number]))
        one.settle()
    assert one.history.next_compaction(1e9) is not None
    assert one.history.next_compaction(1e9) is None


def test_what_is_about_to_leave_is_merged_with_nothing() -> None:
    one = folded(*(chain([1000 + number]) for number in range(100)))
    for number in range(FANOUT):
        tell(one, chain([100 + number]))
        one.settle()
    one.history.segments[0].due = True
    assert one.history.next_compaction(1e9, rows_max=50) is None, "the base is too large to be folded into now"
    one.history.segments[0].due = False
    assert one.history.next_compaction(1e9, rows_max=50) is not None


def segment(begin: int, rows: int, newest: float) -> Segment:
    keys = np.arange(rows, dtype=np.uint64)
    run = sorted_run([keys], [np.full(rows, 1, np.uint32)], chained=False)
    return Segment((begin, begin + 1), {DEVICE: run}, empty_chain_table(), times=(newest, newest))


@pytest.mark.parametrize(("rows", "count"), [(ROWS_MAX // 2, 1), (ROWS_MAX // 2 + 1, 0)])
def test_no_segment_grows_beyond_what_is_merged_in_small_steps(rows: int, count: int) -> None:
    former = [segment(0, rows, 1.0), segment(1, rows, 2.0)]
    assert len(list(mergeable([*former, segment(2, 1, 15.0)], 10.0))) == count


def of_levels(*levels: int, rows: int = 64) -> list[Segment]:
    parts = [segment(number, rows, 1.0) for number in range(len(levels))]
    for part, level in zip(parts, levels, strict=True):
        part.level = level
    return parts


def test_neighbours_of_one_level_are_merged_whatever_their_sizes() -> None:
    parts = of_levels(1, *[0] * FANOUT)
    assert [list(group) for group in mergeable(parts, 10.0)] == [parts[1:]]
    assert not list(mergeable(of_levels(*[1] * (FANOUT - 1), *[0] * (FANOUT - 1)), 10.0))


def test_a_lower_neighbour_is_merged_with_those_around_it() -> None:
    parts = of_levels(2, 1, 1, 1, 0, 1, 1, 1, 1)
    assert [list(group) for group in mergeable(parts, 10.0)] == [parts[1:]]


@pytest.mark.parametrize(("rows", "level", "expected"), [(1, 0, 0), (64, 0, 1), (64, 2, 2), (1 << 12, 0, 1)])
def test_what_was_merged_rises_a_level_where_it_is_large_enough(rows: int, level: int, expected: int) -> None:
    parts = of_levels(*[level] * FANOUT, rows=rows)
    *_, whole = merged(parts)
    assert whole is not None
    assert whole.level == expected


def test_no_segment_reaches_over_two_spans() -> None:
    parts = [segment(number, 1, newest) for number, newest in enumerate((1.0, 2.0, 11.0, 12.0, 25.0))]
    assert [list(group) for group in mergeable(parts, 10.0)] == [parts[2:4], parts[:2]]


def test_many_that_fell_silent_at_once_are_laid_out_one_at_a_time() -> None:
    ledger = Ledger(window_seconds=WINDOW)
    for number in range(3):
        ledger.accept(StreamId(f"engine-{number}", 0), 0, store(1, A), at(1.0))
    left = []
    for now in (1.0, 1.0 + WINDOW / PARTS, 2.0 + WINDOW / PARTS, 3.0 + WINDOW / PARTS):
        ledger.expire(now)
        left.append(sum(known.record.pending_since is not None for _, known in ledger.numbered()))
    assert left == [3, 2, 1, 0]


def test_what_is_over_does_not_pile_up_where_only_little_comes_in_at_a_time() -> None:
    ledger = Ledger(window_seconds=WINDOW)
    for seq in range(40):
        ledger.accept(STREAM, seq, many(seq, 4096), at(float(seq)))
    later = 2 * WINDOW + LATE_SECONDS
    ledger.expire(later)
    segments = record_of(ledger).history.segments
    assert sum(one.due for one in segments) > 1
    for seq in range(40, 280):
        ledger.accept(STREAM, seq, store(seq, A), at(later))
    assert sum(one.due for one in segments) <= 1


# --- who gives way ----------------------------------------------------------------------------------


def test_a_hole_that_left_the_window_is_none_of_it() -> None:
    ledger = Ledger(window_seconds=WINDOW)
    for seq in (0, 2):
        ledger.accept(STREAM, seq, store(1 + seq, A), at(1.0 + seq))
    assert len(ledger.stream(STREAM).coverage(0, 9 * SECOND).holes) == 1
    lived(ledger, 2 * WINDOW + LATE_SECONDS)
    assert ledger.stream(STREAM).coverage(0, 9 * SECOND).holes == ()


def test_what_is_held_stays_known_where_history_is_only_long() -> None:
    ledger = Ledger(window_seconds=WINDOW, bytes_max=4_000_000)
    ledger.accept(STREAM, 0, store(1, A), at(0.0))
    for seq in range(1, 241):
        keys = many((seq + 1) // 2, 1000).events[0].keys.tolist()  # type: ignore[union-attr]
        batch = store(1 + seq, *keys) if seq % 2 else remove(1 + seq, *keys)
        ledger.accept(STREAM, seq, batch, at(float(seq)))
        for _ in range(20):
            ledger.expire(float(seq))
    assert ledger.stream(STREAM).coverage(0, SECOND).expired
    assert state(ledger, A) is Residency.RESIDENT


def test_the_largest_record_gives_way() -> None:
    ledger, small = Ledger(window_seconds=WINDOW, bytes_max=300_000), StreamId("small", 0)
    ledger.accept(small, 0, store(1, A, B), at(0.0))
    for seq in range(20):
        ledger.accept(STREAM, seq, many(seq, 4096), at(1.0 + seq))
        ledger.expire(1.0 + seq)
    position = dict(ledger.numbered())[small].record.end
    assert ledger.stream(small).as_of([A], position)[0].state is Residency.RESIDENT
    assert ledger.stream(STREAM).coverage(0, SECOND).expired


def test_a_record_of_nothing_but_batches_gives_way_too() -> None:
    ledger = Ledger(window_seconds=WINDOW, bytes_max=4000)
    for seq in range(1000):
        ledger.accept(STREAM, seq, KvBatch(unix_nanos=seq * SECOND, events=[]), at(1.0))
    ledger.expire(2.0)
    assert ledger.retained_bytes <= 4000
    assert record_of(ledger).coverage(0, SECOND).expired
