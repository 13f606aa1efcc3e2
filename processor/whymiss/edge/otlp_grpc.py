"""OTLP over gRPC: the receiver.

Bodies are taken as bytes: grpc.aio would parse them on the event loop (grpc/grpc#39803). Errors carry their
retry hint twice, because the Go exporters read ``grpc-status-details-bin`` and the Python ones
``google.rpc.retryinfo-bin``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import grpc

from ..config import GrpcReceiverConfig
from ..errors import BadInput, Overloaded
from ..redaction import Signal
from ..wire.json_out import export_response, retry_delay_bytes, status_details_bytes
from .intake import Intake, Transported
from .logs import Log
from .transports import METHODS

log = Log("otlp_grpc")

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    # Exporters ping every 10 s; grpcio's default takes that for an attack after the third.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    # Long-lived connections would never spread over new replicas.
    ("grpc.max_connection_age_ms", 240_000),
    ("grpc.max_connection_age_grace_ms", 60_000),
    ("grpc.so_reuseport", 0),
)

Context = grpc.aio.ServicerContext
Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class GrpcReceiver:
    """Listens on ``receivers.grpc.endpoint``."""

    def __init__(self, config: GrpcReceiverConfig, intake: Intake) -> None:
        assert config.endpoint is not None, "a receiver that is off is not made"
        self._intake = intake
        options = [*SERVER_OPTIONS, ("grpc.max_receive_message_length", config.max_receive_bytes)]
        self._server = grpc.aio.server(options=options)
        for signal, path in METHODS.items():
            service, _, method = path.strip("/").partition("/")
            handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._export(signal))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._endpoint = config.endpoint
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises ``OSError`` where the address cannot be had."""
        try:
            self.port = self._server.add_insecure_port(self._endpoint)
        except RuntimeError as error:
            raise OSError(f"receivers.grpc.endpoint: cannot listen on {self._endpoint}") from error
        await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls and let those under way end."""
        await self._server.stop(grace_seconds)

    def _export(self, signal: Signal) -> Handler:
        async def export(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                accepted = self._intake.take(signal, body, Transported.GRPC)
            except BadInput as problem:
                await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(problem), None)
            except Overloaded as problem:
                await _abort(context, grpc.StatusCode.UNAVAILABLE, str(problem), problem.retry_after_seconds)
            except Exception as error:
                log.error("request failed", error=error, signal=signal.value)
                await _abort(context, grpc.StatusCode.INTERNAL, "internal error", None)
            return export_response(accepted.rejected, accepted.message, as_json=False, signal=signal.value)

        return export


async def _abort(
    context: grpc.aio.ServicerContext[bytes, bytes], code: grpc.StatusCode, message: str, retry_seconds: float | None
) -> NoReturn:
    number: int = code.value[0]
    trailers: list[tuple[str, str | bytes]] = [
        ("grpc-status-details-bin", status_details_bytes(number, message, retry_seconds))
    ]
    if retry_seconds is not None:
        trailers.append(("google.rpc.retryinfo-bin", retry_delay_bytes(retry_seconds)))
    await context.abort(code, message, tuple(trailers))
    raise AssertionError("abort raises")
