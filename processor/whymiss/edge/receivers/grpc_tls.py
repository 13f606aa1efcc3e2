"""TLS in front of gRPC's own server, which tells nobody why a handshake failed, or that one did.

Connections are accepted and decrypted here and go on to gRPC over a socket in a directory that is closed to
other users.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ...errors import ConfigError
from .listener import Listener, Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PARENTS: Final = (None, "/dev/shm")  # noqa: S108 - the name in it is a random one
"""The system's directory for such; where no disk can be written to there is shared memory."""

_SOCKET: Final = "grpc"
_ADDRESS_BYTES_MAX: Final = 107  # unix(7): the address of a socket has 108 bytes, and the last is zero


class TlsFront:
    """Decrypts what comes to ``endpoint`` and passes it on to ``target``, where gRPC is to listen."""

    def __init__(
        self, endpoint: str, context: ssl.SSLContext, refused: Callable[[str], None], *, connections_max: int
    ) -> None:
        context.set_alpn_protocols(["h2"])
        self.directory = private_directory()
        self._remove_directory = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self._path = self.directory / _SOCKET
        self._listener = Listener(
            endpoint,
            lambda visit: _Outer(visit, self._path),
            refused,
            connections_max=connections_max,
            context=context,
        )

    @property
    def target(self) -> str:
        """Where gRPC is to listen."""
        return f"unix:{self._path}"

    @property
    def port(self) -> int:
        """The port that is listened on, after `start`."""
        return self._listener.port

    async def start(self) -> None:
        """Listen, once gRPC does. Raises `OSError` where the address cannot be had."""
        await self._listener.start()

    async def stop(self) -> None:
        """Accept no more; what is open goes on."""
        await self._listener.stop()

    async def close(self) -> None:
        """End all connections, and forget the socket."""
        await self._listener.abort_all()
        self._remove_directory()


def private_directory(parents: Iterable[str | None] = _PARENTS) -> Path:
    """Make a directory that is closed to other users, where a socket can be.

    Raises:
        ConfigError: no parent can be written to, or their names are longer than a socket's may be.
    """
    for parent in parents:
        try:
            directory = Path(tempfile.mkdtemp(prefix="whymiss-", dir=parent))
        except OSError:
            continue
        if len(os.fsencode(directory / _SOCKET)) <= _ADDRESS_BYTES_MAX:
            return directory
        directory.rmdir()
    raise ConfigError(
        "receivers.grpc.tls", "needs a directory for a socket: name a short one that can be written to in TMPDIR"
    )


class _Half(asyncio.Protocol):
    """One side of a connection that is passed on. What one side cannot write, the other does not read."""

    transport: asyncio.Transport

    def __init__(self, other: _Half | None = None) -> None:
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # of a stream it reads and writes

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self.other is not None:
            self.other.transport.close()


class _Outer(_Half):
    """The side of the client."""

    def __init__(self, visit: Visit, path: Path) -> None:
        super().__init__()
        self._visit = visit
        self._path = path
        self._lost = False
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._connecting = asyncio.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        self._visit.busy()  # gRPC itself ends a connection that goes no further
        if self.other is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._visit.closed()
        super().connection_lost(exc)

    async def _connect(self) -> None:
        inner = _Half(self)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: inner, str(self._path))
        except OSError:
            self._visit.refused("stopping")  # gRPC listens for as long as it serves
            self.transport.abort()
            return
        self.other = inner
        if self._lost:
            inner.transport.close()
            return
        inner.transport.writelines(self._early)
        self._early.clear()
        self.transport.resume_reading()
