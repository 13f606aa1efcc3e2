"""Pushed events decode to what was pushed, through the decoder of the engines' own messages."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import DIGESTER, payload, plain, stored
from whymiss.errors import BadInput
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.message import Frame, parse_frames
from whymiss.ledger.events import KvBatch, Stored
from whymiss.model import Tier
from whymiss.wire import kv_push_pb2 as schema
from whymiss.wire.kv_push import Pushed, push_response, read_push, read_snapshot

ORIGIN = schema.Origin(source="s", worker="w")
SECOND = 1_000_000_000

keys = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=4)


def pushed(*events: schema.Event, seq: int = 0) -> Pushed:
    batch = schema.EventBatch(time_unix_nano=5 * SECOND, events=events)
    return read_push(schema.PushRequest(origin=ORIGIN, seq=seq, events=batch).SerializeToString())


def decoded(one: Pushed) -> KvBatch:
    frame = parse_frames(one.frames)
    assert isinstance(frame, Frame)
    assert frame.seq == one.seq
    return decode_batch(frame.payload, DIGESTER)


@given(keys, keys, st.integers(0, (1 << 63) - 1), st.sampled_from(["", "GPU", "CPU", "disk", "REMOTE"]))
def test_structured_events_come_out_as_they_went_in(added: list[int], gone: list[int], seq: int, medium: str) -> None:
    one = pushed(
        schema.Event(
            stored=schema.Stored(keys=added, parent=7, block_size=2, token_ids=[9] * 2 * len(added), medium=medium)
        ),
        schema.Event(removed=schema.Removed(keys=gone, medium=medium, group=3)),
        schema.Event(cleared=schema.Cleared(medium=medium)),
        seq=seq,
    )
    batch = decoded(one)
    assert (batch.unix_nanos, batch.count, batch.bad_events, batch.lost) == (5 * SECOND, 3, 0, False)
    first = batch.events[0]
    assert isinstance(first, Stored)
    assert (first.keys.tolist(), first.parent, first.block_size, first.described) == (added, 7, 2, False)
    assert first.own is not None
    tier = first.tier
    rows = plain(batch)
    assert [row[2] for row in rows if row[0] == "removed"] == gone
    assert ("cleared", 2, tier) in rows
    assert tier is {"CPU": Tier.HOST, "disk": Tier.DISK, "REMOTE": Tier.REMOTE}.get(medium, Tier.DEVICE)


def test_a_block_without_tokens_is_a_placeholder() -> None:
    (one,) = decoded(pushed(schema.Event(stored=schema.Stored(keys=[1], medium="CPU")))).events
    assert isinstance(one, Stored)
    assert one.placeholder
    assert one.parent is None


def test_an_engines_payload_goes_through_as_it_is() -> None:
    raw = payload(stored(), rank=1)
    origin = schema.Origin(source="s", worker="w", rank=0, model="m", kv_connector=True)
    one = read_push(schema.PushRequest(origin=origin, seq=4, payload=raw).SerializeToString())
    assert one == Pushed(
        source="s", worker="w", rank=0, model="m", kv_connector=True, seq=4, frames=(b"", (4).to_bytes(8, "big"), raw)
    )


def test_a_rank_and_a_model_may_be_left_out() -> None:
    one = pushed()
    assert (one.rank, one.model) == (None, None)


def test_a_snapshot_clears_its_media_and_stores_what_is_there() -> None:
    request = schema.SnapshotRequest(
        origin=ORIGIN,
        seq=3,
        time_unix_nano=5 * SECOND,
        media=["cpu", "DISK"],
        resident=[schema.Stored(keys=[1, 2], medium="CPU"), schema.Stored(keys=[1], medium="disk")],
    )
    batch = decoded(read_snapshot(request.SerializeToString()))
    assert batch.lost
    assert (batch.count, batch.bad_events) == (4, 0)
    assert [row[:3] for row in plain(batch)][:2] == [("cleared", 0, Tier.HOST), ("cleared", 1, Tier.DISK)]
    assert [(one.tier, one.keys.tolist()) for one in batch.events if isinstance(one, Stored)] == [
        (Tier.HOST, [1, 2]),
        (Tier.DISK, [1]),
    ]


BATCH = schema.EventBatch(time_unix_nano=1)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (schema.PushRequest(origin=ORIGIN), "payload: must be given, or else events"),
        (schema.PushRequest(origin=ORIGIN, events=schema.EventBatch()), "events.time_unix_nano: must be given"),
        (schema.PushRequest(origin=ORIGIN, events=schema.EventBatch(time_unix_nano=1, events=[schema.Event()])),
         "events.events: holds one that says nothing"),
        (schema.PushRequest(events=BATCH), "origin.source: must be 1 to 256 printable characters"),
        (schema.PushRequest(origin=schema.Origin(source="s"), events=BATCH),
         "origin.worker: must be 1 to 256 printable characters"),
        (schema.PushRequest(origin=schema.Origin(source="s", worker="a\nb"), events=BATCH),
         "origin.worker: must be 1 to 256 printable characters"),
        (schema.PushRequest(origin=schema.Origin(source="s", worker="w", model="m" * 257), events=BATCH),
         "origin.model: must be 1 to 256 printable characters"),
        (schema.PushRequest(origin=ORIGIN, seq=1 << 63, events=BATCH), "seq: must be below 2^63"),
    ],
)  # fmt: skip
def test_a_push_that_cannot_be_taken_is_told_by_its_field(request_: schema.PushRequest, problem: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_push(request_.SerializeToString())
    assert raised.value.problem == problem


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (schema.SnapshotRequest(origin=ORIGIN, time_unix_nano=1), "media: must name at least one"),
        (schema.SnapshotRequest(origin=ORIGIN, media=["CPU"]), "time_unix_nano: must be given"),
        (schema.SnapshotRequest(origin=ORIGIN, time_unix_nano=1, media=["CPU"], resident=[schema.Stored(keys=[1])]),
         "resident: holds a medium that is not among media"),
    ],
)  # fmt: skip
def test_a_snapshot_that_cannot_be_taken_is_told_by_its_field(request_: schema.SnapshotRequest, problem: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_snapshot(request_.SerializeToString())
    assert raised.value.problem == problem


@given(st.binary(max_size=60))
def test_garbage_is_bad_input_and_nothing_else(body: bytes) -> None:
    for read in (read_push, read_snapshot):
        with contextlib.suppress(BadInput):
            read(body)


@pytest.mark.parametrize("outcome", ["applied", "duplicate", "gap", "restarted", "late_join", "bad"])
def test_each_outcome_has_its_answer(outcome: str) -> None:
    missing = (3, 4) if outcome == "gap" else (None, None)
    answer = schema.PushResponse.FromString(
        push_response(5, outcome, missing_first=missing[0], missing_last=missing[1])
    )
    assert (answer.seq, schema.Outcome.Name(answer.outcome)) == (5, f"OUTCOME_{outcome.upper()}")
    assert answer.HasField("missing_first") is (outcome == "gap")


def test_events_are_written_as_the_engine_writes_them() -> None:
    raw = pushed(schema.Event(stored=schema.Stored(keys=[1], block_size=1, token_ids=[2]))).frames[2]
    stamp, events, rank = msgspec.msgpack.decode(raw)
    assert (stamp, rank, next(iter(events[0]))) == (5.0, None, "type")
