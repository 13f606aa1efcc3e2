"""Engines: the fields that verdicts rest on, from the attributes that the engines set."""

from __future__ import annotations

import pytest

from tests.dialects.emitted import ERROR, Value, claimed, said
from whymiss.model import EngineRequest, OffloadOutcome

# sglang python/sglang/srt/observability/{trace,req_time_stats}.py
SGLANG: dict[str, Value] = {
    "rid": "9f86d081884c4d659a2feaa0c55ad015",
    "module": "sglang::request",
    "gen_ai.request.id": "9f86d081884c4d659a2feaa0c55ad015",
    "gen_ai.usage.prompt_tokens": 1000,
    "gen_ai.usage.completion_tokens": 20,
    "gen_ai.usage.cached_tokens": 960,
    "gen_ai.latency.time_to_first_token": 0.25,
    "gen_ai.latency.time_in_model_prefill": 0.125,
    "gen_ai.response.model": "qwen",
    "gen_ai.response.finish_reasons": '["stop"]',
}


def test_sglang_counts_cached_tokens_on_its_root_span() -> None:
    (engine,) = said(" Req 9f86d081", SGLANG)
    assert engine == EngineRequest(
        request_id=str(SGLANG["rid"]),
        prompt_tokens=1000,
        cached_tokens=960,
        completion_tokens=20,
        first_token_seconds=0.25,
        prefill_seconds=0.125,
        model="qwen",
    )


@pytest.mark.parametrize(
    ("name", "prefill", "decode"), [("prefill Req 9f86d081", True, False), ("decode Req 9f86d081", False, True)]
)
def test_sglang_names_its_half_of_a_pair(name: str, *, prefill: bool, decode: bool) -> None:
    (engine,) = said(name, SGLANG)
    assert isinstance(engine, EngineRequest)
    assert (engine.prefill_only, engine.decode_only) == (prefill, decode)


def test_sglang_is_claimed_by_its_keys_where_the_module_is_missing() -> None:
    span = claimed("anything at all", {key: value for key, value in SGLANG.items() if key != "module"})
    assert span is not None
    assert (span.dialect, span.role) == ("sglang", "engine")


def test_a_thread_of_sglang_is_not_a_request() -> None:
    thread: dict[str, Value] = {"module": "sglang::request", "rid": "r", "thread_label": "Scheduler", "tp_rank": 0}
    assert said("Scheduler [TP 0] (host:abcd | pid:7)", thread) == ()


def test_an_engines_count_is_not_told_again_as_a_gateways() -> None:
    assert [type(one) for one in said("Req", {**SGLANG, "gen_ai.usage.cache_read.input_tokens": 960})] == [
        EngineRequest
    ]


@pytest.mark.parametrize("name", ["decode_transferred", "mooncake_worker_recv", "prefill_transfer_kv_cache"])
def test_a_transfer_of_sglang_failed_if_its_slice_did(name: str) -> None:
    assert said(name, {}, status=ERROR) == (OffloadOutcome(status="failed", tier="prefill_worker"),)
    assert said(name, {}) == (OffloadOutcome(status="hit", tier="prefill_worker"),)


def test_other_slices_of_sglang_pass() -> None:
    assert claimed("mooncake_something_new", {}) is None
    assert claimed("prefill_forward", {}) is None


def test_start_up_work_of_vllm_passes() -> None:
    # vllm/tracing/otel.py: on the same exporter as the requests.
    assert claimed("Load weights", {"code.function": "llm_request"}, scope="vllm.tracing.otel") is None


def test_vllm_sets_no_cached_tokens_and_absent_is_not_zero() -> None:
    # vllm/v1/engine/output_processor.py, do_tracing
    (engine,) = said("llm_request", {"gen_ai.request.id": "chatcmpl-1"}, scope="vllm.tracing.otel")
    assert isinstance(engine, EngineRequest)
    assert engine.cached_tokens is None


def test_dynamos_engine_call_says_when_its_first_token_came() -> None:
    # dynamo lib/bindings and components: engine.generate; ttft_ms is a string with two decimals
    (engine,) = said(
        "engine.generate",
        {
            "model": "m",
            "input_tokens": 900,
            "output_tokens": 5,
            "disagg_role": "decode",
            "ttft_ms": "43.10",
            "avg_itl_ms": "10.00",
        },
    )
    assert engine == EngineRequest(
        prompt_tokens=900,
        completion_tokens=5,
        first_token_seconds=0.0431,
        model="m",
        decode_only=True,
        first_token_after_end=True,
        decode_seconds=0.04,
    )
