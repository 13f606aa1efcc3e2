"""Messages that do not get on, on a real connection."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
import pytest

from tests.edge.cores import counted
from tests.edge.doors import LOCAL, Room, call, room
from tests.edge.http2 import Http2
from tests.edge.kv.test_push import push
from tests.edge.loops import looped
from tests.edge.traffic import BODIES, traces
from whymiss.config import GrpcReceiverConfig, Secret
from whymiss.edge.kv.push import PUSH, kv_push_service
from whymiss.edge.receivers.grpc_bodies import Bodies
from whymiss.edge.receivers.otlp_grpc import GrpcReceiver
from whymiss.edge.security import OPEN, Doorkeeper
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from whymiss.edge.receivers.grpc_bodies import Context


@asynccontextmanager
async def door(behind: Room, bodies: Bodies, doorkeeper: Doorkeeper = OPEN) -> AsyncIterator[int]:
    pushes = kv_push_service(behind.core, lambda: None, doorkeeper.admits)
    receiver = GrpcReceiver(
        LOCAL, GrpcReceiverConfig(), behind.intake, bodies=bodies, doorkeeper=doorkeeper, services=[pushes]
    )
    await receiver.start()
    try:
        yield receiver.port
    finally:
        await receiver.stop()
        await behind.exporter.stop(5)


@looped
async def test_the_oldest_unfinished_message_makes_room_for_the_next() -> None:
    behind = room()
    async with door(behind, Bodies(bodies_max=3, undisturbed_seconds=0)) as port, Http2(port) as slow:
        streams = [slow.begin(claimed=1000) for _ in range(5)]
        await slow.until_ended(2)
        assert slow.ended == set(streams[:2])
        assert await call(port, "traces", traces(1)) == b""
        await slow.until_ended(3)
        assert slow.ended == set(streams[:3])
    assert behind.refused(transport="grpc", reason="too_slow") == 3
    assert behind.accepted(transport="grpc") == 1


@looped
async def test_too_many_messages_within_a_moment_are_asked_to_come_again() -> None:
    behind = room()
    async with door(behind, Bodies(bodies_max=2, undisturbed_seconds=60)) as port, Http2(port) as slow:
        for _ in range(3):
            slow.begin(claimed=1000)
        await slow.until_ended(1)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(port, "traces", traces(1))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "google.rpc.retryinfo-bin" in dict(refused.value.trailing_metadata() or ())
    assert behind.refused(transport="grpc", reason="overloaded") == 2


@looped
async def test_a_message_that_takes_too_long_is_refused_on_every_service() -> None:
    behind = room()
    async with door(behind, Bodies(seconds_max=0.01)) as port, Http2(port) as slow:
        slow.begin(claimed=1000)
        slow.begin(PUSH, claimed=1000)
        slow.begin()
        await slow.until_ended(3)
    assert behind.refused(signal="traces", reason="too_slow") == 2
    assert behind.refused(signal="kv_events", reason="too_slow") == 1


@looped
async def test_a_finished_message_leaves_no_trace() -> None:
    behind, bodies = room(), Bodies(bodies_max=1, undisturbed_seconds=60)
    async with door(behind, bodies) as port:
        for _ in range(5):
            for signal, body in BODIES.items():
                assert await call(port, signal, body) == b""
    assert behind.core.bodies == list(BODIES.items()) * 5


@looped
async def test_a_call_without_a_message_is_bad_input() -> None:
    behind = room()
    async with door(behind, Bodies()) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        export: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(iter(()))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert behind.refused(reason="bad_input") == 1


@looped
async def test_the_message_of_a_stranger_is_not_waited_for() -> None:
    behind, keeper = room(), Doorkeeper([Secret("a-token-of-some-length")])
    async with door(behind, Bodies(bodies_max=1, undisturbed_seconds=60), keeper) as port, Http2(port) as stranger:
        for _ in range(3):
            stranger.begin(claimed=1000)
            stranger.begin(PUSH, claimed=1000)
        await stranger.until_ended(6)
    assert behind.refused(signal=Signal.TRACES, reason="unauthenticated") == 3
    assert behind.refused(signal="kv_events", reason="unauthenticated") == 3


@looped
async def test_a_pushed_batch_reaches_the_core_through_the_receiver() -> None:
    behind = room()
    async with door(behind, Bodies()) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PUSH)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(push(0))
    assert refused.value.code() is grpc.StatusCode.INTERNAL  # this core takes no KV events
    assert counted(behind.core.measures, "whymiss.stage.failures", stage="ledger") == 1


class Silent:
    """A call whose message never comes."""

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""


class Prompt:
    """A call whose message is there."""

    async def read(self) -> bytes:
        return b"message"


@looped
async def test_a_message_whose_time_is_just_over_costs_nobody_else_a_failure() -> None:
    bodies = Bodies(bodies_max=1, seconds_max=0, undisturbed_seconds=0)
    silent, prompt = cast("Context", Silent()), cast("Context", Prompt())

    async def arrive() -> bytes:
        # In this turn of the loop the silent one's time ends; it hears of it in the next one.
        await asyncio.sleep(0)
        return await bodies.read(prompt)

    late, punctual = await asyncio.gather(bodies.read(silent), arrive(), return_exceptions=True)
    assert isinstance(late, TimeoutError)
    assert punctual == b"message"
