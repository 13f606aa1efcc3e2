"""Recordings with a hole cut into their events: replayed it leaves no trace, unreplayed nothing wrong is said."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.recordings.plays import CAPTURES, Row, folder, rows
from whymiss.ledger.columnar.bloom_filter import Probe
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.message import EndOfReplay, parse_frames
from whymiss.ledger.events import KvBatch
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Delivery, Ledger, SequencedBatch
from whymiss.ledger.residency.copies import count_copies
from whymiss.ledger.stream import StreamRecord
from whymiss.model import StreamId
from whymiss.tools.recording import KvMessage, Recording
from whymiss.tools.replay import Replay, default_config

RECORDED = sorted(
    path.name.split("-")[0]
    for path in CAPTURES.iterdir()
    if path.name[0].isdigit() and not path.name.startswith("10") and (path / "replay_raw.jsonl").exists()
)
REPLAYABLE = [number for number in RECORDED if not number.startswith("06")]
DIGESTER = Digester(bytes(32))
STREAM = StreamId("engine", 0)


def frames_of(messages: list[KvMessage]) -> list[tuple[int, KvBatch]]:
    found = []
    for message in messages:
        frame = parse_frames(message.frames)
        if not isinstance(frame, EndOfReplay):
            found.append((frame.seq, decode_batch(frame.payload, DIGESTER)))
    return found


def heard(frames: list[tuple[int, KvBatch]], ledger: Ledger, delivery: Delivery) -> list[SequencedBatch]:
    return [ledger.accept(STREAM, seq, batch, delivery) for seq, batch in frames]


def record_of(ledger: Ledger, stream: StreamId = STREAM) -> StreamRecord:
    return dict(ledger.numbered())[stream].record


def keys_of(record: StreamRecord) -> list[int]:
    record.settle()
    keys = [run.keys for part in record.history.parts() for run in part.runs.values()]
    found: list[int] = np.unique(np.concatenate(keys)).tolist()
    return found


def answers(record: StreamRecord) -> list[object]:
    keys = keys_of(record)
    places = {place for part in record.history.parts() for place in part.runs}
    return [
        record.end,
        [[record.as_of(keys, position, *place) for place in sorted(places)] for position in range(record.end + 1)],
        [record.block(key) for key in keys],
        [record.children(key, record.end) for key in (None, *keys)],
        record.stores_between(0, 2**62),
        record.coverage(0, 2**62),
    ]


@pytest.mark.parametrize("number", RECORDED)
def test_no_count_of_copies_falls_below_zero(number: str) -> None:
    ledger = Ledger(digester=DIGESTER)
    for seq, batch in frames_of(Recording(folder(number)).kv_events):
        ledger.accept(StreamId("engine", batch.rank or 0), seq, batch)
    for stream in ledger.streams():
        record = record_of(ledger, stream)
        keys = Probe(np.array(keys_of(record), np.uint64))
        for place in {place for part in record.history.parts() for place in part.runs}:
            hits = record.history.counted_operations(place, keys, record.end)
            assert not count_copies(hits, record.history.resets.of(place[0]), record.end).surplus.any()


@pytest.mark.parametrize("number", REPLAYABLE)
def test_replayed_frames_fill_a_gap(number: str) -> None:
    gaps_are_filled(number, 10)


@pytest.mark.deep
@pytest.mark.parametrize("number", REPLAYABLE)
def test_replayed_frames_fill_a_gap_wherever_it_is(number: str) -> None:
    gaps_are_filled(number, 1)


def gaps_are_filled(number: str, step: int) -> None:
    recording = Recording(folder(number))
    live, replay = frames_of(recording.kv_events), frames_of(recording.replay)
    whole = Ledger(digester=DIGESTER)
    heard(live, whole, Delivery())
    expected = answers(record_of(whole))
    # The recorded answer begins at 5, and one batch before the gap must be in it.
    for first in range(replay[0][0] + 1, len(live) - 1, step):
        for last in {first, min(first + 3, len(live) - 2)}:
            ledger = Ledger(digester=DIGESTER)
            heard(live[:first] + live[last + 1 :], ledger, Delivery(can_replay=True))
            assert ledger.next_deadline is not None
            outcomes = heard(replay, ledger, Delivery(can_replay=True, replayed=True))
            assert sum(one.filled for one in outcomes) == 1
            assert answers(record_of(ledger)) == expected


def cut(number: str, first: int, count: int) -> list[Row]:
    """The verdicts of a recording without some of its batches, which nobody replays."""
    recording = copy.copy(Recording(folder(number)))
    recording.kv_events = recording.kv_events[:first] + recording.kv_events[first + count :]
    recording.replay = []
    return list(Replay(recording, default_config()).play())


def nothing_wrong(number: str, first: int, count: int) -> None:
    whole = {(row["trace_id"], row["span_id"]): row for row in rows(number)}
    for row in cut(number, first, count):
        expected = whole[row["trace_id"], row["span_id"]]
        assert row["cause"] in {expected["cause"], "unknown"}, (number, first, count, row["request_id"])


# In 06 each rank speaks once: without its batch there is no stream, and not one with a hole.
@pytest.mark.parametrize("number", REPLAYABLE)
def test_a_gap_in_the_middle_makes_verdicts_unknown_and_none_wrong(number: str) -> None:
    batches = len(Recording(folder(number)).kv_events)
    for first in sorted({0, 1, batches // 2, batches - 1}):
        nothing_wrong(number, first, 1)


@pytest.mark.deep
@pytest.mark.parametrize("number", REPLAYABLE)
def test_a_gap_anywhere_makes_verdicts_unknown_and_none_wrong(number: str) -> None:
    batches = len(Recording(folder(number)).kv_events)
    for count in (1, 2, 5):
        for first in range(batches):
            nothing_wrong(number, first, count)
