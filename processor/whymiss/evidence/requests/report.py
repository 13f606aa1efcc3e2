"""What the spans of one request say: the engine's own word, and apart from it what others count.

An engine's span and lookup say what the engine admitted. What a gateway or an SDK repeats from a response is another's
count, and stands only where the engine gives none and all who count agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model import OFFLOAD_STATUSES, SECOND, EngineRequest, GatewayUsage, Lookup, OffloadOutcome, Request, Span

CLOCK_GRAIN_NANOS = 2_000_000
"""Rounding between the float seconds of latencies and the nanoseconds of spans."""

_WORST_FIRST = (*OFFLOAD_STATUSES, None)


def says(span: Span, kind: type) -> bool:
    """Whether a span says something of a kind."""
    for statement in span.says:  # noqa: SIM110 - one call instead of one a statement
        if isinstance(statement, kind):
            return True
    return False


def engine_says(span: Span | None) -> EngineRequest | None:
    """What an engine's span says of its request."""
    if span is not None:
        for statement in span.says:
            if isinstance(statement, EngineRequest):
                return statement
    return None


def lookup_says(span: Span | None) -> Lookup | None:
    """What a lookup's span says."""
    if span is not None:
        for statement in span.says:
            if isinstance(statement, Lookup):
                return statement
    return None


def lookup_bounds(span: Span, said: EngineRequest) -> tuple[int, int, int]:
    """Earliest and latest moment of the lookup, and the first token, on the engine's clock.

    The engine core measures the queue from when it received the request and the prefill up to its own
    first token, so arrival + queue is a lower and arrival + time to first token - prefill an upper bound
    (vllm ``v1/metrics/stats.py``).
    """
    start = span.start_unix_nanos
    first_token = span.end_unix_nanos
    if said.first_token_after_end:
        # guard: bounds-after-end
        first_token += round((said.first_token_seconds or 0.0) * SECOND)
    elif said.first_token_seconds is not None:
        # guard: bounds-first-token-end
        first_token = min(first_token, start + round(said.first_token_seconds * SECOND))
    earliest = start + round((said.queue_seconds or 0.0) * SECOND)  # guard: bounds-queue
    latest = first_token
    if said.prefill_seconds is not None and said.first_token_seconds is not None:
        latest = first_token - round(said.prefill_seconds * SECOND)  # guard: bounds-prefill
    return earliest, max(earliest, latest), first_token  # guard: bounds-order


def request_end(span: Span, said: EngineRequest) -> int:
    """When a request ended at the earliest, in Unix nanoseconds on the engine's clock."""
    if not said.first_token_after_end:
        return span.end_unix_nanos
    # guard: end-after-first-token
    return lookup_bounds(span, said)[2] + round((said.decode_seconds or 0.0) * SECOND)


class RequestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of one request, read once for its verdict."""

    request: Request
    engine: EngineRequest | None
    """What the engine's span says."""
    lookup: Lookup | None
    """What the engine's lookup says."""
    others_prompt_tokens: int | None
    """What others count, where they agree."""
    others_cached_tokens: int | None
    offload: OffloadOutcome | None
    """The worst outcome that a tier reported."""

    @classmethod
    def of(cls, request: Request) -> RequestReport:
        """Read the spans of a request."""
        usages = [said for span in request.gateways for said in span.says if isinstance(said, GatewayUsage)]
        return cls(
            request=request,
            engine=engine_says(request.engine),
            lookup=lookup_says(request.lookup),
            others_prompt_tokens=_agreed([usage.prompt_tokens for usage in usages]),
            others_cached_tokens=_agreed([usage.cached_tokens for usage in usages]),
            offload=offload_of(request.offloads) if request.offloads else None,
        )

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt: the lookup's word, else the engine's, else what others count."""
        if self.lookup is not None and self.lookup.prompt_tokens is not None:
            return self.lookup.prompt_tokens
        if self.engine is not None and self.engine.prompt_tokens is not None:
            return self.engine.prompt_tokens
        return self.others_prompt_tokens

    @property
    def reported_cached(self) -> int | None:
        """A cached-token count that the engine's own span or a gateway reports; absent is not zero."""
        if self.engine is not None and self.engine.cached_tokens is not None:
            return self.engine.cached_tokens
        return self.others_cached_tokens

    @property
    def local_hit_tokens(self) -> int | None:
        """Cached tokens of the engine's own cache, where a lookup keeps them apart."""
        lookup = self.lookup
        if lookup is None or lookup.local_hit_tokens is not None or lookup.external_hit_tokens is None:
            return lookup.local_hit_tokens if lookup is not None else None
        # guard: facts-external
        return None if lookup.cached_tokens is None else lookup.cached_tokens - lookup.external_hit_tokens

    @property
    def looked_at(self) -> int:
        """The latest possible time of the lookup."""
        request = self.request
        if request.lookup is not None:
            return request.lookup.start_unix_nanos
        assert request.engine is not None, "a request has an engine span or a lookup"
        return lookup_bounds(request.engine, self.engine or EngineRequest())[1]

    @property
    def tells_loads(self) -> bool:
        """Whether something says how much was loaded from outside, or that nothing was.

        A reported count includes what was loaded, and only chains that begin where it ends are read.
        """
        if self.lookup is not None and self.lookup.external_hit_tokens is not None:  # guard: loads-looked
            return True
        offload = self.offload
        # guard: loads-nothing, loads-something
        nothing = offload is not None and (offload.status in {"none", "miss"} or offload.loaded_blocks == 0)
        return nothing or self.reported_cached is not None  # guard: loads-reported


def _agreed(counts: Sequence[int | None]) -> int | None:
    """The one count that all who count give."""
    told = {count for count in counts if count is not None}
    return told.pop() if len(told) == 1 else None  # guard: facts-cached-disagree, facts-prompt-disagree


def offload_of(spans: Sequence[Span]) -> OffloadOutcome | None:
    """The worst outcome that a tier reported: a failure explains more than a success."""
    outcomes = [said for span in spans for said in span.says if isinstance(said, OffloadOutcome)]
    return min(outcomes, key=_badness, default=None)  # guard: offload-worst


def _badness(said: OffloadOutcome) -> tuple[int, int]:
    short = said.found_blocks is not None and said.loaded_blocks is not None and said.loaded_blocks < said.found_blocks
    status = said.status if said.status in _WORST_FIRST else None
    place = _WORST_FIRST.index(status)
    return (0 if place < 3 else (1 if short else 2), place)  # guard: offload-short
