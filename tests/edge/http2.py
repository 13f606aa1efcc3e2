"""As much of HTTP/2 as it takes to misbehave: a client that begins gRPC calls and leaves them unfinished."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from whymiss.edge.otlp_names import METHODS
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from types import TracebackType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
ACK, END_HEADERS = 1, 4
CHUNK = 16_384


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def literal(name: str, value: str) -> bytes:
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def headers(path: str, *more: tuple[str, str]) -> bytes:
    return b"".join(
        literal(name, value)
        for name, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "whymiss"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *more,
        )
    )


@dataclass
class Http2:
    """One connection. ``ended`` has the streams that the server has ended, ``code`` how a GOAWAY put it."""

    port: int
    ended: set[int] = field(default_factory=set)
    gone: bool = False

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._room, self._initial, self._of_stream = 65_535, 65_535, dict[int, int]()
        self._changed = asyncio.Condition()
        self._last = -1
        self._writer.write(PREFACE + frame(SETTINGS, 0, 0))
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    def begin(self, path: str = METHODS[Signal.TRACES], *more: tuple[str, str], claimed: int = 0) -> int:
        """Begin a call, and where it is not 0 a message that claims to have so many bytes. Returns the stream.

        ``more`` are further headers.
        """
        self._last += 2
        self._of_stream[self._last] = self._initial
        self._writer.write(frame(HEADERS, END_HEADERS, self._last, headers(path, *more)))
        if claimed:
            self._write(self._last, b"\x00" + claimed.to_bytes(4, "big"))
        return self._last

    async def send(self, stream: int, size: int) -> int:
        """Send zeros as far as the server's windows let us, and until it ends the stream. Returns how many went."""
        left = size
        while left:
            async with self._changed:
                await self._changed.wait_for(lambda: stream in self.ended or self.gone or self._window(stream) > 0)
            if stream in self.ended or self.gone:
                break
            part = min(left, CHUNK, self._window(stream))
            self._write(stream, bytes(part))
            left -= part
            await self._writer.drain()
        return size - left

    async def until_ended(self, count: int) -> None:
        """Wait until the server has ended so many streams, or the connection."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.ended) >= count or self.gone)

    def _window(self, stream: int) -> int:
        return min(self._room, self._of_stream[stream])

    def _write(self, stream: int, content: bytes) -> None:
        self._room -= len(content)
        self._of_stream[stream] -= len(content)
        self._writer.write(frame(DATA, 0, stream, content))

    async def _listen(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                content = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                async with self._changed:
                    self._take(head[3], head[4], int.from_bytes(head[5:9], "big"), content)
                    self._changed.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            async with self._changed:
                self.gone = True
                self._changed.notify_all()

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == WINDOW and stream == 0:
            self._room += int.from_bytes(content, "big")
        elif kind == WINDOW:
            self._of_stream[stream] = self._of_stream.get(stream, 0) + int.from_bytes(content, "big")
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(content), 6):
                if content[at : at + 2] == b"\x00\x04":
                    initial = int.from_bytes(content[at + 2 : at + 6], "big")
                    for known in self._of_stream:
                        self._of_stream[known] += initial - self._initial
                    self._initial = initial
            self._writer.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._writer.write(frame(PING, ACK, 0, content))
        elif kind == RESET or (kind == HEADERS and flags & 1):
            self.ended.add(stream)
        elif kind == GOAWAY:
            self.gone = True
