"""A small notation for evidence: real OTLP spans and real KV-event messages, played through the whole pipeline.

Times are seconds of a scene; prompts are lists of token ids. ``serve`` is what a stock vLLM leaves of one request:
its span, and a batch with the blocks that it had to compute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from whymiss.config import parse
from whymiss.model import SECOND, Verdict
from whymiss.pipeline import KvOutcome, KvSource, Pipeline
from whymiss.redaction import Redacted
from whymiss.reference import Reference

EPOCH = 1_700_000_000
STEP = 0.08
"""From the lookup to the batch of the step that follows it, in seconds."""

Value = str | int | float | bool | bytes | list[str] | list[int] | list[bytes]


def text(tokens: int, topic: str = "") -> list[int]:
    """Token ids that mean nothing; the same topic begins with the same ones."""
    return [int.from_bytes(hashlib.blake2b(f"{topic}/{n}".encode(), digest_size=2).digest()) for n in range(tokens)]


def changed(tokens: Sequence[int], *places: int) -> list[int]:
    """The same prompt with other tokens at some places."""
    return [token + 100_000 if place in places else token for place, token in enumerate(tokens)]


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with what an engine hashes beside its tokens. ``seed`` is the process's hash seed."""

    tokens: tuple[int, ...]
    block: int = 16
    salt: str | None = None
    lora: str | None = None
    seed: int = 0

    @property
    def blocks(self) -> int:
        return len(self.tokens) // self.block

    def extras(self, index: int) -> list[str] | None:
        kinds = [self.lora] if self.lora else []
        kinds += [self.salt] if self.salt and index == 0 else []
        return kinds or None

    def own(self, index: int) -> list[int]:
        return list(self.tokens[index * self.block : (index + 1) * self.block])

    @property
    def keys(self) -> list[int]:
        """Chained block hashes, as vLLM publishes them: unsigned 64-bit integers."""
        above, keys = f"seed {self.seed}", []
        for index in range(self.blocks):
            said = repr((above, self.own(index), self.extras(index)))
            above = hashlib.sha256(said.encode()).hexdigest()
            keys.append(int(above[-16:], 16))
        return keys


def prompt(tokens: Sequence[int], **identity: int | str) -> Prompt:
    return msgspec.convert({"tokens": tuple(tokens), **identity}, Prompt)


class Publisher:
    """One worker's KV-event publisher. ``said`` holds (time, sequence number, payload) in order."""

    def __init__(self, worker: str, rank: int = 0) -> None:
        self.worker = worker
        self.rank = rank
        self.said: list[tuple[float, int, bytes]] = []
        self.next = 0
        self.block = 16

    def batch(self, at: float, *events: dict[str, Any]) -> None:
        """Publish one batch."""
        self.said.append((at, self.next, msgspec.msgpack.encode([EPOCH + at, list(events), self.rank])))
        self.next += 1

    def stored(self, at: float, what: Prompt, first: int = 0, last: int | None = None) -> None:
        """Store blocks ``first`` to ``last`` (exclusive) of a prompt."""
        self.block = what.block
        self.batch(at, stored(what, first, last))

    def removed(self, at: float, what: Prompt, *blocks: int) -> None:
        """Remove blocks of a prompt, the tail first as vLLM does."""
        self.batch(at, *(removed(what.keys[index]) for index in sorted(blocks, reverse=True)))

    def cleared(self, at: float) -> None:
        """Reset the cache."""
        self.batch(at, {"type": "AllBlocksCleared"})

    def restarted(self) -> None:
        """Begin a new life, which shows with its first batch."""
        self.next = 0

    def dropped(self, count: int = 1) -> None:
        """Lose batches on the way."""
        self.next += count

    def stirs(self, at: float) -> None:
        """Publish something that has to do with nothing: the worker is alive."""
        self.batch(at)


def stored(what: Prompt, first: int = 0, last: int | None = None, medium: str = "GPU", **more: Any) -> dict[str, Any]:
    """A ``BlockStored`` event."""
    end = what.blocks if last is None else last
    return {
        "type": "BlockStored",
        "block_hashes": what.keys[first:end],
        "parent_block_hash": what.keys[first - 1] if first else None,
        "token_ids": list(what.tokens[first * what.block : end * what.block]),
        "block_size": what.block,
        "lora_id": 1 if what.lora else None,
        "medium": medium,
        "lora_name": what.lora,
        "extra_keys": [what.extras(index) for index in range(first, end)],
        **more,
    }


def removed(key: int, medium: str = "GPU", **more: Any) -> dict[str, Any]:
    """A ``BlockRemoved`` event of one block."""
    return {"type": "BlockRemoved", "block_hashes": [key], "medium": medium, **more}


