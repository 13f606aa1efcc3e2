"""vLLM's own request span, and the prototype of the whymiss probe.

| reads | from | note |
|---|---|---|
| request id, prompt and completion tokens | ``gen_ai.request.id``, ``gen_ai.usage.*`` | |
| bounds of the lookup in time | ``gen_ai.latency.{time_in_queue,time_to_first_token,time_in_model_prefill}`` | seconds |
| cached tokens | ``gen_ai.usage.{cache_read.input_tokens,cached_tokens}`` | absent today; read if it appears |
| first missed key, chain, cached tokens | ``vllm.prefix_cache.*`` of the probe prototype | recorded with vLLM 0.32 and 0.33 |

Cannot be known from the stock span: cached tokens, worker, rank, block size, salt, adapter.
Source: vllm ``vllm/v1/engine/output_processor.py`` (``do_tracing``), ``vllm/tracing/otel.py`` of 0.33.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model import Attribute, EngineRequest, Evidenced, Lookup, Role
from ..wire.fields import SpanFields
from .claim import Dialect
from .values import count, first, seconds, text, told_keys, truth

_EXTRA_KIND = re.compile(r"\(\s*'(\w+)'\s*,")
_KNOWN_KINDS = {
    "cache_salt": "cache_salt",
    "lora": "lora",
    "lora_name": "lora",
    "mm": "mm",
    "prompt_embeds": "prompt_embeds",
}


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


def read_probe(span: SpanFields) -> Evidenced | None:
    """The ``prefix_cache.lookup`` span of the probe prototype (``vllm.prefix_cache.*``)."""
    attributes = span.attributes
    prefix = "vllm.prefix_cache."
    if f"{prefix}num_tokens" not in attributes and f"{prefix}hit_tokens" not in attributes:
        return None
    keys = told_keys(attributes.get(f"{prefix}first_miss.hash"), attributes.get(f"{prefix}block_hashes"))
    return Lookup(
        request_id=text(attributes.get("vllm.request.id")),
        prompt_tokens=count(attributes.get(f"{prefix}num_tokens")),
        cached_tokens=count(attributes.get(f"{prefix}hit_tokens")),
        block_size=count(attributes.get(f"{prefix}block_size")) or None,
        first_miss_key=keys.first_miss,
        expected_keys=keys.expected,
        extra_key_kinds=_kinds(attributes),
        kinds_of_block=True,
        disabled=truth(attributes.get(f"{prefix}skipped")) or False,
        present=truth(attributes.get(f"{prefix}first_miss.present")),
        preempted=truth(attributes.get(f"{prefix}preempted")) or False,
    )


def _kinds(attributes: Mapping[str, Attribute]) -> tuple[str, ...] | None:
    # The prototype printed Python's repr of the extra keys, values included: only the kinds are taken.
    printed = attributes.get("vllm.prefix_cache.first_miss.extra_keys")
    if not isinstance(printed, str):
        return None
    found = {_KNOWN_KINDS[kind] for kind in _EXTRA_KIND.findall(printed) if kind in _KNOWN_KINDS}
    return tuple(sorted(found))


REQUEST = Dialect(
    name="vllm", role=Role.ENGINE, scopes=("vllm.tracing.otel",), needles=(b"llm_request",), read=read_request
)
PROBE = Dialect(
    name="vllm_probe",
    role=Role.LOOKUP,
    scopes=(),
    needles=(b"vllm.prefix_cache.",),
    read=read_probe,
    sensitive=(
        "vllm.prefix_cache.block_hashes",
        "vllm.prefix_cache.first_miss.hash",
        "vllm.prefix_cache.first_miss.parent_hash",
        "vllm.prefix_cache.first_miss.extra_keys",
    ),
)
