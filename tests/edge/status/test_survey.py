"""What is gathered from a real service with real traffic, and what never is."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.edge.cores import PassingCore
from tests.edge.doors import post
from tests.edge.paces import HeldPace
from tests.edge.sink import Sink
from tests.edge.status.scene import RECORDING, SECRETS, busy_service, patient
from tests.edge.test_service import config
from tests.edge.traffic import traces
from whymiss.config import Config
from whymiss.edge.exporters.fan_out import FanOut
from whymiss.edge.exporters.owed import Owed
from whymiss.edge.kv.silence import Silence
from whymiss.edge.service import Service, serving
from whymiss.edge.status.snapshot import Count, Snapshot, TimelineStep
from whymiss.edge.status.survey import Survey, Surveyed
from whymiss.edge.status.totals import STEP_SECONDS
from whymiss.edge.telemetry.health import Readiness
from whymiss.measures import Dimensions, Measures
from whymiss.model import Cause, Grade, Owner, Reason, Verdict
from whymiss.tools.recording import Recording


async def get(service: Service, path: str) -> str:
    address = f"http://127.0.0.1:{service.health_port}{path}"
    async with aiohttp.ClientSession() as client, client.get(address) as answer:
        assert answer.status == 200
        return await answer.text()


async def look(service: Service) -> Snapshot:
    return msgspec.json.decode(await get(service, "/status.json"), type=Snapshot)


@patient
async def test_all_that_went_through_is_in_the_snapshot() -> None:
    async with busy_service() as service:
        seen = await look(service)
        while [one.count.total for one in seen.spans.sent] != [seen.spans.accepted.total]:
            seen = await look(service)  # the next hop has the spans before we have its answer
    assert seen.state == "ok"
    assert seen.memory.resident_bytes > 1 << 20
    spans = seen.spans
    assert spans.accepted.total == sum(one.count.total for one in spans.claimed) + spans.passed_through.total
    assert [(one.name, one.count.total) for one in spans.sent] == [("collector", spans.accepted.total)]
    assert seen.verdicts.lookups.total == sum(one.lookups.total for one in seen.verdicts.causes) > 20
    assert seen.verdicts.lookups == Count(seen.verdicts.lookups.total, seen.verdicts.lookups.total)
    assert sum(one.hits + one.misses + one.unknown for one in seen.moments) == seen.verdicts.lookups.total
    evicted = next(one for one in seen.verdicts.causes if one.cause == "evicted")
    assert (evicted.owners, evicted.lost_tokens.total > 0) == (("platform",), True)
    assert seen.hold.open_traces == 0
    assert seen.hold.oldest_seconds is None
    assert {one.name: one.state for one in seen.destinations} == {"collector": "ok", "archive": "retrying"}
    assert sorted(one.state for one in seen.sources) == ["heard", "never heard"]
    assert {one.worker: one.state for one in seen.streams}["vllm-replica-0"] == "whole"
    assert [one.message for one in seen.troubles] == ["a request was refused"]
    (refused,) = [door for door in seen.doors if door.refused.total]
    assert (refused.transport, refused.signal, refused.reasons[0].name) == ("http", "traces", "bad_input")


@patient
async def test_no_secret_no_hash_and_no_identity_is_on_the_page_or_in_its_twin() -> None:
    async with busy_service() as service:
        said = await get(service, "/status") + await get(service, "/status.json")
    for secret in SECRETS:
        assert secret not in said
    for line in (RECORDING / "summary.jsonl").read_text().splitlines():
        request = json.loads(line)
        for key in ("trace_id", "response_id", "cache_salt"):
            assert not request.get(key) or request[key] not in said
    recording = Recording(RECORDING)
    hashes = {block for message in recording.kv_events for block in raw_hashes(message.frames[-1])}
    assert len(hashes) > 50
    for block in hashes:
        assert block.hex() not in said
        assert base64.b64encode(block).decode() not in said


def raw_hashes(payload: bytes) -> set[bytes]:
    found: set[bytes] = set()

    def walk(value: object) -> None:
        if isinstance(value, bytes):
            found.add(value)
        elif isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, dict):
            for one in value.values():
                walk(one)

    walk(msgspec.msgpack.decode(payload))
    return {one for one in found if len(one) == 32}


@patient
async def test_the_oldest_held_trace_has_its_age() -> None:
    async with Sink() as sink, serving(config(sink, more="join: {hold_seconds: 600}")) as service:
        for request in Recording(RECORDING).otlp:
            await post(service.http_port, "/v1/traces", request.body)
        hold = (await look(service)).hold
        assert hold.open_traces > 0
        assert hold.held_bytes > 0
        assert hold.oldest_seconds is not None
        assert 0 <= hold.oldest_seconds < 30


@patient
async def test_a_core_that_has_no_record_leaves_those_parts_empty() -> None:
    async with Sink() as sink, serving(config(sink), PassingCore()) as service:
        await post(service.http_port, "/v1/traces", traces(1))
        seen = await look(service)
    assert (seen.streams, seen.hold.oldest_seconds, seen.spans.accepted.total) == ((), None, 1)


@patient
async def test_the_spool_is_shown_where_there_is_one(tmp_path: Path) -> None:
    more = f"spool: {{directory: {tmp_path / 'spool'}, fsync: always, bytes_max: 90000000}}"
    async with Sink() as sink:
        sink.gate.clear()
        async with serving(config(sink, more=more, deadline=0.1)) as service:
            await post(service.http_port, "/v1/traces", traces(1))
            spool = (await look(service)).spool
    assert spool is not None
    assert (spool.bytes_max, spool.fsync, spool.refused.total) == (90_000_000, "always", 0)
    assert 0 < spool.size_bytes < 1000


@patient
async def test_a_page_that_is_switched_off_is_not_there() -> None:
    async with Sink() as sink:
        settings = config(sink)
        off = msgspec.structs.replace(settings, health=msgspec.structs.replace(settings.health, status_page=False))
        async with (
            serving(off) as service,
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{service.health_port}/status") as answer,
        ):
            assert answer.status == 404


@patient
async def test_the_recent_past_ends_where_its_steps_are_used_up() -> None:
    ours = Measures(dimensions=(), values_max=1, series_max=99, start_unix_nanos=1)
    pace = HeldPace()
    surveyed = Surveyed(Readiness(), FanOut([], Owed()), Silence(ours, 60.0))
    survey = Survey(Config.default(), lambda: ours, surveyed, pace=pace, unix_nanos=lambda: 0)
    watching = asyncio.create_task(survey.run())
    for step in range(1, 63):
        await pace.until_waits(step)
        ours.observe(
            Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM, reason=Reason.CAPACITY, grade=Grade.DIRECT),
            Dimensions(),
            first_token_seconds=None,
        )
        pace.pass_by(STEP_SECONDS)
    await pace.until_waits(63)
    seen = survey.take()
    assert (seen.recent_seconds, seen.uptime_seconds) == (60 * STEP_SECONDS, 62 * STEP_SECONDS)
    assert seen.verdicts.lookups == Count(62, 60)
    assert seen.moments == (*[TimelineStep(0, 1, 0)] * 60, TimelineStep())
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
