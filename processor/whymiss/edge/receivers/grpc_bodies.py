"""The bodies of gRPC calls while they arrive.

gRPC buffers what has come of a message that is not complete, for as long as the client leaves it so: three
hundred unfinished messages a little below the limit of one held 1.2 GB. So only so many may be on their
way, and the oldest of them makes room for the next: an honest message arrives in milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from ...errors import BadInput, Overloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
    Unary: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]

BODIES_MAX = 64
"""How many messages may be on their way at once, over all connections."""

BODY_SECONDS_MAX = 30.0
"""How long one message may take to arrive; as long as over HTTP."""

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
        self._seconds_max = seconds_max
        self._undisturbed_seconds = undisturbed_seconds
        self._coming: dict[asyncio.Timeout, float] = {}

    async def read(self, context: Context) -> bytes:
        """Wait for the message.

        Raises `TimeoutError` where it takes too long, `Overloaded` where too many came within a moment, and
        `BadInput` where the client has finished without sending one.
        """
        now = asyncio.get_running_loop().time()
        if len(self._coming) >= self._bodies_max:
            self._make_room(now)
        async with asyncio.timeout_at(now + self._seconds_max) as patience:
            self._coming[patience] = now
            try:
                body = await context.read()
            finally:
                self._coming.pop(patience, None)
        if not isinstance(body, bytes):  # gRPC's mark of the end
            raise BadInput("the call has no message")
        return body

    def _make_room(self, now: float) -> None:
        oldest, since = next(iter(self._coming.items()))
        if now - since < self._undisturbed_seconds:
            raise Overloaded(
                "too many requests are arriving at once", limit_key=LIMIT_KEY, remedy="send larger batches, or later"
            )
        del self._coming[oldest]
        if not oldest.expired():  # otherwise it is leaving already, and asyncio forbids to hurry it
            oldest.reschedule(now)


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
