"""What a held request costs in memory beside its bytes, and what joining costs in time.

100,000 open requests of one stock vLLM span each. Memory is what tracemalloc counts between before and after, less
the spans' own bytes; the peer in the same run keeps the same spans as parsed protobuf messages in a dictionary
of lists by trace id, as a processor without the wire's techniques would.
"""

from __future__ import annotations

import os
import platform
import time
import tracemalloc

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from whymiss.config import JoinConfig
from whymiss.dialects.registry import candidates, claim, identify
from whymiss.join import SPAN_OVERHEAD_BYTES, Joiner
from whymiss.model import Envelope, ResourceIdentity
from whymiss.model import Span as Claimed
from whymiss.wire.fields import resource_attributes, scope_name
from whymiss.wire.split import split

REQUESTS = 100_000
SECOND = 1_000_000_000


def engine_request(number: int) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "vllm"
    scope = resource.scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    span = scope.spans.add(name="llm_request", trace_id=os.urandom(16), span_id=os.urandom(8), flags=0x300)
    span.start_time_unix_nano = number * SECOND
    span.end_time_unix_nano = number * SECOND + SECOND
    for name in ("time_to_first_token", "e2e", "time_in_queue", "time_in_model_prefill", "time_in_model_decode"):
        span.attributes.add(key=f"gen_ai.latency.{name}").value.double_value = 0.1
    for name in ("prompt_tokens", "completion_tokens"):
        span.attributes.add(key=f"gen_ai.usage.{name}").value.int_value = 1000
    span.attributes.add(key="gen_ai.request.id").value.string_value = f"cmpl-{number:032x}-0"
    return request.SerializeToString()


identities: dict[bytes, ResourceIdentity] = {}


def claimed(body: bytes, envelopes: dict[bytes, Envelope]) -> Claimed:
    ((envelope, (raw,)),) = split(body)
    shared = envelopes.setdefault(envelope.resource + envelope.scope, envelope)
    resource = identities.get(shared.resource) or identities.setdefault(
        shared.resource, identify(resource_attributes(shared))
    )
    span = claim(raw, shared, resource, candidates(scope_name(shared), raw))
    assert span is not None, "a stock span is claimed"
    return span


def main() -> None:
    bodies = [engine_request(number) for number in range(REQUESTS)]
    envelopes: dict[bytes, Envelope] = {}
    joiner = Joiner(JoinConfig(open_spans_max=2 * REQUESTS, open_bytes_max=2**32))
    own_bytes = sum(len(claimed(body, envelopes).raw) for body in bodies[:1000]) / 1000

    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for body in bodies:
        joiner.accept([claimed(body, envelopes)], 0.0)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = (after - before) / REQUESTS - own_bytes

    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    parsed: dict[bytes, list[Span]] = {}
    for body in bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    parsed.setdefault(span.trace_id, []).append(span)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    peer = (after - before) / REQUESTS

    spans = [claimed(body, envelopes) for body in bodies]
    timed = Joiner(JoinConfig(open_spans_max=2 * REQUESTS, open_bytes_max=2**32))
    begin = time.perf_counter()
    for one in spans:
        timed.accept([one], 0.0)
    accepted = time.perf_counter() - begin
    begin = time.perf_counter()
    released = len(timed.expire(1e9))
    expired = time.perf_counter() - begin

    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {REQUESTS:,} open requests"
    )
    print(
        f"held beside the span's own {own_bytes:.0f} bytes : {held:8.0f} bytes a span (counted as {SPAN_OVERHEAD_BYTES})"
    )
    print(f"  peer: parsed messages, upb memory not seen : {peer:8.0f} bytes a span")
    print(f"accept  : {accepted / REQUESTS * 1e6:6.1f} µs a span")
    print(f"release : {expired / released * 1e6:6.1f} µs a request")


if __name__ == "__main__":
    main()
