"""Routers: the worker that was picked, what was promised there, and what is not known."""

from __future__ import annotations

import pytest

from tests.dialects.emitted import Value, claimed, said
from whymiss.model import OffloadOutcome, RouteDecision

# --- llm-d: pkg/epp/scheduling/scheduler_profile.go, pkg/sidecar/proxy/connector_*.go ----------------

MATCH: dict[str, Value] = {
    "gen_ai.request.model": "m",
    "gen_ai.request.id": "11111111-2222-3333-4444-555555555555",
    "llm_d.epp.producer.candidate_endpoints": 4,
    "llm_d.epp.producer.total_blocks": 60,
    "llm_d.epp.producer.max_match_blocks": 42,
}


@pytest.mark.parametrize(
    "scope",
    [
        "llm-d-router/pkg/epp/framework/plugins/requestcontrol/dataproducer",
        "llm-d-inference-scheduler",
        "sigs.k8s.io/gateway-api-inference-extension",
        "",
    ],
)
def test_llmd_is_read_whatever_its_scope_is_called(scope: str) -> None:
    assert said("produce_precise_prefix_cache", MATCH, scope=scope) == (
        RouteDecision(request_id=str(MATCH["gen_ai.request.id"]), best_blocks=42, prefix_aware=True, model="m"),
    )


def test_a_prompt_without_tokens_was_not_looked_up() -> None:
    assert said("produce_precise_prefix_cache", {"llm_d.epp.producer.result": "skipped_no_tokens"}) == ()


def pick(candidates: int, *names: str) -> dict[str, Value]:
    return {"llm_d.epp.picker.candidate_endpoints": candidates, "llm_d.epp.picker.top_endpoints": list(names)}


def test_the_best_of_several_endpoints_is_no_proof_of_the_pick() -> None:
    assert claimed("pick_endpoints", pick(3, "ns/a", "ns/b", "ns/c")) is None


def test_the_only_endpoint_is_the_pick() -> None:
    assert said("pick_endpoints", pick(1, "ns/a-rank-3")) == (RouteDecision(worker="ns/a", rank=3),)


@pytest.mark.parametrize("name", ["llm_d.epp.prerequest.disaggregation", "prepare_disaggregation"])
def test_the_prefill_worker_is_named_in_all_generations(name: str) -> None:
    attributes: dict[str, Value] = {
        "llm_d.epp.pd.disaggregation_used": True,
        "llm_d.epp.pd.prefill_pod_address": "10.0.0.7",
        "llm_d.epp.pd.prefill_pod_port": "8000",
    }
    assert said(name, attributes) == (RouteDecision(worker="10.0.0.7:8000", phase="prefill"),)
    unused = {**attributes, "llm_d.epp.pd.disaggregation_used": False}
    assert said(name, unused) == ()


@pytest.mark.parametrize("name", ["prefill", "llm_d.pd_proxy.prefill"])
def test_a_sidecar_names_the_prefill_worker_and_its_failure(name: str) -> None:
    attributes: dict[str, Value] = {
        "llm_d.pd_proxy.request_id": "u",
        "llm_d.pd_proxy.prefill_target": "10.0.0.7:8000",
        "llm_d.pd_proxy.prefill.status_code": 200,
    }
    assert said(name, attributes) == (RouteDecision(request_id="u", worker="10.0.0.7:8000", phase="prefill"),)
    failed = said(name, {**attributes, "llm_d.pd_proxy.prefill.status_code": 503})
    assert OffloadOutcome(request_id="u", status="failed", tier="prefill_worker") in failed


@pytest.mark.parametrize("name", ["decode", "chunked_decode", "llm_d.pd_proxy.decode"])
def test_a_sidecar_names_the_decode_worker(name: str) -> None:
    target = {"llm_d.pd_proxy.decode.target": "10.0.0.9:8200"}
    assert said(name, target) == (RouteDecision(worker="10.0.0.9:8200", phase="decode"),)


def test_a_decode_worker_behind_a_loopback_address_could_be_any() -> None:
    assert said("decode", {"llm_d.pd_proxy.decode.target": "localhost:8200"}) == (RouteDecision(phase="decode"),)


def test_a_peer_that_was_asked_has_given_no_answer_yet() -> None:
    assert said("forward_request", {"llm_d.pd_proxy.kv_cache_source": "10.0.0.8:8000"}) == (
        OffloadOutcome(tier="peer"),
    )


@pytest.mark.parametrize("name", ["gateway.request", "index_lookup", "score_tokens", "filter_endpoints", "prefill"])
def test_what_says_nothing_of_the_pick_passes(name: str) -> None:
    assert claimed(name, {"llm_d.kv_cache.blocks_found": 9, "llm_d.kv_cache.lookup.blocks_found": 9}) is None


