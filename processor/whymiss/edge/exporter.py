"""A queue to one next hop, with retries. It takes ``Redacted`` and nothing else."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from ..config import ExporterConfig
from ..errors import Overloaded
from ..measures import Measures
from ..redaction import Redacted, Signal
from .logs import Log
from .transports import Again, Delivered, GrpcTransport, HttpTransport, Refused, Transport

CONSUMERS = 4
"""Requests under way at once to one next hop: throughput is this times a request's size over its round trip."""
BATCH_BYTES_MAX = 2 * 1024 * 1024
"""Requests of one signal that wait are sent as one up to this size: half of what OTLP/gRPC servers take."""
BACKOFF_FACTOR = 1.5
JITTER = 0.5

log = Log("exporter")


class World(msgspec.Struct, frozen=True):
    """What an exporter needs of the world besides its transport."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


REAL = World()


class Exporter:
    """Sends what is submitted, in order of submission as far as retries allow."""

    def __init__(
        self,
        name: str,
        config: ExporterConfig,
        measures: Measures,
        *,
        transport: Transport | None = None,
        world: World = REAL,
    ) -> None:
        self.name = name
        self._config = config
        self._measures = measures
        self._transport = transport or (GrpcTransport(config) if config.protocol == "grpc" else HttpTransport(config))
        self._world = world
        self._waiting: deque[Redacted] = deque()
        self._bytes = 0
        self._under_way = 0
        self._changed = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    # --- taking ---------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raise ``Overloaded`` when the queue takes no more."""
        key = f"exporters.{self.name}"
        if len(self._waiting) + self._under_way >= self._config.queue_requests_max:
            raise Overloaded("the export queue is full", limit_key=f"{key}.queue_requests_max")
        if self._bytes >= self._config.queue_bytes_max:
            raise Overloaded("the export queue is full", limit_key=f"{key}.queue_bytes_max")

    def submit(self, item: Redacted) -> None:
        """Queue a request. What was accepted before is taken even over the limit: room is checked first."""
        self._waiting.append(item)
        self._bytes += len(item.body)
        self._show()
        self._changed.set()

    def _show(self) -> None:
        self._measures.gauge("whymiss.exporter.queue_size", len(self._waiting) + self._under_way, exporter=self.name)
        self._measures.gauge("whymiss.exporter.queue_capacity", self._config.queue_requests_max, exporter=self.name)

    @property
    def held_bytes(self) -> int:
        """Bytes that are queued or under way."""
        return self._bytes

    # --- sending --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to send."""
        await self._transport.start()
        self._tasks = [asyncio.create_task(self._consume()) for _ in range(CONSUMERS)]

    async def stop(self, deadline_seconds: float) -> None:
        """Send what is queued within the deadline; what is left then is counted as lost and named."""
        self._closing = True
        self._changed.set()
        _, late = await asyncio.wait(self._tasks, timeout=deadline_seconds) if self._tasks else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._waiting:
            self._give_up(self._waiting.popleft(), "shutdown")
        await self._transport.stop()

    async def _consume(self) -> None:
        while (item := await self._next()) is not None:
            try:
                await self._deliver(item)
            except asyncio.CancelledError:
                self._give_up(item, "shutdown")
                raise
            except Exception as error:
                # A defect of ours costs this request, not the exporter.
                log.error("request not exported", error=error, exporter=self.name)
                self._give_up(item, type(error).__name__)
            finally:
                self._under_way -= 1
                self._show()

    async def _next(self) -> Redacted | None:
        while not self._waiting:
            if self._closing:
                return None
            self._changed.clear()
            await self._changed.wait()
        item = self._batch(self._waiting.popleft())
        self._under_way += 1
        return item

    def _batch(self, first: Redacted) -> Redacted:
        """Join what waits behind: the concatenation of encoded export requests is their merged request."""
        bodies, items, size = [first.body], first.items, len(first.body)
        while self._waiting:
            following = self._waiting[0]
            if following.signal is not first.signal or size + len(following.body) > BATCH_BYTES_MAX:
                break
            self._waiting.popleft()
            bodies.append(following.body)
            items += following.items
            size += len(following.body)
        return first if len(bodies) == 1 else msgspec.structs.replace(first, body=b"".join(bodies), items=items)

    async def _deliver(self, item: Redacted) -> None:
        retry = self._config.retry
        began = self._world.monotonic()
        wait = retry.initial_seconds
        while True:
            answer = await self._transport.send(item.signal, item.body)
            if isinstance(answer, Delivered):
                self._delivered(item, answer)
                return
            if isinstance(answer, Refused):
                self._give_up(item, answer.error)
                return
            pause = self._pause(answer, wait)
            elapsed = self._world.monotonic() - began
            if 0 < retry.max_elapsed_seconds < elapsed + pause:
                self._give_up(item, answer.error)
                return
            log.warning("next hop not ready", exporter=self.name, reason=answer.error)
            await self._world.sleep(pause)
            wait = min(retry.max_seconds, wait * BACKOFF_FACTOR)

    def _pause(self, answer: Again, wait: float) -> float:
        jittered = wait * (1 - JITTER + 2 * JITTER * self._world.chance())
        return max(jittered, answer.after_seconds or 0.0)

    def _delivered(self, item: Redacted, answer: Delivered) -> None:
        self._bytes -= len(item.body)
        if answer.rejected or answer.message:
            log.warning("next hop took only part", exporter=self.name, rejected=answer.rejected)
        if item.signal is Signal.TRACES:
            sent = max(0, item.items - answer.rejected)
            self._measures.count("whymiss.exporter.sent_spans", sent, exporter=self.name)
            if answer.rejected:
                self._fail(min(answer.rejected, item.items), "partial_success")

    def _give_up(self, item: Redacted, error: str) -> None:
        self._bytes -= len(item.body)
        log.error("request not exported", exporter=self.name, reason=error, signal=item.signal.value, items=item.items)
        if item.signal is Signal.TRACES:
            self._fail(item.items, error)

    def _fail(self, spans: int, error: str) -> None:
        labels = {"exporter": self.name, "error_type": error}
        self._measures.count("whymiss.exporter.failed_spans", spans, **labels)
