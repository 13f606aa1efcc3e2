"""KV events reach the ledger of a running service on each of their ways, and none of them leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio

from tests.edge.cores import counted
from tests.edge.loops import looped
from tests.edge.publisher import Publisher, numbered
from tests.edge.sinks import GrpcSink, running
from tests.ledger.batches import payload, stored
from tests.wire.test_kv_logs import HELLO, event, request, text
from whymiss.edge.kv.push import PUSH
from whymiss.edge.otlp_names import METHODS
from whymiss.edge.service import Service
from whymiss.pipeline import Pipeline
from whymiss.redaction import Signal
from whymiss.wire import kv_push_pb2 as schema
from whymiss.wire.kv_logs import MARK
from whymiss.wire.logs import split_logs


def pipeline_of(service: Service) -> Pipeline:
    core = service.core
    assert isinstance(core, Pipeline)
    return core


def workers(service: Service) -> list[tuple[str, int]]:
    return [(stream.worker, stream.rank) for stream in pipeline_of(service).ledger.streams()]


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - the ledger tells nobody
            await asyncio.sleep(0)


async def call(service: Service, method: str, body: bytes) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        return await unary(body)


@looped
async def test_a_push_arrives_on_the_port_of_otlp() -> None:
    async with running(GrpcSink()) as service:
        origin = schema.Origin(source="s", worker="w", rank=1)
        body = schema.PushRequest(origin=origin, payload=payload(stored())).SerializeToString()
        answer = schema.PushResponse.FromString(await call(service, PUSH, body))
        assert answer.outcome == schema.OUTCOME_APPLIED
        assert workers(service) == [("w", 1)]


@looped
async def test_a_log_record_of_events_is_taken_and_its_neighbours_leave() -> None:
    sink = GrpcSink()
    async with running(sink) as service:
        ours, broken = event(worker="w", seq=0, mark=True), event(b"x", worker="w", seq=1, mark=True)
        answer = await call(service, METHODS[Signal.LOGS], request(text("hello"), ours, broken))
        assert b"1 record(s) rejected: body: is no batch of KV-cache events" in answer
        (body,) = await sink.wait_for_bodies(Signal.LOGS, 1)
        assert split_logs(body) == split_logs(HELLO)
        assert MARK.encode() not in body
        assert workers(service) == [("w", 0)]


@looped
async def test_the_ranks_of_an_engine_in_a_file_are_one_worker(tmp_path: Path) -> None:
    async with Publisher() as publisher:
        path = tmp_path / "engines.yaml"
        path.write_text(f"- {{endpoint: '{publisher.endpoint}', ranks: 2}}\n")
        async with running(GrpcSink(), more=f"kv_events: {{discovery: [{{file: '{path}'}}]}}") as service:
            await publisher.subscribed()
            await publisher.send(b"", numbered(0), payload(stored(), rank=7))
            await until(lambda: len(workers(service)) == 1)
            assert workers(service) == [(publisher.endpoint.removeprefix("tcp://"), 0)]
            assert counted(pipeline_of(service).measures, "whymiss.ledger.sources") == 2
