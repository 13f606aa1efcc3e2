"""A listening socket that knows its connections: how many there are, which are idle, and why one was refused.

asyncio's own servers drop a connection whose TLS handshake fails without a word to anybody, and keep every
connection that says nothing. Here a refusal has a name and is counted, and beyond the limit the connection
that has been idle longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ..telemetry.logs import Log

if TYPE_CHECKING:
    from collections.abc import Callable

HANDSHAKE_SECONDS_MAX = 10.0
"""How long a TLS handshake may take."""

_BACKLOG = 1024
_REST_SECONDS = 1.0  # after the system had no descriptor or memory left for a connection, or fails with every one
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# What OpenSSL calls it, and what we do.
_REASONS: Final = {
    "HTTP_REQUEST": "plain_text",
    "WRONG_VERSION_NUMBER": "plain_text",
    "RECORD_LAYER_FAILURE": "plain_text",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "UNSUPPORTED_PROTOCOL": "tls_version",
    "VERSION_TOO_LOW": "tls_version",
    "NO_SHARED_CIPHER": "tls_version",
    "NO_APPLICATION_PROTOCOL": "application_protocol",
    "TLSV1_ALERT_UNKNOWN_CA": "we_are_not_trusted",
    "TLSV1_ALERT_CERTIFICATE_UNKNOWN": "we_are_not_trusted",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "we_are_not_trusted",
    "SSLV3_ALERT_BAD_CERTIFICATE": "we_are_not_trusted",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "we_are_not_trusted",
    "TLSV1_ALERT_INTERNAL_ERROR": "we_are_not_trusted",
}
_UNKNOWN_AUTHORITY: Final = frozenset({18, 19, 20, 21})  # X509_V_ERR_: self-signed, or an issuer that cannot be found
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED

_log = Log("listener")


def allow_open_files() -> None:
    """Let the process have as many files and connections open as it may: many systems begin with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Visit:
    """One connection, from the moment it is accepted. What serves it says when it is at work and when it is over."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.BaseTransport | None = None

    def busy(self) -> None:
        """Say that a request is being served: the connection does not have to make room for others."""
        self._listener.idle.pop(self, None)

    def idle(self) -> None:
        """Say that a request has been served."""
        if self in self._listener.visits:
            self._listener.idle[self] = None

    def closed(self) -> None:
        """Say that the connection is over."""
        self._listener.idle.pop(self, None)
        self._listener.visits.discard(self)

    def refused(self, reason: str) -> None:
        """Count the connection as refused."""
        self._listener.refused(reason)

    def open(self, sock: socket.socket) -> None:
        """Begin to serve an accepted connection."""
        self._task = asyncio.create_task(self._open(sock))

    async def drop(self) -> None:
        """End the connection at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def abort(self) -> None:
        """Close the connection without ceremony: nothing that is queued is sent."""
        self.closed()
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    async def _open(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.connect_accepted_socket(
                lambda: self._listener.factory(self),
                sock,
                ssl=self._listener.context,
                ssl_handshake_timeout=self._listener.handshake_seconds_max,
            )
        except OSError as error:
            self.closed()
            self.refused(reason_of(error))
        except asyncio.CancelledError:
            self.closed()
            raise
        finally:
            self._task = None


def reason_of(error: OSError) -> str:
    """Name why a handshake failed: a word of ours, never what the peer sent."""
    match error:
        case ssl.SSLCertVerificationError(verify_code=code):
            if code == _EXPIRED:
                return "certificate_expired"
            return "certificate_authority" if code in _UNKNOWN_AUTHORITY else "certificate"
        case ssl.SSLError(reason=str(reason)):
            return _REASONS.get(reason, "handshake")
        case ConnectionAbortedError() | TimeoutError():
            return "handshake_timeout"
        case _:
            return "handshake_broken_off"


async def why_not(endpoint: str) -> OSError:
    """Find out why gRPC cannot listen, which says only that it cannot."""
    try:
        for listening in [] if endpoint.startswith("unix:") else await _listening(endpoint):
            listening.close()
    except OSError as error:
        return error
    return OSError(errno.EADDRNOTAVAIL, f"gRPC cannot listen on {endpoint}")


async def _listening(endpoint: str) -> list[socket.socket]:
    """Listen on all addresses of an endpoint, or raise an `OSError` that names it."""
    address = urlsplit(f"//{endpoint}")
    with contextlib.ExitStack() as stack:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                address.hostname, address.port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            sockets = []
            for family, _, _, _, place in dict.fromkeys(found):
                listening = stack.enter_context(socket.create_server(place[:2], family=family, backlog=_BACKLOG))
                listening.setblocking(False)
                sockets.append(listening)
        except OSError as error:
            # Without what Python adds in parentheses to some of them.
            reason = (error.strerror or "").split(" (", 1)[0]
            raise OSError(error.errno, f"cannot listen on {endpoint}: {reason}") from error
        stack.pop_all()
    return sockets


class Listener:
    """Accepts connections at one address, with TLS where there is a context.

    ``factory`` makes what serves a connection, of which it is given the `Visit`; ``refused`` is told the reason
    of each refusal.
    """

    def __init__(  # noqa: PLR0913 - what is by keyword is a limit or has a default
        self,
        endpoint: str,
        factory: Callable[[Visit], asyncio.Protocol],
        refused: Callable[[str], None],
        *,
        connections_max: int,
        context: ssl.SSLContext | None = None,
        handshake_seconds_max: float = HANDSHAKE_SECONDS_MAX,
    ) -> None:
        self.handshake_seconds_max = None if context is None else handshake_seconds_max
        self._endpoint = endpoint
        self._connections_max = connections_max
        self.sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self.factory = factory
        self.refused = refused
        self.context = context
        self.visits: set[Visit] = set()
        self.idle: dict[Visit, None] = {}
        """Those of whom no request is being served, the longest so first."""
        self.port = 0
        """The port that is listened on, after `start`."""

    async def start(self) -> None:
        """Listen. Raises `OSError` where the address cannot be had."""
        self.sockets = await _listening(self._endpoint)
        self.port = self.sockets[0].getsockname()[1]
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in self.sockets]

    async def stop(self) -> None:
        """Accept no more; connections that are open stay."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self.sockets:
            listening.close()

    async def abort_all(self) -> None:
        """End all connections at once, and those that are still in their handshake."""
        for visit in tuple(self.visits):
            visit.abort()
            await visit.drop()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # the client has left before it was let in
            except OSError as error:
                self.refused("descriptors" if error.errno in _EXHAUSTED else "accept")
                _log.error("no more connections can be accepted", error=error)
                await asyncio.sleep(_REST_SECONDS)
                continue
            self._admit(sock)
            await asyncio.sleep(0)  # the next one may be there already, and others want their turn

    def _admit(self, sock: socket.socket) -> None:
        if len(self.visits) >= self._connections_max:
            oldest = next(iter(self.idle), None)
            self.refused("connections_max")
            if oldest is None:
                sock.close()
                return
            oldest.abort()
        sock.setblocking(False)
        # asyncio does this only to sockets that name their protocol, which accepted ones here do not.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visit = Visit(self)
        self.visits.add(visit)
        self.idle[visit] = None
        visit.open(sock)
