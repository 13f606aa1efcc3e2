"""One HTTP connection: aiohttp's, with refusals that are counted and answers that repeat nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ...wire.json_out import status_body
from ..telemetry.logs import Log
from .refusals import FAILED, MALFORMED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .listener import Visit

IDLE_SECONDS = 75.0
"""How long a connection may be without a request, and how long the head of its first one may take."""

_TLS_HANDSHAKE = 0x16  # the first byte of a client that speaks TLS; no HTTP method begins so
_HTTP2 = b"PRI"  # RFC 9113 keeps this method for the first bytes of HTTP/2, which here means gRPC

_log = Log("http")


class Connection(web.RequestHandler):
    """Serves the requests of one connection, and tells its `Visit` when it is at work."""

    __slots__ = ("_greeted", "_speaks_http2", "_visit")

    def __init__(self, server: web.Server, visit: Visit) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, access_log=None, auto_decompress=False, keepalive_timeout=IDLE_SECONDS)  # type: ignore[arg-type]
        self._visit = visit
        self._greeted = False
        self._speaks_http2 = False

    def data_received(self, data: bytes) -> None:
        """Take what came; close the connection of a client that takes us for a TLS server."""
        if not self._greeted and data:
            self._greeted = True
            self._speaks_http2 = data.startswith(_HTTP2)
            if data[0] == _TLS_HANDSHAKE:
                self._visit.refused("tls_to_plain_text")
                self.force_close()
                return
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self._visit.closed()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what is no HTTP; aiohttp itself would repeat it in the answer, and call it a mistake of ours."""
        del message, request
        if isinstance(exc, ConnectionError):
            raise exc  # the client has left, and aiohttp waits for this to give up
        answer = MALFORMED
        if status == MALFORMED.status and isinstance(exc, HttpProcessingError | None):
            self._refuse()
        else:
            answer = FAILED
            _log.error("a request failed", error=exc)
        body = status_body(answer.number, answer.message, retry_seconds=None, as_json=False)
        response = web.Response(status=answer.status, body=body, content_type="application/x-protobuf")
        response.force_close()
        return response

    def _refuse(self) -> None:
        if self._speaks_http2:
            self._visit.refused("http2")
            _log.warning("gRPC came to the port of OTLP/HTTP", send_to="receivers.grpc.endpoint")
        else:
            self._visit.refused(MALFORMED.reason)
            _log.warning("what came is no HTTP")

    def busy(self) -> None:
        """Say that a request is being served."""
        self._visit.busy()

    def idle(self) -> None:
        """Say that it has been served."""
        self._visit.idle()


def connections(
    serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> tuple[web.Server, Callable[[Visit], Connection]]:
    """Make the server that knows all connections, and what makes one of them."""

    async def attended(request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.busy()
        try:
            return await serve(request)
        finally:
            connection.idle()

    server = web.Server(attended)
    return server, lambda visit: Connection(server, visit)
