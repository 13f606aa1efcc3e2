"""Which half of a disaggregated pair an engine's span is, and which spans only wrap another engine's.

The decode half reports what was transferred to it as cached, so the prefill half's lookup is the one to
judge. SGLang and Dynamo say which half a span is; vLLM's span does not, and is told by the span of a router or
sidecar around it. Where two halves fit, or none, nothing is said and both spans are judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ...model import Half, RouteDecision, Span, request_ids
from .report import engine_says


class Halves(msgspec.Struct, frozen=True):
    """Engine spans by what they are to a verdict; all by ``(trace_id, span_id)``."""

    of: Mapping[tuple[bytes, bytes], Half]
    passive: frozenset[tuple[bytes, bytes]]
    """Engine spans that have no lookup of their own to judge."""
    fed: Mapping[tuple[bytes, bytes], tuple[bytes, ...]]
    """Span ids of the decode halves that a prefill half fed."""


def key_of(span: Span) -> tuple[bytes, bytes]:
    """What tells a span from all others."""
    return span.trace_id, span.span_id


def halves_of(engines: Sequence[Span], spans: Sequence[Span]) -> Halves:
    """Sort out the engine spans among joined spans."""
    by_key = {key_of(span): span for span in spans}
    around: defaultdict[bytes, list[tuple[Span, Half]]] = defaultdict(list)
    for span in spans:
        for phase in _phases(span):
            around[span.trace_id].append((span, phase))
    of: dict[tuple[bytes, bytes], Half] = {}
    for engine in engines:
        half = _said(engine) or _parents(engine, by_key) or _enclosing(engine, around[engine.trace_id])
        if half is not None:
            of[key_of(engine)] = half
    passive = {key_of(engine) for engine in _wrappers(engines)}
    pairs = list(_fed(engines, of))
    passive |= {key_of(decode) for _, decode in pairs}
    fed: defaultdict[tuple[bytes, bytes], tuple[bytes, ...]] = defaultdict(tuple)
    for prefill, decode in pairs:
        fed[key_of(prefill)] += (decode.span_id,)
    return Halves(of, frozenset(passive), dict(fed))


def _phases(span: Span) -> Iterable[Half]:
    found = {said.phase for said in span.says if isinstance(said, RouteDecision)}
    if "prefill" in found:
        yield "prefill"
    if "decode" in found:
        yield "decode"


def _said(span: Span) -> Half | None:
    said = engine_says(span)
    return None if said is None else said.half


def _parents(engine: Span, by_key: Mapping[tuple[bytes, bytes], Span]) -> Half | None:
    parent = by_key.get((engine.trace_id, engine.parent_span_id))
    if parent is None:
        return None
    phases = set(_phases(parent))
    return _said(parent) or (phases.pop() if len(phases) == 1 else None)  # guard: side-parent-one


def _enclosing(engine: Span, around: Iterable[tuple[Span, Half]]) -> Half | None:
    """The half whose span the engine's begins in; a prefill makes one token, whatever a clock says."""
    said = engine_says(engine)
    # guard: side-around-time
    found = {half for span, half in around if span.start_unix_nanos <= engine.start_unix_nanos <= span.end_unix_nanos}
    if said is not None and (said.completion_tokens or 0) > 1:  # guard: side-completion
        found.discard("prefill")
    return found.pop() if len(found) == 1 else None  # guard: side-around-one


def _wrappers(engines: Sequence[Span]) -> Iterable[Span]:
    """Spans of a framework around an engine whose own span is there: one lookup, two spans."""
    by_trace: defaultdict[bytes, list[Span]] = defaultdict(list)
    for engine in engines:
        by_trace[engine.trace_id].append(engine)
    for members in by_trace.values():
        if len({member.dialect for member in members}) < 2:  # guard: wrapper-dialect
            continue
        for outer in members:
            if any(_wraps(outer, inner) for inner in members if inner.dialect != outer.dialect):
                yield outer


def _wraps(outer: Span, inner: Span) -> bool:
    if inner.parent_span_id == outer.span_id:
        return True
    theirs, mine = engine_says(outer), engine_says(inner)
    if theirs is None or mine is None or theirs.prompt_tokens != mine.prompt_tokens:  # guard: wrapper-prompt
        return False
    # guard: wrapper-inside
    return outer.start_unix_nanos < inner.start_unix_nanos and inner.end_unix_nanos < outer.end_unix_nanos


def _fed(engines: Sequence[Span], of: Mapping[tuple[bytes, bytes], Half]) -> Iterable[tuple[Span, Span]]:
    """Decode halves with the prefill half that is there: by request id, or as the only two of a trace."""
    prefills = [engine for engine in engines if of.get(key_of(engine)) == "prefill"]
    if not prefills:  # guard: fed-prefill-there
        return
    named = {name: engine for engine in prefills for name in request_ids(engine)}
    per_trace: defaultdict[bytes, list[Half | None]] = defaultdict(list)
    for engine in engines:
        per_trace[engine.trace_id].append(of.get(key_of(engine)))
    for engine in engines:
        if of.get(key_of(engine)) != "decode":  # guard: fed-decode
            continue
        prefill = next((named[name] for name in request_ids(engine) if name in named), None)
        # guard: fed-only-two
        if prefill is None and sorted(map(str, per_trace[engine.trace_id])) == ["decode", "prefill"]:
            prefill = next(one for one in prefills if one.trace_id == engine.trace_id)
        if prefill is not None:  # guard: fed-own-pair
            yield prefill, engine
