"""A notation for joiners: what arrives when, and what must leave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from whymiss.dialects.vllm import request_ids
from whymiss.join import Joiner
from whymiss.model import (
    EngineRequest,
    Envelope,
    Evidenced,
    JoinOutcome,
    Late,
    OffloadOutcome,
    Released,
    ReleaseReason,
    ResourceIdentity,
    Role,
    RouteDecision,
    Span,
)

SECOND = 1_000_000_000
SAYS: dict[Role, type[EngineRequest | RouteDecision | OffloadOutcome]] = {
    Role.ENGINE: EngineRequest,
    Role.ROUTER: RouteDecision,
    Role.OFFLOAD: OffloadOutcome,
}


def span_of(
    role: Role, trace: int, number: int, *, request_id: str | None = None, start: float = 0.0, end: float = 1.0
) -> Span:
    """A claimed span with small ids; its bytes are as long as its number, so that each span has a size of its own."""
    said: Evidenced = SAYS[role](request_id=request_id)
    return Span(
        raw=bytes(number),
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=trace.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=b"",
        start_unix_nanos=round(start * SECOND),
        end_unix_nanos=round(end * SECOND),
        flags=0,
        trace_state="",
        role=role,
        dialect="test",
        says=(said,),
        resource=ResourceIdentity(),
        spellings=request_ids,
    )


def left(reason: ReleaseReason, *spans: Span) -> tuple[str, frozenset[bytes]]:
    """A group that leaves, whatever the order of its spans."""
    return reason.value, frozenset(span.span_id for span in spans)


def late(span: Span) -> tuple[str, frozenset[bytes]]:
    """A span that came too late."""
    return "late", frozenset({span.span_id})


def summary(outcomes: Iterable[JoinOutcome]) -> list[tuple[str, frozenset[bytes]]]:
    """Outcomes as ``left`` and ``late`` write them."""
    found = []
    for outcome in outcomes:
        if isinstance(outcome, Late):
            found.append(late(outcome.span))
        elif isinstance(outcome, Released):
            found.append(left(outcome.reason, *outcome.spans))
    return found


class Timeline:
    """A script for a joiner. Time cannot move on while an outcome is unexpected."""

    def __init__(self, joiner: Joiner) -> None:
        self.joiner = joiner
        self.now = 0.0
        self.seen: list[JoinOutcome] = []

    def at(self, now: float) -> Self:
        """Move time on."""
        self.expect()
        self.now = now
        self.seen += self.joiner.expire(now)
        return self

    def arrive(self, *spans: Span) -> Self:
        """Hand spans in."""
        self.seen += self.joiner.accept(spans, self.now)
        return self

    def drain(self) -> Self:
        """Let everything go."""
        self.seen += self.joiner.drain()
        return self

    def expect(self, *outcomes: tuple[str, frozenset[bytes]]) -> Self:
        """All that has left since the last look."""
        seen, self.seen = summary(self.seen), []
        assert seen == list(outcomes), f"at {self.now}"
        return self
