"""The router of vLLM's production stack.

| reads | from | note |
|---|---|---|
| worker | ``vllm.backend_url`` of ``router {endpoint}`` and ``process_request`` | a URL |
| policy | ``vllm.routing_logic``, the class of the router | says whether it looks at prefixes |
| request id, model | ``vllm.{request_id,model}`` | |

Cannot be known: what the router expected to find there (its debug log only), other workers' matches.
Source: production-stack ``src/vllm_router/services/request_service/request.py``,
``src/vllm_router/routers/routing_logic.py`` at ``a6c01db0``.
"""

from __future__ import annotations

from ..model import Evidenced, Role, RouteDecision
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import text
from .vllm import request_ids

PREFIX_AWARE = {
    "KvawareRouter": True,
    "PrefixAwareRouter": True,
    "RoundRobinRouter": False,
    "SessionRouter": False,
}


def read_route(span: SpanFields) -> Evidenced | None:
    """One request on its way to an engine; needs the engine's address."""
    attributes = span.attributes
    worker = text(attributes.get("vllm.backend_url"))
    if worker is None:
        return None
    policy = text(attributes.get("vllm.routing_logic"))
    return RouteDecision(
        request_id=text(attributes.get("vllm.request_id")),
        worker=worker,
        reason=policy,
        prefix_aware=PREFIX_AWARE.get(policy) if policy is not None else None,
        model=text(attributes.get("vllm.model")),
    )


ROUTE = Dialect(name="production_stack", role=Role.ROUTER, needles=(b"vllm.backend_url",), read=read_route)

EMITTER = Emitter(
    name="production-stack",
    dialects=(ROUTE,),
    gives="worker (URL), policy",
    lacks="what the router expected there",
    switch_on="`--otel-endpoint` of the router",
    request_ids=request_ids,
)
