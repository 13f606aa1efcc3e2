"""SGLang's model gateway (``sgl-model-gateway``, once sgl-router).

| reads | from | note |
|---|---|---|
| worker | event ``Sending request``: ``url`` | the last one, as a retry sends again |
| workers of a pair | event ``Sending concurrent requests``: ``prefill_url``, ``decode_url`` | one decision a half |
| request id | ``request_id`` | |

Cannot be known: policy, match, score. ``grpc_execute`` names no worker and is left alone; ``latency`` is in
microseconds and not read.
Source: sglang ``sgl-model-gateway/src/{observability,routers/http}`` at ``f8daa8835``.
"""

from __future__ import annotations

from ..model import Evidenced, Half, Role, RouteDecision
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import text
from .vllm import request_ids

_SINGLE = "Sending request"
_PAIR = "Sending concurrent requests"


def _read(span: SpanFields, event_name: str, key: str, phase: Half | None) -> Evidenced | None:
    urls = [url for event in span.events if event.name == event_name and (url := text(event.attributes.get(key)))]
    if not urls:
        return None
    return RouteDecision(request_id=text(span.attributes.get("request_id")), worker=urls[-1], phase=phase)


def read_route(span: SpanFields) -> Evidenced | None:
    """Where a request was sent."""
    return _read(span, _SINGLE, "url", None)


def read_prefill(span: SpanFields) -> Evidenced | None:
    """Where the prefill half of a request was sent."""
    return _read(span, _PAIR, "prefill_url", "prefill")


def read_decode(span: SpanFields) -> Evidenced | None:
    """Where the decode half of a request was sent."""
    return _read(span, _PAIR, "decode_url", "decode")


ROUTE = Dialect(name="smg", role=Role.ROUTER, needles=(_SINGLE.encode(),), read=read_route)
PREFILL = Dialect(name="smg_prefill", role=Role.ROUTER, needles=(_PAIR.encode(),), read=read_prefill)
DECODE = Dialect(name="smg_decode", role=Role.ROUTER, needles=(_PAIR.encode(),), read=read_decode)

EMITTER = Emitter(
    name="SGLang model gateway",
    dialects=(ROUTE, PREFILL, DECODE),
    gives="worker (URL), workers of both halves",
    lacks="policy, match, score",
    switch_on="`--enable-trace --otlp-traces-endpoint`",
    request_ids=request_ids,
)
