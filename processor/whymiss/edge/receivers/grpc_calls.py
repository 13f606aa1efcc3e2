"""What every method of the gRPC server does with a call: ask for the token, and refuse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import grpc.aio

if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    from .refusals import Refusal

    Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


def authorization_of(context: Context) -> str | bytes | None:
    """The call's ``authorization``, or ``None``."""
    return dict(context.invocation_metadata() or ()).get("authorization")


async def refuse(context: Context, answer: Refusal, trailers: tuple[tuple[str, bytes], ...] = ()) -> NoReturn:
    """End the call with a refusal."""
    try:
        await context.abort(answer.code, answer.message, trailers)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None  # the client has left; gRPC would log it as a mistake of ours