# --- Dynamo: lib/llm/src/kv_router/ ---------------------------------------------------------------

U64 = 2**64 - 7


def test_dynamo_says_the_pick_and_its_promise() -> None:
    attributes: dict[str, Value] = {
        "request_id": "r",
        "worker_id": 7587890,
        "dp_rank": 1,
        "overlap_blocks": 12,
        "phase": "Prefill",
    }
    assert said("kv_router.route_request", attributes) == (
        RouteDecision(
            request_id="r",
            worker="7587890",
            rank=1,
            predicted_blocks=12,
            prefix_aware=True,
            phase="prefill",
            made_before=True,
        ),
    )


@pytest.mark.parametrize("spelling", [U64 - 2**64, str(U64)])
def test_a_worker_id_beyond_63_bits_is_the_same_in_each_spelling(spelling: int | str) -> None:
    (route,) = said("kv_router.route_request", {"worker_id": spelling, "phase": "Aggregated"})
    assert route == RouteDecision(worker=str(U64), prefix_aware=True, made_before=True)


def test_dynamo_shows_the_moment_of_its_choice_in_a_span_of_its_own() -> None:
    assert said("kv_router.select_worker", {"busy_ns": 138055}) == (RouteDecision(choice=True),)


def test_a_plain_router_of_dynamo_promises_nothing() -> None:
    assert said("router.route_request", {"worker_id": 3, "router_mode": "RoundRobin"}) == (
        RouteDecision(worker="3", reason="RoundRobin", prefix_aware=False),
    )


def test_the_frontend_of_dynamo_names_the_workers_of_both_halves() -> None:
    attributes: dict[str, Value] = {"prefill_worker_id": 1, "decode_worker_id": 2, "x_request_id": "x", "model": "m"}
    assert set(said("http-request", attributes)) == {
        RouteDecision(request_id="x", worker="1", phase="prefill", model="m"),
        RouteDecision(request_id="x", worker="2", phase="decode", model="m"),
    }


def test_one_worker_for_both_halves_is_no_pair() -> None:
    assert set(said("http-request", {"prefill_worker_id": 1, "decode_worker_id": 1})) == {RouteDecision(worker="1")}


# --- production-stack: src/vllm_router/services/request_service/request.py -----------------------------


@pytest.mark.parametrize(
    ("policy", "aware"), [("PrefixAwareRouter", True), ("RoundRobinRouter", False), ("NewRouter", None)]
)
def test_production_stack_says_the_worker_and_the_policy(policy: str, *, aware: bool | None) -> None:
    attributes = {
        "vllm.request_id": "r",
        "vllm.model": "m",
        "vllm.backend_url": "http://10.0.0.3:8000",
        "vllm.routing_logic": policy,
    }
    assert said("router /v1/completions", attributes) == (
        RouteDecision(request_id="r", worker="http://10.0.0.3:8000", reason=policy, prefix_aware=aware, model="m"),
    )


def test_the_call_of_production_stack_names_the_worker_too() -> None:
    span = claimed("process_request", {"vllm.backend_url": "http://10.0.0.3:8000", "http.status_code": 200})
    assert span is not None
    assert span.dialect == "production_stack"


# --- SMG: sgl-model-gateway/src/routers/http -------------------------------------------------------


def test_smg_names_the_worker_in_an_event_and_the_last_try_counts() -> None:
    events = [("Sending request", {"url": "http://a:1"}), ("Sending request", {"url": "http://b:1"})]
    assert said("http_request", {"request_id": "r", "latency": 900}, events=events) == (
        RouteDecision(request_id="r", worker="http://b:1"),
    )


def test_smg_names_both_halves_of_a_pair() -> None:
    events = [("Sending concurrent requests", {"prefill_url": "http://p:1", "decode_url": "http://d:1"})]
    assert set(said("http_request", {}, events=events)) == {
        RouteDecision(worker="http://p:1", phase="prefill"),
        RouteDecision(worker="http://d:1", phase="decode"),
    }


# --- AIBrix: pkg/plugins/gateway ---------------------------------------------------------------------


def test_aibrix_names_the_worker_in_both_spellings() -> None:
    attributes: dict[str, Value] = {
        "request_id": "r",
        "model": "m",
        "target_pod": "llama-7",
        "target_pod_ip": "10.0.0.4:8000",
        "routing_strategy": "prefix-cache",
        "prompt_tokens": "1000",
        "ttft": "0.2",
    }
    routes = said("process", attributes, scope="envoy-ext-proc-server")
    assert {one.worker for one in routes if isinstance(one, RouteDecision)} == {"llama-7", "10.0.0.4:8000"}
    assert all(isinstance(one, RouteDecision) and one.prefix_aware for one in routes)
    assert claimed("process", attributes, scope="somebody else") is None
