"""Gateways and SDKs that repeat the engine's token counts: the OpenTelemetry and OpenInference spellings.

| reads | from | note |
|---|---|---|
| cached tokens | ``gen_ai.usage.{cache_read.input_tokens,cached_tokens,cache_read_input_tokens}`` | absent is not zero |
| | ``llm.token_count.prompt_details.{cache_read,cache_input}`` | OpenInference: Envoy AI Gateway's default |
| prompt tokens | ``gen_ai.usage.{input_tokens,prompt_tokens}``, ``llm.token_count.prompt`` | cached ones included; left out where they cannot be |
| request id | ``gen_ai.response.id`` | what vLLM's span has as ``gen_ai.request.id`` |
| model | ``gen_ai.{response,request}.model``, ``llm.model_name`` | |

A span without a cached count passes as it came. So does one that adds up several calls (agents, chains,
tools): its sum is no lookup's. Cannot be known: worker, tier, and whether the count includes what was loaded
from outside. These spans may hold prompts and answers: see ``prompts``.
Source: ai-gateway ``internal/tracing/openinference`` and ``internal/tracing/genai`` at ``c217da8a5``;
OpenTelemetry's ``docs/gen-ai/gen-ai-spans.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Attribute, Evidenced, GatewayUsage, Role
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import count, first, text
from .vllm import request_ids

CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
    "llm.token_count.prompt_details.cache_input",
)
PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
SUMS = frozenset({"invoke_agent", "create_agent", "execute_tool", "invoke_workflow", "agent", "chain", "tool"})
"""Kinds of spans whose counts are those of several calls."""


def _is_one_call(attributes: Mapping[str, Attribute]) -> bool:
    kinds = {text(attributes.get(key)) for key in ("gen_ai.operation.name", "openinference.span.kind")}
    return not {kind.lower() for kind in kinds if kind is not None} & SUMS


def read_usage(span: SpanFields) -> Evidenced | None:
    """The token counts of one call, with those from the cache among them."""
    attributes = span.attributes
    cached = count(first(attributes, *CACHED))
    if cached is None or not _is_one_call(attributes):
        return None
    prompt = count(first(attributes, *PROMPT))
    return GatewayUsage(
        request_id=text(first(attributes, "gen_ai.response.id", "gen_ai.request.id")),
        # Some providers count cached tokens beside the prompt's, which then is too short to hold them.
        prompt_tokens=prompt if prompt is None or prompt >= cached else None,
        cached_tokens=cached,
        model=text(first(attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name")),
    )


USAGE = Dialect(
    name="gateway",
    role=Role.GATEWAY,
    needles=(b"gen_ai.usage.cache", b"llm.token_count.prompt_details.cache_"),
    read=read_usage,
)

EMITTER = Emitter(
    name="gateways and SDKs (Envoy AI Gateway, OpenInference, `gen_ai.*`)",
    dialects=(USAGE,),
    gives="the cached tokens that the engine reported to its caller",
    lacks="worker, block; may hold prompts: see `redaction.drop_attributes`",
    switch_on="vLLM's `--enable-prompt-tokens-details`; without it the count is absent, not zero",
    request_ids=request_ids,
)
