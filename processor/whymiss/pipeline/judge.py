"""From a joined request to its verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ..attribution import Policy, agree, decide
from ..config import Config
from ..evidence.companions import Companions
from ..evidence.facts import FactFinder, reported_cached
from ..evidence.grouping import engine_says, lookup_says
from ..evidence.likeness import Comparer
from ..evidence.promises import offload_of
from ..evidence.reading import Reader, Readings
from ..evidence.recent import RecentRequests
from ..evidence.workers import Resolved, Workers
from ..model import SECOND, Cause, Grade, LedgerView, Reason, Request, Span, Templates, Verdict

LOCAL_CAUSES = frozenset(
    {
        Cause.SPARSE_RETENTION,
        Cause.SPECULATIVE_REPLAY,
        Cause.STALE_INDEX,
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
with one they stand only if something says how much was loaded."""


class Judge:
    """Reads the evidence of requests and decides. ``connectors`` are workers that load blocks from elsewhere."""

    def __init__(self, config: Config, ledger: LedgerView, connectors: Collection[str], templates: Templates) -> None:
        keep = round(config.ledger.window_seconds * SECOND)
        self._ledger = ledger
        self._connectors = connectors
        self._recent = RecentRequests(keep)
        self._companions = Companions(keep)
        self._workers = Workers(config.workers)
        self._reader = Reader(config.attribution, ledger, self._recent)
        self._facts = FactFinder(config, ledger, self._workers, self._recent, self._companions)
        self._comparer = Comparer(ledger, templates)
        self._policy = Policy(
            fleet_view_declared=config.attribution.fleet_view == "declared",
            index_lag_nanos=round(config.attribution.index_lag_seconds * SECOND),
        )

    @property
    def remembered_bytes(self) -> int:
        """Bytes of what is remembered of earlier requests."""
        return self._recent.nbytes

    def note(self, spans: Iterable[Span]) -> None:
        """Remember whose prefill ran when, and what else was seen. Call it for all spans before any is judged."""
        for span in spans:
            said = engine_says(span)
            if said is None and lookup_says(span) is None:  # guard: judge-note-lookup
                self._companions.note(span, None)
                continue
            worker = self._workers.resolve(Request(engine=span), self._ledger).worker
            self._companions.note(span, worker)
            if said is not None and worker is not None:
                self._recent.note(worker, span, said)

    def verdict_of(self, request: Request, *, shed: bool) -> Verdict:
        """The verdict of a request; ``shed`` says that it was let go before its hold ended."""
        resolved = self._workers.resolve(request, self._ledger)
        verdict = self._decide(request, resolved)
        if verdict.worker is None and resolved.worker is not None:  # guard: judge-worker
            rank = resolved.streams[0].rank if len(resolved.streams) == 1 else None  # guard: judge-one-rank
            verdict = msgspec.structs.replace(verdict, worker=resolved.worker, rank=rank)
        if shed and verdict.cause is Cause.UNKNOWN:  # guard: judge-shed, judge-shed-unknown, judge-not-shed
            verdict = msgspec.structs.replace(verdict, reason=Reason.PARTIAL_TRACE)
        return verdict

    def _decide(self, request: Request, resolved: Resolved) -> Verdict:
        worker = resolved.worker
        readings = self._reader.read(request, resolved.streams, resolved.gap, reported_cached(request))
        if not readings.readings:
            bare = self._facts.bare(request, readings, worker)
            counted = request.lookup is not None or bool(request.gateways)
            # guard: judge-counted, judge-uncounted, judge-streams, judge-zero
            if bare.cached_tokens is None and counted and not self._ledger.streams():
                # Who counts gave no count: nothing shows that there was a miss at all.
                bare = msgspec.structs.replace(bare, gap=Reason.NO_CACHED_TOKENS)
            return decide(bare, self._policy)
        said = engine_says(request.engine)
        model = said.model if said is not None else None
        verdict = agree(
            [
                decide(self._comparer.add(self._facts.of(request, one, readings, worker), one, model), self._policy)
                for one in readings.readings
            ]
        )
        if not self._loads_unseen(request, resolved):  # guard: judge-loads
            return verdict
        if verdict.cause is Cause.UNKNOWN:
            # What was loaded is among what was counted as computed.
            # guard: judge-loads-unknown
            return msgspec.structs.replace(verdict, cached_tokens=None, recomputed_tokens=None, block_index=None)
        if verdict.cause in LOCAL_CAUSES:  # guard: judge-loads-local, judge-loads-other
            unseen = Readings(grade=Grade.NONE, gap=Reason.NO_CACHED_TOKENS, block_size=readings.block_size)
            bare = self._facts.bare(request, unseen, worker)
            return decide(msgspec.structs.replace(bare, cached_tokens=None, first=None), self._policy)
        return verdict

    def _loads_unseen(self, request: Request, resolved: Resolved) -> bool:
        """Whether blocks of this request may have been loaded from elsewhere without anything saying so."""
        said = engine_says(request.engine)
        # guard: loads-connector, loads-decode, loads-tiers
        loads = (
            resolved.worker in self._connectors
            or (said is not None and said.decode_only)
            or any(self._ledger.tiers(stream) for stream in resolved.streams)
        )
        return loads and not _tells_loads(request)  # guard: loads-told


def _tells_loads(request: Request) -> bool:
    """Whether something says how much was loaded from outside, or that nothing was.

    A reported count includes what was loaded, and only chains that begin where it ends are read.
    """
    looked = lookup_says(request.lookup)
    if looked is not None and looked.external_hit_tokens is not None:  # guard: loads-looked
        return True
    offload = offload_of(request.offloads)
    # guard: loads-nothing, loads-something
    nothing = offload is not None and (offload.status in {"none", "miss"} or offload.loaded_blocks == 0)
    return nothing or reported_cached(request) is not None  # guard: loads-reported
