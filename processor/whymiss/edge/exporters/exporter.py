"""A destination: its own queue, its own retries. It takes redacted requests and nothing else.

What ``enqueue`` took has been acknowledged to its sender. It leaves delivered, or it is counted under
one of five words: ``rejected`` (in part, by a partial success), ``refused`` (by the destination, for
good), ``retries_exhausted``, ``too_large`` (a single span above the limit) and ``shutdown``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...errors import Overloaded
from ...redaction import Signal
from ...wire.split import span_count
from ..pace import Pace
from ..telemetry.logs import Log
from .delivery import Deferred, Delivered, DeliveryState, Refused
from .portions import divide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...config import ExporterConfig
    from ...measures import Measures
    from ...redaction import Redacted
    from ..telemetry.logs import Scalar
    from .delivery import Reply, Transport

CONCURRENCY = 10
"""Requests under way to one destination, as a Collector's ``num_consumers``."""

REQUEST_BYTES_MAX = 4 << 20
"""Largest request that leaves: what OTLP asks every gRPC server to take, and no HTTP server refuses."""

GATHER_SECONDS = 0.02
"""How long a worker lets small requests gather before it sends them as one."""

_ONE_SPOILS_ALL = frozenset({"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "400", "413"})
"""Refusals that one malformed request, or only their sum, may have caused."""

DIVISIBLE_BYTES_MIN = 1 << 16
"""A request as small as this is not cut for a next hop that finds it too large: no hop's limit is that low."""

GATHER_REQUESTS = 64
"""With so many in the queue nobody waits for more."""

Loss: TypeAlias = Literal["rejected", "refused", "retries_exhausted", "too_large", "shutdown"]

_log = Log("exporter")


class _Batch:
    """Requests for one signal that travel as one."""

    def __init__(self, first: Redacted) -> None:
        self.signal = first.signal
        self.requests = [first]
        self.size = len(first.body)

    @property
    def items(self) -> int:
        """Spans in all of them."""
        return sum(request.items for request in self.requests)

    def add(self, request: Redacted) -> bool:
        """Take one more along, if it fits."""
        # Metrics and logs leave unread: one that is malformed must not spoil another.
        if not request.signal is self.signal is Signal.TRACES or self.size + len(request.body) > REQUEST_BYTES_MAX:
            return False
        self.requests.append(request)
        self.size += len(request.body)
        return True


class Exporter:
    """One destination. It belongs to one event loop; `stop` it once, after the last item.

    ``ended`` is called with the items that were delivered, or given up and counted; not with those that the shutdown left.
    """

    def __init__(  # noqa: PLR0913 - what is by keyword has a default
        self,
        name: str,
        settings: ExporterConfig,
        transport: Transport,
        measures: Measures,
        pace: Pace | None = None,
        *,
        ended: Callable[[Sequence[Redacted]], None] = lambda _: None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._transport = transport
        self._measures = measures
        self._pace = pace or Pace()
        self._ended = ended
        self.delivery = DeliveryState()
        self._queue: deque[Redacted] = deque()
        self._queued_bytes = 0
        self._sending: list[_Batch] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._gathering = False
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def settings(self) -> ExporterConfig:
        """What was configured for it."""
        return self._settings

    @property
    def held_requests(self) -> int:
        """Requests queued or under way."""
        return len(self._queue) + sum(len(batch.requests) for batch in self._sending)

    @property
    def held_bytes(self) -> int:
        """Bytes of the requests queued or under way."""
        return self._queued_bytes + sum(batch.size for batch in self._sending)

    @property
    def copied_bytes(self) -> int:
        """Bytes held twice: what is under way was put together into one request."""
        return sum(batch.size for batch in self._sending)

    @property
    def fullness(self) -> float:
        """The part of its limits that is taken, 1 and above when it is full."""
        limits = self._settings
        return max(self.held_requests / limits.queue_requests_max, self.held_bytes / limits.queue_bytes_max)

    def require_room(self) -> None:
        """Raise `Overloaded` while what is held has reached a limit, and count the request that it costs."""
        for held, key in ((self.held_requests, "queue_requests_max"), (self.held_bytes, "queue_bytes_max")):
            limit: int = getattr(self._settings, key)
            if held >= limit:
                self._measures.count("whymiss.exporter.refused_requests", exporter=self.name, limit=key)
                raise Overloaded("an exporter's queue is full", limit_key=f"exporters.{self.name}.{key}")

    def submit(self, item: Redacted) -> None:
        """Queue what has not been acknowledged yet, or raise `Overloaded`."""
        self.require_room()
        self.enqueue(item)

    def enqueue(self, item: Redacted) -> None:
        """Queue what has been acknowledged: it goes in over the limits too.

        How far over is bounded: meanwhile new requests are refused, so it is by what the joiner holds.
        """
        if not item.body:
            return
        self._queue.append(item)
        self._queued_bytes += len(item.body)
        self._employ()

    def gauge(self) -> None:
        """Bring the gauges up to date."""
        self._measures.gauge("whymiss.exporter.queue_size", self.held_requests, exporter=self.name)
        self._measures.gauge("whymiss.exporter.queue_capacity", self._settings.queue_requests_max, exporter=self.name)

    async def stop(self, deadline_seconds: float) -> int:
        """Send what is held, then disconnect; return how many requests were given up at the deadline.

        What waits for its next attempt makes it at once. A request that is on disk is not given up.
        """
        self._stopping.set()
        if self._workers:
            await self._pace.wait(self._idle, deadline_seconds)
        unfinished = list(self._workers)
        for worker in unfinished:
            worker.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._transport.close()
        left = [*(item for batch in self._sending for item in batch.requests), *self._queue]
        lost = [item for item in left if not item.tickets]
        if lost:
            self._lose("shutdown", sum(item.items for item in lost), requests=len(lost))
        if len(left) > len(lost):
            _log.warning("requests stay on disk", exporter=self.name, requests=len(left) - len(lost))
        return len(lost)

    def _employ(self) -> None:
        """Have a worker for the queue, unless one is about to look at it or all are busy."""
        if self._queue and not self._gathering and len(self._workers) < CONCURRENCY:
            self._gathering = True
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            self._idle.clear()
            worker.add_done_callback(self._dismiss)

    def _dismiss(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not self._workers:
            self._idle.set()

    async def _work(self) -> None:
        while self._queue:
            self._gathering = True
            if self._may_grow() and not self._stopping.is_set():
                await self._pause(GATHER_SECONDS)
            self._gathering = False
            if not self._queue:
                return
            batch = self._take()
            self._sending.append(batch)
            self._employ()
            await self._deliver(batch)
            self._sending.remove(batch)
            self._ended(batch.requests)
        self._gathering = False

    def _may_grow(self) -> bool:
        """Whether the next request is small enough, and the queue short enough, to be worth a wait."""
        few = len(self._queue) < GATHER_REQUESTS and self._queued_bytes < REQUEST_BYTES_MAX
        return few and self._queue[0].signal is Signal.TRACES

    def _take(self) -> _Batch:
        """Take the oldest request, and with it those behind it that fit into the same one."""
        batch = _Batch(self._queue.popleft())
        while self._queue and batch.add(self._queue[0]):
            self._queue.popleft()
        self._queued_bytes -= batch.size
        return batch

    async def _deliver(self, batch: _Batch) -> None:
        if batch.size > REQUEST_BYTES_MAX:
            await self._deliver_in_portions(batch.signal, batch.requests[0].body)
            return
        # Two encoded requests, one behind the other, are the encoding of both merged.
        reply = await self._send(batch.signal, b"".join([request.body for request in batch.requests]))
        if isinstance(reply, Refused) and reply.code in _ONE_SPOILS_ALL and len(batch.requests) > 1:
            # We put them together, so none may suffer from another.
            for request in batch.requests:
                await self._deliver_one(request.signal, request.body, request.items)
        elif len(batch.requests) == 1:
            await self._end(reply, batch.signal, batch.requests[0].body, batch.items)
        else:
            self._settle(reply, batch.signal, batch.items)

    async def _deliver_one(self, signal: Signal, body: bytes, items: int) -> None:
        await self._end(await self._send(signal, body), signal, body, items)

    async def _end(self, reply: Reply, signal: Signal, body: bytes, items: int) -> None:
        """Count how a request ended; what the next hop finds too large goes again in halves, while it can be cut."""
        if isinstance(reply, Refused) and reply.code == "413" and len(body) > DIVISIBLE_BYTES_MIN:
            halves = divide(body, len(body) // 2)
            if len(halves) > 1:
                for half in halves:
                    await self._deliver_one(signal, half, span_count(half) if signal is Signal.TRACES else 0)
                return
        self._settle(reply, signal, items)

    async def _deliver_in_portions(self, signal: Signal, body: bytes) -> None:
        for portion in divide(body, REQUEST_BYTES_MAX):
            items = span_count(portion) if signal is Signal.TRACES else 0
            if len(portion) > REQUEST_BYTES_MAX:
                self._lose("too_large", items, bytes=len(portion))
            else:
                await self._deliver_one(signal, portion, items)

    async def _send(self, signal: Signal, body: bytes) -> Reply:
        """Send until there is an answer for good; what is `Deferred` even then is given up."""
        began, attempts = self._pace.now(), 0
        limit = self._settings.retry.max_elapsed_seconds
        while True:
            try:
                reply = await self._transport.send(signal, body)
            except Exception as error:
                # No answer says that it is lost: it is tried again like any that got none, and counted when given up.
                _log.error("an attempt failed by a mistake of ours", error=error, exporter=self.name)
                reply = Deferred(type(error).__name__)
            self.delivery.note(reply, self._pace.now())
            if not isinstance(reply, Deferred):
                return reply
            wait_seconds = self._wait_seconds(attempts, reply.hint_seconds)
            attempts += 1
            self._measures.count("whymiss.exporter.deferred_attempts", exporter=self.name, code=reply.code)
            if limit and self._pace.now() - began + wait_seconds > limit:
                return reply
            _log.info(
                "export will be tried again", exporter=self.name, code=reply.code, wait_seconds=round(wait_seconds, 2)
            )
            await self._pause(wait_seconds)

    def _settle(self, reply: Reply, signal: Signal, items: int) -> None:
        """Count how a request ended."""
        match reply:
            case Refused(code=code):
                self._lose("refused", items, signal=signal, code=code)
            case Deferred(code=code):
                self._lose("retries_exhausted", items, signal=signal, code=code)
            case Delivered(rejected=rejected, message=message):
                # Of metrics and logs it rejects points and records, which nobody has counted.
                spans = min(rejected, items)
                self._measures.count("whymiss.exporter.sent_spans", items - spans, exporter=self.name)
                if rejected:
                    self._lose("rejected", spans, signal=signal, rejected=rejected)
                if message:
                    # The next hop's words may quote what we sent: they are not for every log.
                    _log.debug("the next hop remarked on a request", exporter=self.name, remark=message)

    def _wait_seconds(self, attempts: int, hint_seconds: float | None) -> float:
        """Exponential, between half and one and a half of it by chance; a hint can only lengthen it."""
        retry = self._settings.retry
        wait = min(retry.initial_seconds * 1.5 ** min(attempts, 100), retry.max_seconds)
        return max(wait * (0.5 + self._pace.random()), hint_seconds or 0.0)

    async def _pause(self, seconds: float) -> None:
        """Wait; the beginning of the shutdown ends the waits that are under way, and no later ones."""
        await self._pace.wait(asyncio.Event() if self._stopping.is_set() else self._stopping, seconds)

    def _lose(self, how: Loss, items: int, **fields: Scalar) -> None:
        self._measures.count("whymiss.exporter.failed_spans", items, exporter=self.name, error_type=how)
        _log.error("accepted data was not delivered", exporter=self.name, reason=how, spans=items, error=None, **fields)
