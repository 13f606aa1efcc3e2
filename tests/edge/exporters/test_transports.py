from __future__ import annotations

import asyncio
import gzip
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import pytest
import zstandard
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from tests.edge.doors import http_door, room
from tests.edge.loops import looped
from tests.edge.sink import GrpcFault, HttpFault, Sink
from tests.edge.traffic import BODIES, traces
from whymiss.config import ExporterConfig, Secret
from whymiss.edge.exporters.delivery import Deferred, Delivered, Refused
from whymiss.edge.exporters.transports import USER_AGENT, connect
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from whymiss.edge.exporters.delivery import Reply, Transport

INFO = RetryInfo(retry_delay=Duration(seconds=3))
PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="too old")
).SerializeToString()


@asynccontextmanager
async def transport(sink: Sink, protocol: str, **settings: object) -> AsyncIterator[Transport]:
    endpoint = f"127.0.0.1:{sink.grpc_port}" if protocol == "grpc" else f"http://127.0.0.1:{sink.http_port}"
    config = ExporterConfig(protocol=protocol, endpoint=endpoint, insecure=protocol == "grpc", **settings)  # type: ignore[arg-type]
    made = connect(config)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@looped
async def test_every_signal_arrives_byte_for_byte(protocol: str, compression: str) -> None:
    large = traces(*range(500), padding=100)  # compressed in a thread
    async with Sink() as sink, transport(sink, protocol, compression=compression) as made:
        for signal, body in BODIES.items():
            assert await made.send(signal, body) == Delivered()
        assert await made.send(Signal.TRACES, large) == Delivered()
        arrived = [(taken.signal, taken.body) for taken in sink.taken]
    assert arrived == [*BODIES.items(), ("traces", large)]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@looped
async def test_headers_and_the_user_agent_of_an_otlp_exporter_are_sent(protocol: str) -> None:
    headers = {"X-Scope-OrgID": Secret("tenant")}
    async with Sink() as sink, transport(sink, protocol, headers=headers) as made:
        await made.send(Signal.TRACES, traces(1))
        received = {name.lower(): value for name, value in sink.taken[0].headers.items()}
    assert received["x-scope-orgid"] == "tenant"
    assert received["user-agent"].startswith(USER_AGENT)
    assert USER_AGENT.startswith("whymiss/")
    assert " OTel-OTLP-Exporter-Python/" in USER_AGENT


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK], ids=str)
@looped
async def test_only_the_codes_of_the_specification_are_deferred_by_grpc(code: grpc.StatusCode) -> None:
    retryable = {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
    async with Sink() as sink, transport(sink, "grpc") as made:
        sink.grpc_script.append(GrpcFault(code))
        reply = await made.send(Signal.TRACES, traces(1))
    assert reply == (Deferred(code.name) if code.name in retryable else Refused(code.name))


def in_details() -> tuple[str, bytes]:
    detail = Any()
    detail.Pack(INFO)
    return "grpc-status-details-bin", Status(code=8, details=[detail]).SerializeToString()


@pytest.mark.parametrize("trailer", [in_details(), ("google.rpc.retryinfo-bin", INFO.SerializeToString())])
@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
@looped
async def test_a_hint_in_either_trailer_is_read_and_makes_resource_exhausted_retryable(
    trailer: tuple[str, bytes], code: str
) -> None:
    async with Sink() as sink, transport(sink, "grpc") as made:
        sink.grpc_script.append(GrpcFault(grpc.StatusCode[code], (trailer,)))
        assert await made.send(Signal.TRACES, traces(1)) == Deferred(code, 3.0)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413, 415, 429, 500, 501, 502, 503, 504])
@looped
async def test_only_the_statuses_of_the_specification_are_deferred_by_http(status: int) -> None:
    async with Sink() as sink, transport(sink, "http/protobuf") as made:
        sink.http_script.append(HttpFault(status, (("Retry-After", "3"), ("Location", "/elsewhere"))))
        reply = await made.send(Signal.TRACES, traces(1))
        assert len(sink.attempts) == 1
    assert reply == (Deferred(str(status), 3.0) if status in {429, 502, 503, 504} else Refused(str(status)))


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [("2", 2, 2), ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0), ("Fri, 21 Oct 2157 07:28:00 GMT", 1e6, 1e10)],
)
@looped
async def test_retry_after_is_seconds_or_a_date(value: str, low: float, high: float) -> None:
    async with Sink() as sink, transport(sink, "http/protobuf") as made:
        sink.http_script.append(HttpFault(503, (("Retry-After", value),)))
        reply = await made.send(Signal.TRACES, traces(1))
    assert isinstance(reply, Deferred)
    assert reply.hint_seconds is not None
    assert low <= reply.hint_seconds <= high


