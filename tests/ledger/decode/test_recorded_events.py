"""What real publishers sent, against a reading that knows nothing of speed."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.ledger.batches import DIGESTER, Plain, plain
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.message import END, Frame, parse_frames
from whymiss.model import Tier

CAPTURES = Path(__file__).parents[2] / "captures"
RECORDINGS = sorted(CAPTURES.glob("*/*_raw.jsonl.gz"))
LEGACY = sorted(CAPTURES.glob("10-*/*_raw.jsonl.gz"))
POSITIONS = {
    "BlockStored": ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
                    "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"],
    "BlockRemoved": ["type", "block_hashes", "medium", "group_idx"],
    "AllBlocksCleared": ["type"],
}  # fmt: skip

Fields = dict[str, object]


def frames_of(recording: Path) -> Iterator[list[bytes]]:
    with gzip.open(recording, "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if "frames_b64" in record:
                yield [base64.b64decode(frame) for frame in record["frames_b64"]]


def messages_of(recording: Path) -> list[Frame]:
    return [frame for frames in frames_of(recording) if isinstance(frame := parse_frames(frames), Frame)]


def key(value: object) -> int:
    return int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else int(str(value))


def slow_reading(payload: bytes) -> tuple[int, int | None, Plain]:
    ts, events, rank = msgspec.msgpack.decode(payload, type=tuple[float, list[object], int | None])
    rows: Plain = []
    for index, event in enumerate(events):
        fields: Fields
        if isinstance(event, list):
            fields = dict(zip(POSITIONS[event[0]], event, strict=False))
        else:
            assert isinstance(event, dict)
            fields = event
        rows += slow_rows(index, fields)
    return int(ts * 1e9), rank, rows


def slow_rows(index: int, fields: Fields) -> Plain:
    if fields["type"] == "AllBlocksCleared":
        return [("cleared", index, Tier.DEVICE)]
    hashes, medium = fields["block_hashes"], fields.get("medium")
    assert isinstance(hashes, list)
    assert medium in {"GPU", None}
    name = "gpu" if medium else ""
    keys = [key(value) for value in hashes]
    if fields["type"] == "BlockRemoved":
        place = (Tier.DEVICE, name, fields.get("group_idx"), False, None)
        return [("removed", index, value, *place) for value in keys]
    return [slow_store(index, fields, keys, name)]


def slow_store(index: int, fields: Fields, keys: list[int], medium: str) -> tuple[object, ...]:
    parent, tokens, size = fields["parent_block_hash"], fields["token_ids"], fields["block_size"]
    assert isinstance(tokens, list)
    assert isinstance(size, int)
    sparse = len(tokens) != len(keys) * size
    own = None if sparse else DIGESTER.block_digests(tokens, size, len(keys)).tolist()
    return (
        "stored", index, keys, own, None if parent is None else key(parent), size, Tier.DEVICE, medium,
        fields.get("group_idx") or 0, fields.get("kv_cache_spec_kind") or "", fields.get("kv_cache_spec_sliding_window"),
        fields.get("lora_name"), slow_extras(fields), "extra_keys" in fields, sparse, "session_id" in fields, False, False, None, False,
    )  # fmt: skip


def slow_extras(fields: Fields) -> object:
    listed = fields.get("extra_keys")
    if not isinstance(listed, list) or not any(listed):
        return None
    rows = []
    for entry in listed:
        kinds = ["lora" if value == fields["lora_name"] else "cache_salt" for value in entry or []]
        values = [msgspec.msgpack.encode(value) for value in entry or []]
        rows.append(
            tuple((kind, DIGESTER.extra_digest(kind, value)) for kind, value in zip(kinds, values, strict=True))
        )
    return rows


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name.split('_raw')[0]}")
def test_recorded_batches_say_what_a_slow_reading_says(recording: Path) -> None:
    messages = messages_of(recording)
    assert messages
    for message in messages:
        batch = decode_batch(message.payload, DIGESTER)
        assert (batch.bad_events, batch.unknown_events) == (0, 0)
        assert (batch.unix_nanos, batch.rank, plain(batch)) == slow_reading(message.payload)


@pytest.mark.parametrize("recording", sorted(CAPTURES.glob("*/replay_raw.jsonl.gz")), ids=lambda path: path.parent.name)
def test_a_replay_repeats_what_was_live(recording: Path) -> None:
    replies = [parse_frames(frames) for frames in frames_of(recording)]
    assert replies.pop() is END
    live = {message.seq: message for message in messages_of(recording.with_name("kv_events_raw.jsonl.gz"))}
    assert replies
    assert replies == [live[reply.seq] for reply in replies if isinstance(reply, Frame)]


def test_four_releases_tell_one_story() -> None:
    # The same events went out through the structs of each release.
    stories = [
        [
            (row[0], row[1])
            for message in messages_of(recording)
            for row in plain(decode_batch(message.payload, DIGESTER))
        ]
        for recording in LEGACY
    ]
    assert len(stories) == 4
    assert all(story == stories[0] for story in stories)
