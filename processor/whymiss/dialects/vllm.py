"""vLLM's own request span, and the ids that its requests go by.

| reads | from | note |
|---|---|---|
| request id, prompt and completion tokens | ``gen_ai.request.id``, ``gen_ai.usage.*`` | |
| bounds of the lookup in time | ``gen_ai.latency.{time_in_queue,time_to_first_token,time_in_model_prefill}`` | seconds |
| cached tokens | ``gen_ai.usage.{cache_read.input_tokens,cached_tokens}`` | absent today; read if it appears |

Cannot be known from the stock span: cached tokens, worker, rank, block size, salt, adapter.
Source: vllm ``vllm/v1/engine/output_processor.py`` (``do_tracing``), ``vllm/tracing/otel.py`` of 0.33.0.
"""

from __future__ import annotations

import re

from ..model import EngineRequest, Evidenced, Role, Spellings
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import count, first, seconds, text

_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
_CHILD = re.compile(r"^\d+_")
_SERVED = re.compile(r"(?:chatcmpl-(?P<chat>.+)|cmpl-(?P<completion>.+)-\d+)", re.DOTALL)


def read_request(span: SpanFields) -> Evidenced | None:
    """One ``llm_request`` span; vLLM's start-up spans share the exporter and are not ours."""
    if span.name != "llm_request":
        return None
    attributes = span.attributes
    return EngineRequest(
        request_id=text(attributes.get("gen_ai.request.id")),
        prompt_tokens=count(first(attributes, "gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")),
        cached_tokens=count(first(attributes, "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")),
        completion_tokens=count(first(attributes, "gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")),
        queue_seconds=seconds(attributes.get("gen_ai.latency.time_in_queue")),
        first_token_seconds=seconds(attributes.get("gen_ai.latency.time_to_first_token")),
        prefill_seconds=seconds(attributes.get("gen_ai.latency.time_in_model_prefill")),
        model=text(first(attributes, "gen_ai.response.model", "gen_ai.request.model")),
    )


def _own(request_id: str) -> tuple[str, ...]:
    # The engine core appends "-" and eight hex digits, and puts "n_" before the ids of the children of one request.
    plain = _CHILD.sub("", request_id)
    return tuple(dict.fromkeys((request_id, plain, _SUFFIX.sub("", plain))))


def _callers(request_id: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([_unserved(name) for name in _own(request_id)]))


def _served(request_id: str) -> tuple[str, ...]:
    own = _own(request_id)
    plain = [name for name in own if _SERVED.fullmatch(name) is None]
    return tuple(dict.fromkeys((*own, *[form for name in plain for form in (f"chatcmpl-{name}", f"cmpl-{name}-0")])))


def _unserved(name: str) -> str:
    served = _SERVED.fullmatch(name)
    return name if served is None else served["chat"] or served["completion"]


request_ids = Spellings(own=_own, callers=_callers, served=_served)
"""The ids of one request, which routers, tiers and gateways repeat.

The engine core's id has a suffix or a child's number, which the API's has not. A request with the header
``X-Request-Id: x`` is served as ``chatcmpl-x``, and the prompts of a completion request as ``cmpl-x-0`` and so on.
"""


def rank_in_name(name: str) -> int | None:
    """The data-parallel rank in the name of an engine core's process (resource attribute ``vllm.process_name``)."""
    return count(name.partition("EngineCore_DP")[2])


REQUEST = Dialect(
    name="vllm", role=Role.ENGINE, scopes=("vllm.tracing.otel",), needles=(b"llm_request",), read=read_request
)

EMITTER = Emitter(
    name="vLLM, spans",
    dialects=(REQUEST,),
    gives="the request, its prompt tokens, the bounds of its lookup in time",
    lacks="cached tokens, worker, rank, block, salt, adapter",
    switch_on="`--otlp-traces-endpoint`; `OTEL_RESOURCE_ATTRIBUTES=k8s.namespace.name=…,k8s.pod.name=…`",
    request_ids=request_ids,
)
