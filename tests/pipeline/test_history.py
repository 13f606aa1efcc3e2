"""The record's limit as the operator set it, and what is shown of the record."""

from __future__ import annotations

import msgspec
import numpy as np

from whymiss.config import parse
from whymiss.evidence.hypotheses import Reading
from whymiss.model import SECOND, Reason, StreamId
from whymiss.pipeline import KvSource, Pipeline

SOURCE = KvSource(name="engine")
STREAM = StreamId("engine", 0)
BLOCKS = 4096
LIMIT = 1 << 20


def pipeline_of(config: str) -> Pipeline:
    return Pipeline(parse(config, {}), process_key=bytes(32), start_unix_nanos=0)


def publish(pipeline: Pipeline, batches: int) -> None:
    chance = np.random.default_rng(1)
    for seq in range(batches):
        event = {
            "type": "BlockStored",
            "block_hashes": chance.integers(0, 1 << 64, BLOCKS, np.uint64).tolist(),
            "parent_block_hash": None,
            "token_ids": [],
            "block_size": 16,
            "medium": "GPU",
        }
        frames = [b"kv@engine@model", seq.to_bytes(8, "big"), msgspec.msgpack.encode([1.0 + seq, [event], 0])]
        outcome = pipeline.kv_frames(SOURCE, frames, (1 + seq) * SECOND, now=float(seq))
        assert outcome.kind == "applied"


def gauges(pipeline: Pipeline) -> dict[tuple[str, ...], float]:
    return {
        (metric.instrument.name, *(value for _, value in point.labels)): point.value
        for metric in pipeline.measures.snapshot()
        for point in metric.points
        if metric.instrument.name.startswith("whymiss.ledger.")
    }


def gap(pipeline: Pipeline, at: int) -> Reason:
    """Why nothing negative can be said of a lookup with a window of ten seconds behind it."""
    reading = Reading(stream=STREAM, cached_tokens=0, block_size=16, first=0, earliest=at * SECOND, latest=at * SECOND)
    record = pipeline.ledger.stream(STREAM)
    since = reading.latest - 10 * SECOND
    return record.coverage(since, reading.latest).gap_since(since)


def test_what_goes_for_want_of_memory_is_history_that_expired() -> None:
    pipeline = pipeline_of("ledger: {bytes_max: 1MiB}")
    publish(pipeline, 60)
    for now in range(60, 90):
        pipeline.advance(float(now))
    assert pipeline.ledger.retained_bytes <= LIMIT
    assert pipeline.ledger.stream(STREAM).coverage(0, 61 * SECOND).expired
    assert gap(pipeline, 12) is Reason.HISTORY_EXPIRED


def test_what_fits_is_kept() -> None:
    pipeline = pipeline_of("ledger: {bytes_max: 1GiB}")
    publish(pipeline, 60)
    for now in range(60, 90):
        pipeline.advance(float(now))
    assert pipeline.ledger.retained_operations == 60 * BLOCKS
    assert gap(pipeline, 12) is Reason.NONE


def test_the_gauges_say_what_is_retained_and_how_whole_it_is() -> None:
    pipeline = pipeline_of("kv_events: {silence_seconds: 30}")
    publish(pipeline, 2)
    pipeline.advance(2.0)
    seen = gauges(pipeline)
    assert seen["whymiss.ledger.operations",] == 2 * BLOCKS
    assert seen["whymiss.ledger.retained",] == pipeline.ledger.retained_bytes
    assert (seen["whymiss.ledger.streams", "whole"], seen["whymiss.ledger.streams", "silent"]) == (1, 0)
    pipeline.advance(40.0)
    seen = gauges(pipeline)
    assert (seen["whymiss.ledger.streams", "whole"], seen["whymiss.ledger.streams", "silent"]) == (0, 1)
