"""OTLP over gRPC, as raw bytes: grpc.aio would parse on the event loop what the core may never look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import grpc.aio

from ...errors import BadInput, Overloaded
from ...wire.json_out import export_response, retry_delay_bytes, status_details_bytes
from ..otlp_names import SERVICES
from ..security import OPEN, Doorkeeper, server_context
from .grpc_bodies import Bodies, Unhurried
from .grpc_calls import authorization_of, refuse
from .grpc_tls import TlsFront
from .listener import why_not
from .refusals import TOO_SLOW, UNAUTHENTICATED, refusal_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Literal, NoReturn, TypeAlias

    from ...config import GrpcReceiverConfig
    from ...redaction import Signal
    from .refusals import Refusal
    from .request_intake import RequestIntake

    Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]

PING_INTERVAL_MS = 5_000
"""How often a client may ping. Collectors do every 10 s, and by default gRPC closes the connection at the third."""

_CONNECTION_AGE_MS = 240_000  # long-lived connections never rebalance otherwise
_CONNECTION_GRACE_MS = 60_000
_HANDSHAKE_MS = 10_000  # a connection that does not begin to speak HTTP/2 by then is closed
_STREAMS_MAX = 100  # calls at once on a connection, the fewest that HTTP/2 advises; a client waits with more


class GrpcReceiver:
    """Serves the three Export methods, and further ``services``, on one address.

    Compression by gzip and deflate is gRPC's own.
    """

    def __init__(  # noqa: PLR0913 - what is by keyword has a default
        self,
        endpoint: str,
        settings: GrpcReceiverConfig,
        intake: RequestIntake,
        *,
        grace_seconds: float = 1.0,
        ping_interval_ms: int = PING_INTERVAL_MS,
        doorkeeper: Doorkeeper = OPEN,
        bodies: Bodies | None = None,
        services: Sequence[grpc.GenericRpcHandler] = (),
    ) -> None:
        self._doorkeeper = doorkeeper
        self._bodies = bodies or Bodies()
        self._front = (
            None
            if settings.tls is None
            else TlsFront(
                endpoint,
                server_context(settings.tls, "receivers.grpc.tls"),
                lambda reason: intake.count_refused_connection("grpc", reason),
                connections_max=settings.connections_max,
            )
        )
        self._grace_seconds = grace_seconds
        self._endpoint = endpoint
        self._intake = intake
        self._server = grpc.aio.server(
            handlers=[
                grpc.method_handlers_generic_handler(
                    service, {"Export": grpc.stream_unary_rpc_method_handler(self._export(signal))}
                )
                for signal, service in SERVICES.items()
            ]
            + [Unhurried(service, self._read_push) for service in services],
            options=[
                ("grpc.max_receive_message_length", settings.max_receive_bytes),
                ("grpc.http2.min_ping_interval_without_data_ms", ping_interval_ms),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.max_concurrent_streams", _STREAMS_MAX),
                ("grpc.max_connection_age_ms", _CONNECTION_AGE_MS),
                ("grpc.max_connection_age_grace_ms", _CONNECTION_GRACE_MS),
                ("grpc.so_reuseport", 0),
            ],
        )
        self.port = 0
        """The port that is listened on, after `start`."""

    async def start(self) -> None:
        """Listen. Raises `OSError` where the address cannot be had."""
        try:
            self.port = self._server.add_insecure_port(self._endpoint if self._front is None else self._front.target)
        except RuntimeError as error:
            raise await why_not(self._endpoint if self._front is None else self._front.target) from error
        await self._server.start()
        if self._front is not None:
            await self._front.start()
            self.port = self._front.port

    async def stop(self) -> None:
        """Take no new calls, and let those under way finish within the grace."""
        if self._front is not None:
            await self._front.stop()
        await self._server.stop(self._grace_seconds)
        if self._front is not None:
            await self._front.close()

    def _admits(self, context: Context) -> bool:
        return self._doorkeeper.admits(authorization_of(context))

    async def _read_push(self, context: Context) -> bytes:
        # Without a token the message is not waited for: the service itself refuses the call.
        return await self._read(context, "kv_events") if self._admits(context) else b""

    async def _read(self, context: Context, signal: Signal | Literal["kv_events"]) -> bytes:
        try:
            return await self._bodies.read(context)
        except (TimeoutError, BadInput, Overloaded) as error:
            answer = TOO_SLOW if isinstance(error, TimeoutError) else refusal_of(error)
            self._intake.count_refused("grpc", signal, answer.reason)
            await _refuse(context, answer)

    def _export(self, signal: Signal) -> Callable[[object, Context], Awaitable[bytes]]:
        async def export(_: object, context: Context) -> bytes:
            if not self._admits(context):
                self._intake.count_refused("grpc", signal, UNAUTHENTICATED.reason)
                await _refuse(context, UNAUTHENTICATED)
            body = await self._read(context, signal)
            try:
                accepted = await self._intake.accept("grpc", signal, body)
            except Exception as error:
                answer = refusal_of(error)
                self._intake.count_refused("grpc", signal, answer.reason)
                await _refuse(context, answer)
            return export_response(accepted.rejected, accepted.message, as_json=False, signal=signal)

        return export


async def _refuse(context: Context, answer: Refusal) -> NoReturn:
    # Go reads the first trailer, Python the second.
    trailers = [("grpc-status-details-bin", status_details_bytes(answer.number, answer.message, answer.retry_seconds))]
    if answer.retry_seconds is not None:
        trailers.append(("google.rpc.retryinfo-bin", retry_delay_bytes(answer.retry_seconds)))
    await refuse(context, answer, tuple(trailers))
