"""ZMQ subscribers to the engines' KV events, one task a source.

What a publisher lost on the way shows as a gap in its sequence numbers; a replay endpoint is then asked for
what is missing. The request goes out of a DEALER socket because a REQ socket reads one reply only. One source
that floods, stalls or sends garbage costs the others nothing: each has its own socket, queue and task.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

import zmq
import zmq.asyncio

from ..config import KvSourceConfig
from ..pipeline import KvOutcome, KvSource
from .intake import Intake
from .logs import Log

log = Log("kv_events")

RECEIVE_HIGH_WATER: Final = 100_000
"""Messages that may wait in a socket: as many as vLLM's publisher keeps by default."""
RECONNECT_MS: Final = 100
RECONNECT_MS_MAX: Final = 5_000
REPLAY_SILENCE_SECONDS: Final = 1.0
"""A publisher answers replays between two batches, at most 0.1 s apart when it is idle."""


class KvSubscriber:
    """Follows one publisher from ``start`` to ``stop``."""

    def __init__(self, config: KvSourceConfig, intake: Intake, context: zmq.asyncio.Context) -> None:
        self._config = config
        self._intake = intake
        self._context = context
        self._source = KvSource(
            name=config.endpoint,
            worker=config.worker,
            rank=config.rank,
            model=config.model,
            kv_connector=config.kv_connector,
            can_replay=config.replay_endpoint is not None,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._asking = asyncio.Lock()

    async def start(self) -> None:
        """Bind or connect, and begin to read. Raises ``OSError`` where the address cannot be bound."""
        socket = self._context.socket(zmq.SUB)
        socket.set_hwm(RECEIVE_HIGH_WATER)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt_string(zmq.SUBSCRIBE, self._config.topic)
        try:
            if self._config.bind:
                socket.bind(self._config.endpoint)
            else:
                socket.connect(self._config.endpoint)
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise OSError(f"kv_events.sources: cannot use {self._config.endpoint}: {error.strerror}") from error
        self._tasks.append(asyncio.create_task(self._follow(socket)))

    async def stop(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, socket: zmq.asyncio.Socket) -> None:
        with contextlib.closing(_Lingerless(socket)):
            while True:
                frames = await socket.recv_multipart()
                self._take(frames)

    def _take(self, frames: Sequence[bytes]) -> None:
        try:
            outcome = self._intake.take_events(self._source, frames, time.time_ns(), replayed=False)
        except Exception as error:
            # A message that we fail on costs itself.
            log.error("event message failed", error=error, source=self._source.name)
            return
        if outcome.kind == "bad":
            log.warning("event message could not be read", source=self._source.name)
        if outcome.missing_first is not None:
            log.warning(
                "event numbers are missing",
                source=self._source.name,
                first=outcome.missing_first,
                last=outcome.missing_last,
            )
            if self._source.can_replay:
                self._tasks = [task for task in self._tasks if not task.done()]
                self._tasks.append(asyncio.create_task(self._replay(outcome)))

    async def _replay(self, gap: KvOutcome) -> None:
        """Ask the publisher for what is missing, and hand in its answers."""
        assert self._config.replay_endpoint is not None and gap.missing_first is not None, "asked only with both"  # noqa: PT018
        async with self._asking:
            socket = self._context.socket(zmq.DEALER)
            with contextlib.closing(_Lingerless(socket)):
                socket.connect(self._config.replay_endpoint)
                await socket.send_multipart([b"", gap.missing_first.to_bytes(8, "big")])
                answers = 0
                try:
                    while True:
                        frames = await asyncio.wait_for(socket.recv_multipart(), REPLAY_SILENCE_SECONDS)
                        outcome = self._intake.take_events(self._source, frames, time.time_ns(), replayed=True)
                        if outcome.kind == "end":
                            break
                        answers += 1
                except TimeoutError:
                    log.warning("replay was not answered to its end", source=self._source.name, answers=answers)
                except Exception as error:
                    log.error("replay failed", error=error, source=self._source.name)
                else:
                    log.info("gap replayed", source=self._source.name, answers=answers)


class _Lingerless:
    """Closes a socket without waiting for what it did not send."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket

    def close(self) -> None:
        self._socket.close(linger=0)
