"""Sources and records as the page shows them: the ones that need somebody first, holes with their reasons."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.status.snapshots import NAMES
from tests.ledger.test_sequencer import ASKING, A, B, store
from whymiss.edge.kv.silence import Heard
from whymiss.edge.status.publishers import ROWS_MAX, records_of, sources_of
from whymiss.edge.status.snapshot import Count, NamedCount, Stream
from whymiss.edge.status.totals import GAUGES, Totals, sums_of
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.measures import Measures
from whymiss.model import SECOND, StreamId

SECONDS = 1_000
"""When the batches below begin, since the epoch; our clock stands at a tenth of it."""


def streams(ledger: Ledger, at: int, recent_seconds: float = 60.0) -> tuple[Stream, ...]:
    return records_of(ledger, at / 10, (SECONDS + at) * SECOND, recent_seconds).streams


def test_an_unbroken_record_is_whole_and_knows_how_far_back_it_goes() -> None:
    ledger = Ledger()
    for seq, at in enumerate((0, 20, 50)):
        ledger.accept(StreamId("engine", 1), seq, store(SECONDS + at, A + seq), Delivery(now=at / 10, model="m"))
    (stream,) = streams(ledger, 70)
    assert (stream.worker, stream.rank, stream.model, stream.state) == ("engine", 1, "m", "whole")
    assert (stream.covered_seconds, stream.heard_seconds) == (50.0, 2.0)
    assert (stream.complete, stream.expired, stream.holes, stream.last_hole_seconds) == (True, False, (), None)


def test_holes_are_told_by_reason_and_the_recent_ones_apart() -> None:
    ledger = Ledger()
    for seq, at in ((0, 0), (2, 10), (3, 20), (7, 30), (9, 100)):
        ledger.accept(StreamId("engine", 0), seq, store(SECONDS + at, A + seq), Delivery(now=at / 10))
    (stream,) = streams(ledger, 130, recent_seconds=60)
    assert stream.state == "broken"
    assert stream.holes == (NamedCount("events_dropped", Count(3, 1)),)
    assert stream.last_hole_seconds == 30


def test_a_record_that_begins_with_our_arrival_is_not_complete() -> None:
    ledger = Ledger()
    ledger.accept(StreamId("engine", 0), 7, store(SECONDS, A), Delivery(now=0.1))
    (stream,) = streams(ledger, 10)
    assert (stream.complete, stream.state) == (False, "broken")


def test_a_record_that_waits_for_a_replay_comes_first() -> None:
    ledger = Ledger()
    for name in ("a", "b"):
        ledger.accept(StreamId(name, 0), 0, store(SECONDS, A), msgspec.structs.replace(ASKING, now=0.1))
    ledger.accept(StreamId("b", 0), 5, store(SECONDS + 1, B), msgspec.structs.replace(ASKING, now=0.2))
    records = records_of(ledger, 0.3, SECONDS * SECOND, 60.0)
    assert [(stream.worker, stream.state) for stream in records.streams] == [("b", "waiting"), ("a", "whole")]
    assert records.states == (NamedCount("whole", Count(1, 0)), NamedCount("waiting", Count(1, 0)))


def test_a_fleet_is_cut_after_the_ones_that_need_somebody() -> None:
    ours, ledger = measures(), Ledger()
    for number in range(ROWS_MAX + 7):
        ours.count("whymiss.ledger.events", source=f"s{number:03}")
        ledger.accept(StreamId(f"w{number:03}", 0), 0, store(SECONDS, A), Delivery(now=0.1))
    ledger.accept(StreamId("z", 0), 9, store(SECONDS, A), Delivery(now=0.1))
    records = records_of(ledger, 0.3, SECONDS * SECOND, 60.0)
    sources, left_out = sources_of(totals(ours), {"z": Heard(99.0, silent=True)})
    assert (len(records.streams), records.left_out, records.streams[0].worker) == (ROWS_MAX, 8, "z")
    assert (len(sources), left_out, sources[0].name) == (ROWS_MAX, 8, "z")
    assert sum(one.count.total for one in records.states) == ROWS_MAX + 8


def totals(ours: Measures) -> Totals:
    return Totals(sums_of(ours), [], sums_of(ours, GAUGES))


def measures() -> Measures:
    return Measures(dimensions=(), values_max=1, series_max=1000, start_unix_nanos=1)


def test_a_source_is_what_was_counted_of_it_and_how_it_was_heard() -> None:
    ours = measures()
    for name, value in (("events", 7), ("blocks", 70), ("gaps", 2), ("replays", 1), ("restarts", 3), ("bad_events", 4)):
        ours.count(f"whymiss.ledger.{name}", value, source="s")
        ours.count(f"whymiss.ledger.{name}", 1000, source="other")
    ours.gauge("whymiss.ledger.lag", 0.25, source="s")
    source = next(one for one in sources_of(totals(ours), {"s": Heard(3.0, silent=False)})[0] if one.name == "s")
    assert (source.state, source.heard_seconds, source.lag_seconds) == ("heard", 3.0, 0.25)
    assert (source.events, source.blocks, source.gaps, source.replays) == (7, 70, 2, 1)
    assert (source.restarts, source.bad_events) == (3, 4)


def test_who_says_nothing_comes_first_and_who_pushes_last() -> None:
    ours = measures()
    ours.count("whymiss.ledger.events", source="pushes")
    ours.count("whymiss.ledger.bad_events", source="pushes nonsense")
    heard = {
        "a": Heard(1.0, silent=False),
        "b": Heard(None, silent=False),
        "c": Heard(99.0, silent=True),
        "d": Heard(None, silent=True),
    }
    assert [(one.name, one.state) for one in sources_of(totals(ours), heard)[0]] == [
        ("c", "silent"),
        ("d", "silent"),
        ("b", "never heard"),
        ("a", "heard"),
        ("pushes", "not subscribed"),
        ("pushes nonsense", "not subscribed"),
    ]


@given(st.lists(NAMES, max_size=5), NAMES)
def test_whatever_a_name_is_it_can_be_shown_and_sent(names: list[str], model: str) -> None:
    ours, ledger = measures(), Ledger()
    for name in names:
        ours.count("whymiss.ledger.events", source=name)
        ledger.accept(StreamId(name, 0), 0, store(SECONDS, A), Delivery(now=0.1, model=model))
    shown = [*sources_of(totals(ours), {})[0], *streams(ledger, 10)]
    assert len(shown) == 2 * len(set(names))
    for one in shown:
        for value in msgspec.to_builtins(one).values():
            assert not isinstance(value, str) or (value.isprintable() and len(value) <= 160)
    msgspec.json.encode(shown)
