"""Publishers as they are in the world, over real ZMQ sockets: what each does is counted, and the others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import zmq
import zmq.asyncio

from tests.edge.cores import counted
from tests.edge.loops import looped
from tests.ledger.batches import payload, stored
from whymiss.config import Config, KvSourceConfig, parse
from whymiss.edge.kv.discovery import Discovery, World
from whymiss.edge.kv.listener import KvListener, source_name
from whymiss.edge.kv.silence import Attended, Silence
from whymiss.pipeline import Pipeline

FLOOD = 30_000


class Engine:
    """A publisher of real batches. A new life numbers from 0 again; the address stays."""

    def __init__(self) -> None:
        self.port = 0
        self.seq = 0
        self.sent = 0

    async def live(self) -> None:
        """Begin a life."""
        # XPUB is PUB that tells of subscriptions, so that nobody has to wait and hope for one.
        self._context = zmq.asyncio.Context()
        self.socket = self._context.socket(zmq.XPUB)
        self.socket.set_hwm(0)
        if self.port:
            self.socket.bind(f"tcp://127.0.0.1:{self.port}")
        else:
            self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.seq = 0

    def die(self) -> None:
        # With its context, because a socket alone gives its address back some time later.
        self._context.destroy(linger=0)

    async def subscribed(self) -> None:
        async with asyncio.timeout(10):
            await self.socket.recv()

    async def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.sent += 1
            raw = payload(stored(hashes=(self.sent,), tokens=(1, 2)), ts=time.time())
            await self.socket.send_multipart([b"", self.seq.to_bytes(8, "big"), raw])
            self.seq += 1

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


class Scene:
    """A pipeline, the engines it follows, and a clock for silences."""

    def __init__(self) -> None:
        self.context = zmq.asyncio.Context()
        self.pipeline = Pipeline(Config.default(), process_key=bytes(32), start_unix_nanos=time.time_ns())
        self.now = 0.0
        self.silence = Silence(self.pipeline.measures, 60.0, now=lambda: self.now)
        self._changed = asyncio.Event()

    def subscribe(self, source: KvSourceConfig) -> Attended:
        return Attended(
            source_name(source),
            self.silence,
            lambda taken: KvListener(source, self.pipeline, self.context, taken),
            self._changed.set,
        )

    def count(self, metric: str, engine: Engine | None = None) -> float:
        labels = {} if engine is None else {"source": engine.endpoint}
        return counted(self.pipeline.measures, f"whymiss.ledger.{metric}", **labels)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not happened():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def engines(count: int) -> AsyncIterator[tuple[Scene, list[Engine]]]:
    world = Scene()
    all_of_them = [Engine() for _ in range(count)]
    for engine in all_of_them:
        await engine.live()
    listed = ", ".join(f"{{endpoint: '{engine.endpoint}'}}" for engine in all_of_them)
    config = parse(f"kv_events: {{sources: [{listed}]}}", {}).kv_events
    discovery = Discovery(config, world.subscribe, world.pipeline.measures, World({}))
    await discovery.start()
    for engine in all_of_them:
        await engine.subscribed()
    try:
        yield world, all_of_them
    finally:
        await discovery.stop()
        world.context.destroy(linger=0)
        for engine in all_of_them:
            engine.die()


@looped
async def test_a_publisher_that_restarts_is_a_restart() -> None:
    async with engines(2) as (world, (one, other)):
        await one.publish(3)
        await world.until(lambda: world.count("events", one) == 3)
        one.die()
        await one.live()
        await one.subscribed()
        await one.publish(2)
        await other.publish(2)
        await world.until(lambda: world.count("events") == 7)
        assert world.count("restarts", one) == 1
        assert world.count("restarts", other) == 0
        assert world.count("gaps") == 0


@looped
async def test_a_publisher_that_floods_loses_nothing_unsaid_and_holds_nobody_up() -> None:
    async with engines(2) as (world, (one, other)):
        flooding = asyncio.create_task(one.publish(FLOOD))
        await world.until(lambda: world.count("events", one) > 0)
        await other.publish(5)
        await world.until(lambda: world.count("events", other) == 5)
        assert world.count("events", one) < FLOOD, "the other did not wait for the end of the flood"
        await flooding
        await one.publish()
        await world.until(lambda: world.count("events", one) == FLOOD + 1 or world.count("gaps", one) > 0)


@looped
async def test_a_publisher_that_sends_garbage_is_counted_message_by_message() -> None:
    async with engines(2) as (world, (one, other)):
        for frames in (
            [b"x"],
            [b"", b"seq", b"p"],
            [b"", bytes(8), b"not msgpack"],
            [b"", bytes(8), b"\x93\xc0\xc0\xc0"],
        ):
            await one.socket.send_multipart(frames)
        await one.publish(2)
        await other.publish(2)
        await world.until(lambda: world.count("events") == 4)
        assert world.count("bad_events", one) == 4
        assert world.count("bad_events", other) == 0


@looped
async def test_a_publisher_that_vanishes_is_silent_until_it_is_back() -> None:
    async with engines(2) as (world, (one, other)):
        await one.publish(1)
        await other.publish(1)
        await world.until(lambda: world.count("events") == 2)
        one.die()
        world.now = 60.0
        await other.publish(1)
        await world.until(lambda: world.count("events", other) == 2)
        world.silence.look()
        assert world.count("silences", one) == 1
        assert world.count("silences", other) == 0
        assert world.count("silent_sources") == 1
        await one.live()
        await one.subscribed()
        await one.publish(1)
        await world.until(lambda: world.count("silent_sources") == 0)
        assert world.count("restarts", one) == 1


@looped
async def test_an_engine_that_appears_in_a_file_is_followed(tmp_path: Path) -> None:
    world = Scene()
    one, other = Engine(), Engine()
    await one.live()
    await other.live()
    path = tmp_path / "engines.yaml"
    path.write_text(f"- {{endpoint: '{one.endpoint}'}}\n")
    config = parse(f"kv_events: {{discovery: [{{file: '{path}', refresh_seconds: 0.01}}]}}", {}).kv_events
    discovery = Discovery(config, world.subscribe, world.pipeline.measures, World({}))
    await discovery.start()
    await one.subscribed()
    path.write_text(f"- {{endpoint: '{other.endpoint}', worker: engine-1}}\n")
    await other.subscribed()
    await one.subscribed()  # the end of the subscription is told like its begin
    await other.publish(1)
    await world.until(lambda: world.count("events", other) == 1)
    assert [stream.worker for stream in world.pipeline.ledger.streams()] == ["engine-1"]
    await discovery.stop()
    world.context.destroy(linger=0)
    one.die()
    other.die()
