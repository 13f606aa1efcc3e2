"""The bodies of gRPC calls while they arrive.

gRPC buffers what has come of a message that is not complete, for as long as the client leaves it so: three
hundred unfinished messages a little below the limit of one held 1.2 GB. So only so many may be on their
way, and the oldest of them makes room for the next: an honest message arrives in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from ...errors import BadInput, Overloaded
from .arrivals import BODY_SECONDS_MAX, Arrivals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
    Unary: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]

BODIES_MAX = 64
"""How many messages may be on their way at once, over all connections."""

UNDISTURBED_SECONDS = 0.25
"""How long a message may take however many others come."""

LIMIT_KEY = "receivers.grpc.max_receive_bytes"


class Bodies:
    """Reads the one message of a call, within bounds of time and number."""

    def __init__(
        self,
        bodies_max: int = BODIES_MAX,
        seconds_max: float = BODY_SECONDS_MAX,
        undisturbed_seconds: float = UNDISTURBED_SECONDS,
    ) -> None:
        self._bodies_max = bodies_max
        self._arrivals: Arrivals[object] = Arrivals(undisturbed_seconds, seconds_max)

    async def read(self, context: Context) -> bytes:
        """Wait for the message.

        Raises `TimeoutError` where it takes too long, `Overloaded` where too many came within a moment, and
        `BadInput` where the client has finished without sending one.
        """
        oldest = self._arrivals.oldest
        if oldest is not None and len(self._arrivals) >= self._bodies_max and not self._arrivals.give_up(oldest):
            raise Overloaded(
                "too many requests are arriving at once", limit_key=LIMIT_KEY, remedy="send larger batches, or later"
            )
        async with self._arrivals.arriving(object()):
            body = await context.read()
        if not isinstance(body, bytes):  # gRPC's mark of the end
            raise BadInput("the call has no message")
        return body


class Unhurried(grpc.GenericRpcHandler):
    """A service whose unary methods are called once their message is there.

    ``read`` waits for it, or aborts the call. To gRPC the methods are such as take a stream: of those it asks
    for the message when it is told to, and not before.
    """

    def __init__(self, service: grpc.GenericRpcHandler, read: Callable[[Context], Awaitable[bytes]]) -> None:
        self._service = service
        self._read = read

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Find a method."""
        method = self._service.service(handler_call_details)
        if method is None or method.unary_unary is None:
            return method
        take = cast("Unary", method.unary_unary)  # its type is that of the server with threads

        async def answer(_: object, context: Context) -> bytes:
            return await take(await self._read(context), context)

        return grpc.stream_unary_rpc_method_handler(answer)
