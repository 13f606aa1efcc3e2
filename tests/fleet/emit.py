"""The bytes of real emitters: OTLP spans of an engine, a probe and a router; KV-event messages of vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from tests.fleet.pool import Operation, Removed, Stored, is_state
from tests.fleet.prompts import Identity, Prompt
from tests.fleet.spec import SECOND, FleetSpec
from tests.fleet.tier import Found, Offer

Value: TypeAlias = str | int | float | bool | Sequence[str]
MODEL = "sim-model"
FLAGS = 0x300
"""What Python's exporter sends under a remote parent: never the sampled bit."""


class Times(NamedTuple):
    """One request on the clock of its engine, in nanoseconds."""

    arrival: int
    queued: int
    """Time in the engine's queue."""
    lookup: int
    first_token: int
    end: int
    answer: int
    """Generated tokens."""


class Place(NamedTuple):
    """Where a request's spans belong."""

    worker: str
    trace_id: bytes
    request_id: str


def place(worker: str, number: int, seed: int) -> Place:
    """The ids of a request; the same on every run."""
    trace_id = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=16).digest()
    return Place(worker, trace_id, f"cmpl-sim-{number}-0")


# --- spans ------------------------------------------------------------------------------------------


def engine_span(where: Place, times: Times, prompt: Prompt) -> ResourceSpans:
    """The ``llm_request`` span of a stock vLLM."""
    first = (times.first_token - times.arrival) / SECOND
    prefill = (times.first_token - times.lookup) / SECOND
    decode = (times.end - times.first_token) / SECOND
    attributes: dict[str, Value] = {
        "gen_ai.latency.time_to_first_token": first,
        "gen_ai.latency.e2e": first + decode,
        "gen_ai.latency.time_in_queue": times.queued / SECOND,
        "gen_ai.usage.prompt_tokens": prompt.length,
        "gen_ai.usage.completion_tokens": times.answer,
        "gen_ai.latency.time_in_model_prefill": prefill,
        "gen_ai.latency.time_in_model_decode": decode,
        "gen_ai.latency.time_in_model_inference": prefill + decode,
        "gen_ai.request.id": where.request_id,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.max_tokens": times.answer,
        "gen_ai.request.n": 1,
    }
    span = _span(where, "llm_request", times.arrival, times.end, attributes)
    span.kind = Span.SPAN_KIND_SERVER
    return _resource(_engine_resource(where.worker), "vllm.tracing.otel", span)


def lookup_span(where: Place, at: int, prompt: Prompt, found: Found, spec: FleetSpec) -> ResourceSpans:
    """A span of the input contract for one lookup inside the engine."""
    first = found.hits
    attributes: dict[str, Value] = {
        "gen_ai.request.id": f"{where.request_id}-{where.trace_id[:4].hex()}",
        "prefix_cache.lookup.prompt_tokens": prompt.length,
        "prefix_cache.lookup.cached_tokens": first * spec.block_size,
        "prefix_cache.lookup.block_size": spec.block_size,
        "prefix_cache.lookup.expected_keys": [f"{key:016x}" for key in prompt.keys],
        "prefix_cache.lookup.extra_key_kinds": prompt.extras.kinds,
    }
    if first < len(prompt.keys):
        attributes["prefix_cache.lookup.first_miss_key"] = f"{prompt.keys[first]:016x}"
    if spec.unit_blocks > 1:
        attributes["prefix_cache.lookup.match_unit"] = spec.unit_blocks * spec.block_size
    if found.offer is not None:
        attributes["prefix_cache.lookup.local_hit_tokens"] = found.held * spec.block_size
        attributes["prefix_cache.lookup.external_hit_tokens"] = found.offer.loaded * spec.block_size
    if found.opted_out:
        attributes["prefix_cache.lookup.disabled"] = True
    if spec.eagle:
        attributes["prefix_cache.lookup.speculative"] = True
    span = _span(where, "prefix_cache.lookup", at, at + 90_000, attributes)
    span.kind = Span.SPAN_KIND_INTERNAL
    return _resource(_engine_resource(where.worker), "prefix-cache-probe", span)


def offload_span(where: Place, at: int, offer: Offer) -> ResourceSpans:
    """A span of the input contract for what a host tier found and delivered."""
    attributes: dict[str, Value] = {
        "gen_ai.request.id": where.request_id,
        "prefix_cache.offload.found_blocks": offer.found,
        "prefix_cache.offload.loaded_blocks": offer.loaded,
        "prefix_cache.offload.status": offer.status,
        "prefix_cache.offload.tier": "host",
    }
    return _resource({"service.name": "tier"}, "sim-tier", _span(where, "retrieve", at, at + 500_000, attributes))


def router_span(where: Place, at: int, said: Mapping[str, Value]) -> ResourceSpans:
    """A span of the input contract for one routing decision."""
    attributes = {f"prefix_cache.route.{name}": value for name, value in said.items()}
    span = _span(where, "pick_endpoints", at - 200_000, at, {"gen_ai.request.id": where.request_id, **attributes})
    span.kind = Span.SPAN_KIND_INTERNAL
    return _resource({"service.name": "router"}, "sim-router", span)


def half_span(where: Place, half: str, worker: str, start: int, end: int) -> ResourceSpans:
    """The span of llm-d's sidecar around one half of a disaggregated request."""
    target = {"prefill": "prefill_target", "decode": "decode.target"}[half]
    attributes: dict[str, Value] = {
        "llm_d.pd_proxy.request_id": where.request_id,
        f"llm_d.pd_proxy.{target}": worker,
        "llm_d.pd_proxy.connector": "nixlv2",
    }
    return _resource({"service.name": "routing-proxy"}, "llm-d-router", _span(where, half, start, end, attributes))


