"""Spans through the stages.

The pipeline is owned by one task; time is a parameter, so that a
recording replayed in virtual time goes through exactly what live traffic goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ..config import Config, RedactionConfig
from ..dialects.registry import possible, take_logs
from ..dialects.secrets import GUARDED
from ..errors import BadInput
from ..evidence.requests.grouping import group
from ..evidence.requests.report import engine_says, lookup_says
from ..join import Joiner
from ..ledger.hashing import Digester
from ..measures import Exemplar, Measures
from ..model import (
    Envelope,
    JoinOutcome,
    Late,
    Reason,
    Released,
    ReleaseReason,
    Request,
    Span,
    Verdict,
)
from ..model.worker_name import with_rank
from ..redaction import Part, Redacted, Redactor, Signal, adjusted_count, nothing, tickets_of, untouched
from ..reference import Reference
from ..wire.fields import scope_name
from ..wire.kv_logs import take_kv_events
from ..wire.split import Group, assemble, split
from .backend import Backend, in_memory
from .claims import Claims
from .classes import dimensions_of
from .crowds import alone, is_crowd, unweighed
from .events import EventIntake
from .judge import Judge
from .ports import Accepted, Judged, KvOutcome, KvSource
from .templates import LearnedTemplates, Scope
from .verdicts import Verdicts

STILL_COMING = frozenset({Reason.EVIDENCE_LATE, Reason.PARTIAL_TRACE})
"""Holes that a batch or a span may fill before the hold ends."""


class Pipeline:
    """The core. ``traces``, ``kv_frames`` and ``advance`` are called by one owner."""

    def __init__(
        self,
        config: Config,
        *,
        process_key: bytes,
        start_unix_nanos: int,
        record_key: bytes | None = None,
        backend: Callable[[Config, Digester], Backend] = in_memory,
    ) -> None:
        """Take ``process_key`` for all digests, but ``record_key`` for those of a ledger that outlives the process."""
        self._config = config
        self._joiner = Joiner(config.join)
        digester = Digester(record_key or process_key)
        self.ledger, self.snapshots = backend(config, digester)
        self._process_key = process_key
        self._redactor = self._redactor_of(config.redaction)
        self.measures = Measures(
            dimensions=config.measures.dimensions,
            values_max=config.measures.values_max,
            series_max=config.measures.series_max,
            start_unix_nanos=start_unix_nanos,
        )
        self._templates = LearnedTemplates(digester)
        self._events = EventIntake(
            self.ledger, digester, self.measures, self._templates, tokens=config.ledger.token_digests
        )
        self._judge = Judge(config, self.ledger, self._events.connectors, self._templates)
        self._claims = Claims(self.measures, config.join.parts_max)
        self._verdicts = Verdicts(config.join)
        self.judged: list[Judged] | None = None
        """Where verdicts are kept for whoever wants to print them; ``None``: nowhere."""

    def adopt(self, redaction: RedactionConfig, references: Sequence[Reference], scope: Scope) -> None:
        """Let all that leaves from now on leave by other rules and under another key, and compare with other templates.

        The references were digested under ``redaction.digest_key``.
        """
        self._redactor = self._redactor_of(redaction)
        key = redaction.digest_key
        assert key is not None or not references, "a reference is digested with a key of the operator's"
        self._templates.adopt(references, b"" if key is None else key.reveal().encode(), self.ledger.ends(), scope)

    def _redactor_of(self, settings: RedactionConfig) -> Redactor:
        key = settings.digest_key
        secret = self._process_key if key is None else key.reveal().encode()
        return Redactor(settings, secret, secrets=GUARDED.names, closed=GUARDED.closed)

    # --- spans ------------------------------------------------------------------------------------

    def traces(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        """Take an encoded ``ExportTraceServiceRequest``; what leaves of it carries its ``ticket``.

        Raises ``BadInput`` when it cannot be split; one bad span costs that span only.
        """
        groups = split(body)
        dialects = possible(body, {scope_name(one.envelope) for one in groups})
        ours: list[Span] = []
        foreign: list[tuple[Envelope, Sequence[bytes]]] = []
        rejected: list[str] = []
        passed = 0
        for one in groups:
            others = self._claims.of(one, dialects, ours, rejected)
            passed += len(others)
            if others:
                foreign.append((one.envelope, others))
        if ticket:
            ours = [msgspec.structs.replace(span, ticket=ticket) for span in ours]
        outgoing = list(self._forward(body, groups, foreign, passed, ticket))
        self._judge.note(ours)
        outgoing.extend(self._act(self._joiner.accept(ours, now), now))
        self._show_join()
        message = f"{len(rejected)} span(s) rejected: {rejected[0]}" if rejected else ""
        return Accepted(tuple(outgoing), len(rejected), message)

    def metrics(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        """Metrics leave as they came."""
        del now
        return Accepted((untouched(Signal.METRICS, body, 0, ticket=ticket),) if body else ())

    def logs(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        """Logs leave as they came, less the records that carry KV events: those hold token ids and salts."""
        taken = take_kv_events(body)
        rejected = list(taken.rejected)
        for record in taken.records:
            one = record.pushed
            source = KvSource(name=one.source, worker=one.worker, rank=one.rank, model=one.model)
            if self.kv_frames(source, one.frames, record.observed_unix_nanos, now=now).kind == "bad":
                rejected.append("body: is no batch of KV-cache events")
        traced = take_logs(taken.rest, GUARDED)
        rejected += traced.rejected
        message = f"{len(rejected)} record(s) rejected: {rejected[0]}" if rejected else ""
        outgoing = [untouched(Signal.LOGS, traced.rest, 0, ticket=ticket)] if traced.rest else []
        outgoing += self._act(self._joiner.accept(traced.evidence, now), now)
        return Accepted(tuple(outgoing), len(rejected), message)

    def holds(self, ticket: int) -> bool:
        """Whether anything that came with this ticket is held."""
        return self._joiner.holds(ticket)

    def _forward(
        self,
        body: bytes,
        groups: Sequence[Group],
        foreign: Sequence[tuple[Envelope, Sequence[bytes]]],
        passed: int,
        ticket: int,
    ) -> Iterable[Redacted]:
        if not passed:
            return
        self.measures.count("whymiss.spans.passed_through", passed)
        whole = passed == sum(len(one.spans) for one in groups)
        yield untouched(Signal.TRACES, body if whole else assemble(foreign), passed, ticket=ticket)

    # --- KV events ----------------------------------------------------------------------------------

    def kv_frames(
        self,
        source: KvSource,
        frames: Sequence[bytes],
        received_unix_nanos: int,
        *,
        replayed: bool = False,
        now: float = 0.0,
    ) -> KvOutcome:
        """Take one ZMQ message of a publisher: topic, sequence number, payload."""
        return self._events.take(source, frames, received_unix_nanos, now, replayed=replayed)

    # --- time -------------------------------------------------------------------------------------

    @property
    def oldest_arrived(self) -> float | None:
        """When the first span of the request that is held longest came, on the clock of ``now``."""
        return self._joiner.oldest_arrived

    @property
    def next_deadline(self) -> float | None:
        """When ``advance`` next has work, on the clock of ``now``."""
        deadlines = [one for one in (self._joiner.next_deadline, self.ledger.next_deadline) if one is not None]
        return min(deadlines, default=None)

    def advance(self, now: float) -> tuple[Redacted, ...]:
        """Let go of what is due."""
        self.ledger.expire(now)
        self._events.show(now)
        outgoing = self._act(self._joiner.expire(now), now)
        self._show_join()
        return tuple(outgoing)

    @property
    def held_bytes(self) -> int:
        """Bytes of the spans that are held."""
        return self._joiner.held_bytes

    @property
    def recorded_bytes(self) -> int:
        """Bytes of the record of the workers' caches, and of what is remembered of requests."""
        remembered = self._joiner.remembered_bytes + self._verdicts.nbytes + self._judge.remembered_bytes
        return self.ledger.retained_bytes + remembered

    def shed(self, bytes_max: int, now: float) -> tuple[Redacted, ...]:
        """Let go of the oldest that is held, until no more than so many bytes are."""
        outgoing = self._act(self._joiner.shed(bytes_max, now), now)
        self._show_join()
        return tuple(outgoing)

    def drain(self) -> tuple[Redacted, ...]:
        """Let go of everything, at shutdown."""
        self.ledger.settle()
        outgoing = self._act(self._joiner.drain(), float("inf"))
        self._show_join()
        return tuple(outgoing)

    def _show_join(self) -> None:
        self.measures.gauge("whymiss.join.open_traces", self._joiner.open_groups)
        self.measures.gauge("whymiss.join.open_spans", self._joiner.held_spans)
        self.measures.gauge("whymiss.join.memory", self._joiner.held_bytes)

    # --- judging ------------------------------------------------------------------------------------

    def _act(self, outcomes: Iterable[JoinOutcome], now: float) -> list[Redacted]:
        outgoing: list[Redacted] = []
        shared: dict[Envelope, list[Part]] = {}
        for outcome in outcomes:
            for leaving in self._let_go(outcome, now):
                if isinstance(leaving, Redacted):
                    outgoing.append(leaving)
                elif leaving.shared is None:
                    outgoing.append(self._redactor.together([leaving]))
                else:
                    shared.setdefault(leaving.shared, []).append(leaving)
        return outgoing + [self._redactor.together(parts) for parts in shared.values()]

    def _let_go(self, outcome: JoinOutcome, now: float) -> list[Part | Redacted]:
        """What leaves of one outcome; a defect of ours costs it its verdict, or its spans, and others nothing."""
        try:
            return self._late(outcome.span, now) if isinstance(outcome, Late) else self._released(outcome, now)
        except Exception as error:  # noqa: BLE001 - see above
            self.measures.count("whymiss.stage.failures", stage="release", error_type=type(error).__name__)
        spans = [outcome.span] if isinstance(outcome, Late) else outcome.spans
        try:
            return self._leave([(span, None) for span in spans], sampled=False)
        except Exception:  # noqa: BLE001 - what cannot be redacted must not leave
            self.measures.count("whymiss.spans.dropped", len(spans), reason="release_failed")
        tickets = tickets_of(spans)
        return [nothing(tickets)] if tickets else []

    def _late(self, span: Span, now: float) -> list[Part | Redacted]:
        self.measures.count("whymiss.spans.late")
        return self._leave([(span, self._verdicts.of(span, now))], sampled=self._redactor.is_sampled([span]))

    def _released(self, released: Released, now: float) -> list[Part | Redacted]:
        crowded = is_crowd(released.spans, self._config.attribution.comparisons_max)
        loose, judged = self._judged(released) if not crowded else self._unweighed(released)
        waiting = not crowded and any(verdict.reason in STILL_COMING for _, verdict in judged)
        if waiting and self._joiner.hold_on(released, released.arrived, now):
            return []
        self.measures.count("whymiss.join.released", reason=released.reason.value)
        leaving: dict[tuple[bytes, bytes], tuple[Span, Verdict | None]] = {
            (span.trace_id, span.span_id): (span, None) for span in (*loose, *released.spans)
        }
        sampled = self._redactor.is_sampled(released.spans)
        for request, verdict in judged:
            for span in request.spans:
                leaving[span.trace_id, span.span_id] = (span, verdict)
            self._verdicts.remember(request.spans, request.subject, verdict, now)
            self._observe(request, verdict, sampled=sampled)
            if self.judged is not None:
                self.judged.append(Judged(request=request, verdict=verdict))
        return self._leave(list(leaving.values()), sampled=sampled)

    def _unweighed(self, released: Released) -> tuple[list[Span], list[tuple[Request, Verdict]]]:
        self.measures.count("whymiss.join.crowded")
        return [], [(request, unweighed(request)) for request in alone(released.spans)]

    def _judged(self, released: Released) -> tuple[list[Span], list[tuple[Request, Verdict]]]:
        shed = released.reason is ReleaseReason.SHED
        try:
            requests, loose = group(released.spans)
            return loose, [(request, self._judge.verdict_of(request, shed=shed)) for request in requests]
        except Exception as error:  # noqa: BLE001 - a defect of ours costs this request its verdict and nothing else
            self.measures.count("whymiss.stage.failures", stage="judge", error_type=type(error).__name__)
            return [], []

    def _leave(self, judged: Sequence[tuple[Span, Verdict | None]], *, sampled: bool) -> list[Part | Redacted]:
        """Redact spans; one that cannot be redacted must not leave, and costs itself."""
        # Evidence from a log record has no span of its own.
        judged = [pair for pair in judged if pair[0].raw]
        if not judged:
            return []
        tickets = tickets_of(span for span, _ in judged)
        try:
            return [*self._redactor.parts(judged, sampled=sampled, tickets=tickets)]
        except BadInput:
            fit = [pair for pair in judged if self._is_fit(pair, sampled=sampled)]
        self.measures.count("whymiss.spans.dropped", len(judged) - len(fit), reason="redaction_failed")
        if fit:
            return [*self._redactor.parts(fit, sampled=sampled, tickets=tickets)]
        return [nothing(tickets)] if tickets else []

    def _is_fit(self, pair: tuple[Span, Verdict | None], *, sampled: bool) -> bool:
        try:
            self._redactor.parts([pair], sampled=sampled)
        except BadInput:
            return False
        return True

    def _observe(self, request: Request, verdict: Verdict, *, sampled: bool) -> None:
        subject = request.subject
        said = engine_says(request.engine)
        weight = adjusted_count(subject)
        exemplar = Exemplar(
            trace_id=subject.trace_id.hex(), span_id=subject.span_id.hex(), unix_nanos=subject.end_unix_nanos
        )
        self.measures.observe(
            verdict,
            dimensions_of(request, verdict, extrapolated=weight is not None),
            first_token_seconds=said.first_token_seconds if said is not None else None,
            weight=1.0 if weight is None else weight,
            exemplar=exemplar if self._redactor.may_identify(subject, sampled=sampled) else None,
        )


def row_of(judged: Judged) -> Mapping[str, str | int | None]:
    """A judged lookup as one flat record: the line of ``whymiss replay``."""
    subject, verdict = judged.request.subject, judged.verdict
    said, looked = engine_says(judged.request.engine), lookup_says(judged.request.lookup)
    request_id = (said.request_id if said else None) or (looked.request_id if looked else None)
    return {
        "trace_id": subject.trace_id.hex(),
        "span_id": subject.span_id.hex(),
        "request_id": request_id,
        "worker": with_rank(verdict.worker, verdict.rank) if verdict.worker else None,
        "prompt_tokens": verdict.prompt_tokens,
        "cached_tokens": verdict.cached_tokens,
        "block_index": verdict.block_index,
        "cause": verdict.cause.value,
        "owner": verdict.owner.value,
        "reason": verdict.reason.value,
        "evidence": verdict.grade.value,
        "lost_tokens": verdict.lost_tokens,
    }
