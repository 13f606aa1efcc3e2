"""AIBrix's gateway plugin.

| reads | from | note |
|---|---|---|
| worker, in both spellings | ``target_pod_ip`` (``ip:port``), ``target_pod`` | one decision a spelling |
| policy | ``routing_strategy`` | says whether it looks at prefixes |
| request id, model | ``request_id``, ``model`` (at the end ``model_name``) | |

Cannot be known: cached tokens, how much of the prompt the chosen pod was expected to have. Its durations are
strings of a unit that its source does not state, and are not read.
Source: aibrix ``pkg/plugins/gateway`` at ``e3e10f9e``, tracer ``envoy-ext-proc-server``.
"""

from __future__ import annotations

from ..model import Evidenced, Role, RouteDecision
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import first, text
from .vllm import request_ids


def _read(span: SpanFields, key: str) -> Evidenced | None:
    attributes = span.attributes
    worker = text(attributes.get(key))
    if worker is None:
        return None
    policy = text(attributes.get("routing_strategy"))
    return RouteDecision(
        request_id=text(attributes.get("request_id")),
        worker=worker,
        reason=policy,
        prefix_aware=policy.startswith("prefix-cache") if policy is not None else None,
        model=text(first(attributes, "model", "model_name")),
    )


def read_address(span: SpanFields) -> Evidenced | None:
    """The chosen pod by its address."""
    return _read(span, "target_pod_ip")


def read_pod(span: SpanFields) -> Evidenced | None:
    """The chosen pod by its name."""
    return _read(span, "target_pod")


_SCOPES = ("envoy-ext-proc-server",)
ADDRESS = Dialect(name="aibrix", role=Role.ROUTER, scopes=_SCOPES, needles=(b"target_pod_ip",), read=read_address)
POD = Dialect(name="aibrix_pod", role=Role.ROUTER, scopes=_SCOPES, needles=(b"target_pod",), read=read_pod)

EMITTER = Emitter(
    name="AIBrix",
    dialects=(ADDRESS, POD),
    gives="worker (address and name), policy",
    lacks="cached tokens, match",
    switch_on="the OTLP exporter of the gateway plugin",
    request_ids=request_ids,
)
