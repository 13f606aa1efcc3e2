"""Which of the joined spans belong to one lookup.

A trace can hold several engine requests (n > 1, lists of prompts, agents), and a request's lookup can
sit in another trace than its engine span. A lookup goes to the engine span that shares its request id
(or, where it has none, its trace) and whose bounds in time admit it; elimination settles the rest, and
what stays open stays apart.

The spans of a request say only what concerns its lookup: of a disaggregated pair the prefill half is judged, so
what is about the other half, or about the transfer between them, is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..model import (
    SECOND,
    EngineRequest,
    Evidenced,
    GatewayUsage,
    Lookup,
    OffloadOutcome,
    Request,
    RouteDecision,
    Span,
    request_ids,
)
from .belonging import Subjects
from .sides import Side, Sides, key_of, sides_of

CLOCK_GRAIN_NANOS = 2_000_000
"""Rounding between the float seconds of latencies and the nanoseconds of spans."""

BETWEEN_HALVES = "prefill_worker"
"""The tier of what was to come from the prefill half: no cache that a lookup asks."""


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
        # guard: bounds-first-token-end
        first_token = min(first_token, start + round(said.first_token_seconds * SECOND))
    earliest = start + round((said.queue_seconds or 0.0) * SECOND)  # guard: bounds-queue
    latest = first_token
    if said.prefill_seconds is not None and said.first_token_seconds is not None:
        latest = first_token - round(said.prefill_seconds * SECOND)  # guard: bounds-prefill
    return earliest, max(earliest, latest), first_token  # guard: bounds-order


def group(spans: Sequence[Span]) -> tuple[list[Request], list[Span]]:
    """The requests among joined spans, and the spans that belong to none of them."""
    engines = [span for span in spans if says(span, EngineRequest)]
    # Only the lookup that admitted a request counts; a preempted one is looked up again.
    # guard: group-preempted
    lookups = [span for span in spans if (said := lookup_says(span)) is not None and not said.preempted]
    own = {id(span): span for span in engines if says(span, Lookup)}
    sides = sides_of(engines, spans)
    pairs = {id(span): span for span in own.values()}
    # A wrapper has no lookup where what it wraps can have it.
    for wrapping in (False, True):  # guard: wrapper-too
        # guard: wrapper-last, group-own-lookup
        able = [span for span in engines if id(span) not in pairs and _is_wrapper(span, sides) is wrapping]
        pairs.update(_match(able, _unpaired(lookups, pairs)))
    taken = {id(span) for span in pairs.values()}
    # guard: group-passive
    heads: list[tuple[Span | None, Span | None]] = [
        (engine, pairs.get(id(engine))) for engine in engines if key_of(engine) not in sides.passive
    ]
    heads.extend((None, lookup) for lookup in lookups if id(lookup) not in taken)  # guard: group-lookup-alone
    subjects = [one for engine, lookup in heads if (one := engine or lookup) is not None]
    company = _company(spans, subjects)
    requests = [_request(engine, lookup, company[number], sides) for number, (engine, lookup) in enumerate(heads)]
    placed = {key_of(span) for request in requests for span in request.spans}
    return requests, [span for span in spans if key_of(span) not in placed]


def _is_wrapper(engine: Span, sides: Sides) -> bool:
    key = key_of(engine)
    return key in sides.passive and sides.of.get(key) != "decode"  # guard: wrapper-decode


def _unpaired(lookups: Iterable[Span], pairs: Mapping[int, Span]) -> list[Span]:
    paired = {id(lookup) for lookup in pairs.values()}
    return [lookup for lookup in lookups if id(lookup) not in paired]


def _company(spans: Sequence[Span], subjects: Sequence[Span]) -> defaultdict[int, list[Span]]:
    """Companions by the number of the subject that they are about."""
    whose = Subjects(subjects)
    company: defaultdict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if any(isinstance(said, RouteDecision | OffloadOutcome | GatewayUsage) for said in span.says):
            for number in whose.of(span):
                company[number].append(span)
    return company


def _request(engine: Span | None, lookup: Span | None, company: Iterable[Span], sides: Sides) -> Request:
    subject = engine or lookup
    assert subject is not None, "a request has an engine span or a lookup"
    side = sides.of.get(key_of(subject))
    told = [said.prompt_tokens for said in (engine_says(engine), lookup_says(lookup)) if said is not None]
    prompt = next((tokens for tokens in told if tokens is not None), None)
    about = [(span, [said for said in span.says if _concerns(said, side, prompt)]) for span in company]
    # A load that brought nothing, of something that the tier had just found: its index was stale.
    promised = any(_is_found(said) for _, kept in about for said in kept)  # guard: request-stale
    heard = [_saying(span, [_settled(said, promised=promised) for said in kept]) for span, kept in about]
    return Request(
        engine=engine if engine is None or side is None else _halved(engine, side),
        lookup=lookup,
        routes=tuple(span for span in heard if says(span, RouteDecision)),
        offloads=tuple(span for span in heard if says(span, OffloadOutcome)),
        gateways=tuple(span for span in heard if says(span, GatewayUsage)),
        decodes=sides.fed.get(key_of(subject), ()),
    )


def _concerns(said: Evidenced, side: Side | None, prompt_tokens: int | None) -> bool:
    """Whether something that is said of a request is about the lookup of one half (``None``: there are no halves)."""
    if isinstance(said, RouteDecision):
        return side is None or said.phase in {None, side}  # guard: concerns-phase
    if isinstance(said, OffloadOutcome):
        return side != "prefill" or said.tier != BETWEEN_HALVES  # guard: concerns-transfer
    if isinstance(said, GatewayUsage):
        # The caller is told of the decode half; and a count for another prompt is another lookup's.
        # guard: concerns-usage-half, concerns-usage-prompt
        return side != "prefill" and (
            None in {said.prompt_tokens, prompt_tokens} or said.prompt_tokens == prompt_tokens
        )
    return True


def _is_found(said: Evidenced) -> bool:
    # guard: found-between-halves
    return isinstance(said, OffloadOutcome) and said.status == "hit" and said.tier != BETWEEN_HALVES


def _settled(said: Evidenced, *, promised: bool) -> Evidenced:
    # guard: settled-status, settled-nothing
    if isinstance(said, OffloadOutcome) and promised and said.status is None and said.loaded_blocks == 0:
        return msgspec.structs.replace(said, status="stale")
    return said


def _halved(engine: Span, side: Side) -> Span:
    half = [
        msgspec.structs.replace(said, prefill_only=side == "prefill", decode_only=side == "decode")
        if isinstance(said, EngineRequest)
        else said
        for said in engine.says
    ]
    return _saying(engine, half)


def _saying(span: Span, said: Sequence[Evidenced]) -> Span:
    return span if tuple(said) == span.says else msgspec.structs.replace(span, says=tuple(said))


def _match(engines: Sequence[Span], lookups: Sequence[Span]) -> dict[int, Span]:
    """Lookups by the engine span that they belong to.

    The upper bound of a lookup is the start of the scheduler's step, and a step may look up many
    requests, so that bound only chooses among several spans with one id: first by it, then without.
    """
    pairs: dict[int, Span] = {}
    for bounded in (True, False):  # guard: match-unbounded, match-bounded
        options = {
            id(lookup): [engine for engine in engines if _fits(engine, lookup, bounded=bounded)] for lookup in lookups
        }
        _eliminate(lookups, options, pairs)
    return pairs


def _eliminate(lookups: Sequence[Span], options: dict[int, list[Span]], pairs: dict[int, Span]) -> None:
    settled = True
    while settled:
        settled = False
        for lookup in _unpaired(lookups, pairs):
            left = [engine for engine in options[id(lookup)] if id(engine) not in pairs]
            if len(left) == 1:  # guard: eliminate-one
                pairs[id(left[0])] = lookup
                settled = True
                break


def _fits(engine: Span, lookup: Span, *, bounded: bool) -> bool:
    lookup_ids, engine_ids = set(request_ids(lookup)), set(request_ids(engine))
    if lookup_ids and engine_ids:
        if not lookup_ids & engine_ids:  # guard: fits-id
            return False
    elif engine.trace_id != lookup.trace_id:  # guard: fits-trace
        return False
    said = engine_says(engine)
    if said is None:
        return False
    earliest, latest, first_token = lookup_bounds(engine, said)
    until = latest if bounded else first_token
    # guard: fits-time, fits-earliest
    return earliest - CLOCK_GRAIN_NANOS <= lookup.start_unix_nanos <= until + CLOCK_GRAIN_NANOS
