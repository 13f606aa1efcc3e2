"""Who is left out of a verdict's questions at a glance would have said nothing that matters."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.ledger.agreement import run_compaction
from tests.ledger.batches import CLEARED, payload, removed, stored
from tests.ledger.publisher import batches, keys_of
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import KvBatch
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.ledger.stream import StreamRecord
from whymiss.model import SECOND, Hole, Lookback, Reason, Residency, StreamId, Tier

DIGESTER = Digester(bytes(32))
ME, OTHER = StreamId("me", 0), StreamId("other", 0)
LIVE = Delivery()

Script = list[tuple[str, "KvBatch | int"]]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    script: Script = []
    commands = st.sampled_from(["batch"] * 8 + ["ask"] * 6 + ["settle", "hole", "restart", "upkeep", "expire"])
    for number, command in enumerate(draw(st.lists(commands, min_size=4, max_size=20))):
        script.append((command, draw(batches(number)) if command == "batch" else draw(st.integers(0, 4))))
    return script


def play(record: StreamRecord, command: str, argument: KvBatch | int) -> None:
    if isinstance(argument, KvBatch):
        record.apply(argument)
    elif command == "settle":
        record.settle()
    elif command == "hole":
        end = record.confirmed_unix_nanos
        record.add_hole(Hole(after_unix_nanos=end, until_unix_nanos=end + 5, reason=Reason.EVENTS_DROPPED))
    elif command == "restart":
        record.restart(record.confirmed_unix_nanos + 7)
    elif command == "upkeep":
        record.settle()
        run_compaction(record, argument)
    elif command == "expire":
        record.settle()
        for segment in record.history.segments[:1]:
            segment.due = True
        run_compaction(record, 100)


def is_nothing(record: StreamRecord, key: int, around: Lookback) -> bool:
    """What evidence/ makes of each answer, asked one by one: never seen, and no doubt about it."""
    before, confirmed = record.position_at(around.earliest), record.confirmed_position(around.latest)
    if confirmed is None:
        return False
    coverage = record.coverage(around.since, around.latest)
    if coverage.holes or (not coverage.from_birth and coverage.begins_unix_nanos > around.since):
        return False
    states = {
        record.as_of([key], position, tier, None)[0].state
        for position in (before, confirmed)
        for tier in (Tier.DEVICE, *record.tiers())
    }
    return states == {Residency.NEVER_SEEN} and not record.touched(key, before, confirmed)


@given(scripts(), st.booleans())
def test_who_is_left_out_had_nothing_to_say(script: Script, from_birth: bool) -> None:
    glanced, asked = (StreamRecord(ME, DIGESTER, from_birth=from_birth, begins_unix_nanos=1) for _ in range(2))
    keys = keys_of([argument for _, argument in script if isinstance(argument, KvBatch)])
    for command, argument in script:
        play(glanced, command, argument)
        play(asked, command, argument)
        if command == "ask" and isinstance(argument, int):
            earliest = asked.confirmed_unix_nanos - argument * SECOND
            around = Lookback(earliest - 15 * SECOND, earliest, earliest + SECOND // 2)
            for key in keys:
                if glanced.surely_never_named(key, around):
                    event("left out")
                    assert is_nothing(asked, key, around)


def batch(event: object, seconds: int) -> KvBatch:
    return decode_batch(payload(event, ts=float(seconds)), DIGESTER)


def record_of(*told: KvBatch) -> StreamRecord:
    record = StreamRecord(ME, DIGESTER, from_birth=True, begins_unix_nanos=0)
    for one in told:
        record.apply(one)
    return record


TEN, ELEVEN, TWELVE, THIRTEEN = (number * 0x9E3779B97F4A7C15 % (1 << 64) for number in range(10, 14))
"""Spread as hashes are."""

AROUND = Lookback(1 * SECOND, 5 * SECOND, 6 * SECOND)


def test_a_record_that_goes_on_and_never_named_a_block_is_left_out_without_being_laid_out() -> None:
    record = record_of(batch(stored([TEN]), seconds=2), batch(removed(ELEVEN), seconds=9))
    assert [record.surely_never_named(key, AROUND) for key in (TEN, ELEVEN, TWELVE)] == [False, False, True]
    assert record.pending_since is not None, "nothing was flushed"
    record.apply(batch(stored([TWELVE]), seconds=10))
    assert not record.surely_never_named(TWELVE, AROUND)
    record.settle()
    assert [record.surely_never_named(key, AROUND) for key in (TEN, ELEVEN, TWELVE, THIRTEEN)] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("seconds", [5, 6])
def test_a_record_that_ends_with_the_lookup_is_asked(seconds: int) -> None:
    assert not record_of(batch(stored([TEN]), seconds=seconds)).surely_never_named(TWELVE, AROUND)
    assert record_of(batch(stored([TEN]), seconds=7)).surely_never_named(TWELVE, AROUND)


def test_who_has_not_spoken_yet_is_asked() -> None:
    assert not record_of().surely_never_named(TWELVE, AROUND)


def is_left_out(record: StreamRecord, key: int = TWELVE) -> bool:
    return record.surely_never_named(key, AROUND)


def test_a_record_that_begins_inside_the_window_is_asked() -> None:
    for begins, expected in ((0, True), (SECOND, True), (SECOND + 1, False)):
        record = StreamRecord(ME, DIGESTER, from_birth=False, begins_unix_nanos=begins)
        record.apply(batch(stored([TEN]), seconds=2))
        record.apply(batch(stored([ELEVEN]), seconds=9))
        assert is_left_out(record) is expected, begins


@pytest.mark.parametrize(
    ("after", "until", "expected"), [(0, 1, True), (0, 2, False), (5, 8, False), (6, 8, True), (7, 8, True)]
)
def test_a_hole_inside_the_window_has_to_be_asked_about(after: int, until: int, expected: bool) -> None:
    record = record_of(batch(stored([TEN]), seconds=2), batch(stored([ELEVEN]), seconds=9))
    record.holes.append(
        Hole(after_unix_nanos=after * SECOND, until_unix_nanos=until * SECOND, reason=Reason.EVENTS_DROPPED)
    )
    assert is_left_out(record) is expected


@pytest.mark.parametrize(("seconds", "expected"), [(4, True), (5, True), (6, False), (9, False)])
@pytest.mark.parametrize("laid_out", [False, True])
def test_a_reset_around_the_lookup_has_to_be_asked_about(seconds: int, expected: bool, laid_out: bool) -> None:
    record = record_of(batch(stored([TEN]), seconds=2), batch(CLEARED, seconds=seconds), batch(removed(TEN), seconds=9))
    if laid_out:
        record.settle()
    assert is_left_out(record) is expected


def test_what_left_the_window_after_the_lookup_is_not_known_any_more() -> None:
    for seconds, expected in ((5, True), (6, False)):
        record = record_of(batch(stored([TEN]), seconds=seconds))
        record.settle()
        record.history.segments[0].due = True
        run_compaction(record, 100)
        record.apply(batch(stored([ELEVEN]), seconds=9))
        around = Lookback(SECOND * 8, AROUND.earliest, AROUND.latest)
        assert record.surely_never_named(TWELVE, around) is expected, seconds


def test_blocks_of_lower_tiers_and_of_the_base_are_known_too() -> None:
    record = record_of(batch(stored([TEN]), seconds=1), batch(stored([ELEVEN], medium="CPU"), seconds=2))
    record.settle()
    record.history.segments[0].due = True
    run_compaction(record, 100)
    record.apply(batch(stored([THIRTEEN]), seconds=9))
    around = Lookback(SECOND * 3, AROUND.earliest, AROUND.latest)
    assert [record.surely_never_named(key, around) for key in (TEN, ELEVEN, TWELVE)] == [False, False, True]


def test_what_was_gone_when_the_window_began_is_forgotten() -> None:
    around = Lookback(SECOND * 3, AROUND.earliest, AROUND.latest)
    record = record_of(batch(stored([TWELVE]), seconds=1), batch(removed(TWELVE), seconds=2))
    assert not record.surely_never_named(TWELVE, Lookback(0, 0, SECOND))
    record.settle()
    record.history.segments[0].due = True
    run_compaction(record, 100)
    record.apply(batch(stored([TEN]), seconds=9))
    assert record.surely_never_named(TWELVE, around)


def that_may_know(ledger: Ledger, key: int, tolerance: int) -> list[StreamId]:
    return [one.stream for one in ledger.peers_that_may_know(ME, 2, key, AROUND, tolerance)]


def test_clocks_that_differ_move_the_bounds_of_the_lookup() -> None:
    ledger = Ledger(digester=DIGESTER)
    for stream, times in ((ME, (2,)), (OTHER, (2, 8))):
        for seq, seconds in enumerate(times):
            ledger.accept(stream, seq, batch(stored([TEN]), seconds=seconds), LIVE)
    assert that_may_know(ledger, TWELVE, SECOND) == []
    assert that_may_know(ledger, TWELVE, 2 * SECOND) == [OTHER]
    assert that_may_know(ledger, TEN, SECOND) == [OTHER]


def test_a_reset_on_a_clock_that_may_be_behind_has_to_be_asked_about() -> None:
    ledger = Ledger(digester=DIGESTER)
    ledger.accept(ME, 0, batch(stored([TEN]), seconds=2), LIVE)
    for seq, told in enumerate((batch(CLEARED, seconds=4), batch(stored([TEN]), seconds=20))):
        ledger.accept(OTHER, seq, told, LIVE)
    assert that_may_know(ledger, TWELVE, SECOND) == []
    assert that_may_know(ledger, TWELVE, 2 * SECOND) == [OTHER]


def test_what_messages_show_of_clocks_counts_beside_the_tolerance() -> None:
    ledger = Ledger(digester=DIGESTER)
    for stream, late in ((ME, 0), (OTHER, SECOND)):
        for seq, seconds in enumerate((2, 8)):
            told = batch(stored([TEN]), seconds=seconds)
            ledger.accept(stream, seq, told, Delivery(received_unix_nanos=told.unix_nanos + late))
    assert that_may_know(ledger, TWELVE, 0) == []
    assert that_may_know(ledger, TWELVE, SECOND) == [OTHER]
