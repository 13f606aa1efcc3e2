"""Dynamo's request-trace record: an OTLP log record that is evidence.

| reads, from ``payload`` | from | note |
|---|---|---|
| request ids | ``request.{request_id,x_request_id}`` | the only keys to join by: it has no trace id |
| prompt tokens, cached tokens | ``request.{input_tokens,cached_tokens}`` | what the engine reused, but where ``kv_hit_rate`` is there: then it is what the router promised, and no count |
| workers and ranks of both halves | ``request.worker.{prefill,decode}_{worker_id,dp_rank}`` | |
| promised blocks | ``request.kv_hit_rate`` of the input blocks | only where the product is a whole number |
| the prompt's whole chain | ``request.replay.input_sequence_hashes`` | in *Dynamo's* hash family |

The chain is only told as a ``Lookup`` where the KV-cache events are in the same family: elsewhere its keys
would look as if nobody had ever stored them. The chain and the ids can identify a prompt, so the record must
go on without its ``payload``. A payload that is cut off (``payload_complete`` false) is used as far as it is
JSON, which is mostly not at all.
Source: dynamo ``lib/llm/src/request_trace/`` at ``2a6da14c8``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from ..errors import BadInput
from ..model import (
    HALVES,
    Attribute,
    Envelope,
    Evidenced,
    GatewayUsage,
    Lookup,
    ResourceIdentity,
    Role,
    RouteDecision,
    Span,
)
from ..model.block_hash import NoKeys, keys_of
from ..wire.fields import scope_name
from ..wire.logs import LogFields, assemble_logs, read_log, split_logs
from ..wire.splice import splice_log, splice_resource
from .emitter import Emitter, Guarded, Taken
from .values import count, real, text, u64_name
from .vllm import request_ids

SCOPE = "dynamo.request_trace"
SCHEMA = "dynamo.request.trace.v1"
SENSITIVE = ("payload",)
"""What must be taken out of the record before it goes on, read or not."""

_MILLISECOND = 1_000_000
_MILLISECONDS_MAX = 1 << 43  # 278 years: a later time is none
_WHOLE = 0.01
"""How far from a whole number the promised blocks may be: the rate is printed with finite digits."""


def take_records(body: bytes, guarded: Guarded, *, chain_comparable: bool = False) -> Taken:
    """Read the request traces in an encoded ``ExportLogsServiceRequest`` and take their payloads out.

    A record that cannot be read cannot be redacted either, and is rejected alone.

    Raises:
        BadInput: the bytes are no such request.
    """
    if SCOPE.encode() not in body and SCHEMA.encode() not in body:
        return Taken((), (), body)
    evidence: list[Span] = []
    rejected: list[str] = []
    groups: list[tuple[Envelope, list[bytes]]] = []
    for envelope, records in split_logs(body):
        scope = scope_name(envelope)
        kept: list[bytes] = []
        taken: list[bytes] = []
        for raw in records:
            try:
                fields = read_log(raw)
                ours = is_record(scope, fields)
                (taken if ours else kept).append(
                    splice_log(raw, (*SENSITIVE, *guarded.names), guarded.closed) if ours else raw
                )
            except BadInput as problem:
                rejected.append(problem.problem)
                continue
            span = read_log_record(scope, fields, chain_comparable=chain_comparable)
            if span is not None:
                evidence.append(span)
        groups.append((envelope, kept))
        try:
            # Ours leave without the secrets of their resource, others of it as they came.
            groups.append((splice_resource(envelope, {}, guarded.names, guarded.closed) if taken else envelope, taken))
        except BadInput as problem:
            rejected += [problem.problem] * len(taken)
    return Taken(tuple(evidence), tuple(rejected), assemble_logs(groups))


def is_record(scope: str, fields: LogFields) -> bool:
    """Whether a log record is one of Dynamo's request traces."""
    return scope.startswith(SCOPE) or fields.attributes.get("schema") == SCHEMA


