from __future__ import annotations

import asyncio
import errno
import os

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.edge.cores import PassingCore, counted
from tests.edge.doors import LOCAL, call, grpc_door, room
from tests.edge.loops import looped
from tests.edge.sink import SERVICES
from tests.edge.traffic import BODIES, redacted, traces
from whymiss.config import GrpcReceiverConfig
from whymiss.edge.receivers.otlp_grpc import GrpcReceiver
from whymiss.errors import BadInput, Overloaded


async def refusal(port: int, body: bytes) -> tuple[str, str, dict[str, str | bytes]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(port, "traces", body)
    error = caught.value
    return error.code().name, error.details() or "", dict(error.trailing_metadata() or ())


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
@looped
async def test_every_signal_reaches_the_core_byte_for_byte(compression: grpc.Compression) -> None:
    behind = room()
    async with grpc_door(behind) as door:
        for signal, body in BODIES.items():
            assert await call(door.port, signal, body, compression) == b""
    assert behind.core.bodies == list(BODIES.items())
    assert behind.accepted(transport="grpc") == 3
    assert counted(behind.core.measures, "whymiss.receiver.accepted_spans", transport="grpc") == 1


@looped
async def test_an_empty_request_is_a_success() -> None:
    async with grpc_door(room()) as door:
        assert await call(door.port, "traces", b"") == b""


@looped
async def test_a_rejected_part_is_told_in_a_partial_success() -> None:
    async with grpc_door(room(PassingCore(rejects=(2, "2 span(s) rejected: no id")))) as door:
        response = ExportTraceServiceResponse.FromString(await call(door.port, "traces", traces(1, 2, 3)))
    assert response.partial_success.rejected_spans == 2
    assert response.partial_success.error_message == "2 span(s) rejected: no id"


@pytest.mark.parametrize(
    ("failure", "code", "reason"),
    [
        (BadInput("not an OTLP trace request"), "INVALID_ARGUMENT", "bad_input"),
        (ZeroDivisionError("a secret"), "INTERNAL", "failed"),
    ],
)
@looped
async def test_what_will_not_get_better_is_answered_without_a_hint(failure: Exception, code: str, reason: str) -> None:
    behind = room(PassingCore(failure=failure))
    async with grpc_door(behind) as door:
        answered, text, trailers = await refusal(door.port, traces(1))
    assert answered == code
    assert "secret" not in text
    assert "google.rpc.retryinfo-bin" not in trailers
    status = Status.FromString(bytes(trailers["grpc-status-details-bin"]))  # type: ignore[arg-type]
    assert (status.message, len(status.details)) == (text, 0)
    assert behind.refused(transport="grpc", signal="traces", reason=reason) == 1
    assert counted(behind.core.measures, "whymiss.receiver.refused_spans") == 1


@looped
async def test_overload_is_answered_with_both_hints() -> None:
    behind = room(PassingCore(failure=Overloaded("too much", limit_key="some.key", retry_after_seconds=2)))
    async with grpc_door(behind) as door:
        code, text, trailers = await refusal(door.port, traces(1))
    assert (code, text) == ("UNAVAILABLE", "too much (raise some.key)")
    bare = RetryInfo.FromString(bytes(trailers["google.rpc.retryinfo-bin"]))  # type: ignore[arg-type]
    status = Status.FromString(bytes(trailers["grpc-status-details-bin"]))  # type: ignore[arg-type]
    packed = RetryInfo()
    assert status.details[0].Unpack(packed)
    assert bare.retry_delay.seconds == packed.retry_delay.seconds == 2
    assert status.code == 14


@looped
async def test_a_full_queue_refuses_before_the_core_sees_the_request() -> None:
    behind = room(queue_requests_max=1)
    async with grpc_door(behind) as door:
        behind.exporter.submit(redacted(7))
        code, text, _ = await refusal(door.port, traces(1))
    assert (code, behind.core.bodies) == ("UNAVAILABLE", [])
    assert "exporters.next.queue_requests_max" in text


@looped
async def test_a_request_above_the_limit_is_refused_for_good() -> None:
    behind = room()
    async with grpc_door(behind, max_receive_bytes=1000) as door:
        code, _, trailers = await refusal(door.port, traces(1, padding=1000))
    assert (code, behind.core.bodies) == ("RESOURCE_EXHAUSTED", [])
    assert "google.rpc.retryinfo-bin" not in trailers


@looped
async def test_garbage_is_the_senders_fault_and_one_mistake_does_not_outlive_its_request() -> None:
    async with grpc_door(room()) as door:
        for _ in range(20):
            garbage = b"\x0a\xff" + os.urandom(50)
            code, _, _ = await refusal(door.port, garbage)
            assert code == "INVALID_ARGUMENT"
        assert await call(door.port, "traces", traces(1)) == b""


@looped
async def test_other_methods_are_not_implemented() -> None:
    async with grpc_door(room()) as door, grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICES['traces']}/Import")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.deep  # gRPC's clients ping once a second at the most, so this takes four
@looped
async def test_a_client_that_pings_while_idle_stays_connected() -> None:
    behind = room()
    receiver = GrpcReceiver(LOCAL, GrpcReceiverConfig(), behind.intake, ping_interval_ms=500)
    await receiver.start()
    pings = [
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{receiver.port}", pings) as channel:
        await channel.channel_ready()
        # By default the third ping is answered by GOAWAY "too_many_pings".
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(channel.wait_for_state_change(grpc.ChannelConnectivity.READY), 4.5)
    await receiver.stop()


@looped
async def test_an_address_in_use_is_an_os_error_that_says_so() -> None:
    behind = room()
    async with grpc_door(behind) as door:
        second = GrpcReceiver(f"127.0.0.1:{door.port}", GrpcReceiverConfig(), behind.intake)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{door.port}: Address already in use") as raised:
            await second.start()
        assert raised.value.strerror, "the log writes nothing else of an OSError"
        assert raised.value.errno == errno.EADDRINUSE
        await second.stop()