class Scene:
    """Publishers and requests. ``verdicts`` plays them in the order of their arrival."""

    def __init__(self, *workers: str, config: str = "{}", confirmed: bool = True, ranks: int = 1) -> None:
        self.config = config
        self.confirmed = confirmed
        self.publishers = {(worker, rank): Publisher(worker, rank) for worker in workers for rank in range(ranks)}
        self.outcomes: list[KvOutcome] = []
        self.outgoing: list[Redacted] = []
        self._spans: list[tuple[float, ResourceSpans]] = []
        self._traces = 0
        self.flow: Pipeline | None = None
        self.connectors = False
        self.references: tuple[Reference, ...] = ()

    def __getitem__(self, worker: str) -> Publisher:
        return self.publishers[worker, 0]

    # --- spans --------------------------------------------------------------------------------------

    def serve(
        self, name: str, worker: str, at: float, what: Prompt, hit: int = 0, *, rank: int = 0, stores: bool = True
    ) -> None:
        """A request of which ``hit`` blocks were found: an engine span, and the stores of the rest."""
        self.engine(name, worker, at, len(what.tokens), rank=rank)
        if stores and hit < what.blocks:
            self.publishers[worker, rank].stored(at + STEP, what, hit)

    def engine(
        self,
        name: str,
        worker: str | None,
        at: float,
        prompt_tokens: int,
        *,
        rank: int | None = None,
        arrives: float | None = None,
        parent: bool = True,
        cached: int | None = None,
    ) -> None:
        """vLLM's ``llm_request`` span of a request looked up at ``at``."""
        attributes: dict[str, Value] = {
            "gen_ai.request.id": f"cmpl-{name}-0",
            "gen_ai.usage.prompt_tokens": prompt_tokens,
            "gen_ai.usage.completion_tokens": 1,
            "gen_ai.latency.time_in_queue": 0.001,
            "gen_ai.latency.time_to_first_token": 0.1,
            "gen_ai.latency.time_in_model_prefill": 0.095,
        }
        if cached is not None:
            attributes["gen_ai.usage.cached_tokens"] = cached
        self._span(name, worker, "llm_request", (at, at + 0.2), attributes, rank=rank, arrives=arrives, parent=parent)

    def lookup(
        self,
        name: str,
        worker: str,
        at: float,
        what: Prompt,
        cached: int | None,
        *,
        rank: int | None = None,
        **more: Any,
    ) -> None:
        """The engine's own word on its lookup, in the input contract; ``cached`` in tokens."""
        said: dict[str, Value] = {
            "prompt_tokens": len(what.tokens),
            "block_size": what.block,
            "expected_keys": [f"{key:016x}" for key in what.keys],
            **more,
        }
        if cached is not None:
            said["cached_tokens"] = cached
        attributes: dict[str, Value] = {f"prefix_cache.lookup.{key}": value for key, value in said.items()}
        attributes["gen_ai.request.id"] = f"cmpl-{name}-0-0a1b2c3d"
        self._span(name, worker, "lookup", (at + 0.003, at + 0.003), attributes, rank=rank)

    def preempted(self, name: str, worker: str, at: float, prompt_tokens: int) -> None:
        """A probe's span of the lookup of a request that had lost its blocks while it ran."""
        said: dict[str, Value] = {"num_tokens": prompt_tokens, "hit_tokens": 0, "block_size": 16, "preempted": True}
        attributes: dict[str, Value] = {f"vllm.prefix_cache.{key}": value for key, value in said.items()}
        attributes["vllm.request.id"] = f"cmpl-{name}-0-0a1b2c3d"
        self._span(name, worker, "lookup", (at, at), attributes)

    def observed(self, name: str, worker: str, at: float, what: Prompt, cached: int, **more: Any) -> None:
        """A request of an engine that reports its lookups: its span, the lookup, and the stores of the rest."""
        self.serve(name, worker, at, what, cached // what.block)
        self.lookup(name, worker, at, what, cached, **more)

    def route(self, name: str, at: float, **said: Any) -> None:
        """A router's decision on a request, in the input contract."""
        attributes = {f"prefix_cache.route.{key}": value for key, value in said.items()}
        self._span(name, None, "route", (at, at + 0.001), attributes, parent=False)

    def offload(self, name: str, at: float, **said: Any) -> None:
        """A tier's outcome for a request, in the input contract."""
        attributes = {f"prefix_cache.offload.{key}": value for key, value in said.items()}
        self._span(name, None, "offload", (at, at + 0.01), attributes)

    def usage(self, name: str, at: float, prompt_tokens: int, cached_tokens: int | None) -> None:
        """What a gateway repeats of the engine's answer."""
        attributes: dict[str, Value] = {"llm.token_count.prompt": prompt_tokens, "llm.model_name": "m"}
        if cached_tokens is not None:
            attributes["llm.token_count.prompt_details.cache_read"] = cached_tokens
        self._span(name, None, "ChatCompletion", (at, at + 0.3), attributes, service="ai-gateway", parent=False)

    def _span(
        self,
        name: str,
        worker: str | None,
        kind: str,
        times: tuple[float, float],
        attributes: dict[str, Value],
        *,
        rank: int | None = None,
        arrives: float | None = None,
        parent: bool = True,
        service: str = "engine",
    ) -> None:
        self._traces += 1
        span = Span(
            trace_id=hashlib.blake2b(name.encode(), digest_size=16).digest(),
            span_id=self._traces.to_bytes(8, "big"),
            parent_span_id=b"callers!" if parent else b"",
            name=kind,
            start_time_unix_nano=nanos(times[0]),
            end_time_unix_nano=nanos(times[1]),
            flags=0x300,
            attributes=[_attribute(key, value) for key, value in attributes.items()],
        )
        resource = ResourceSpans()
        resource.resource.attributes.append(_attribute("service.name", service))
        if worker is not None:
            resource.resource.attributes.append(_attribute("prefix_cache.worker", worker))
        if rank is not None:
            resource.resource.attributes.append(_attribute("prefix_cache.rank", rank))
        scope = resource.scope_spans.add()
        scope.scope.name = {"llm_request": "vllm.tracing.otel"}.get(kind, service)
        scope.spans.append(span)
        self._spans.append((times[1] + 1.0 if arrives is None else arrives, resource))

    # --- playing --------------------------------------------------------------------------------------

    def verdicts(self) -> dict[str, Verdict]:
        """Play everything; the verdict of each request by its name."""
        times = [at for publisher in self.publishers.values() for at, _, _ in publisher.said]
        end = max([*times, *(at for at, _ in self._spans)]) + 0.5
        if self.confirmed:
            for publisher in self.publishers.values():
                publisher.stirs(end)
        config = parse(self.config, {})
        flow = self.flow = Pipeline(config, process_key=bytes(32), start_unix_nanos=0)
        flow.adopt(config.redaction, self.references, config.references.scope)
        flow.judged = []
        arrivals: list[tuple[float, int, ResourceSpans | tuple[Publisher, int, bytes]]] = [
            (at + 0.002, 0, (publisher, seq, payload))
            for publisher in self.publishers.values()
            for at, seq, payload in publisher.said
        ]
        arrivals += [(at, 1, span) for at, span in self._spans]
        for at, _, arrival in sorted(arrivals, key=lambda one: one[:2]):
            while flow.next_deadline is not None and flow.next_deadline <= at:
                self.outgoing += flow.advance(flow.next_deadline)
            if isinstance(arrival, ResourceSpans):
                accepted = flow.traces(ExportTraceServiceRequest(resource_spans=[arrival]).SerializeToString(), at)
                self.outgoing += accepted.outgoing
            else:
                self._events(flow, arrival, at)
        while flow.next_deadline is not None:
            self.outgoing += flow.advance(flow.next_deadline)
        self.outgoing += flow.drain()
        return {_name(one.request.spans): one.verdict for one in flow.judged} if self._distinct(flow) else {}

    def _distinct(self, flow: Pipeline) -> bool:
        assert flow.judged is not None
        ids = [one.request.subject.span_id for one in flow.judged]
        assert len(ids) == len(set(ids)), "one verdict a lookup"
        return True

    def _events(self, flow: Pipeline, said: tuple[Publisher, int, bytes], at: float) -> None:
        publisher, seq, payload = said
        source = KvSource(
            name=f"{publisher.worker}/{publisher.rank}", worker=publisher.worker, kv_connector=self.connectors
        )
        frames = [b"", seq.to_bytes(8, "big"), payload]
        self.outcomes.append(flow.kv_frames(source, frames, nanos(at), now=at))

    def verdict(self, name: str) -> Verdict:
        return self.verdicts()[name]


def nanos(at: float) -> int:
    return EPOCH * SECOND + round(at * SECOND)


def _name(spans: Sequence[object]) -> str:
    for span in spans:
        for said in getattr(span, "says", ()):
            request_id = getattr(said, "request_id", None)
            if request_id and str(request_id).startswith("cmpl-"):
                return str(request_id).removeprefix("cmpl-").split("-0")[0]
    return ""


def _attribute(key: str, value: Value) -> KeyValue:
    if isinstance(value, list):
        items = AnyValue()
        items.array_value.values.extend(_attribute("", item).value for item in value)
        return KeyValue(key=key, value=items)
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    if isinstance(value, float):
        return KeyValue(key=key, value=AnyValue(double_value=value))
    if isinstance(value, bytes):
        return KeyValue(key=key, value=AnyValue(bytes_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))
