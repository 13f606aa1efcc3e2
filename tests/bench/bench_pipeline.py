"""What the whole core costs: foreign spans passed through, and lookups judged, in one process on one core.

The peer in the same run is the least that an OTLP processor in Python does without the wire's tricks: parse
the request with opentelemetry-proto and serialise it again. Run with ``make bench`` or by itself.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whymiss.config import parse
from whymiss.pipeline import KvSource, Pipeline

ROUNDS = 7
SPANS = 512
BLOCKS = 64
BLOCK_TOKENS = 16
SECOND = 1_000_000_000
BEGIN = 1_800_000_000
CONFIG = "{workers: {sole_source: true}, kv_events: {sources: [{endpoint: 'tcp://127.0.0.1:5557'}]}}"


def flow() -> Pipeline:
    return Pipeline(parse(CONFIG, {}), process_key=bytes(range(32)), start_unix_nanos=0)


def foreign_request() -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(SPANS):
        span = scope.spans.add(name="db.query", trace_id=os.urandom(16), span_id=os.urandom(8), flags=0x301)
        for index in range(15):
            span.attributes.add(key=f"attribute.number.{index}").value.string_value = f"value {number} {index}"
    return request.SerializeToString()


def stored(request: int) -> bytes:
    keys = [(request * 1000 + block) * 2_654_435_761 % 2**64 for block in range(BLOCKS)]
    event = {
        "type": "BlockStored",
        "block_hashes": keys,
        "parent_block_hash": None,
        "token_ids": list(range(request, request + BLOCKS * BLOCK_TOKENS)),
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    return msgspec.msgpack.encode([BEGIN + request + 0.5, [event], 0])


def engine_requests(first: int, count: int) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    for number in range(first, first + count):
        span = scope.spans.add(name="llm_request", trace_id=os.urandom(16), span_id=os.urandom(8), flags=0x300)
        span.start_time_unix_nano = (BEGIN + number) * SECOND
        span.end_time_unix_nano = (BEGIN + number) * SECOND + SECOND * 9 // 10
        for key, value in (
            ("gen_ai.latency.time_to_first_token", 0.6),
            ("gen_ai.latency.time_in_queue", 0.001),
            ("gen_ai.latency.time_in_model_prefill", 0.5),
        ):
            span.attributes.add(key=key).value.double_value = value
        span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = BLOCKS * BLOCK_TOKENS + 1
        span.attributes.add(key="gen_ai.request.id").value.string_value = f"cmpl-{number}-0"
    return request.SerializeToString()


def timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def pass_through() -> tuple[float, float]:
    body, one = foreign_request(), flow()

    def peer() -> None:
        ExportTraceServiceRequest.FromString(body).SerializeToString()

    def whymiss() -> None:
        one.traces(body, 0.0)

    ours = [timed(whymiss) for _ in range(ROUNDS * 10)]
    theirs = [timed(peer) for _ in range(ROUNDS * 10)]
    return SPANS / statistics.median(ours), SPANS / statistics.median(theirs)


def judged(requests: int) -> float:
    """Lookups a second, KV events, claim, join, verdict and redaction included."""
    frames = [[b"kv@engine@m", number.to_bytes(8, "big"), stored(number)] for number in range(requests)]
    bodies = [engine_requests(first, 64) for first in range(0, requests, 64)]
    one, source = flow(), KvSource(name="one")

    def work() -> None:
        for message in frames:
            one.kv_frames(source, message, 0)
        for body in bodies:
            one.traces(body, 0.0)
        one.advance(100.0)
        one.drain()

    return requests / timed(work)


def main() -> None:
    cores = os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}; medians, one process")
    ours, theirs = pass_through()
    print(f"foreign spans passed through, {SPANS} a request, 15 attributes each: {ours:12,.0f} spans/s")
    print(f"  peer: parse and serialise with opentelemetry-proto           : {theirs:12,.0f} spans/s")
    rates = [judged(2048) for _ in range(3)]
    print(
        f"lookups judged, {BLOCKS} new blocks each, derived evidence        : {statistics.median(rates):12,.0f} lookups/s"
    )


if __name__ == "__main__":
    main()
