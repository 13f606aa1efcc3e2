"""llm-d: the endpoint picker (EPP) and the sidecar of a decode worker, in all generations of span names.

Names changed four times since v0.8 and attribute keys did not, so spans are claimed by ``llm_d.*`` keys, in
any scope (today ``llm-d-router/pkg/…``, before ``llm-d-inference-scheduler/…`` and the gateway extension's).

| reads | from | note |
|---|---|---|
| the pick | ``llm_d.epp.picker.top_endpoints`` | only where ``candidate_endpoints`` is 1: the best of several is no proof |
| best match in the fleet | ``llm_d.epp.producer.max_match_blocks`` | a lower bound, in blocks of the *router's* index |
| prefill worker | ``llm_d.epp.pd.prefill_pod_{address,port}``, ``llm_d.pd_proxy.prefill_target`` | ``host:port`` |
| decode worker | ``llm_d.pd_proxy.decode.target`` | not where the sidecar calls it by a loopback address |
| a failed prefill | ``llm_d.pd_proxy.prefill.status_code`` ≥ 400 | the HTTP outcome, not the transfer's |
| a peer that was asked for blocks | ``llm_d.pd_proxy.kv_cache_source`` | its answer is not known |

Cannot be known: the pick among several candidates and the match predicted for it, hashes, the index's block
size and age. ``blocks_found`` counts scattered blocks on any pod and is not read; scores are normalised.
Source: llm-d-router ``pkg/epp/scheduling/scheduler_profile.go``, ``pkg/sidecar/proxy/connector_*.go``,
``pkg/epp/framework/plugins/{requestcontrol/dataproducer/preciseprefixcache,scheduling/profilehandler/disagg}``
at ``ebab68792``.
"""

from __future__ import annotations

from ..model import Evidenced, OffloadOutcome, Role, RouteDecision
from ..model.worker_name import split_rank
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .sglang import PREFILL_WORKER
from .values import count, first, names, text, truth
from .vllm import request_ids

_EPP = "llm_d.epp."
_PROXY = "llm_d.pd_proxy."
_LOOPBACK = ("localhost", "127.", "0.0.0.0", "[::", "::1")  # noqa: S104 — recognised, not bound

DECODES = frozenset({"decode", "chunked_decode", f"{_PROXY}decode", f"{_PROXY}chunked_decode"})
PREFILLS = frozenset({"prefill", f"{_PROXY}prefill"})


def _request_id(span: SpanFields) -> str | None:
    return text(first(span.attributes, "gen_ai.request.id", f"{_PROXY}request_id"))


def read_match(span: SpanFields) -> Evidenced | None:
    """What the precise prefix index found; a prompt without tokens was not looked up."""
    best = count(span.attributes.get(f"{_EPP}producer.max_match_blocks"))
    if best is None:
        return None
    return RouteDecision(
        request_id=_request_id(span),
        best_blocks=best,
        prefix_aware=True,
        model=text(span.attributes.get("gen_ai.request.model")),
    )


def read_pick(span: SpanFields) -> Evidenced | None:
    """The pick, where there was nothing to choose."""
    attributes = span.attributes
    endpoints = names(attributes.get(f"{_EPP}picker.top_endpoints"))
    if count(attributes.get(f"{_EPP}picker.candidate_endpoints")) != 1 or endpoints is None or len(endpoints) != 1:
        return None
    worker, rank = split_rank(endpoints[0])
    return RouteDecision(
        request_id=_request_id(span), worker=worker, rank=rank, model=text(attributes.get("gen_ai.request.model"))
    )


def read_disaggregation(span: SpanFields) -> Evidenced | None:
    """The prefill worker that the picker chose for a disaggregated request."""
    attributes = span.attributes
    address = text(attributes.get(f"{_EPP}pd.prefill_pod_address"))
    if address is None or truth(attributes.get(f"{_EPP}pd.disaggregation_used")) is False:
        return None
    port = text(attributes.get(f"{_EPP}pd.prefill_pod_port"))
    return RouteDecision(
        request_id=_request_id(span),
        worker=f"{address}:{port}" if port else address,
        phase="prefill",
        model=text(attributes.get("gen_ai.request.model")),
    )


def read_prefill(span: SpanFields) -> Evidenced | None:
    """The prefill half as the sidecar sees it, from sending the request to its answer."""
    worker = text(span.attributes.get(f"{_PROXY}prefill_target"))
    if span.name not in PREFILLS or worker is None:
        return None
    return RouteDecision(request_id=_request_id(span), worker=worker, phase="prefill")


def read_prefill_failure(span: SpanFields) -> Evidenced | None:
    """A prefill that did not end well: what it was to deliver never came."""
    status = count(span.attributes.get(f"{_PROXY}prefill.status_code"))
    if span.name not in PREFILLS or status is None or status < 400:
        return None
    return OffloadOutcome(request_id=_request_id(span), status="failed", tier=PREFILL_WORKER)


def read_decode(span: SpanFields) -> Evidenced | None:
    """The decode half as the sidecar sees it."""
    if span.name not in DECODES or not any(key.startswith(_PROXY) for key in span.attributes):
        return None
    target = text(span.attributes.get(f"{_PROXY}decode.target"))
    worker = None if target is None or target.lower().startswith(_LOOPBACK) else target
    return RouteDecision(request_id=_request_id(span), worker=worker, phase="decode")


def read_peer(span: SpanFields) -> Evidenced | None:
    """A peer was asked for blocks; whether it had them is not said."""
    if text(span.attributes.get(f"{_PROXY}kv_cache_source")) is None:
        return None
    return OffloadOutcome(request_id=_request_id(span), tier="peer")


MATCH = Dialect(name="llmd_match", role=Role.ROUTER, needles=(b"llm_d.epp.producer.",), read=read_match)
PICK = Dialect(name="llmd_pick", role=Role.ROUTER, needles=(b"llm_d.epp.picker.",), read=read_pick)
DISAGGREGATION = Dialect(
    name="llmd_disaggregation", role=Role.ROUTER, needles=(b"llm_d.epp.pd.",), read=read_disaggregation
)
PREFILL = Dialect(name="llmd_prefill", role=Role.ROUTER, needles=(b"llm_d.pd_proxy.prefill_",), read=read_prefill)
PREFILL_FAILURE = Dialect(
    name="llmd_prefill_failure",
    role=Role.OFFLOAD,
    needles=(b"llm_d.pd_proxy.prefill.",),
    read=read_prefill_failure,
)
DECODE = Dialect(name="llmd_decode", role=Role.ROUTER, needles=(b"llm_d.pd_proxy.",), read=read_decode)
PEER = Dialect(name="llmd_peer", role=Role.OFFLOAD, needles=(b"llm_d.pd_proxy.kv_cache_source",), read=read_peer)

EMITTER = Emitter(
    name="llm-d",
    dialects=(
        *(MATCH, PICK, DISAGGREGATION, PREFILL),
        *(PREFILL_FAILURE, DECODE, PEER),
    ),
    gives="best match in the fleet (lower bound, router's blocks), prefill and decode worker, failed prefills",
    lacks="the pick among several endpoints and the match promised for it",
    switch_on="tracing of EPP and sidecar with sampler `always_on`: the default ratio 0.1 drops nine joins of ten",
    request_ids=request_ids,
)
