"""A real process under load is killed again and again; what it acknowledged arrives."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import aiohttp
import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.edge.loops import looped
from tests.edge.sink import GrpcFault, Sink
from tests.edge.traffic import numbers, span, traces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SENDERS = 8
ROUNDS = 5
DEEP_ROUNDS = 50


def engine_request(number: int) -> bytes:
    """A span that the service holds for its companions, beside one that it passes through."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    held = scope.spans.add()
    held.CopyFrom(span(number))
    held.name = "llm_request"
    held.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 65
    held.attributes.add(key="gen_ai.request.id").value.string_value = f"cmpl-{number}-0"
    request.resource_spans.add().scope_spans.add().spans.append(span(number + 1))
    return request.SerializeToString()


def requests(numbered: Iterator[int]) -> Iterator[tuple[set[int], bytes]]:
    while True:
        first, second = next(numbered), next(numbered)
        yield {first, second}, (engine_request(first) if first % 4 else traces(first, second, padding=first % 3000))


@dataclass
class Crashing:
    """A service in a process of its own, and its sender's books."""

    directory: Path
    sink: Sink
    fsync: str = "interval"
    sent: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.requests = requests(count())

    async def start(self) -> None:
        text = f"""
receivers: {{grpc: {{endpoint: null}}, http: {{endpoint: "127.0.0.1:{self.port}"}}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{self.sink.grpc_port}", insecure: true, retry: {{initial_seconds: 0.01}}}}}}
join: {{hold_seconds: 0.4, linger_seconds: 0.2}}
spool: {{directory: "{self.directory}", segment_bytes: 64KiB, fsync: {self.fsync}, replay_requests_per_second: 2000}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "whymiss", "run", "--config", "-",
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.close()
        self.lines: list[bytes] = []
        self.said = asyncio.Condition()
        self.listening = asyncio.create_task(self._listen())
        await self.until_said(b'"running"')

    async def _listen(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            async with self.said:
                self.lines.append(line)
                self.said.notify_all()

    async def until_said(self, words: bytes) -> None:
        async with self.said:
            await self.said.wait_for(lambda: any(words in line for line in self.lines))

    async def load(self, enough: int) -> None:
        """Send from several connections until so many requests were acknowledged, then kill the process at once."""
        goal = len(self.acknowledged) + 2 * enough
        dead = asyncio.Event()

        async def send(client: aiohttp.ClientSession) -> None:
            while not dead.is_set():
                included, body = next(self.requests)
                self.sent |= included
                try:
                    async with client.post(
                        f"http://127.0.0.1:{self.port}/v1/traces",
                        data=body,
                        headers={"Content-Type": "application/x-protobuf"},
                    ) as answer:
                        assert answer.status == 200
                        self.acknowledged |= included
                except aiohttp.ClientError:
                    assert dead.is_set()
                if len(self.acknowledged) >= goal and not dead.is_set():
                    dead.set()
                    self.process.send_signal(signal.SIGKILL)

        async with aiohttp.ClientSession() as client:
            await asyncio.gather(*(send(client) for _ in range(SENDERS)))
        await self.process.wait()
        await self.listening


async def crash(directory: Path, rounds: int, *, fsync: str = "interval", faults: int = 0) -> None:
    chance = random.Random(rounds)
    async with Sink() as sink:
        scene = Crashing(directory, sink, fsync)
        for _ in range(rounds):
            sink.grpc_script.extend([GrpcFault(grpc.StatusCode.UNAVAILABLE)] * chance.randint(0, faults))
            await scene.start()
            await scene.load(chance.randint(1, 150))
        await scene.start()
        await scene.until_said(b"backlog of earlier runs has been read")
        scene.process.send_signal(signal.SIGTERM)
        assert await scene.process.wait() == 0
        await scene.listening
        arrived = Counter(numbers(*(one.body for one in sink.taken)))
        assert [line for line in scene.lines if b'"level":"error"' in line] == []
    duplicates = sum(arrived.values()) - len(arrived)
    print(
        f"{rounds} kills, fsync {fsync}: {len(scene.acknowledged)} spans acknowledged, {len(arrived)} arrived, "
        f"{duplicates} duplicates, {len(scene.acknowledged - arrived.keys())} lost"
    )
    assert scene.acknowledged <= arrived.keys()
    assert arrived.keys() <= scene.sent


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    looped(crash, 120)(tmp_path, ROUNDS)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_lost_where_the_next_hop_fails_as_well(tmp_path: Path) -> None:
    looped(crash, 120)(tmp_path, ROUNDS, fsync="never", faults=40)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
@pytest.mark.parametrize("fsync", ["never", "interval", "always"])
def test_nothing_acknowledged_is_lost_in_fifty_kills(tmp_path: Path, fsync: str) -> None:
    looped(crash, 900)(tmp_path, DEEP_ROUNDS, fsync=fsync, faults=20)
    assert list(tmp_path.iterdir()) == []
