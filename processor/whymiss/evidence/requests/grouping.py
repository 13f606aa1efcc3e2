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

from ...model import (
    EngineRequest,
    Evidenced,
    GatewayUsage,
    Half,
    Lookup,
    OffloadOutcome,
    Request,
    RouteDecision,
    Span,
    request_ids,
)
from .disaggregation import Halves, halves_of, key_of
from .report import CLOCK_GRAIN_NANOS, engine_says, lookup_bounds, lookup_says, says
from .subjects import Subjects

BETWEEN_HALVES = "prefill_worker"
"""The tier of what was to come from the prefill half: no cache that a lookup asks."""


def group(spans: Sequence[Span]) -> tuple[list[Request], list[Span]]:
    """The requests among joined spans, and the spans that belong to none of them."""
    engines = [span for span in spans if says(span, EngineRequest)]
    # Only the lookup that admitted a request counts; a preempted one is looked up again.
    # guard: group-preempted
    lookups = [span for span in spans if (said := lookup_says(span)) is not None and not said.preempted]
    own = {id(span): span for span in engines if says(span, Lookup)}
    halves = halves_of(engines, spans)
    pairs = {id(span): span for span in own.values()}
    # A wrapper has no lookup where what it wraps can have it.
    for wrapping in (False, True):  # guard: wrapper-too
        # guard: wrapper-last, group-own-lookup
        able = [span for span in engines if id(span) not in pairs and _is_wrapper(span, halves) is wrapping]
        pairs.update(_match(able, _unpaired(lookups, pairs)))
    taken = {id(span) for span in pairs.values()}
    heads: list[tuple[Span | None, Span | None]] = [  # guard: group-passive
        (engine, pairs.get(id(engine))) for engine in engines if key_of(engine) not in halves.passive
    ]
    heads.extend((None, lookup) for lookup in lookups if id(lookup) not in taken)  # guard: group-lookup-alone
    subjects = [one for engine, lookup in heads if (one := engine or lookup) is not None]
    company = _company(spans, subjects)
    requests = [_request(engine, lookup, company[number], halves) for number, (engine, lookup) in enumerate(heads)]
    placed = {key_of(span) for request in requests for span in request.spans}
    return requests, [span for span in spans if key_of(span) not in placed]


def _is_wrapper(engine: Span, halves: Halves) -> bool:
    key = key_of(engine)
    return key in halves.passive and halves.of.get(key) != "decode"  # guard: wrapper-decode


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


def _request(engine: Span | None, lookup: Span | None, company: Iterable[Span], halves: Halves) -> Request:
    subject = engine or lookup
    assert subject is not None, "a request has an engine span or a lookup"
    half = halves.of.get(key_of(subject))
    told = [said.prompt_tokens for said in (engine_says(engine), lookup_says(lookup)) if said is not None]
    prompt = next((tokens for tokens in told if tokens is not None), None)
    about = [(span, [said for said in span.says if _concerns(said, half, prompt)]) for span in company]
    # A load that brought nothing, of something that the tier had just found, failed.
    promised = any(_is_found(said) for _, kept in about for said in kept)  # guard: request-failed
    heard = [_saying(span, [_settled(said, promised=promised) for said in kept]) for span, kept in about]
    return Request(
        engine=engine if engine is None or half is None else _of_half(engine, half),
        lookup=lookup,
        routes=tuple(span for span in heard if says(span, RouteDecision)),
        offloads=tuple(span for span in heard if says(span, OffloadOutcome)),
        gateways=tuple(span for span in heard if says(span, GatewayUsage)),
        decodes=halves.fed.get(key_of(subject), ()),
    )


def _concerns(said: Evidenced, half: Half | None, prompt_tokens: int | None) -> bool:
    """Whether something that is said of a request is about the lookup of one half (``None``: there are no halves)."""
    if isinstance(said, RouteDecision):
        return half is None or said.phase in {None, half}  # guard: concerns-phase
    if isinstance(said, OffloadOutcome):
        return half != "prefill" or said.tier != BETWEEN_HALVES  # guard: concerns-transfer
    if isinstance(said, GatewayUsage):
        # The caller is told of the decode half; and a count for another prompt is another lookup's.
        return half != "prefill" and (  # guard: concerns-usage-half, concerns-usage-prompt
            None in {said.prompt_tokens, prompt_tokens} or said.prompt_tokens == prompt_tokens
        )
    return True


def _is_found(said: Evidenced) -> bool:
    # guard: found-between-halves
    return isinstance(said, OffloadOutcome) and said.status == "hit" and said.tier != BETWEEN_HALVES


def _settled(said: Evidenced, *, promised: bool) -> Evidenced:
    # guard: settled-status, settled-nothing
    if isinstance(said, OffloadOutcome) and promised and said.status is None and said.loaded_blocks == 0:
        return msgspec.structs.replace(said, status="failed")
    return said


def _of_half(engine: Span, half: Half) -> Span:
    statements = [
        msgspec.structs.replace(said, prefill_only=half == "prefill", decode_only=half == "decode")
        if isinstance(said, EngineRequest)
        else said
        for said in engine.says
    ]
    return _saying(engine, statements)


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
