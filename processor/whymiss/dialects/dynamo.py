"""NVIDIA Dynamo's spans: frontend, routers, and the worker's side of a request.

| reads | from | note |
|---|---|---|
| the pick and the blocks promised there | ``kv_router.route_request``: ``worker_id``, ``dp_rank``, ``overlap_blocks`` | the only router that says both on one span |
| the pick | ``router.route_request``, ``router.route_request_bidirectional`` | policy in ``router_mode`` |
| the workers of both halves | ``http-request``: ``prefill_worker_id``, ``decode_worker_id`` | |
| the moment of the pick | ``kv_router.select_worker`` | the index is read in it; the span of the pick begins behind it |
| one engine request | ``engine.generate``: ``input_tokens``, ``disagg_role``, ``ttft_ms``, ``avg_itl_ms`` (strings) | for engines without spans of their own; it ends when the stream is set up, and the first token counts from there |
| half of a pair | ``phase``, ``disagg_role`` | |

Cannot be known from spans: cached tokens and hashes (see ``dynamo_log``), what other workers had.
Source: dynamo ``lib/llm/src/kv_router/``, ``lib/runtime/src/logging.rs`` at ``2a6da14c8``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model import HALVES, Attribute, EngineRequest, Evidenced, Half, Role, RouteDecision
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import count, first, milliseconds, text, u64_name
from .vllm import request_ids

PLAIN_ROUTES = frozenset({"router.route_request", "router.route_request_bidirectional"})


def _phase(value: Attribute) -> Half | None:
    phase = (text(value) or "").lower()
    return next((half for half in HALVES if half == phase), None)


def read_kv_route(span: SpanFields) -> Evidenced | None:
    """The pick of the KV-aware router and the overlap on which it was made, in the engine's blocks."""
    attributes = span.attributes
    worker = u64_name(attributes.get("worker_id"))
    if span.name != "kv_router.route_request" or worker is None:
        return None
    return RouteDecision(
        request_id=text(attributes.get("request_id")),
        worker=worker,
        rank=count(attributes.get("dp_rank")),
        predicted_blocks=count(attributes.get("overlap_blocks")),
        prefix_aware=True,
        phase=_phase(attributes.get("phase")),
        made_before=True,
    )


def read_choice(span: SpanFields) -> Evidenced | None:
    """The moment of that pick: the index is read in this span, which ends before the request is sent."""
    return RouteDecision(choice=True) if span.name == "kv_router.select_worker" else None


def read_route(span: SpanFields) -> Evidenced | None:
    """The pick of a router that promises nothing."""
    attributes = span.attributes
    worker = u64_name(attributes.get("worker_id"))
    if span.name not in PLAIN_ROUTES or worker is None:
        return None
    mode = text(attributes.get("router_mode"))
    return RouteDecision(
        request_id=text(attributes.get("request_id")),
        worker=worker,
        reason=mode,
        prefix_aware=None if mode is None else mode.lower() == "kv",
        phase=_phase(attributes.get("phase")),
    )


def _served(span: SpanFields, half: Half) -> Evidenced | None:
    """One half's worker as the frontend learned it; where both are the same one there is no pair."""
    attributes: Mapping[str, Attribute] = span.attributes
    mine = u64_name(attributes.get(f"{half}_worker_id"))
    others = {u64_name(attributes.get(f"{one}_worker_id")) for one in HALVES} - {None}
    if span.name != "http-request" or mine is None:
        return None
    return RouteDecision(
        request_id=text(first(attributes, "x_request_id", "request_id")),
        worker=mine,
        phase=half if len(others) == 2 else None,
        model=text(attributes.get("model")),
    )


def read_prefill(span: SpanFields) -> Evidenced | None:
    """The worker that prefilled."""
    return _served(span, "prefill")


def read_decode(span: SpanFields) -> Evidenced | None:
    """The worker that decoded."""
    return _served(span, "decode")


def read_engine(span: SpanFields) -> Evidenced | None:
    """One call into an engine; an engine's own span inside it takes its place."""
    attributes = span.attributes
    if span.name != "engine.generate" or "input_tokens" not in attributes:
        return None
    role = (text(attributes.get("disagg_role")) or "").lower()
    return EngineRequest(
        request_id=text(first(attributes, "request_id", "x_request_id")),
        prompt_tokens=count(attributes.get("input_tokens")),
        completion_tokens=count(attributes.get("output_tokens")),
        first_token_seconds=milliseconds(attributes.get("ttft_ms")),
        model=text(attributes.get("model")),
        prefill_only=role == "prefill",
        decode_only=role == "decode",
        first_token_after_end=True,
        decode_seconds=_decoding(count(attributes.get("output_tokens")), milliseconds(attributes.get("avg_itl_ms"))),
    )


def _decoding(tokens: int | None, apart: float | None) -> float | None:
    """Seconds from the first token to the last, from how far they were apart on average."""
    return None if tokens is None or apart is None else max(0, tokens - 1) * apart


KV_ROUTE = Dialect(name="dynamo", role=Role.ROUTER, needles=(b"kv_router.route_request",), read=read_kv_route)
CHOICE = Dialect(name="dynamo_choice", role=Role.ROUTER, needles=(b"kv_router.select_worker",), read=read_choice)
ROUTE = Dialect(name="dynamo_route", role=Role.ROUTER, needles=(b"router.route_request",), read=read_route)
PREFILL = Dialect(name="dynamo_prefill", role=Role.ROUTER, needles=(b"prefill_worker_id",), read=read_prefill)
DECODE = Dialect(name="dynamo_decode", role=Role.ROUTER, needles=(b"decode_worker_id",), read=read_decode)
ENGINE = Dialect(name="dynamo_engine", role=Role.ENGINE, needles=(b"engine.generate",), read=read_engine)

EMITTER = Emitter(
    name="Dynamo, spans",
    dialects=(KV_ROUTE, CHOICE, ROUTE, PREFILL, DECODE, ENGINE),
    gives="the pick and the blocks promised there, workers of both halves, engine calls",
    lacks="cached tokens, hashes, other workers' matches",
    switch_on="`OTEL_EXPORT_ENABLED=1`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; KV routing; `workers.aliases` from worker ids to names",
    request_ids=request_ids,
)
