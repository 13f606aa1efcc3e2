"""Whatever strangers put into attributes: read, absent or bad input, and never an echo."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.emitted import Value, encoded
from whymiss import dialects
from whymiss.dialects.claim import Dialect
from whymiss.dialects.registry import DIALECTS, EMITTERS, candidates, claim
from whymiss.errors import BadInput
from whymiss.model import Envelope, ResourceIdentity

SCOPES = ["", "any", "vllm.tracing.otel", "lmcache_mp.server", "lmcache_mp.timeout", "envoy-ext-proc-server"]
NAMES = [
    *("llm_request", "request", "timeout", "mp.retrieve", "mp.lookup_prefetch", "prefill", "decode", "chunked_decode"),
    *("kv_router.route_request", "router.route_request", "http-request", "engine.generate", "pick_endpoints"),
    *("mooncake_send", "prefill Req 12345678", "router /v1", "http_request", "forward_request"),
]
KEYS = [
    *("module", "rid", "gen_ai.request.id", "gen_ai.response.id", "gen_ai.usage.cached_tokens", "thread_label"),
    *("gen_ai.usage.prompt_tokens", "gen_ai.latency.time_to_first_token", "gen_ai.usage.cache_read.input_tokens"),
    *("llm_d.epp.producer.max_match_blocks", "llm_d.epp.picker.candidate_endpoints", "llm_d.epp.picker.top_endpoints"),
    *("llm_d.pd_proxy.prefill_target", "llm_d.pd_proxy.prefill.status_code", "llm_d.pd_proxy.decode.target"),
    *("llm_d.pd_proxy.kv_cache_source", "llm_d.epp.pd.prefill_pod_address", "llm_d.epp.pd.disaggregation_used"),
    *("worker_id", "dp_rank", "overlap_blocks", "phase", "prefill_worker_id", "decode_worker_id", "input_tokens"),
    *("vllm.backend_url", "vllm.routing_logic", "target_pod", "target_pod_ip", "routing_strategy", "ttft_ms"),
    *("session_id", "hit_tokens", "retrieved_count", "num_tokens", "early_exit_reason", "disagg_role"),
    *("llm.token_count.prompt_details.cache_read", "openinference.span.kind", "gen_ai.operation.name"),
    *("prefix_cache.lookup.prompt_tokens", "prefix_cache.lookup.first_miss_key", "prefix_cache.route.worker"),
    *("prefix_cache.offload.status", "vllm.prefix_cache.num_tokens", "vllm.prefix_cache.first_miss.extra_keys"),
]
GUARDED = ["cache_salt", "transfer_key", "exception.message", "vllm.prefix_cache.first_miss.extra_keys"]
SECRET = "do-not-repeat-me"

values: st.SearchStrategy[Value] = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.binary(max_size=12),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=3),
    st.sampled_from(["1" * 400, "-5", "1e999", "nan", "0x", "²", "1_000", " 7 ", "10.0.0.1:80", "a-rank-99999"]),
)


def told(raw: bytes, among: Sequence[Dialect]) -> str:
    """All that is said of a span, or of why it cannot be read."""
    try:
        span = claim(raw, Envelope(resource=b"", scope=b""), ResourceIdentity(), among)
    except BadInput as problem:
        return str(problem)
    return "" if span is None else repr(span.says)


@given(
    st.sampled_from(SCOPES),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=12),
    st.sampled_from(["", *GUARDED]),
)
def test_any_values_are_read_or_bad_input_and_no_guarded_one_is_told(
    scope: str, name: str, attributes: dict[str, Value], guarded: str
) -> None:
    if guarded:
        attributes = {**attributes, guarded: SECRET}
    raw = encoded(name, attributes, events=[("Sending request", {"url": attributes.get("worker_id", "u")})])
    assert SECRET not in told(raw, candidates(scope, raw))


@given(st.binary(max_size=200), st.sampled_from([needle for dialect in DIALECTS for needle in dialect.needles]))
def test_any_bytes_before_a_needle_are_read_or_bad_input(noise: bytes, needle: bytes) -> None:
    told(noise + needle, DIALECTS)


def test_every_dialect_has_a_name_of_its_own() -> None:
    listed = [dialect.name for dialect in DIALECTS]
    assert len(set(listed)) == len(listed)


def test_every_file_of_an_emitter_is_in_the_registry_once() -> None:
    found = [
        importlib.import_module(f"{dialects.__name__}.{one.name}") for one in pkgutil.iter_modules(dialects.__path__)
    ]
    exported = [module.EMITTER for module in found if hasattr(module, "EMITTER")]
    assert len(exported) == len(EMITTERS)
    assert all(any(one is listed for listed in EMITTERS) for one in exported)
    assert all(emitter.gives and emitter.switch_on for emitter in EMITTERS)


SHARED = {"claim", "contract", "declared", "prompts", "registry", "secrets"}
"""What the rest of the package may know of the dialects: how they are asked, the input contract, and what may hold prompts."""


def test_no_emitter_is_known_outside_of_the_dialects() -> None:
    package = Path(dialects.__path__[0]).parent
    for path in package.rglob("*.py"):
        if path.parent.name != "dialects":
            known = re.findall(
                r"^ *from \.+dialects(?:\.(\w+))? import ([\w, ]+)", path.read_text(encoding="utf-8"), re.MULTILINE
            )
            assert {module or names for module, names in known} <= SHARED, path


def test_every_dialect_can_be_found_by_its_needles() -> None:
    assert all(dialect.needles and all(len(needle) > 6 for needle in dialect.needles) for dialect in DIALECTS)
