"""A service that is started again goes on with its record: only what was said in between is asked for, or missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.kv.test_service import pipeline_of, until
from tests.edge.loops import looped
from tests.edge.publisher import Publisher, numbered
from tests.edge.sinks import GrpcSink, running
from tests.ledger.batches import payload, stored
from whymiss.edge.service import Service
from whymiss.ledger.ledger import Ledger
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Residency, StreamId

STREAM = StreamId("engine", 0)


def record_of(service: Service) -> StreamRecord | None:
    ledger = pipeline_of(service).ledger
    assert isinstance(ledger, Ledger)
    known = dict(ledger.numbered()).get(STREAM)
    return None if known is None else known.record


def events_of(service: Service) -> int:
    record = record_of(service)
    return 0 if record is None else record.end


def settings(path: Path, publisher: Publisher, *, replay: bool = True) -> str:
    asked = f"replay_endpoint: '{publisher.replay_endpoint}'" if replay else ""
    return f"""
ledger: {{checkpoint_path: '{path}'}}
kv_events: {{sources: [{{endpoint: '{publisher.endpoint}', worker: engine, {asked}}}]}}
"""


async def say(publisher: Publisher, key: int, *, heard: bool = True) -> None:
    """Publish the store of a block, to whoever listens."""
    seq = len(publisher.kept)
    publisher.kept.append(payload(stored(hashes=(key,)), ts=float(seq + 1)))
    if heard:
        await publisher.send(b"", numbered(seq), publisher.kept[seq])


def states(service: Service, *keys: int) -> list[Residency]:
    return [fact.state for fact in pipeline_of(service).ledger.stream(STREAM).as_of(keys, events_of(service))]


@looped
async def test_a_restart_costs_what_was_said_in_between_and_no_more(tmp_path: Path) -> None:
    async with Publisher() as publisher:
        more = settings(tmp_path / "ledger", publisher)
        async with running(GrpcSink(), more=more) as service:
            await publisher.subscribed()
            await publisher.until_asked()
            for key in (1, 2, 3):
                await say(publisher, key)
            await until(lambda: events_of(service) == 3)
        await say(publisher, 4, heard=False)
        publisher.oldest = 2  # the publisher itself no longer has what the checkpoint has
        async with running(GrpcSink(), more=more) as service:
            await until(lambda: events_of(service) == 4)
            assert states(service, 1, 2, 3, 4) == [Residency.RESIDENT] * 4
            record = record_of(service)
            assert record is not None
            assert record.from_birth
            assert record.holes == []


@looped
async def test_what_nobody_can_replay_is_a_hole_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    # The second one has the first one's numbers: to a subscriber it is the same publisher behind another address.
    async with Publisher() as publisher, Publisher(kept=publisher.kept) as later:
        async with running(GrpcSink(), more=settings(path, publisher, replay=False)) as service:
            await publisher.subscribed()
            await say(publisher, 1)
            await until(lambda: events_of(service) == 1)
        await say(later, 2, heard=False)
        async with running(GrpcSink(), more=settings(path, later, replay=False)) as service:
            assert states(service, 1) == [Residency.RESIDENT]
            await later.subscribed()
            await say(later, 3)
            await until(lambda: events_of(service) > 1)
            record = record_of(service)
            assert record is not None
            assert len(record.holes) == 1
            assert states(service, 3) == [Residency.RESIDENT]


@looped
async def test_a_damaged_checkpoint_is_one_line_and_a_cold_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger"
    async with Publisher() as publisher:
        async with running(GrpcSink(), more=settings(path, publisher)) as service:
            await publisher.subscribed()
            await publisher.until_asked()
            await say(publisher, 1)
            await until(lambda: events_of(service) == 1)
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
        with caplog.at_level("ERROR"):
            async with running(GrpcSink(), more=settings(path, publisher, replay=False)) as service:
                assert pipeline_of(service).ledger.streams() == []
        assert [line.getMessage() for line in caplog.records if line.name.endswith("checkpoint")] == [
            "the checkpoint cannot be read; the record begins anew"
        ]


@looped
async def test_without_a_path_nothing_is_kept() -> None:
    async with Publisher() as publisher:
        more = f"kv_events: {{sources: [{{endpoint: '{publisher.endpoint}', worker: engine}}]}}"
        async with running(GrpcSink(), more=more) as service:
            await publisher.subscribed()
            await say(publisher, 1)
            await until(lambda: events_of(service) == 1)
        async with running(GrpcSink(), more=more) as service:
            assert pipeline_of(service).ledger.streams() == []


@looped
async def test_two_processes_do_not_write_one_checkpoint(tmp_path: Path) -> None:
    async with Publisher() as publisher:
        more = settings(tmp_path / "ledger", publisher)
        async with running(GrpcSink(), more=more) as service:
            await publisher.subscribed()
            await publisher.until_asked()
            await say(publisher, 1)
            await until(lambda: events_of(service) == 1)
            with pytest.raises(BlockingIOError, match="another process has the checkpoint"):
                async with running(GrpcSink(), more=more):
                    pass
        async with running(GrpcSink(), more=more) as service:
            assert states(service, 1) == [Residency.RESIDENT]
