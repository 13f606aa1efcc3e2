"""KV-cache events from ZMQ publishers: one task a source, so that none can stop another.

A publisher drops what a slow subscriber cannot take, and says so only by skipping numbers. The core
notices; the listener then asks the publisher's replay socket, before it looks at the next live
message, so that the record stays in order. What counts as a gap, a duplicate or a restart is the
core's to say.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import zmq
import zmq.asyncio

from ...pipeline import KvSource
from ..telemetry.logs import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...config import KvSourceConfig
    from ...pipeline import KvOutcome
    from ..core import Core

REPLAY_SILENCE_SECONDS = 2.0
"""A replay without a further answer for this long is over; vLLM answers between two steps, within 0.1 s."""

REPLAY_REST_SECONDS = 30.0
"""After a replay that was not answered the next gaps are not asked for: each costs the silence above."""

_HIGH_WATER_MARK = 100_000  # messages queued for us, as many as vLLM's publisher keeps
_MESSAGE_BYTES_MAX = 64 << 20  # vLLM's largest batches have a few hundred kilobytes
_HEARTBEAT_MS = 10_000
_TURN = 64  # messages taken in one go before others have their turn

_log = Log("kv_events")


def source_name(settings: KvSourceConfig) -> str:
    """What a source is called in metrics and logs: its address, which the configuration keeps unique with the topic."""
    return f"{settings.endpoint}#{settings.topic}" if settings.topic else settings.endpoint


class KvListener:
    """Follows one source until it is stopped. ZMQ reconnects by itself, for ever."""

    def __init__(
        self,
        settings: KvSourceConfig,
        core: Core,
        context: zmq.asyncio.Context,
        taken: Callable[[], None],
        *,
        replay_silence_seconds: float = REPLAY_SILENCE_SECONDS,
    ) -> None:
        self._settings = settings
        self._core = core
        self._context = context
        self._after = taken
        self._silence_seconds = replay_silence_seconds
        self._source = KvSource(
            name=source_name(settings),
            worker=settings.worker,
            default_worker=settings.default_worker,
            rank=settings.rank,
            model=settings.model,
            kv_connector=settings.kv_connector,
            can_replay=settings.replay_endpoint is not None,
        )
        self._no_replay_until = 0.0
        self._taken = 0
        self._live: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Subscribe and follow. Raises `OSError` where an address to bind cannot be had."""
        live = self._live = self._context.socket(zmq.SUB)
        _tune(live)
        live.subscribe(self._settings.topic)
        try:
            if self._settings.bind:
                live.bind(self._settings.endpoint)
            else:
                live.connect(self._settings.endpoint)
        except zmq.ZMQError as error:
            live.close(linger=0)
            raise OSError(error.errno, f"kv_events: {error.strerror}", self._settings.endpoint) from error
        self._task = asyncio.create_task(self._follow(live))

    async def stop(self) -> None:
        """Unsubscribe; what ZMQ still holds is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._live is not None:
            self._live.close(linger=0)

    async def _follow(self, live: zmq.asyncio.Socket) -> None:
        if self._settings.replay_endpoint is not None:
            # An idle publisher may not speak for hours, and what it holds was announced before we came.
            await self._replay(self._settings.replay_endpoint, 0)
            self._no_replay_until = 0.0  # a publisher that is not up yet has not failed
        while True:
            outcome = await self._take(await live.recv_multipart(), replayed=False)
            if outcome is None or outcome.missing_first is None or self._settings.replay_endpoint is None:
                continue
            if time.monotonic() >= self._no_replay_until:
                # From one before: a batch that was known shows that the publisher still lives the same life.
                await self._replay(self._settings.replay_endpoint, max(0, outcome.missing_first - 1))

    async def _replay(self, endpoint: str, first: int) -> None:
        """Ask for everything from a number on, and feed it until the end marker or silence."""
        try:
            with self._context.socket(zmq.DEALER) as replay:
                _tune(replay)
                replay.connect(endpoint)
                await replay.send_multipart([b"", first.to_bytes(8, "big")])
                if await self._feed(replay):
                    self._core.measures.count("whymiss.ledger.replays", source=self._source.name)
                    return
            _log.warning("a replay was not answered to its end", source=self._source.name, first=first)
        except zmq.ZMQError as error:  # no descriptor or socket is left; what is published live still comes
            _log.error("a replay could not be asked for", error=error, source=self._source.name, first=first)
        self._no_replay_until = time.monotonic() + REPLAY_REST_SECONDS

    async def _feed(self, replay: zmq.asyncio.Socket) -> bool:
        """Take answers; returns whether the end marker came, and not silence."""
        try:
            # Not wait_for: in Python 3.11 it can swallow the cancellation that `stop` waits for.
            async with asyncio.timeout(self._silence_seconds) as patience:
                while True:
                    outcome = await self._take(await replay.recv_multipart(), replayed=True)
                    if outcome is not None and outcome.kind == "end":
                        return True
                    patience.reschedule(asyncio.get_running_loop().time() + self._silence_seconds)
        except TimeoutError:
            return False

    async def _take(self, frames: Sequence[bytes], *, replayed: bool) -> KvOutcome | None:
        self._taken += 1
        if self._taken % _TURN == 0:
            await asyncio.sleep(0)  # a message that is there already is received without one
        try:
            outcome = self._core.kv_frames(
                self._source, frames, time.time_ns(), replayed=replayed, now=time.monotonic()
            )
        except Exception as error:
            name = type(error).__name__
            self._core.measures.count("whymiss.stage.failures", stage="ledger", error_type=name)
            _log.error("a KV-event message was lost", error=error, source=self._source.name)
            return None
        self._after()
        return outcome


def _tune(socket: zmq.asyncio.Socket) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, _MESSAGE_BYTES_MAX)
    # Without a heartbeat a publisher whose node is gone looks like one that is idle.
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)
