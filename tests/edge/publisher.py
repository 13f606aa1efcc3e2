"""A publisher of numbered messages as vLLM's: PUB, and ROUTER for the replay, that can lose what it publishes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import zmq
import zmq.asyncio

if TYPE_CHECKING:
    from types import TracebackType

END = (1 << 64) - 1


def numbered(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


@dataclass
class Publisher:
    """Keeps everything it published; ``oldest`` is the first number that its replay still has."""

    topic: bytes = b""
    answers: bool = True
    """Whether the replay answers at all."""
    oldest: int = 0
    kept: list[bytes] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    """The first number of each replay that was asked for."""

    async def __aenter__(self) -> Self:
        self._asked = asyncio.Event()
        self._context = zmq.asyncio.Context()
        # XPUB is PUB that tells of subscriptions, so that nobody has to wait and hope for one.
        self._live = self._context.socket(zmq.XPUB)
        self._replay = self._context.socket(zmq.ROUTER)
        self.endpoint = f"tcp://127.0.0.1:{self._live.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay_endpoint = f"tcp://127.0.0.1:{self._replay.bind_to_random_port('tcp://127.0.0.1')}"
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        self._context.destroy(linger=0)

    async def subscribed(self) -> bytes:
        """Wait for the next subscription, and return its topic."""
        async with asyncio.timeout(10):
            message: bytes = await self._live.recv()
        return message[1:]

    async def until_asked(self) -> None:
        """Wait for the first request for a replay."""
        async with asyncio.timeout(10):
            await self._asked.wait()

    async def publish(self, count: int = 1, *, lost: bool = False) -> None:
        """Number and keep messages, and send them unless they are to be lost."""
        for _ in range(count):
            seq = len(self.kept)
            self.kept.append(b"payload %d" % seq)
            if not lost:
                await self.send(self.topic, numbered(seq), self.kept[seq])

    async def send(self, *frames: bytes) -> None:
        """Publish any frames."""
        await self._live.send_multipart(frames)

    async def _serve(self) -> None:
        while True:
            client, empty, first = await self._replay.recv_multipart()
            self.asked.append(int.from_bytes(first, "big"))
            self._asked.set()
            if not self.answers:
                continue
            for seq in range(max(self.oldest, self.asked[-1]), len(self.kept)):
                await self._replay.send_multipart([client, empty, self.topic, numbered(seq), self.kept[seq]])
            await self._replay.send_multipart([client, empty, b"", numbered(END), b""])
