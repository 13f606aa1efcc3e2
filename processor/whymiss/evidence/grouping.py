"""Which of the joined spans belong to one lookup.

A trace can hold several engine requests (n > 1, lists of prompts, agents), and a request's lookup can
sit in another trace than its engine span. A lookup goes to the engine span that shares its request id
(or, where it has none, its trace) and whose bounds in time admit it; elimination settles the rest, and
what stays open stays apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..model import (
    SECOND,
    EngineRequest,
    GatewayUsage,
    Lookup,
    OffloadOutcome,
    Request,
    RouteDecision,
    Span,
    request_ids,
)

CLOCK_GRAIN_NANOS = 2_000_000
"""Rounding between the float seconds of latencies and the nanoseconds of spans."""


def says(span: Span, kind: type) -> bool:
    """Whether a span says something of a kind."""
    return any(isinstance(said, kind) for said in span.says)


def engine_says(span: Span | None) -> EngineRequest | None:
    """What an engine's span says of its request."""
    return next((said for said in span.says if isinstance(said, EngineRequest)), None) if span else None


def lookup_says(span: Span | None) -> Lookup | None:
    """What a lookup's span says."""
    return next((said for said in span.says if isinstance(said, Lookup)), None) if span else None


def lookup_bounds(span: Span, said: EngineRequest) -> tuple[int, int, int]:
    """Earliest and latest moment of the lookup, and the first token, on the engine's clock.

    The engine core measures the queue from when it received the request and the prefill up to its own
    first token, so arrival + queue is a lower and arrival + time to first token - prefill an upper bound
    (vllm ``v1/metrics/stats.py``).
    """
    start = span.start_unix_nanos
    first_token = span.end_unix_nanos
    if said.first_token_seconds is not None:
        first_token = min(first_token, start + round(said.first_token_seconds * SECOND))
    earliest = start + round((said.queue_seconds or 0.0) * SECOND)
    latest = first_token
    if said.prefill_seconds is not None and said.first_token_seconds is not None:
        latest = first_token - round(said.prefill_seconds * SECOND)
    return earliest, max(earliest, latest), first_token


def group(spans: Sequence[Span]) -> tuple[list[Request], list[Span]]:
    """The requests among joined spans, and the spans that belong to none of them."""
    engines = [span for span in spans if says(span, EngineRequest)]
    # Only the lookup that admitted a request counts; a preempted one is looked up again.
    lookups = [span for span in spans if (said := lookup_says(span)) is not None and not said.preempted]
    own = {id(span): span for span in engines if says(span, Lookup)}
    pairs = _match([span for span in engines if id(span) not in own], [span for span in lookups if id(span) not in own])
    pairs.update({id(span): span for span in own.values()})
    taken = {id(span) for span in pairs.values()}
    heads: list[tuple[Span | None, Span | None]] = [(engine, pairs.get(id(engine))) for engine in engines]
    heads.extend((None, lookup) for lookup in lookups if id(lookup) not in taken)
    requests = [
        Request(
            engine=engine,
            lookup=lookup,
            routes=_companions(spans, engine or lookup, heads, RouteDecision),
            offloads=_companions(spans, engine or lookup, heads, OffloadOutcome),
            gateways=_companions(spans, engine or lookup, heads, GatewayUsage),
        )
        for engine, lookup in heads
    ]
    placed = {id(span) for request in requests for span in request.spans}
    return requests, [span for span in spans if id(span) not in placed]


def _match(engines: Sequence[Span], lookups: Sequence[Span]) -> dict[int, Span]:
    """Lookups by the engine span that they belong to.

    The upper bound of a lookup is the start of the scheduler's step, and a step may look up many
    requests, so that bound only chooses among several spans with one id: first by it, then without.
    """
    pairs: dict[int, Span] = {}
    for bounded in (True, False):
        options = {
            id(lookup): [engine for engine in engines if _fits(engine, lookup, bounded=bounded)] for lookup in lookups
        }
        _eliminate(lookups, options, pairs)
    return pairs


def _eliminate(lookups: Sequence[Span], options: dict[int, list[Span]], pairs: dict[int, Span]) -> None:
    settled = True
    while settled:
        settled = False
        free = [lookup for lookup in lookups if not any(lookup is paired for paired in pairs.values())]
        for lookup in free:
            left = [engine for engine in options[id(lookup)] if id(engine) not in pairs]
            if len(left) == 1 or (left and _only_taker(lookup, left[0], free, options)):
                pairs[id(left[0])] = lookup
                settled = True
                break


def _only_taker(lookup: Span, engine: Span, free: Iterable[Span], options: dict[int, list[Span]]) -> bool:
    return all(other is lookup or not any(engine is option for option in options[id(other)]) for other in free)


def _fits(engine: Span, lookup: Span, *, bounded: bool) -> bool:
    lookup_ids, engine_ids = set(request_ids(lookup)), set(request_ids(engine))
    if lookup_ids and engine_ids:
        if not lookup_ids & engine_ids:
            return False
    elif engine.trace_id != lookup.trace_id:
        return False
    said = engine_says(engine)
    if said is None:
        return False
    earliest, latest, first_token = lookup_bounds(engine, said)
    until = latest if bounded else first_token
    return earliest - CLOCK_GRAIN_NANOS <= lookup.start_unix_nanos <= until + CLOCK_GRAIN_NANOS


def _companions(
    spans: Sequence[Span], subject: Span | None, heads: Sequence[tuple[Span | None, Span | None]], kind: type
) -> tuple[Span, ...]:
    assert subject is not None, "every head has an engine span or a lookup"
    subjects = [one for engine, lookup in heads if (one := engine or lookup) is not None]
    belongs = _belonging(subject, subjects)
    return tuple(span for span in spans if says(span, kind) and belongs(span))


def _belonging(subject: Span, subjects: Sequence[Span]) -> Callable[[Span], bool]:
    names = set(request_ids(subject))
    same_trace = [one for one in subjects if one.trace_id == subject.trace_id]

    def belongs(span: Span) -> bool:
        if span is subject:
            return True
        theirs = set(request_ids(span))
        named = [one for one in subjects if theirs & set(request_ids(one))]
        if named:
            return bool(theirs & names)
        if span.trace_id != subject.trace_id:
            return False
        if len(same_trace) == 1 or subject.parent_span_id == span.span_id:
            return True
        children = [one for one in same_trace if one.parent_span_id == span.span_id]
        return not children and _encloses(span, subject) and sum(_encloses(span, one) for one in same_trace) == 1

    return belongs


def _encloses(span: Span, subject: Span) -> bool:
    return span.start_unix_nanos <= subject.start_unix_nanos <= span.end_unix_nanos
