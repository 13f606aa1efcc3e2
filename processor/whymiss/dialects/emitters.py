"""Who emits what: the table that users see of the dialects, beside the dialects themselves."""

from __future__ import annotations

import msgspec

from . import aibrix, contract, dynamo, gateways, llmd, lmcache, production_stack, prompts, sglang, smg, vllm
from .claim import Dialect


class Emitter(msgspec.Struct, frozen=True, kw_only=True):
    """One project as a source of evidence: what it gives, what it does not say, and what switches it on."""

    name: str
    gives: str
    lacks: str
    switch_on: str
    dialects: tuple[Dialect, ...] = ()


EMITTERS: tuple[Emitter, ...] = (
    Emitter(
        name="vLLM, spans",
        dialects=(vllm.REQUEST,),
        gives="the request, its prompt tokens, the bounds of its lookup in time",
        lacks="cached tokens, worker, rank, block, salt, adapter",
        switch_on="`--otlp-traces-endpoint`; `OTEL_RESOURCE_ATTRIBUTES=k8s.namespace.name=…,k8s.pod.name=…`",
    ),
    Emitter(
        name="vLLM, KV-cache events",
        gives="every stored, removed and cleared block; from them cached tokens and the first missed block",
        lacks="request ids; what a connector loaded",
        switch_on="`--kv-events-config` with `replay_endpoint`; here `kv_events.sources`",
    ),
    Emitter(
        name="a probe in the engine",
        dialects=(vllm.PROBE, contract.LOOKUP, contract.ROUTE, contract.OFFLOAD),
        gives="first missed key, expected chain, extra-key kinds, opt-outs: `direct` evidence",
        lacks="other workers",
        switch_on="anything that emits `prefix_cache.{lookup,route,offload}.*`",
    ),
    Emitter(
        name="SGLang",
        dialects=(sglang.REQUEST, sglang.TRANSFER),
        gives="the request, prompt and cached tokens, half of a pair, transfers between halves",
        lacks="worker, queue time, block, tier of the cached tokens",
        switch_on="`--enable-trace --otlp-traces-endpoint`; resource attributes as for vLLM; `--kv-events-config`",
    ),
    Emitter(
        name="llm-d",
        dialects=(
            *(llmd.MATCH, llmd.PICK, llmd.DISAGGREGATION, llmd.PREFILL),
            *(llmd.PREFILL_FAILURE, llmd.DECODE, llmd.PEER),
        ),
        gives="best match in the fleet (lower bound, router's blocks), prefill and decode worker, failed prefills",
        lacks="the pick among several endpoints and the match promised for it",
        switch_on="tracing of EPP and sidecar with sampler `always_on`: the default ratio 0.1 drops nine joins of ten",
    ),
    Emitter(
        name="Dynamo, spans",
        dialects=(dynamo.KV_ROUTE, dynamo.ROUTE, dynamo.PREFILL, dynamo.DECODE, dynamo.ENGINE),
        gives="the pick and the blocks promised there, workers of both halves, engine calls",
        lacks="cached tokens, hashes, other workers' matches",
        switch_on="`OTEL_EXPORT_ENABLED=1`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; KV routing; `workers.aliases` from worker ids to names",
    ),
    Emitter(
        name="Dynamo, request-trace record (log)",
        gives="actual cached tokens, promised blocks, workers and ranks",
        lacks="trace id; its hashes are of Dynamo's own family",
        switch_on="`DYN_REQUEST_TRACE=1` with the otel sink",
    ),
    Emitter(
        name="production-stack",
        dialects=(production_stack.ROUTE,),
        gives="worker (URL), policy",
        lacks="what the router expected there",
        switch_on="`--otel-endpoint` of the router",
    ),
    Emitter(
        name="SGLang model gateway",
        dialects=(smg.ROUTE, smg.PREFILL, smg.DECODE),
        gives="worker (URL), workers of both halves",
        lacks="policy, match, score",
        switch_on="`--enable-trace --otlp-traces-endpoint`",
    ),
    Emitter(
        name="AIBrix",
        dialects=(aibrix.ADDRESS, aibrix.POD),
        gives="worker (address and name), policy",
        lacks="cached tokens, match",
        switch_on="the OTLP exporter of the gateway plugin",
    ),
    Emitter(
        name="gateways and SDKs (Envoy AI Gateway, OpenInference, `gen_ai.*`)",
        dialects=(gateways.USAGE,),
        gives="the cached tokens that the engine reported to its caller",
        lacks="worker, block; may hold prompts: see `redaction.drop_attributes`",
        switch_on="vLLM's `--enable-prompt-tokens-details`; without it the count is absent, not zero",
    ),
    Emitter(
        name="LMCache multi-process server",
        dialects=(lmcache.REQUEST, lmcache.LOOKUP, lmcache.RETRIEVE, lmcache.TIMEOUT),
        gives="lookups found or missed, loads that arrived, failed or timed out",
        lacks="worker, block, reason; its traces are its own and joined by request id",
        switch_on="`--enable-tracing --otlp-endpoint`",
    ),
    Emitter(
        name="anyone",
        dialects=(prompts.SALT,),
        gives="nothing; a salt is replaced by its digest",
        lacks="",
        switch_on="always on",
    ),
)
