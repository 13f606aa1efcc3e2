"""From a joined request to its verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ..attribution import Policy, agree, decide
from ..config import Config
from ..evidence.facts import FactFinder
from ..evidence.grouping import engine_says, lookup_says
from ..evidence.reading import Reader
from ..evidence.recent import RecentRequests
from ..evidence.workers import Workers
from ..model import (
    SECOND,
    Cause,
    GatewayUsage,
    Grade,
    LedgerView,
    Reason,
    Request,
    Span,
    Verdict,
)

LOCAL_CAUSES = frozenset(
    {
        Cause.SPARSE_RETENTION,
        Cause.SPECULATIVE_REPLAY,
        Cause.LOOKUP_FAILURE,
        Cause.TIER_UNREACHABLE,
        Cause.ROUTING_MISS,
        Cause.EVICTED,
        Cause.EVICTED_ELSEWHERE,
        Cause.EXTRA_KEY_MISMATCH,
        Cause.IDENTITY_MISMATCH,
        Cause.TOKEN_DIVERGENCE,
        Cause.NEW_CONTENT,
        Cause.NO_RECENT_MATCH,
    }
)
"""Causes that a local miss has. What a connector loads is stored like what was computed, so on an engine
with one they stand only if the engine says how much it loaded."""


REMEMBERED_SECONDS = 120.0
"""How long a request's times are kept beyond the longest request seen: holds end well before."""


class Judge:
    """Reads the evidence of requests and decides. ``connectors`` are workers that load blocks from elsewhere."""

    def __init__(self, config: Config, ledger: LedgerView, connectors: Collection[str]) -> None:
        self._ledger = ledger
        self._connectors = connectors
        self._recent = RecentRequests(round(REMEMBERED_SECONDS * SECOND))
        self._workers = Workers(config.workers)
        self._reader = Reader(config.attribution, ledger, self._recent)
        self._facts = FactFinder(config.attribution, config.ledger.window_seconds, ledger)
        self._policy = Policy(
            fleet_view_declared=config.attribution.fleet_view == "declared",
            index_lag_nanos=round(config.attribution.index_lag_seconds * SECOND),
        )

    def note(self, spans: Iterable[Span]) -> None:
        """Remember whose prefill ran when. Call it for all spans that arrive, before any is judged."""
        for span in spans:
            said = engine_says(span)
            if said is None:
                continue
            resolved = self._workers.resolve(Request(engine=span), self._ledger)
            if resolved.worker is not None:
                self._recent.note(resolved.worker, span, said)

    def verdict_of(self, request: Request, *, shed: bool) -> Verdict:
        """The verdict of a request; ``shed`` says that it was let go before its hold ended."""
        resolved = self._workers.resolve(request, self._ledger)
        readings = self._reader.read(request, resolved.streams, resolved.gap, reported_cached(request))
        if not readings.readings:
            facts = [self._facts.bare(request, readings.grade, readings.gap, readings.block_size)]
        else:
            facts = [self._facts.of(request, one, readings.grade, readings.gap) for one in readings.readings]
        verdict = agree([decide(one, self._policy) for one in facts])
        if verdict.cause in LOCAL_CAUSES and resolved.worker in self._connectors and not _tells_loads(request):
            facts = [self._facts.bare(request, Grade.NONE, Reason.NO_CACHED_TOKENS, readings.block_size)]
            verdict = decide(msgspec.structs.replace(facts[0], cached_tokens=None), self._policy)
        if verdict.worker is None and resolved.worker is not None:
            rank = resolved.streams[0].rank if len(resolved.streams) == 1 else None
            verdict = msgspec.structs.replace(verdict, worker=resolved.worker, rank=rank)
        if shed and verdict.cause is Cause.UNKNOWN:
            verdict = msgspec.structs.replace(verdict, reason=Reason.PARTIAL_TRACE)
        return verdict


def _tells_loads(request: Request) -> bool:
    """Whether the engine says how much it loaded from outside."""
    looked = lookup_says(request.lookup)
    return looked is not None and looked.external_hit_tokens is not None


def reported_cached(request: Request) -> int | None:
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
