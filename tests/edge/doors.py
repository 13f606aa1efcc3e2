"""Receivers with a core behind them, and clients that knock."""

from __future__ import annotations

import io
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import grpc
import grpc.aio

from tests.edge.cores import PassingCore, counted
from tests.edge.sink import SERVICES
from whymiss.config import ExporterConfig, GrpcReceiverConfig, HttpReceiverConfig
from whymiss.edge.exporters.delivery import Delivered
from whymiss.edge.exporters.exporter import Exporter
from whymiss.edge.exporters.fan_out import FanOut
from whymiss.edge.exporters.owed import Owed
from whymiss.edge.pace import Pace
from whymiss.edge.receivers.otlp_grpc import GrpcReceiver
from whymiss.edge.receivers.otlp_http import HttpReceiver
from whymiss.edge.receivers.request_intake import RequestIntake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from whymiss.edge.exporters.delivery import Reply
    from whymiss.redaction import Signal

LOCAL = "127.0.0.1:0"


class Shelf:
    """A next hop that takes everything."""

    async def send(self, signal: Signal, body: bytes) -> Reply:
        del signal, body
        return Delivered()

    async def close(self) -> None:
        pass


@dataclass
class Room:
    """What stands behind a receiver."""

    core: PassingCore
    exporter: Exporter
    intake: RequestIntake

    def refused(self, **labels: str) -> float:
        return counted(self.core.measures, "whymiss.receiver.refused_requests", **labels)

    def accepted(self, **labels: str) -> float:
        return counted(self.core.measures, "whymiss.receiver.accepted_requests", **labels)


def room(core: PassingCore | None = None, *, queue_requests_max: int = 1000) -> Room:
    core = core or PassingCore()
    settings = ExporterConfig(endpoint="next:4317", insecure=True, queue_requests_max=queue_requests_max)
    owed = Owed()
    exporter = Exporter("next", settings, Shelf(), core.measures, ended=owed.ended)
    return Room(core, exporter, RequestIntake(core, FanOut([exporter], owed), Pace().now, lambda: None))


@asynccontextmanager
async def grpc_door(behind: Room, **settings: int) -> AsyncIterator[GrpcReceiver]:
    receiver = GrpcReceiver(LOCAL, GrpcReceiverConfig(**settings), behind.intake)  # type: ignore[arg-type]
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()
        await behind.exporter.stop(5)


@asynccontextmanager
async def http_door(behind: Room, **settings: int) -> AsyncIterator[HttpReceiver]:
    receiver = HttpReceiver(LOCAL, HttpReceiverConfig(**settings), behind.intake)  # type: ignore[arg-type]
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()
        await behind.exporter.stop(5)


async def call(port: int, signal: str, body: bytes, compression: grpc.Compression | None = None) -> bytes:
    """Export once by gRPC."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICES[signal]}/Export")
        return await method(body, timeout=10, compression=compression)


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def post(
    port: int, path: str, body: bytes, *, media: str = "application/x-protobuf", method: str = "POST", **headers: str
) -> Answered:
    """Send one HTTP request; keywords are further headers, with underscores for dashes."""
    sent = {"Content-Type": media} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(method, f"http://127.0.0.1:{port}{path}", data=io.BytesIO(body), headers=sent) as response,
    ):
        return Answered(response.status, response.headers, await response.read())
