"""The boundary of the core: whatever a stage raises costs one request, one count and one log line, never the process."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...errors import BadInput, Overloaded
from ...redaction import Signal
from ...wire.kv_logs import take_kv_events
from ...wire.split import span_count
from ..telemetry.logs import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...pipeline import Accepted
    from ..core import Core
    from ..exporters.fan_out import FanOut
    from ..memory import Memory
    from ..spool.records import Record
    from ..spool.spool import Spool

Receiver: TypeAlias = Literal["grpc", "http"]

_log = Log("intake")


class RequestIntake:
    """Takes requests from the receivers and hands on what the core lets go of at once.

    A request is accepted when the core holds it or the exporters have queued it, and before that it is in
    the spool where there is one. With a full queue it is refused before the core sees it, because what the
    core has joined cannot be taken back. ``memory`` counts what is being taken, and refuses it where there
    is too much.
    """

    def __init__(  # noqa: PLR0913 - what is by keyword has a default
        self,
        core: Core,
        fan_out: FanOut,
        now: Callable[[], float],
        accepted: Callable[[], None],
        *,
        memory: Memory | None = None,
        spool: Spool | None = None,
    ) -> None:
        self._receive = {Signal.TRACES: core.traces, Signal.METRICS: core.metrics, Signal.LOGS: core.logs}
        self._spool = spool
        self._memory = memory
        self._measures = core.measures
        self._fan_out = fan_out
        self._now = now
        self._accepted = accepted

    @property
    def is_pressed(self) -> bool:
        """Whether memory is short, and whoever can wait should."""
        return self._memory is not None and self._memory.is_pressed

    async def accept(self, receiver: Receiver, signal: Signal, body: bytes) -> Accepted:
        """Take one encoded request, or raise what `answer_to` knows how to answer."""
        try:
            self._fan_out.require_room()
            with nullcontext() if self._memory is None else self._memory.taking(len(body)):
                accepted = await self._accept(signal, body)
        except (BadInput, Overloaded) as error:
            _log.warning("a request was refused", error=error, transport=receiver, signal=signal)
            self._count_refused_spans(receiver, signal, body)
            raise
        except Exception as error:
            _log.error("a stage failed on a request", error=error, transport=receiver, signal=signal)
            self._measures.count("whymiss.stage.failures", stage="pipeline", error_type=type(error).__name__)
            self._count_refused_spans(receiver, signal, body)
            raise
        self._accepted()
        self._measures.count("whymiss.receiver.accepted_requests", transport=receiver, signal=signal)
        if signal is Signal.TRACES:
            self._measures.count("whymiss.receiver.accepted_spans", span_count(body), transport=receiver)
        return accepted

    def replay(self, record: Record) -> None:
        """Take a request that an earlier run acknowledged and did not deliver; whatever fails costs itself.

        One that a stage fails on is tried again at the next start, by a newer release perhaps, and not for ever.
        """
        assert self._spool is not None, "a record comes out of a spool"
        outcome = "taken"
        with self._spool.trying(record.sequence):
            try:
                self._take(record.signal, record.body, record.sequence)
            except BadInput as error:
                outcome = "failed"
                _log.error("a request read from disk is broken", error=error, signal=record.signal)
                self._spool.settle(record.sequence)
            except Exception as error:
                outcome = "postponed" if self._spool.postpone(record.sequence) else "given_up"
                _log.error(
                    "a stage failed on a request read from disk", error=error, signal=record.signal, outcome=outcome
                )
        self._measures.count("whymiss.spool.replayed_requests", outcome=outcome)
        self._accepted()

    async def _accept(self, signal: Signal, body: bytes) -> Accepted:
        return self._take(signal, body) if self._spool is None else await self._keep(self._spool, signal, body)

    async def _keep(self, spool: Spool, signal: Signal, body: bytes) -> Accepted:
        """Put a request on disk, then take it; one that is refused is forgotten there."""
        # Token ids and salts must not reach the disk: what they are evidence of is lost with the process.
        ticket = await spool.append(signal, take_kv_events(body).rest if signal is Signal.LOGS else body)
        try:
            self._fan_out.require_room()  # others may have come while the disk was at work
            return self._take(signal, body, ticket)
        except BaseException:
            spool.settle(ticket)
            raise

    def _take(self, signal: Signal, body: bytes, ticket: int = 0) -> Accepted:
        accepted = self._receive[signal](body, self._now(), ticket=ticket)
        self._fan_out.enqueue(accepted.outgoing)
        self._fan_out.look(ticket)
        return accepted

    def count_refused(self, receiver: Receiver, signal: Signal | Literal["kv_events"], reason: str) -> None:
        """Count a request that a client was told to have failed."""
        self._measures.count("whymiss.receiver.refused_requests", transport=receiver, signal=signal, reason=reason)

    def count_refused_connection(self, receiver: Receiver, reason: str) -> None:
        """Count a connection that was refused before a request came of it."""
        self._measures.count("whymiss.receiver.refused_connections", transport=receiver, reason=reason)

    def _count_refused_spans(self, receiver: Receiver, signal: Signal, body: bytes) -> None:
        if signal is not Signal.TRACES:
            return
        try:
            spans = span_count(body)
        except BadInput:
            return
        self._measures.count("whymiss.receiver.refused_spans", spans, transport=receiver)
