"""Redaction is final: a planted secret is nowhere in what leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whymiss.config import parse
from whymiss.errors import BadInput
from whymiss.pipeline import KvSource, Pipeline

SOURCE = KvSource(name="one")
CONFIG = "{workers: {sole_source: true}, kv_events: {sources: [{endpoint: 'tcp://127.0.0.1:5557'}]}}"
SECOND = 1_000_000_000
NOW = 1_800_000_000

# Hashes and salts look like themselves and like nothing else in a request.
hashes = st.integers(0, 2**64).map(lambda number: hashlib.sha256(str(number).encode()).digest())
salts = st.uuids().map(str)
# Token ids with many different digits, so that finding one in the output is no accident.
tokens = st.integers(0, 2**20).map(lambda number: 0x12345679 + number * 1_000_003 % 2**30)


def spellings(secret: bytes | str | int) -> list[bytes]:
    """The ways in which a secret could be written."""
    if isinstance(secret, str):
        return [secret.encode()]
    if isinstance(secret, int):
        return [str(secret).encode(), f"{secret:x}".encode()]
    low = int.from_bytes(secret[-8:], "big")
    forms = [secret, secret.hex().encode(), secret[-8:], secret[-8:].hex().encode(), str(low).encode()]
    return [*forms, low.to_bytes(8, "little"), f"{low:x}".encode()]


def batch(chain: Sequence[bytes], ids: Sequence[int], salt: str, at: float) -> bytes:
    """One step that stored a salted chain of blocks of 4 tokens."""
    stored = {
        "type": "BlockStored",
        "block_hashes": list(chain),
        "parent_block_hash": None,
        "token_ids": [ids[index % len(ids)] for index in range(4 * len(chain))],
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [[salt], *[None] * (len(chain) - 1)],
        "group_idx": 0,
    }
    return msgspec.msgpack.encode([at, [stored], 0])


def spans(chain: Sequence[bytes], salt: str, request_id: str) -> bytes:
    """An engine span, a probe span and a contract span of one request, with all that they may carry."""
    request = ExportTraceServiceRequest()
    for scope, name in (("vllm.tracing.otel", "llm_request"), ("vllm.prefix_miss_probe", "lookup"), ("any", "lookup")):
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = "engine"
        inner = group.scope_spans.add()
        inner.scope.name = scope
        span = inner.spans.add(name=name, trace_id=bytes([1] * 16), span_id=(scope.encode() * 8)[:8], flags=0x301)
        span.start_time_unix_nano = NOW * SECOND
        span.end_time_unix_nano = (NOW + 2) * SECOND
        texts: dict[str, str] = {}
        numbers: dict[str, int] = {}
        if name == "llm_request":
            texts["gen_ai.request.id"] = request_id
            numbers["gen_ai.usage.prompt_tokens"] = 4 * len(chain) + 1
            span.attributes.add(key="gen_ai.latency.time_to_first_token").value.double_value = 1.0
        elif scope == "vllm.prefix_miss_probe":
            texts["vllm.request.id"] = f"{request_id}-0123abcd"
            texts["vllm.prefix_cache.first_miss.hash"] = chain[0].hex()
            texts["vllm.prefix_cache.first_miss.parent_hash"] = chain[-1].hex()
            texts["vllm.prefix_cache.first_miss.extra_keys"] = f"(('cache_salt', '{salt}'),)"
            numbers["vllm.prefix_cache.num_tokens"] = 4 * len(chain) + 1
            numbers["vllm.prefix_cache.hit_tokens"] = 0
            listed = span.attributes.add(key="vllm.prefix_cache.block_hashes").value.array_value
            for key in chain:
                listed.values.add(string_value=key.hex())
        else:
            texts["prefix_cache.lookup.first_miss_key"] = chain[0].hex()
            texts["prefix_cache.lookup.extra_key_kinds"] = "cache_salt"
            numbers["prefix_cache.lookup.prompt_tokens"] = 4 * len(chain) + 1
            numbers["prefix_cache.lookup.cached_tokens"] = 0
            listed = span.attributes.add(key="prefix_cache.lookup.expected_keys").value.array_value
            for key in chain:
                listed.values.add(string_value=key.hex())
        for label, text in texts.items():
            span.attributes.add(key=label).value.string_value = text
        for label, number in numbers.items():
            span.attributes.add(key=label).value.int_value = number
    return request.SerializeToString()


@given(st.lists(hashes, min_size=1, max_size=4, unique=True), st.lists(tokens, min_size=4, max_size=8), salts)
def test_no_planted_key_salt_or_token_leaves(chain: list[bytes], ids: list[int], salt: str) -> None:
    flow = Pipeline(parse(CONFIG, {}), process_key=bytes(range(32)), start_unix_nanos=0)
    flow.kv_frames(SOURCE, [b"kv@engine@m", bytes(8), batch(chain, ids, salt, NOW + 0.5)], NOW * SECOND)
    accepted = flow.traces(spans(chain, salt, "cmpl-1"), 0.0)
    left = [*accepted.outgoing, *flow.advance(1000.0), *flow.drain()]
    assert left
    everything = b"".join(item.body for item in left)
    everything += repr(flow.measures.snapshot()).encode() + accepted.message.encode()
    secrets: list[bytes | str | int] = [*chain, *ids, salt]
    for secret in secrets:
        for form in spellings(secret):
            assert form not in everything


@given(hashes, salts, st.integers(0, 200), st.integers(0, 255))
def test_errors_about_broken_events_repeat_nothing(key: bytes, salt: str, at: int, value: int) -> None:
    payload = bytearray(batch([key], [123_456_789], salt, NOW))
    payload[at % len(payload)] = value
    flow = Pipeline(parse(CONFIG, {}), process_key=bytes(32), start_unix_nanos=0)
    flow.kv_frames(SOURCE, [salt.encode(), bytes(8), bytes(payload)], NOW * SECOND)
    assert salt.encode() not in repr(flow.measures.snapshot()).encode()


@given(hashes, salts)
def test_errors_about_broken_spans_repeat_nothing(key: bytes, salt: str) -> None:
    body = spans([key], salt, "cmpl-1")
    flow = Pipeline(parse(CONFIG, {}), process_key=bytes(32), start_unix_nanos=0)
    with pytest.raises(BadInput) as problem:
        flow.traces(body[:-1], 0.0)
    assert salt not in str(problem.value)
    assert key.hex() not in str(problem.value)
