"""From a joined request to its verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ..attribution import Policy, agree, decide, is_local
from ..config import Config
from ..evidence.accounts import Accounts
from ..evidence.established import Remembered, Sources
from ..evidence.hypotheses import Reader
from ..evidence.requests.companions import Companions
from ..evidence.requests.report import RequestReport, engine_says, lookup_says
from ..evidence.requests.request_log import RequestLog
from ..evidence.requests.workers import Resolved, Workers
from ..model import SECOND, Cause, FleetView, Reason, Request, Span, Templates, Verdict


class Judge:
    """Reads the evidence of requests and decides. ``connectors`` are workers that load blocks from elsewhere."""

    def __init__(self, config: Config, fleet: FleetView, connectors: Collection[str], templates: Templates) -> None:
        keep = round(config.ledger.window_seconds * SECOND)
        self._fleet = fleet
        self._connectors = connectors
        self._log = RequestLog(keep)
        self._companions = Companions(keep)
        self._workers = Workers(config.workers)
        self._accounts = Accounts(fleet, connectors)
        self._reader = Reader(config.attribution, fleet, self._accounts)
        self._sources = Sources(config, fleet, self._workers, Remembered(self._log, self._companions), templates)
        self._policy = Policy(
            fleet_view_declared=config.attribution.fleet_view == "declared",
            index_lag_nanos=round(config.attribution.index_lag_seconds * SECOND),
        )

    @property
    def remembered_bytes(self) -> int:
        """Bytes of what is remembered of earlier requests."""
        return self._log.nbytes

    def note(self, spans: Iterable[Span]) -> None:
        """Remember whose prefill ran when, and what else was seen. Call it for all spans before any is judged."""
        for span in spans:
            said = engine_says(span)
            if said is None and lookup_says(span) is None:  # guard: judge-note-lookup
                self._companions.note(span, None)
                continue
            resolved = self._workers.resolve(Request(engine=span), self._fleet)
            self._companions.note(span, resolved.worker)
            if said is not None:
                self._accounts.note(span, said, resolved.worker, resolved.streams)
                if resolved.worker is not None:
                    self._log.note(resolved.worker, span, said)

    def verdict_of(self, request: Request, *, shed: bool) -> Verdict:
        """The verdict of a request; ``shed`` says that it was let go before its hold ended."""
        resolved = self._workers.resolve(request, self._fleet)
        verdict = self._decide(RequestReport.of(request), resolved)
        if verdict.worker is None and resolved.worker is not None:  # guard: judge-worker
            rank = resolved.streams[0].rank if len(resolved.streams) == 1 else None  # guard: judge-one-rank
            verdict = msgspec.structs.replace(verdict, worker=resolved.worker, rank=rank)
        if shed and verdict.cause is Cause.UNKNOWN:  # guard: judge-shed, judge-shed-unknown, judge-not-shed
            verdict = msgspec.structs.replace(verdict, reason=Reason.PARTIAL_TRACE)
        return verdict

    def _decide(self, report: RequestReport, resolved: Resolved) -> Verdict:
        worker, sources = resolved.worker, self._sources
        readings = self._reader.read(report.request, resolved.streams, resolved.gap, report.reported_cached)
        if not readings.readings:
            return decide(sources.of_spans(report, readings, worker), self._policy)
        verdict = agree(
            [
                decide(sources.of_reading(report, reading, readings, worker), self._policy)
                for reading in readings.readings
            ]
        )
        if verdict.cause is Cause.UNKNOWN and verdict.reason is Reason.AMBIGUOUS_CHAIN and readings.doubt:
            verdict = msgspec.structs.replace(verdict, reason=readings.doubt)
        if not self._loads_unseen(report, resolved):  # guard: judge-loads
            return verdict
        if verdict.cause is Cause.UNKNOWN:
            # What was loaded is among what was counted as computed.
            # guard: judge-loads-unknown
            return msgspec.structs.replace(verdict, cached_tokens=None, recomputed_tokens=None, block_index=None)
        if is_local(verdict.cause):  # guard: judge-loads-local, judge-loads-other
            return decide(sources.of_uncounted(report, readings.block_size, worker), self._policy)
        return verdict

    def _loads_unseen(self, report: RequestReport, resolved: Resolved) -> bool:
        """Whether blocks of this request may have been loaded from elsewhere without anything saying so."""
        loads = (  # guard: loads-connector, loads-decode, loads-tiers
            resolved.worker in self._connectors
            or (report.engine is not None and report.engine.decode_only)
            or any(self._fleet.stream(stream).tiers() for stream in resolved.streams)
        )
        return loads and not report.tells_loads  # guard: loads-told
