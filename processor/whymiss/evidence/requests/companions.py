"""Which spans requests come with here: a companion that is missing was lost, and is no evidence of nothing.

A sampled-out router or a late tier must not turn a broken promise into an eviction. Where routers
promise, a routed request without a promise has lost it; where tiers report, or an engine reports its
lookups, a request without such a report has lost it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum

from ...model import Lookup, OffloadOutcome, RouteDecision, Span

BUCKETS = 64
"""Parts of the remembered time in which a kind of companion was or was not seen."""


class Companion(StrEnum):
    """What a span can add to an engine's own."""

    LOOKUP = "lookup"
    PROMISE = "promise"
    OFFLOAD = "offload"


def kinds_of(span: Span) -> Iterable[Companion]:
    """The kinds of companion that a span is."""
    for said in span.says:
        if isinstance(said, Lookup):
            yield Companion.LOOKUP
        elif isinstance(said, RouteDecision) and said.predicted_blocks is not None:  # guard: companion-silent-route
            yield Companion.PROMISE
        elif isinstance(said, OffloadOutcome) and said.tier != "prefill_worker":  # guard: companion-between-halves
            yield Companion.OFFLOAD


class Companions:
    """The kinds of companion seen, by the times of their spans, for ``keep_nanos``."""

    def __init__(self, keep_nanos: int) -> None:
        self._grain = max(1, keep_nanos // BUCKETS)
        self._seen: defaultdict[tuple[Companion, str | None], set[int]] = defaultdict(set)

    def note(self, span: Span, worker: str | None) -> None:
        """Remember a span. Lookups are their worker's; routers and tiers serve all workers."""
        for kind in kinds_of(span):
            seen = self._seen[kind, worker if kind is Companion.LOOKUP else None]
            seen.add(span.start_unix_nanos // self._grain)
            if len(seen) > 2 * BUCKETS:
                oldest = max(seen) - BUCKETS
                seen.intersection_update(range(oldest, oldest + BUCKETS + 1))

    def expected(self, kind: Companion, worker: str | None, unix_nanos: int) -> bool:
        """Whether a request of that time has such a companion as others have."""
        seen = self._seen.get((kind, worker if kind is Companion.LOOKUP else None), ())  # guard: companion-worker
        now = unix_nanos // self._grain
        return any(abs(bucket - now) <= BUCKETS for bucket in seen)  # guard: companion-recent
