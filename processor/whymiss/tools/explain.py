"""``whymiss explain``: what whymiss sees in a file of OTLP traces, and what it would need for a verdict.

The first tool to reach for when everything is ``unknown``. It reads spans only: whether KV-cache events arrive is
for ``whymiss.ledger.*`` to say. Block keys are said to be known, never printed.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec

from ..dialects.registry import candidates, claim, identify
from ..errors import BadInput
from ..evidence.requests.grouping import group
from ..evidence.requests.report import engine_says, lookup_says
from ..model import (
    EngineRequest,
    Envelope,
    Evidenced,
    GatewayUsage,
    Lookup,
    OffloadOutcome,
    Request,
    ResourceIdentity,
    RouteDecision,
    Span,
)
from ..wire.fields import read_span, resource_attributes, scope_name, valid_ids
from ..wire.json_in import traces_from_json
from ..wire.split import split

FOREIGN_MAX = 20
"""How many kinds of unclaimed spans are printed; the rest is counted."""

_HIDDEN = frozenset({"first_miss_key", "expected_keys"})
_SUBJECTS = {
    EngineRequest: "engine request",
    Lookup: "lookup",
    RouteDecision: "route",
    OffloadOutcome: "offload",
    GatewayUsage: "usage",
}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One span and what became of it; ``kind`` is ``claimed``, ``foreign`` or ``rejected``."""

    kind: str
    name: str = ""
    scope: str = ""
    trace_id: str = ""
    span_id: str = ""
    dialect: str | None = None
    evidence: tuple[str, ...] = ()
    note: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request that would be judged, and what is missing to judge it."""

    kind: str = "request"
    trace_id: str
    span_id: str
    request_id: str | None
    spans: int
    missing: tuple[str, ...]


def bodies(content: bytes) -> list[bytes]:
    """The trace requests in a file: protobuf, JSON, or JSON lines as the Collector's file exporter writes; gzip too.

    Raises ``BadInput`` when there is none.
    """
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError):
            raise BadInput("not a whole gzip file") from None
    text = content.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith(b"{"):
        return [content]
    try:
        return [_of_json(text)]
    except BadInput:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not lines[1].lstrip().startswith(b"{"):
            raise
        return [_of_json(line) for line in lines]


def _of_json(text: bytes) -> bytes:
    body = traces_from_json(text)
    if not body and b"resourceSpans" not in text and len(text) > 2:
        raise BadInput("holds no resourceSpans: explain reads traces")
    return body


def look(content: bytes) -> tuple[list[Seen], list[Asked]]:
    """Read a file's spans as the service would; raises ``BadInput`` when it cannot be split."""
    seen: list[Seen] = []
    claimed: dict[tuple[bytes, bytes], Span] = {}
    for body in bodies(content):
        for envelope, spans in split(body):
            resource = identify(resource_attributes(envelope))
            seen += [_look_at(raw, envelope, resource, claimed) for raw in spans]
    requests, _ = group(list(claimed.values()))
    return seen, [_ask(request) for request in requests]


def _look_at(
    raw: bytes, envelope: Envelope, resource: ResourceIdentity, claimed: dict[tuple[bytes, bytes], Span]
) -> Seen:
    scope = scope_name(envelope)
    try:
        fields = read_span(raw)
        span = claim(raw, envelope, resource, candidates(scope, raw))
    except BadInput as problem:
        return Seen(kind="rejected", scope=scope, note=problem.problem)
    one = Seen(
        kind="foreign",
        name=fields.name,
        scope=scope,
        trace_id=fields.trace_id.hex(),
        span_id=fields.span_id.hex(),
        note=_near_miss(fields.attributes),
    )
    if span is None:
        return one
    if not valid_ids(span.trace_id, span.span_id):
        note = "trace id or span id is missing, all zero or of the wrong length"
        return msgspec.structs.replace(one, kind="rejected", dialect=span.dialect, note=note)
    claimed.setdefault((span.trace_id, span.span_id), span)
    return msgspec.structs.replace(
        one,
        kind="claimed",
        dialect=span.dialect,
        evidence=tuple(evidence_of(said) for said in span.says),
        note="" if span.says else "nothing is read; an attribute of it must not leave as it is",
    )


def _near_miss(attributes: Iterable[str]) -> str:
    names = set(attributes)
    if any(name.startswith(("gen_ai.usage.", "llm.token_count.")) for name in names):
        return "it counts tokens, but none of them as cached, or it adds up several calls"
    if any(name.startswith(("llm_d.", "lmcache.", "vllm.", "sglang.")) for name in names):
        return "of an emitter that is known, but it says nothing about a lookup"
    return ""


def evidence_of(said: Evidenced) -> str:
    """What one span says, in one line; keys of blocks are only said to be there."""
    parts = []
    for name in said.__struct_fields__:
        value = getattr(said, name)
        if value is None or value is False or value == () or (name == "choices" and value == 1):
            continue
        parts.append(f"{name}={'(known)' if name in _HIDDEN else _shown(value)}")
    return f"{_SUBJECTS[type(said)]}: {' '.join(parts) or 'took place'}"


