"""Pushes over a real server, from the service's own client and from the example."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import grpc
import grpc.aio
import pytest

from tests.edge.cores import PassingCore, counted
from tests.edge.loops import looped
from tests.ledger.batches import payload, stored
from whymiss.config import Config
from whymiss.edge.kv.push import PUSH, PUSH_STREAM, SNAPSHOT, kv_push_service
from whymiss.edge.telemetry import logs
from whymiss.pipeline import Pipeline
from whymiss.wire import kv_push_pb2 as schema

EXAMPLE = Path(__file__).parents[3] / "collector-config" / "examples" / "push_kv_events.py"


class Server:
    """The service on a server of its own, in front of a pipeline that counts."""

    def __init__(self, core: Pipeline | PassingCore) -> None:
        self.core = core
        self.taken = 0
        self.admitted: str | None = None
        self.server = grpc.aio.server(handlers=[kv_push_service(core, self._count, self._admit)])
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def _admit(self, authorization: str | bytes | None) -> bool:
        return self.admitted is None or authorization == self.admitted

    def _count(self) -> None:
        self.taken += 1


@asynccontextmanager
async def serving(core: Pipeline | PassingCore | None = None) -> AsyncIterator[tuple[Server, grpc.aio.Channel]]:
    server = Server(core or Pipeline(Config.default(), process_key=bytes(32), start_unix_nanos=time.time_ns()))
    await server.server.start()
    async with grpc.aio.insecure_channel(server.target) as channel:
        yield server, channel
    await server.server.stop(None)


def push(seq: int, raw: bytes | None = None, *, worker: str = "w", source: str = "s") -> bytes:
    raw = payload(stored(), ts=1.0 + seq) if raw is None else raw
    origin = schema.Origin(source=source, worker=worker)
    return schema.PushRequest(origin=origin, seq=seq, payload=raw).SerializeToString()


async def call(channel: grpc.aio.Channel, method: str, body: bytes) -> schema.PushResponse:
    unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    return schema.PushResponse.FromString(await unary(body))


async def stream(channel: grpc.aio.Channel, *bodies: bytes) -> list[schema.PushResponse]:
    streamed: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(PUSH_STREAM)
    return [schema.PushResponse.FromString(answer) async for answer in streamed(iter(bodies))]


def name_of(answer: schema.PushResponse) -> str:
    return schema.Outcome.Name(answer.outcome)


@looped
async def test_a_batch_is_applied_and_its_repetition_is_a_duplicate() -> None:
    async with serving() as (server, channel):
        answers = [await call(channel, PUSH, push(seq)) for seq in (0, 1, 1, 4)]
    assert [name_of(answer) for answer in answers] == [
        "OUTCOME_APPLIED", "OUTCOME_APPLIED", "OUTCOME_DUPLICATE", "OUTCOME_GAP",
    ]  # fmt: skip
    assert (answers[3].missing_first, answers[3].missing_last) == (2, 3)
    assert server.taken == 4
    measures = server.core.measures
    assert counted(measures, "whymiss.ledger.events", source="s") == 3
    assert counted(measures, "whymiss.ledger.gaps", source="s") == 1
    assert counted(measures, "whymiss.receiver.accepted_requests", transport="grpc", signal="kv_events") == 4


@looped
async def test_a_snapshot_takes_the_place_of_a_batch() -> None:
    async with serving() as (_, channel):
        request = schema.SnapshotRequest(
            origin=schema.Origin(source="s", worker="w"),
            seq=1,
            time_unix_nano=9_000_000_000,
            media=["CPU"],
            resident=[schema.Stored(keys=[1, 2], medium="CPU")],
        )
        await call(channel, PUSH, push(0))
        assert name_of(await call(channel, SNAPSHOT, request.SerializeToString())) == "OUTCOME_APPLIED"


@looped
@pytest.mark.parametrize("body", [b"\xff", push(0, b"no msgpack"), push(0, worker="")])
async def test_what_cannot_be_taken_is_refused_for_good(body: bytes) -> None:
    async with serving() as (server, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(channel, PUSH, body)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert counted(server.core.measures, "whymiss.receiver.refused_requests", reason="bad_input") == 1
        assert name_of(await call(channel, PUSH, push(0))) == "OUTCOME_APPLIED"
    assert server.taken == 1


@looped
async def test_a_stream_goes_on_after_a_batch_that_cannot_be_read() -> None:
    async with serving() as (_, channel):
        answers = await stream(channel, push(0), b"\xff", push(1, b"x"), push(1))
    assert [(answer.seq, name_of(answer)) for answer in answers] == [
        (0, "OUTCOME_APPLIED"), (0, "OUTCOME_BAD"), (1, "OUTCOME_BAD"), (1, "OUTCOME_APPLIED"),
    ]  # fmt: skip


@looped
async def test_whoever_is_not_admitted_pushes_nothing() -> None:
    async with serving() as (server, channel):
        server.admitted = "Bearer right"
        for pushing in (call(channel, PUSH, push(0)), call(channel, SNAPSHOT, b""), stream(channel, push(0))):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await pushing
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert counted(server.core.measures, "whymiss.receiver.refused_requests", reason="unauthenticated") == 3
        assert server.taken == 0
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PUSH)
        await unary(push(0), metadata=(("authorization", "Bearer right"),))
        assert server.taken == 1


@looped
async def test_a_mistake_of_ours_is_told_apart_and_keeps_its_text() -> None:
    async with serving(PassingCore()) as (server, channel):  # whose `kv_frames` is not there
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(channel, PUSH, push(0))
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        with pytest.raises(grpc.aio.AioRpcError):
            await stream(channel, push(0))
        assert counted(server.core.measures, "whymiss.stage.failures", stage="ledger") == 2


@looped
async def test_no_refusal_repeats_what_was_pushed() -> None:
    lines = io.StringIO()
    logs.configure("debug", lines)
    async with serving() as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(channel, PUSH, push(0, b"a secret prompt"))
    logs.configure("info")
    assert "secret" not in lines.getvalue() + str(raised.value.details())
    assert "a push was refused" in lines.getvalue()


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("push_kv_events", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_pushes(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    @looped
    async def play() -> None:
        async with serving() as (server, _):

            async def run(*argv: str) -> int:
                common = ["--target", server.target, "--worker", "w", "--rank", "1"]
                code: int = await asyncio.to_thread(example.main, [*argv, *common])
                return code

            assert (
                await run("batch", "--seq", "0", "--stored", "11,0x1f", "--tokens", "1,2,3,4", "--block-size", "2") == 0
            )
            assert await run("batch", "--seq", "2", "--removed", "11") == 0
            assert await run("snapshot", "--seq", "3", "--medium", "CPU", "--stored", "11") == 0
            assert await run("batch", "--seq", "3", "--source", "") == 1

    play()
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "0: OUTCOME_APPLIED",
        "2: OUTCOME_GAP, missing 1..1",
        "3: OUTCOME_APPLIED",
    ]
    assert told.err == "INVALID_ARGUMENT: origin.source: must be 1 to 256 printable characters\n"


def test_the_example_says_how_it_is_used() -> None:
    told = subprocess.run([sys.executable, EXAMPLE, "--help"], capture_output=True, text=True, check=True)
    assert "--worker" in told.stdout
    assert "snapshot" in told.stdout
