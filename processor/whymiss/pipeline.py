"""Split, join, attribute, redact: the whole core as one synchronous object.

Only this file knows the order of the stages. It is owned by one task; time is a parameter, so that a
recording replayed in virtual time goes through exactly what live traffic goes through.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .attribution import Policy, agree, decide, worker_name
from .config import Config
from .dialects.registry import candidates, claim, identify
from .errors import BadInput
from .evidence.facts import FactFinder
from .evidence.grouping import engine_says, group, lookup_says
from .evidence.reading import Reader
from .evidence.recent import RecentRequests
from .evidence.workers import Workers
from .join import Joiner
from .ledger.decode import decode_batch
from .ledger.digests import Digester
from .ledger.fleet import Arrival, Delivery, Ledger
from .ledger.frames import EndOfReplay, parse_frames, worker_of_topic
from .measures import Dimensions, Exemplar, Measures
from .model import (
    SECOND,
    EngineRequest,
    Envelope,
    GatewayUsage,
    Grade,
    JoinOutcome,
    Late,
    Reason,
    Released,
    ReleaseReason,
    Request,
    ResourceIdentity,
    RouteDecision,
    Span,
    StreamId,
    Verdict,
)
from .redaction import Redacted, Redactor, Signal, adjusted_count, sampling_of, untouched
from .wire.fields import resource_attributes, scope_name, valid_ids
from .wire.split import Group, assemble, split

IDENTITIES_MAX = 4096
"""Resources whose identity is remembered; a resource is read once, not once a span."""


class Accepted(msgspec.Struct, frozen=True):
    """What became of one request: what can leave at once, and how many spans were rejected."""

    outgoing: tuple[Redacted, ...] = ()
    rejected: int = 0
    message: str = ""


class KvSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where KV-event frames came from, as the operator configured it."""

    name: str
    worker: str | None = None
    rank: int | None = None
    model: str | None = None
    kv_connector: bool = False
    can_replay: bool = False


class KvOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one message of a publisher.

    ``kind`` is ``applied``, ``duplicate``, ``gap``, ``restarted``, ``late_join``, ``bad`` or ``end`` (of a
    replay). For a gap the sequence numbers that are missing, inclusive.
    """

    kind: str
    missing_first: int | None = None
    missing_last: int | None = None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One lookup with its verdict, as the replay prints it."""

    request: Request
    verdict: Verdict


