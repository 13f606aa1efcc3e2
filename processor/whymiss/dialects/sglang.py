"""SGLang's request span, and the slices of its transfer threads.

| reads | from | note |
|---|---|---|
| request id, prompt, cached and completion tokens | root: ``gen_ai.request.id`` (``rid``), ``gen_ai.usage.*`` | |
| bounds of the lookup in time | ``gen_ai.latency.{time_to_first_token,time_in_model_prefill}`` | seconds; no queue time |
| half of a disaggregated pair | the role in the root's name | ``prefill Req …``, ``decode Req …`` |
| a transfer between the halves | slices ``{prefill,decode}_*`` and ``mooncake_*``, by their status | tier ``prefill_worker`` |

The root's name holds the request id, so it is claimed by ``module`` or by its keys. Cannot be known: worker
(``host_id`` and ``pid`` name a process only), block size, salt, adapter, the tier that a cached token came
from. A slice that ends well says only that a transfer was tried.
Source: sglang ``python/sglang/srt/observability/{trace,req_time_stats}.py`` of 0.5.23.
"""

from __future__ import annotations

import re

from ..model import EngineRequest, Evidenced, OffloadOutcome, Role
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import count, first, seconds, text
from .vllm import request_ids

PREFILL_WORKER = "prefill_worker"
"""The tier of a transfer between the halves of a pair: the prefill worker holds what the decode side loads."""

_ROLE = re.compile(r"\s*(prefill|decode)?\s*Req\b", re.IGNORECASE)
_ERROR = 2

TRANSFERS = frozenset(
    {
        "prefill_bootstrap",
        "prefill_transfer_kv_cache",
        "decode_bootstrap",
        "decode_transferred",
        "mooncake_send",
        "mooncake_recv",
        "mooncake_worker_send",
        "mooncake_worker_send_session",
        "mooncake_worker_recv",
    }
)


def read_request(span: SpanFields) -> Evidenced | None:
    """One root span; the spans of SGLang's threads share its ids and are not requests."""
    attributes = span.attributes
    ours = attributes.get("module") == "sglang::request" or ("rid" in attributes and "gen_ai.request.id" in attributes)
    if not ours or "thread_label" in attributes:
        return None
    role = _ROLE.match(span.name)
    side = (role[1] or "").lower() if role is not None else ""
    return EngineRequest(
        request_id=text(first(attributes, "gen_ai.request.id", "rid")),
        prompt_tokens=count(first(attributes, "gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")),
        cached_tokens=count(first(attributes, "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")),
        completion_tokens=count(first(attributes, "gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")),
        first_token_seconds=seconds(attributes.get("gen_ai.latency.time_to_first_token")),
        prefill_seconds=seconds(attributes.get("gen_ai.latency.time_in_model_prefill")),
        model=text(first(attributes, "gen_ai.response.model", "gen_ai.request.model")),
        prefill_only=side == "prefill",
        decode_only=side == "decode",
    )


def read_transfer(span: SpanFields) -> Evidenced | None:
    """A slice in which blocks went from the prefill to the decode side."""
    if span.name not in TRANSFERS:
        return None
    return OffloadOutcome(status="failed" if span.status_code == _ERROR else "hit", tier=PREFILL_WORKER)


REQUEST = Dialect(
    name="sglang",
    role=Role.ENGINE,
    needles=(b"sglang::request", b"gen_ai.request.id"),
    read=read_request,
)
TRANSFER = Dialect(
    name="sglang_transfer",
    role=Role.OFFLOAD,
    needles=(b"prefill_bootstrap", b"_transfer_kv_cache", b"decode_bootstrap", b"decode_transferred", b"mooncake_"),
    read=read_transfer,
)

EMITTER = Emitter(
    name="SGLang",
    dialects=(REQUEST, TRANSFER),
    gives="the request, prompt and cached tokens, half of a pair, transfers between halves",
    lacks="worker, queue time, block, tier of the cached tokens",
    switch_on="`--enable-trace --otlp-traces-endpoint`; resource attributes as for vLLM; `--kv-events-config`",
    request_ids=request_ids,
)
