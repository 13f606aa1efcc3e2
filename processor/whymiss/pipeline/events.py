"""KV-event messages on their way into the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..errors import BadInput
from ..ledger.decode.batch import decode_batch
from ..ledger.decode.message import EndOfReplay, parse_frames, worker_of_topic
from ..ledger.events import KvBatch
from ..ledger.hashing import Digester
from ..ledger.ports import History, StreamHealth
from ..ledger.sequencer import Arrival, Delivery, SequencedBatch
from ..measures import Measures
from ..model import SECOND, StreamId
from .ports import KvOutcome, KvSource
from .templates import LearnedTemplates

SHOWN_SECONDS = 1.0
"""How old the gauges of the record may be: they look at every stream."""


class EventIntake:
    """Reads messages, names their stream, and counts what became of them."""

    def __init__(
        self, ledger: History, digester: Digester, measures: Measures, templates: LearnedTemplates, *, tokens: bool
    ) -> None:
        self._ledger = ledger
        self._digester = digester
        self._measures = measures
        self._templates = templates
        self._tokens = tokens
        self._shown = -SHOWN_SECONDS
        self.connectors: set[str] = set()
        """Workers that load blocks from elsewhere, as the operator said of their sources."""

    def take(
        self, source: KvSource, frames: Sequence[bytes], received_unix_nanos: int, now: float, *, replayed: bool
    ) -> KvOutcome:
        """Take one ZMQ message of a publisher: topic, sequence number, payload."""
        try:
            frame = parse_frames(frames)
            if isinstance(frame, EndOfReplay):
                return KvOutcome(kind="end")
            batch = decode_batch(frame.payload, self._digester, tokens=self._tokens, witness=self._templates.witness)
        except BadInput:
            self._measures.count("whymiss.ledger.bad_events", source=source.name)
            return KvOutcome(kind="bad")
        named = worker_of_topic(frame.topic)
        worker = source.worker or named.worker or source.default_worker or source.name
        rank = source.rank if source.rank is not None else (batch.rank if batch.rank is not None else named.rank)
        if source.kv_connector:
            self.connectors.add(worker)
        delivery = Delivery(
            now=now,
            received_unix_nanos=received_unix_nanos,
            model=source.model or named.model,
            can_replay=source.can_replay,
            replayed=replayed,
        )
        accepted = self._ledger.accept(StreamId(worker, rank or 0), frame.seq, batch, delivery)
        self._count(source, accepted, batch)
        if batch.unix_nanos:
            lag = (received_unix_nanos - batch.unix_nanos) / SECOND
            self._measures.gauge("whymiss.ledger.lag", max(0.0, lag), source=source.name)
        return KvOutcome(
            kind=accepted.arrival.value, missing_first=accepted.missing_first, missing_last=accepted.missing_last
        )

    def show(self, now: float) -> None:
        """Set the gauges of the record, no more often than they are read by anybody."""
        if now - self._shown < SHOWN_SECONDS:
            return
        self._shown = now
        states = Counter(self._ledger.health(now).values())
        for state in StreamHealth:
            self._measures.gauge("whymiss.ledger.streams", states[state], state=state.value)
        self._measures.gauge("whymiss.ledger.retained", self._ledger.retained_bytes)
        self._measures.gauge("whymiss.ledger.operations", self._ledger.retained_operations)

    def _count(self, source: KvSource, accepted: SequencedBatch, batch: KvBatch) -> None:
        if accepted.arrival is Arrival.DUPLICATE:
            return
        self._measures.count("whymiss.ledger.events", batch.count, source=source.name)
        self._measures.count("whymiss.ledger.blocks", accepted.operations, source=source.name)
        if batch.bad_events:
            self._measures.count("whymiss.ledger.bad_events", batch.bad_events, source=source.name)
        if accepted.arrival is Arrival.GAP:
            self._measures.count("whymiss.ledger.gaps", source=source.name)
        if accepted.arrival is Arrival.RESTARTED:
            self._measures.count("whymiss.ledger.restarts", source=source.name)