class Pipeline:
    """The core. ``traces``, ``kv_frames`` and ``advance`` are called by one owner."""

    def __init__(self, config: Config, *, process_key: bytes, start_unix_nanos: int) -> None:
        self._config = config
        self._joiner = Joiner(config.join)
        self._digester = Digester(process_key)
        self.ledger = Ledger()
        self._recent = RecentRequests(round(config.ledger.window_seconds * SECOND))
        self._workers = Workers(config.workers)
        self._reader = Reader(config.attribution, self.ledger, self._recent)
        self._facts = FactFinder(config.attribution, config.ledger.window_seconds, self.ledger)
        self._policy = Policy(
            fleet_view_declared=config.attribution.fleet_view == "declared",
            index_lag_nanos=round(config.attribution.index_lag_seconds * SECOND),
        )
        key = config.redaction.digest_key
        self._redactor = Redactor(config.redaction, key.reveal().encode() if key is not None else process_key)
        self.measures = Measures(
            dimensions=config.measures.dimensions,
            values_max=config.measures.values_max,
            series_max=config.measures.series_max,
            start_unix_nanos=start_unix_nanos,
        )
        self._identities: OrderedDict[bytes, ResourceIdentity] = OrderedDict()
        self._verdicts: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._connectors: set[str] = set()
        self.judged: list[Judged] | None = None
        """Where verdicts are kept for whoever wants to print them; ``None``: nowhere."""

    # --- spans ------------------------------------------------------------------------------------

    def traces(self, body: bytes, now: float) -> Accepted:
        """Take an encoded ``ExportTraceServiceRequest``.

        Raises ``BadInput`` when it cannot be split; one bad span costs that span only.
        """
        groups = split(body)
        ours: list[Span] = []
        foreign: list[tuple[Envelope, Sequence[bytes]]] = []
        rejected: list[str] = []
        passed = 0
        for one in groups:
            others = self._claim(one, ours, rejected)
            passed += len(others)
            if others:
                foreign.append((one.envelope, others))
        outgoing = list(self._forward(body, groups, foreign, passed))
        self._note(ours)
        outgoing.extend(self._act(self._joiner.accept(ours, now), now))
        self._show_join()
        message = f"{len(rejected)} span(s) rejected: {rejected[0]}" if rejected else ""
        return Accepted(tuple(outgoing), len(rejected), message)

    def metrics(self, body: bytes, now: float) -> Accepted:
        """Metrics leave as they came."""
        del now
        return Accepted((untouched(Signal.METRICS, body, 0),) if body else ())

    def logs(self, body: bytes, now: float) -> Accepted:
        """Logs leave as they came."""
        del now
        return Accepted((untouched(Signal.LOGS, body, 0),) if body else ())

    def _claim(self, one: Group, ours: list[Span], rejected: list[str]) -> list[bytes]:
        """Sort a group's spans into ours and others; a span that cannot be used is rejected alone."""
        scope = scope_name(one.envelope)
        others: list[bytes] = []
        for raw in one.spans:
            dialects = candidates(scope, raw)
            if not dialects:
                others.append(raw)
                continue
            try:
                span = claim(raw, one.envelope, self._identity(one.envelope), dialects)
            except BadInput as problem:
                rejected.append(problem.problem)
                self.measures.count("whymiss.spans.rejected", reason="malformed")
                continue
            if span is None:
                others.append(raw)
            elif not valid_ids(span.trace_id, span.span_id):
                rejected.append("trace id or span id is missing or all zero")
                self.measures.count("whymiss.spans.rejected", reason="invalid_id")
            else:
                ours.append(span)
                self.measures.count("whymiss.spans.claimed", dialect=span.dialect)
                self.measures.count("whymiss.sampling.spans", state=sampling_of(span).value)
        return others

    def _forward(
        self, body: bytes, groups: Sequence[Group], foreign: Sequence[tuple[Envelope, Sequence[bytes]]], passed: int
    ) -> Iterable[Redacted]:
        if not passed:
            return
        self.measures.count("whymiss.spans.passed_through", passed)
        whole = passed == sum(len(one.spans) for one in groups)
        yield untouched(Signal.TRACES, body if whole else assemble(foreign), passed)

    def _identity(self, envelope: Envelope) -> ResourceIdentity:
        known = self._identities.get(envelope.resource)
        if known is None:
            known = self._identities[envelope.resource] = identify(resource_attributes(envelope))
            if len(self._identities) > IDENTITIES_MAX:
                self._identities.popitem(last=False)
        return known

    def _note(self, spans: Iterable[Span]) -> None:
        """Remember whose prefill ran when, before anything is judged."""
        for span in spans:
            said = engine_says(span)
            if said is not None:
                resolved = self._workers.resolve(Request(engine=span), self.ledger)
                if resolved.worker is not None:
                    self._recent.note(resolved.worker, span, said)

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
        try:
            frame = parse_frames(frames)
            if isinstance(frame, EndOfReplay):
                return KvOutcome(kind="end")
            batch = decode_batch(frame.payload, self._digester)
        except BadInput:
            self.measures.count("whymiss.ledger.bad_events", source=source.name)
            return KvOutcome(kind="bad")
        named = worker_of_topic(frame.topic)
        worker = source.worker or named.worker or source.name
        rank = source.rank if source.rank is not None else (batch.rank if batch.rank is not None else named.rank)
        stream = StreamId(worker, rank or 0)
        if source.kv_connector:
            self._connectors.add(worker)
        model = source.model or named.model
        delivery = Delivery(now=now, model=model, can_replay=source.can_replay, replayed=replayed)
        accepted = self.ledger.accept(stream, frame.seq, batch, delivery)
        self._count_batch(source, accepted.arrival, batch.count, accepted.operations, batch.bad_events)
        self.measures.gauge(
            "whymiss.ledger.lag", max(0.0, (received_unix_nanos - batch.unix_nanos) / SECOND), source=source.name
        )
        return KvOutcome(
            kind=accepted.arrival.value, missing_first=accepted.missing_first, missing_last=accepted.missing_last
        )

    def _count_batch(self, source: KvSource, arrival: Arrival, events: int, blocks: int, bad: int) -> None:
        if arrival is Arrival.DUPLICATE:
            return
        self.measures.count("whymiss.ledger.events", events, source=source.name)
        self.measures.count("whymiss.ledger.blocks", blocks, source=source.name)
        if bad:
            self.measures.count("whymiss.ledger.bad_events", bad, source=source.name)
        if arrival is Arrival.GAP:
            self.measures.count("whymiss.ledger.gaps", source=source.name)
        if arrival is Arrival.RESTARTED:
            self.measures.count("whymiss.ledger.restarts", source=source.name)

    # --- time -------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When ``advance`` next has work, on the clock of ``now``."""
        deadlines = [one for one in (self._joiner.next_deadline, self.ledger.next_deadline) if one is not None]
        return min(deadlines, default=None)

    def advance(self, now: float) -> tuple[Redacted, ...]:
        """Let go of what is due."""
        self.ledger.expire(now)
        outgoing = self._act(self._joiner.expire(now), now)
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
        for outcome in outcomes:
            if isinstance(outcome, Late):
                outgoing.append(self._late(outcome.span, now))
                continue
            leaving = self._released(outcome, now)
            if leaving is not None:
                outgoing.append(leaving)
        return outgoing

    def _late(self, span: Span, now: float) -> Redacted:
        self.measures.count("whymiss.spans.late")
        known = self._verdicts.get(span.trace_id)
        verdict = known[0] if known is not None and known[1] >= now else None
        return self._redactor.spans([(span, verdict)], sampled=self._redactor.is_sampled([span]))

    def _released(self, released: Released, now: float) -> Redacted | None:
        requests, loose = group(released.spans)
        verdicts = [self._judge(request, shed=released.reason is ReleaseReason.SHED) for request in requests]
        waiting = any(verdict.reason is Reason.EVIDENCE_LATE for verdict in verdicts)
        if waiting and self._joiner.hold_on(released, released.arrived, now):
            return None
        self.measures.count("whymiss.join.released", reason=released.reason.value)
        leaving: dict[tuple[bytes, bytes], tuple[Span, Verdict | None]] = {
            (span.trace_id, span.span_id): (span, None) for span in (*loose, *released.spans)
        }
        sampled = self._redactor.is_sampled(released.spans)
        for request, verdict in zip(requests, verdicts, strict=True):
            for span in request.spans:
                leaving[span.trace_id, span.span_id] = (span, verdict)
                self._remember(span.trace_id, verdict, now)
            self._observe(request, verdict, sampled=sampled)
            if self.judged is not None:
                self.judged.append(Judged(request=request, verdict=verdict))
        return self._redactor.spans(list(leaving.values()), sampled=sampled)

    def _judge(self, request: Request, *, shed: bool) -> Verdict:
        resolved = self._workers.resolve(request, self.ledger)
        readings = self._reader.read(request, resolved.streams, resolved.gap, _reported_cached(request))
        if readings.grade is Grade.DERIVED and resolved.worker in self._connectors:
            # What a connector loads is stored like what was computed: events cannot tell them apart.
            readings = msgspec.structs.replace(readings, readings=(), gap=Reason.NO_CACHED_TOKENS, grade=Grade.NONE)
        if not readings.readings:
            facts = [self._facts.bare(request, readings.grade, readings.gap, readings.block_size)]
        else:
            facts = [self._facts.of(request, one, readings.grade, readings.gap) for one in readings.readings]
        verdict = agree([decide(one, self._policy) for one in facts])
        if verdict.worker is None and resolved.worker is not None:
            rank = resolved.streams[0].rank if len(resolved.streams) == 1 else None
            verdict = msgspec.structs.replace(verdict, worker=resolved.worker, rank=rank)
        if shed:
            verdict = msgspec.structs.replace(verdict, reason=Reason.PARTIAL_TRACE) if _is_unknown(verdict) else verdict
        return verdict

    def _remember(self, trace_id: bytes, verdict: Verdict, now: float) -> None:
        self._verdicts[trace_id] = (verdict, now + self._config.join.remembered_seconds)
        self._verdicts.move_to_end(trace_id)
        while len(self._verdicts) > self._config.join.remembered_max:
            self._verdicts.popitem(last=False)

    def _observe(self, request: Request, verdict: Verdict, *, sampled: bool) -> None:
        subject = request.subject
        said = engine_says(request.engine)
        weight = adjusted_count(subject)
        exemplar = Exemplar(
            trace_id=subject.trace_id.hex(), span_id=subject.span_id.hex(), unix_nanos=subject.end_unix_nanos
        )
        self.measures.observe(
            verdict,
            _dimensions(request, verdict, extrapolated=weight is not None),
            first_token_seconds=said.first_token_seconds if said is not None else None,
            weight=1.0 if weight is None else weight,
            exemplar=exemplar if sampled else None,
        )


