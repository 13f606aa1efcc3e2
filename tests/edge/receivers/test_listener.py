from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from tests.edge.loops import looped
from whymiss.edge.receivers.listener import Listener, Visit, allow_open_files, why_not

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Echo(asyncio.Protocol):
    """Says what it hears. A ``b`` begins a request that does not end, an ``i`` ends it."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if data == b"b":
            self._visit.busy()
        elif data == b"i":
            self._visit.idle()
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._visit.closed()


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def says(self, word: bytes) -> bytes:
        """Say a word and return what came back; nothing did where the connection is over."""
        try:
            self.writer.write(word)
            return await self.reader.read(1)
        except ConnectionError:
            return b""


@asynccontextmanager
async def listening(connections_max: int) -> AsyncIterator[tuple[Listener, asyncio.Queue[str]]]:
    reasons: asyncio.Queue[str] = asyncio.Queue()
    listener = Listener("127.0.0.1:0", Echo, reasons.put_nowait, connections_max=connections_max)
    await listener.start()
    try:
        yield listener, reasons
    finally:
        await listener.stop()
        await listener.abort_all()


async def visit(listener: Listener) -> Peer:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", listener.port))
    await peer.says(b"x")
    return peer


@looped
async def test_the_connection_that_is_idle_longest_makes_room() -> None:
    async with listening(3) as (listener, reasons):
        peers = [await visit(listener) for _ in range(3)]
        assert await peers[0].says(b"b") == b"b"
        assert await peers[1].says(b"b") == b"b"
        assert await peers[1].says(b"i") == b"i"  # idle again, but for less long than the third
        peers += [await visit(listener), await visit(listener)]
        assert [await peer.says(b"y") for peer in peers] == [b"y", b"", b"", b"y", b"y"]
        assert reasons.qsize() == 2
        assert len(listener.visits) == 3
        for peer in peers:
            peer.writer.close()


@looped
async def test_where_all_are_busy_the_next_is_refused() -> None:
    async with listening(2) as (listener, reasons):
        peers = [await visit(listener) for _ in range(2)]
        for peer in peers:
            assert await peer.says(b"b") == b"b"
        peers.append(await visit(listener))
        assert [await peer.says(b"y") for peer in peers] == [b"y", b"y", b""]
        assert await reasons.get() == "connections_max"
        for peer in peers:
            peer.writer.close()


@looped
async def test_a_connection_that_has_left_takes_no_room() -> None:
    async with listening(1) as (listener, reasons):
        for _ in range(5):
            peer = await visit(listener)
            peer.writer.close()
            while listener.visits:  # noqa: ASYNC110 - each turn of the loop is the listener's as well
                await asyncio.sleep(0)
        assert reasons.empty()


@looped
async def test_without_a_descriptor_left_it_waits_and_goes_on() -> None:
    async with listening(10) as (listener, reasons):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
            try:
                assert await reasons.get() == "descriptors"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            peer.sendall(b"z")
            assert await asyncio.to_thread(peer.recv, 1) == b"z"


@looped
async def test_a_socket_that_accepts_nobody_leaves_others_their_turn() -> None:
    async with listening(10) as (listener, reasons):
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            await asyncio.to_thread(peer.sendall, b"z")
            (number,) = [sock.fileno() for sock in listener.sockets]
            with socket.socket(fileno=os.dup(number)) as same:
                same.shutdown(socket.SHUT_RDWR)
            assert await reasons.get() == "accept"


def test_the_process_may_have_as_many_files_open_as_the_system_lets_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@looped
async def test_what_cannot_be_listened_on_is_named_with_the_reason() -> None:
    async with listening(1) as (first, _):
        endpoint = f"127.0.0.1:{first.port}"
        second = Listener(endpoint, Echo, print, connections_max=1)
        with pytest.raises(OSError, match=f"^.*cannot listen on {endpoint}: Address already in use$"):
            await second.start()
        reason = await why_not(endpoint)
    assert (reason.errno, reason.strerror) == (errno.EADDRINUSE, f"cannot listen on {endpoint}: Address already in use")
    reason = await why_not(endpoint)
    assert (reason.errno, reason.strerror) == (errno.EADDRNOTAVAIL, f"gRPC cannot listen on {endpoint}")
