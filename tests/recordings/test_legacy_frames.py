"""Recording 10: the events of 01 as four older releases of vLLM would have framed them (positional arrays).

Those releases know no session, so a re-announcement cannot be told from a store there; 01 is read without its
sessions for the comparison. Their other missing fields (extra keys, groups) may only make less known.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import msgspec
import pytest

from tests.ledger.batches import apart
from tests.recordings.plays import CAPTURES, folder
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.message import EndOfReplay, parse_frames
from whymiss.ledger.events import KvBatch, Stored
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Ledger
from whymiss.model import StreamId

STREAM = StreamId("vllm-replica-0", 0)
RELEASES = ("0.9.2", "0.14.1", "0.17.1", "0.23.0")


def batches(path: Path) -> list[KvBatch]:
    digester = Digester(bytes(32))
    found = []
    for line in gzip.decompress(path.read_bytes()).splitlines():
        frame = parse_frames([base64.b64decode(part) for part in json.loads(line)["frames_b64"]])
        assert not isinstance(frame, EndOfReplay)
        found.append(decode_batch(frame.payload, digester))
    return found


def ledger_of(events: list[KvBatch]) -> Ledger:
    ledger = Ledger()
    for seq, batch in enumerate(events):
        ledger.accept(STREAM, seq, batch)
    return ledger


def without_sessions(batch: KvBatch) -> KvBatch:
    events = [
        msgspec.structs.replace(event, session=False) if isinstance(event, Stored) else event
        for event in apart(batch.events)
    ]
    return msgspec.structs.replace(batch, events=events)


def stored_keys(events: list[KvBatch]) -> list[int]:
    keys = {
        key: None
        for batch in events
        for event in apart(batch.events)
        if isinstance(event, Stored)
        for key in event.keys.tolist()
    }
    return list(keys)


@pytest.mark.parametrize("release", RELEASES)
def test_array_frames_decode_to_the_ledger_of_the_maps(release: str) -> None:
    modern = [without_sessions(batch) for batch in batches(folder("01") / "kv_events_raw.jsonl.gz")]
    legacy = batches(CAPTURES / "10-legacy-array-frames" / f"{release}.kv_events_raw.jsonl.gz")
    assert [batch.unix_nanos for batch in legacy] == [batch.unix_nanos for batch in modern]
    keys, old_keys = stored_keys(modern), stored_keys(legacy)
    # 0.9.2 cut its integers to 63 bits.
    mask = (1 << 63) - 1 if release == "0.9.2" else (1 << 64) - 1
    assert old_keys == [key & mask for key in keys]
    one, other = ledger_of(modern), ledger_of(legacy)
    last = one.stream(STREAM).position_at(modern[-1].unix_nanos)
    assert other.stream(STREAM).position_at(modern[-1].unix_nanos) == last > len(modern)
    for position in range(last + 1):
        assert one.stream(STREAM).as_of(keys, position) == other.stream(STREAM).as_of(old_keys, position)
    for key, old_key in zip(keys, old_keys, strict=True):
        mine, theirs = one.stream(STREAM).block(key), other.stream(STREAM).block(old_key)
        assert mine is not None
        assert theirs is not None
        assert (mine.depth, mine.tokens, mine.prefix) == (theirs.depth, theirs.tokens, theirs.prefix)
        assert (mine.parent is None) == (theirs.parent is None)
        # What an old release did not publish is not known to be absent.
        assert theirs.extras in (mine.extras, None)
    assert other.stream(STREAM).block_size() == one.stream(STREAM).block_size() == 32
    assert len(other.stream(STREAM).stores_between(0, 2**63)) == len(one.stream(STREAM).stores_between(0, 2**63))