def read_log_record(scope: str, fields: LogFields, *, chain_comparable: bool = False) -> Span | None:
    """What a record says, as a span that has no bytes and therefore never leaves.

    ``chain_comparable`` says that the KV-cache events are in Dynamo's hash family. Returns ``None`` for any other
    record, and for one that says nothing.
    """
    if not is_record(scope, fields):
        return None
    request = _mapping(_payload(fields).get("request"))
    identity = _text(request, "request_id") or text(fields.attributes.get("rid"))
    if identity is None or not request:
        return None
    says = _says(request, identity, chain_comparable=chain_comparable)
    if not says:
        return None
    started = count(_value(request, "request_received_ms")) or 0
    start = started * _MILLISECOND if 0 < started < _MILLISECONDS_MAX else fields.unix_nanos
    digest = hashlib.sha256(f"{SCOPE}:{identity}".encode("utf-8", "replace")).digest()
    return Span(
        raw=b"",
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=digest[:16],
        span_id=digest[16:24],
        parent_span_id=b"",
        start_unix_nanos=start,
        # The moment of the choice lies somewhere before; an earlier promise is the weaker accusation.
        end_unix_nanos=start,
        flags=0,
        trace_state="",
        role=Role.GATEWAY,
        dialect="dynamo_log",
        says=says,
        resource=ResourceIdentity(),
        spellings=request_ids,
    )


def _payload(fields: LogFields) -> Mapping[str, object]:
    payload = text(fields.attributes.get("payload"))
    if payload is None:
        return {}
    try:
        return _mapping(msgspec.json.decode(payload))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _value(fields: Mapping[str, object], key: str) -> Attribute:
    value = fields.get(key)
    return value if isinstance(value, str | bool | int | float) else None


def _text(fields: Mapping[str, object], key: str) -> str | None:
    return text(_value(fields, key))


def _says(request: Mapping[str, object], identity: str, *, chain_comparable: bool) -> tuple[Evidenced, ...]:
    prompt, rate = count(_value(request, "input_tokens")), real(_value(request, "kv_hit_rate"))
    told = count(_value(request, "cached_tokens"))
    # A KV router writes its promise there, whatever the engine reused.
    cached = told if request.get("kv_hit_rate") is None else None
    replay = _mapping(request.get("replay"))
    chain, size = _chain(replay), count(_value(replay, "trace_block_size"))
    said: list[Evidenced] = []
    if told is not None:
        said.append(
            GatewayUsage(request_id=identity, prompt_tokens=prompt, cached_tokens=cached, model=_text(request, "model"))
        )
    if chain_comparable and chain and size and cached is not None:
        said.append(
            Lookup(
                request_id=identity,
                prompt_tokens=prompt,
                cached_tokens=cached,
                block_size=size,
                expected_keys=chain,
            )
        )
    promised = _promised(rate, prompt, size)
    said.extend(_routes(request, _text(request, "x_request_id") or identity, promised))
    return tuple(said)


def _chain(replay: Mapping[str, object]) -> tuple[int, ...]:
    hashes = replay.get("input_sequence_hashes")
    if not isinstance(hashes, list):
        return ()
    keys = keys_of(hashes)
    return () if isinstance(keys, NoKeys) else keys


def _promised(rate: float | None, prompt: int | None, size: int | None) -> int | None:
    """Blocks that the rate stands for: whether a last, partial block counted is not said, so both are tried."""
    if rate is None or not 0 <= rate <= 1 or prompt is None or not size:
        return None
    whole = [
        round(rate * blocks)
        for blocks in (prompt // size, -(-prompt // size))
        if abs(rate * blocks - round(rate * blocks)) < _WHOLE
    ]
    return min(whole, default=None)


def _routes(request: Mapping[str, object], identity: str, promised: int | None) -> list[RouteDecision]:
    worker = _mapping(request.get("worker"))
    halves = {half: name for half in HALVES if (name := u64_name(_value(worker, f"{half}_worker_id"))) is not None}
    pair = len(set(halves.values())) == 2
    return [
        RouteDecision(
            request_id=identity,
            worker=name,
            rank=count(_value(worker, f"{half}_dp_rank")),
            # The promise is about the worker that looks up the prompt.
            predicted_blocks=promised if half == "prefill" or not pair else None,
            prefix_aware=True if promised is not None else None,
            phase=half if pair else None,
            model=_text(request, "model"),
        )
        for half, name in halves.items()
    ]


EMITTER = Emitter(
    name="Dynamo, request-trace record (log)",
    gives="promised blocks of a KV router, cached tokens without one, workers and ranks",
    lacks="trace id; its hashes are of Dynamo's own family",
    switch_on="`DYN_REQUEST_TRACE=1` with the otel sink",
    request_ids=request_ids,
    take_logs=take_records,
)
