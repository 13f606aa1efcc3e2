"""The gRPC service ``whymiss.kv.v1.KvEvents``: batches and snapshots from publishers that cannot be subscribed to.

Requests are taken as bytes, like those of OTLP, and are read by ``wire.kv_push``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from ...errors import BadInput
from ...pipeline import KvSource
from ...wire.kv_push import Pushed, push_response, read_push, read_snapshot
from ..receivers.grpc_calls import authorization_of, refuse
from ..receivers.refusals import UNAUTHENTICATED, refusal_of
from ..telemetry.logs import Log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import TypeAlias

    from ...pipeline import KvOutcome
    from ..core import Core
    from ..receivers.refusals import Refusal

    Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]

SERVICE = "whymiss.kv.v1.KvEvents"
PUSH = f"/{SERVICE}/Push"
PUSH_STREAM = f"/{SERVICE}/PushStream"
SNAPSHOT = f"/{SERVICE}/Snapshot"

_log = Log("kv_push")


def kv_push_service(
    core: Core, taken: Callable[[], None], admits: Callable[[str | bytes | None], bool] = lambda _: True
) -> grpc.GenericRpcHandler:
    """Make the service, for the server that OTLP has.

    ``taken`` is called after each batch that was taken, and ``admits`` is asked of each call's ``authorization``.
    """
    pushes = KvPushes(core, taken, admits)
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Push": grpc.unary_unary_rpc_method_handler(pushes.push),
            "PushStream": grpc.stream_stream_rpc_method_handler(pushes.push_stream),
            "Snapshot": grpc.unary_unary_rpc_method_handler(pushes.snapshot),
        },
    )


class KvPushes:
    """The three methods, over encoded messages."""

    def __init__(self, core: Core, taken: Callable[[], None], admits: Callable[[str | bytes | None], bool]) -> None:
        self._core = core
        self._taken = taken
        self._admits = admits

    async def push(self, body: bytes, context: Context) -> bytes:
        """Take one batch."""
        return await self._answer(read_push, body, context)

    async def snapshot(self, body: bytes, context: Context) -> bytes:
        """Take one snapshot."""
        return await self._answer(read_snapshot, body, context)

    async def push_stream(self, bodies: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Take batches, and answer each; one that cannot be read is answered too."""
        await self._require_admission(context)
        async for body in bodies:
            seq = 0
            try:
                pushed = read_push(body)
                seq = pushed.seq
                answer = self._take(pushed)
            except BadInput as error:
                self._refused(error)
                answer = push_response(seq, "bad")
            except Exception as error:
                await refuse(context, self._refused(error))
            yield answer

    async def _answer(self, read: Callable[[bytes], Pushed], body: bytes, context: Context) -> bytes:
        await self._require_admission(context)
        try:
            return self._take(read(body))
        except Exception as error:
            await refuse(context, self._refused(error))

    async def _require_admission(self, context: Context) -> None:
        if not self._admits(authorization_of(context)):
            self._count_refused(UNAUTHENTICATED.reason)
            await refuse(context, UNAUTHENTICATED)

    def _take(self, pushed: Pushed) -> bytes:
        outcome = self._hand_in(pushed)
        if outcome.kind == "bad":
            raise BadInput("payload: is no batch of KV-cache events")
        self._taken()
        self._core.measures.count("whymiss.receiver.accepted_requests", transport="grpc", signal="kv_events")
        return push_response(
            pushed.seq, outcome.kind, missing_first=outcome.missing_first, missing_last=outcome.missing_last
        )

    def _hand_in(self, pushed: Pushed) -> KvOutcome:
        source = KvSource(
            name=pushed.source,
            worker=pushed.worker,
            rank=pushed.rank,
            model=pushed.model,
            kv_connector=pushed.kv_connector,
        )
        return self._core.kv_frames(source, pushed.frames, time.time_ns(), replayed=False, now=time.monotonic())

    def _refused(self, error: Exception) -> Refusal:
        answer = refusal_of(error)
        self._count_refused(answer.reason)
        if isinstance(error, BadInput):
            _log.warning("a push was refused", error=error)
        else:
            _log.error("a stage failed on a push", error=error)
            self._core.measures.count("whymiss.stage.failures", stage="ledger", error_type=type(error).__name__)
        return answer

    def _count_refused(self, reason: str) -> None:
        self._core.measures.count(
            "whymiss.receiver.refused_requests", transport="grpc", signal="kv_events", reason=reason
        )