def export(parts: Iterable[ResourceSpans]) -> bytes:
    """One export request."""
    return ExportTraceServiceRequest(resource_spans=parts).SerializeToString()


def _engine_resource(worker: str) -> dict[str, Value]:
    return {
        "telemetry.sdk.language": "python",
        "service.name": "vllm",
        "k8s.pod.name": worker,
        "vllm.process_kind": "api_server",
    }


def _span(where: Place, name: str, start: int, end: int, attributes: Mapping[str, Value]) -> Span:
    span_id = hashlib.blake2b(
        f"{name}/{where.worker}/{where.request_id}".encode(), digest_size=8, key=where.trace_id
    ).digest()
    return Span(
        trace_id=where.trace_id,
        span_id=span_id,
        parent_span_id=where.trace_id[8:],
        name=name,
        start_time_unix_nano=start,
        end_time_unix_nano=end,
        attributes=_attributes(attributes),
        flags=FLAGS,
    )


def _resource(attributes: Mapping[str, Value], scope: str, span: Span) -> ResourceSpans:
    return ResourceSpans(
        resource=Resource(attributes=_attributes(attributes)),
        scope_spans=[ScopeSpans(scope=InstrumentationScope(name=scope), spans=[span])],
    )


def _attributes(values: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in values.items()]


def _value(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=one) for one in value]))


# --- KV events --------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode
_CLEARED = _encode({"type": "AllBlocksCleared"})
_REMOVED = tuple(
    _encode({"type": "BlockRemoved", "block_hashes": [1 << 63], "medium": "GPU", "group_idx": 0}).split(
        (1 << 63).to_bytes(8, "big")
    )
)


class Publisher:
    """One engine's publisher of KV events."""

    def __init__(self, worker: str, identity: Identity, spec: FleetSpec) -> None:
        self._unit = spec.unit_blocks
        self._dense: dict[str, object] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
        self._sparse: dict[str, object] = {"group_idx": 1, "kv_cache_spec_kind": "mamba"}
        if spec.window_blocks:
            window = {"kv_cache_spec_sliding_window": spec.window_blocks * spec.block_size}
            self._sparse = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", **window}
        self._topic = f"kv@{worker}@{MODEL}".encode()
        self._identity = identity
        self.next_seq = 0

    def batch(self, at: int, events: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
        """The next message; ``at`` is the publisher's clock."""
        head = b"\x93" + _encode(at / SECOND) + b"\xdd" + len(events).to_bytes(4, "big")
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        return self._topic, seq.to_bytes(8, "big"), head + b"".join(events) + b"\x00"

    def cleared(self) -> bytes:
        """A reset."""
        return _CLEARED

    def events(
        self, operations: Iterable[Operation], prompts: Mapping[int, Prompt], reporting: Container[int]
    ) -> list[bytes]:
        """A step's operations in their order; ``reporting`` requests have a session."""
        return [
            self._removed(one.key)
            if isinstance(one, Removed)
            else self.stored(prompts[one.number], one, session=one.number in reporting)
            for one in operations
        ]

    def _removed(self, key: int) -> bytes:
        if is_state(key):
            low = key & ((1 << 64) - 1)
            return _encode({"type": "BlockRemoved", "block_hashes": [low], "medium": "GPU", "group_idx": 1})
        return _REMOVED[0] + key.to_bytes(8, "big") + _REMOVED[1]

    def tier_events(self, stored: Sequence[int], removed: Sequence[int]) -> list[bytes]:
        """What an offload connector says of a host tier: keys, and placeholders for the rest."""
        events = [_encode({"type": "BlockRemoved", "block_hashes": [key], "medium": "CPU"}) for key in removed]
        if stored:
            nothing: dict[str, object] = {"parent_block_hash": None, "token_ids": [], "block_size": 0, "lora_id": None}
            event = {"type": "BlockStored", "block_hashes": stored, **nothing, "medium": "CPU", "lora_name": None}
            events.append(_encode(event))
        return events

    def stored(self, prompt: Prompt, part: Stored, *, session: bool) -> bytes:
        """One ``BlockStored``, as vLLM 0.33 writes it: a map16 however few keys follow."""
        indices = [end - 1 for end in part.ends] or range(part.start, part.end)
        tokens: list[int] = []
        for own in prompt.own[part.start : part.end]:
            tokens.extend(self._identity.tokens(own))
        event: dict[str, object] = {
            "type": "BlockStored",
            # The tokens are those of the whole span, the hashes of a sparse group those of its states.
            "block_hashes": [prompt.keys[index] for index in indices],
            "parent_block_hash": prompt.parent(part.start),
            "token_ids": tokens,
            "block_size": self._identity.block_size * (self._unit if part.ends else 1),
            "lora_id": 1 if prompt.extras.lora else None,
            "medium": "GPU",
            "lora_name": prompt.extras.lora,
            "extra_keys": [_extra_keys(prompt, index) for index in indices],
            **(self._sparse if part.ends else self._dense),
        }
        if session:
            event["session_id"] = f"session-{prompt.session}"
        encoded = _encode(event)
        assert encoded[0] == 0x80 | len(event), "a map of few keys has one byte before them"
        return b"\xde\x00" + bytes([len(event)]) + encoded[1:]


def _extra_keys(prompt: Prompt, index: int) -> list[str] | None:
    found = [] if prompt.extras.lora is None else [prompt.extras.lora]
    if prompt.extras.salt is not None and index == 0:
        found.append(prompt.extras.salt)
    return found or None
