"""Where receivers hand requests in, and the one owner of the pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from ..errors import BadInput, Overloaded
from ..pipeline import Accepted, KvOutcome, KvSource, Pipeline
from ..redaction import Redacted, Signal
from .exporter import Exporter
from .logs import Log

log = Log("intake")


class Transported(StrEnum):
    """How a request came in."""

    GRPC = "grpc"
    HTTP = "http"


class Intake:
    """Takes requests and events, acknowledges what is in its hands, and lets go of what is due.

    Everything runs on the event loop, so the pipeline has one owner without a lock.
    """

    def __init__(
        self, pipeline: Pipeline, exporters: Sequence[Exporter], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pipeline = pipeline
        self._exporters = exporters
        self._monotonic = monotonic
        self._closing = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- what receivers call ----------------------------------------------------------------------

    def take(self, signal: Signal, body: bytes, transport: Transported) -> Accepted:
        """Take one encoded export request.

        When this returns, all of it is queued for export or held by the joiner. Raises ``BadInput`` when
        the bytes are wrong, ``Overloaded`` when there is no room: then nothing of it was taken.
        """
        measures = self._pipeline.measures
        labels = {"transport": transport.value, "signal": signal.value}
        try:
            self._check_room()
            accepted = self._hand_in(signal, body)
        except Overloaded:
            measures.count("whymiss.receiver.refused_requests", 1, reason="overloaded", **labels)
            raise
        except BadInput:
            measures.count("whymiss.receiver.refused_requests", 1, reason="bad_input", **labels)
            raise
        self._send(accepted.outgoing)
        measures.count("whymiss.receiver.accepted_requests", 1, **labels)
        self._wake.set()
        return accepted

    def _check_room(self) -> None:
        if self._closing:
            raise Overloaded("the service is shutting down", limit_key="shutdown.deadline_seconds")
        for exporter in self._exporters:
            exporter.check_room()

    def _hand_in(self, signal: Signal, body: bytes) -> Accepted:
        now = self._monotonic()
        if signal is Signal.TRACES:
            self._send(self._pipeline.advance(now))
            return self._pipeline.traces(body, now)
        if signal is Signal.METRICS:
            return self._pipeline.metrics(body, now)
        return self._pipeline.logs(body, now)

    def take_events(
        self, source: KvSource, frames: Sequence[bytes], received_unix_nanos: int, *, replayed: bool
    ) -> KvOutcome:
        """Take one message of a KV-event publisher."""
        outcome = self._pipeline.kv_frames(
            source, frames, received_unix_nanos, replayed=replayed, now=self._monotonic()
        )
        self._wake.set()
        return outcome

    def _send(self, outgoing: Sequence[Redacted]) -> None:
        for item in outgoing:
            for exporter in self._exporters:
                exporter.submit(item)

    # --- time -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to let go of what is due."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Refuse what still comes, and hand everything held to the exporters."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._send(self._pipeline.drain())

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            deadline = self._pipeline.next_deadline
            pause = None if deadline is None else max(0.0, deadline - self._monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            try:
                self._send(self._pipeline.advance(self._monotonic()))
            except Exception as error:
                # A stage that raises costs what it was working on, never the process.
                log.error("releasing failed", error=error)
                labels = {"stage": "advance", "error_type": type(error).__name__}
                self._pipeline.measures.count("whymiss.stage.failures", 1, **labels)