@pytest.mark.parametrize("value", [(), (("Retry-After", "soon"),)])
@looped
async def test_without_a_readable_hint_there_is_none(value: tuple[tuple[str, str], ...]) -> None:
    async with Sink() as sink, transport(sink, "http/protobuf") as made:
        sink.http_script.append(HttpFault(503, value))
        assert await made.send(Signal.TRACES, traces(1)) == Deferred("503")


@pytest.mark.parametrize(
    "answer",
    [HttpFault(201), HttpFault(202, body=b"thanks"), HttpFault(200, body=b"\xff" * 99), HttpFault(204)],
    ids=lambda answer: str(answer.status),
)
@looped
async def test_any_2xx_is_a_delivery_whatever_its_body_says(answer: HttpFault) -> None:
    async with Sink() as sink, transport(sink, "http/protobuf") as made:
        sink.http_script.append(answer)
        assert await made.send(Signal.TRACES, traces(1)) == Delivered()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@looped
async def test_a_partial_success_is_a_delivery_with_a_remark(protocol: str) -> None:
    async with Sink() as sink, transport(sink, protocol) as made:
        sink.grpc_script.append(PARTIAL)
        sink.http_script.append(HttpFault(200, body=PARTIAL))
        assert await made.send(Signal.TRACES, traces(1)) == Delivered(2, "too old")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@looped
async def test_an_answer_that_does_not_come_in_time_is_a_reason_to_try_again(protocol: str) -> None:
    async with Sink() as sink, transport(sink, protocol, timeout_seconds=0.2) as made:
        sink.gate.clear()
        reply = await made.send(Signal.TRACES, traces(1))
    assert reply == Deferred("DEADLINE_EXCEEDED" if protocol == "grpc" else "timeout")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@looped
async def test_a_next_hop_that_is_gone_is_a_reason_to_try_again_and_its_return_is_noticed(protocol: str) -> None:
    async with Sink() as sink, transport(sink, protocol) as made:
        assert await made.send(Signal.TRACES, traces(1)) == Delivered()
        await sink.vanish()
        assert isinstance(await made.send(Signal.TRACES, traces(2)), Deferred)
        await sink.listen()
        async with asyncio.timeout(20):
            reply: Reply = Deferred("")
            while isinstance(reply, Deferred):
                reply = await made.send(Signal.TRACES, traces(3))
        assert reply == Delivered()


@looped
async def test_a_dropped_connection_is_a_reason_to_try_again() -> None:
    async with Sink() as sink, transport(sink, "http/protobuf") as made:
        sink.http_script.append(HttpFault(0))
        assert isinstance(await made.send(Signal.TRACES, traces(1)), Deferred)
        assert await made.send(Signal.TRACES, traces(1)) == Delivered()


@looped
async def test_http_bodies_are_gzip_of_level_one() -> None:
    async with Sink() as sink, transport(sink, "http/protobuf") as made:
        await made.send(Signal.TRACES, traces(1))
        assert sink.taken[0].headers["Content-Encoding"] == "gzip"
        length = int(sink.taken[0].headers["Content-Length"])
    assert length == len(gzip.compress(traces(1), 1))


@looped
async def test_zstd_is_undone_by_the_next_hop_and_named_in_the_header() -> None:
    small, large = traces(1), traces(*range(500), padding=100)  # the large one is compressed in a thread
    async with Sink(raw=True) as sink, transport(sink, "http/protobuf", compression="zstd") as made:
        for body in (small, large):
            assert await made.send(Signal.TRACES, body) == Delivered()
        sent = list(sink.taken)
    assert [one.headers["Content-Encoding"] for one in sent] == ["zstd", "zstd"]
    assert [zstandard.decompress(one.body) for one in sent] == [small, large]
    assert len(sent[1].body) < len(large) / 2


@looped
async def test_our_own_receiver_takes_what_leaves_as_zstd() -> None:
    large = traces(*range(500), padding=100)
    behind = room()
    async with http_door(behind) as door:
        made = connect(
            ExporterConfig(protocol="http/protobuf", endpoint=f"http://127.0.0.1:{door.port}", compression="zstd")
        )
        try:
            for signal, body in (*BODIES.items(), (Signal.TRACES, large)):
                assert await made.send(signal, body) == Delivered()
        finally:
            await made.close()
    assert behind.core.bodies == [*BODIES.items(), (Signal.TRACES, large)]