def _is_unknown(verdict: Verdict) -> bool:
    return verdict.cause.value == "unknown"


def _reported_cached(request: Request) -> int | None:
    """A cached-token count that the engine's own span or a gateway reports; absent is not zero."""
    said = engine_says(request.engine)
    if said is not None and said.cached_tokens is not None:
        return said.cached_tokens
    counts = {
        usage.cached_tokens
        for span in request.gateways
        for usage in span.says
        if isinstance(usage, GatewayUsage) and usage.cached_tokens is not None
    }
    return counts.pop() if len(counts) == 1 else None


def _dimensions(request: Request, verdict: Verdict, *, extrapolated: bool) -> Dimensions:
    routes = [said for span in request.routes for said in span.says if isinstance(said, RouteDecision)]
    said = engine_says(request.engine)
    model = said.model if isinstance(said, EngineRequest) else None
    return Dimensions(
        route=next((route.reason for route in routes if route.reason), None),
        model=model or next((route.model for route in routes if route.model), None),
        block_geometry=None if verdict.block_size is None else f"{verdict.block_size}/{verdict.match_unit}",
        sampling_method="extrapolated" if extrapolated else "counted",
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
        "worker": worker_name(verdict.worker, verdict.rank) if verdict.worker else None,
        "prompt_tokens": verdict.prompt_tokens,
        "cached_tokens": verdict.cached_tokens,
        "block_index": verdict.block_index,
        "cause": verdict.cause.value,
        "owner": verdict.owner.value,
        "reason": verdict.reason.value,
        "evidence": verdict.grade.value,
        "lost_tokens": verdict.lost_tokens,
    }