def _shown(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    # Text from an unknown file must not control the terminal.
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 80 else text[:79] + "…"


def _ask(request: Request) -> Asked:
    subject = request.subject
    said, looked = engine_says(request.engine), lookup_says(request.lookup)
    identity = (said.request_id if said else None) or (looked.request_id if looked else None)
    return Asked(
        trace_id=subject.trace_id.hex(),
        span_id=subject.span_id.hex(),
        request_id=None if identity is None else _shown(identity),
        spans=len(request.spans),
        missing=tuple(_missing(request)),
    )


def _missing(request: Request) -> Iterable[str]:
    said, looked = engine_says(request.engine), lookup_says(request.lookup)
    if not _names_worker(request):
        yield (
            "worker (no_worker): set OTEL_RESOURCE_ATTRIBUTES=k8s.namespace.name=…,k8s.pod.name=… on the engine, "
            "or workers.map, or workers.sole_source for a single one"
        )
    if looked is None or (looked.first_miss_key is None and not looked.expected_keys):
        yield (
            "first missed block (no_event_source, no_first_miss_key): follow the worker's KV-cache events with "
            "kv_events.sources, or let a probe emit prefix_cache.lookup.*"
        )
    prompt = [one for one in (said and said.prompt_tokens, looked and looked.prompt_tokens) if one is not None]
    if not prompt:
        yield "prompt tokens: neither the engine's span nor a lookup counts them"
    if not _counts_cached(request):
        yield (
            "cached tokens: no span counts them, so they are derived from KV-cache events; behind a KV connector "
            "the engine must report them (no_cached_tokens)"
        )
    if request.engine is None:
        yield "the engine's own span: only a lookup was seen"
    if said is not None and said.decode_only:
        yield "the prefill half's span: this is the decode half, whose cached tokens were sent to it (partial_trace)"
    if not any(isinstance(one, RouteDecision) for span in request.routes for one in span.says):
        yield "a router's decision: stale_index and after_route cannot be named without the blocks it promised"


def _names_worker(request: Request) -> bool:
    subjects = [span.resource for span in (request.engine, request.lookup) if span is not None]
    named = any(one.worker or one.pod_name or one.pod_uid or one.pod_ip for one in subjects)
    return named or any(
        isinstance(said, RouteDecision) and said.worker is not None for span in request.routes for said in span.says
    )


def _counts_cached(request: Request) -> bool:
    spans = [span for span in (request.engine, request.lookup, *request.gateways) if span is not None]
    counting = (EngineRequest, Lookup, GatewayUsage)
    return any(isinstance(said, counting) and said.cached_tokens is not None for span in spans for said in span.says)


def run(content: bytes, *, as_json: bool, out: TextIO) -> int:
    """Explain a file's content; returns 0, or 1 where nothing of it is ours. Raises ``BadInput``."""
    seen, asked = look(content)
    if as_json:
        out.writelines(msgspec.json.encode(one).decode() + "\n" for one in (*seen, *asked))
    else:
        _print(seen, asked, out)
    return 0 if any(one.kind == "claimed" for one in seen) else 1


def _print(seen: Sequence[Seen], asked: Sequence[Asked], out: TextIO) -> None:
    counts = Counter(one.kind for one in seen)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("claimed", "foreign", "rejected"))
    out.write(f"{len(seen)} spans: {kinds}\n")
    for one in seen:
        if one.kind == "foreign":
            continue
        out.write(f"\n{_shown(one.name) or '(no name)'}  span {one.span_id or '-'} of trace {one.trace_id or '-'}\n")
        out.write(f"  {one.kind}{f' by {one.dialect}' if one.dialect else ''}{f': {one.note}' if one.note else ''}\n")
        out.writelines(f"  {line}\n" for line in one.evidence)
    _print_foreign([one for one in seen if one.kind == "foreign"], out)
    for request in asked:
        out.write(f"\nrequest {request.request_id or request.span_id}: {request.spans} span(s)\n")
        out.writelines(f"  missing: {line}\n" for line in request.missing)
        if not request.missing:
            out.write("  nothing is missing\n")
    if not asked:
        out.write("\nNo engine's span and no lookup is here, so there is nothing to judge.\n")


def _print_foreign(foreign: Sequence[Seen], out: TextIO) -> None:
    if not foreign:
        return
    out.write("\nnot ours, and passed on as they came:\n")
    kinds = Counter((one.scope, one.name, one.note) for one in foreign)
    out.writelines(
        f"  {count} x {_shown(name)} of {_shown(scope) or '(no scope)'}{f': {note}' if note else ''}\n"
        for (scope, name, note), count in kinds.most_common(FOREIGN_MAX)
    )
    if len(kinds) > FOREIGN_MAX:
        out.write(f"  and {len(kinds) - FOREIGN_MAX} other kinds\n")
