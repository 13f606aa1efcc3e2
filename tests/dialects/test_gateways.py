"""Gateways: cached tokens that the engine reported to its caller, and nothing that only looks like it."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from tests.dialects.emitted import claimed, said
from whymiss.dialects.prompts import PROMPT_ATTRIBUTES
from whymiss.dialects.registry import candidates, claim, identify
from whymiss.errors import BadInput
from whymiss.model import GatewayUsage
from whymiss.wire.fields import read_span, resource_attributes, scope_name, valid_ids
from whymiss.wire.json_in import traces_from_json
from whymiss.wire.splice import splice
from whymiss.wire.split import split

HERE = Path(__file__).parent
RECORDED = HERE / "data" / "envoy-ai-gateway" / "batch.pb.gz"
FOREIGN = HERE.parent / "wire" / "data"


@pytest.mark.parametrize(
    ("cached", "prompt"),
    [
        # ai-gateway internal/tracing/genai; semantic-conventions-genai docs/gen-ai/gen-ai-spans.md
        ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.input_tokens"),
        # langwatch, litellm
        ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.prompt_tokens"),
        # ai-gateway internal/tracing/openinference; openinference spec/semantic_conventions.md
        ("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt"),
        ("llm.token_count.prompt_details.cache_input", "llm.token_count.prompt"),
    ],
)
@pytest.mark.parametrize("spell", [int, float, str])
def test_cached_tokens_are_read_in_each_spelling(cached: str, prompt: str, spell: type) -> None:
    attributes = {cached: spell(64), prompt: spell(100), "gen_ai.response.id": "chatcmpl-1"}
    if spell is float:
        attributes = {**attributes, cached: 64.0, prompt: 100.0}
    assert said("chat", attributes) == (GatewayUsage(request_id="chatcmpl-1", prompt_tokens=100, cached_tokens=64),)


def test_a_count_that_is_not_there_is_not_zero() -> None:
    assert claimed("chat", {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.cache_creation.input_tokens": 3}) is None


def test_a_count_that_is_no_number_is_absent() -> None:
    assert claimed("chat", {"gen_ai.usage.cache_read.input_tokens": "many"}) is None
    assert claimed("chat", {"gen_ai.usage.cache_read.input_tokens": -1}) is None


@pytest.mark.parametrize("kind", [{"gen_ai.operation.name": "invoke_agent"}, {"openinference.span.kind": "AGENT"}])
def test_the_sum_of_several_calls_is_no_lookups_count(kind: dict[str, str]) -> None:
    assert claimed("agent", {**kind, "gen_ai.usage.cache_read.input_tokens": 64}) is None


def test_a_prompt_count_without_the_cached_ones_is_left_out() -> None:
    (usage,) = said("chat", {"gen_ai.usage.cache_read.input_tokens": 640, "gen_ai.usage.input_tokens": 12})
    assert usage == GatewayUsage(cached_tokens=640)


# --- recorded --------------------------------------------------------------------------------------


def recorded() -> list[tuple[bytes, GatewayUsage | None]]:
    found: list[tuple[bytes, GatewayUsage | None]] = []
    for envelope, spans in split(gzip.decompress(RECORDED.read_bytes())):
        for raw in spans:
            dialects = candidates(scope_name(envelope), raw)
            span = claim(raw, envelope, identify(resource_attributes(envelope)), dialects) if dialects else None
            usages = [one for one in span.says if isinstance(one, GatewayUsage)] if span is not None else []
            found.append((raw, usages[0] if usages else None))
    return found


def test_of_the_recorded_spans_those_are_claimed_that_count_cached_tokens() -> None:
    usages = [usage for _, usage in recorded()]
    assert Counter(usage is not None for usage in usages) == {True: 15, False: 26}
    assert {usage.cached_tokens for usage in usages if usage is not None} == {0}
    assert all(usage.prompt_tokens for usage in usages if usage is not None)


def test_the_list_of_droppable_attributes_leaves_no_text_of_a_recorded_prompt_or_answer() -> None:
    left: set[str] = set()
    texts: list[str] = []
    for raw, _ in recorded():
        before = read_span(raw).attributes
        after = read_span(splice(raw, {}, remove=PROMPT_ATTRIBUTES)).attributes
        left |= after.keys()
        texts += [
            value for key, value in before.items() if key in {"input.value", "output.value"} and isinstance(value, str)
        ]
        assert all(str(value) not in texts for value in after.values())
    assert left <= {
        "embedding.invocation_parameters",
        "embedding.model_name",
        "input.mime_type",
        "llm.model_name",
        "llm.system",
        "openinference.span.kind",
        "output.mime_type",
        *(key for key in left if key.startswith("llm.token_count.")),
    }
    assert texts


@pytest.mark.parametrize("file", sorted((FOREIGN / "langwatch" / "reject").glob("*.json")), ids=lambda file: file.name)
def test_spans_with_all_zero_ids_are_rejected_alone_if_they_are_ours_at_all(file: Path) -> None:
    for envelope, spans in split(traces_from_json(file.read_bytes())):
        for raw in spans:
            span = claim(raw, envelope, identify({}), candidates(scope_name(envelope), raw))
            assert span is None or not valid_ids(span.trace_id, span.span_id)


@pytest.mark.parametrize("file", sorted(FOREIGN.rglob("*.json")), ids=lambda file: file.name)
def test_other_peoples_spans_are_read_or_refused_as_bad_input(file: Path) -> None:
    try:
        groups = split(traces_from_json(file.read_bytes()))
    except BadInput:
        return
    for envelope, spans in groups:
        for raw in spans:
            claim(raw, envelope, identify(resource_attributes(envelope)), candidates(scope_name(envelope), raw))
