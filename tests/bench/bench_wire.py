"""What the wire costs, against a full parse with opentelemetry-proto in the same run.

Run it by itself (``python tests/bench/bench_wire.py``) or with ``make bench``. All cases take turns
in each round, so that a busy moment hits them alike.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping

import google.protobuf
import msgspec
import pytest
from google.protobuf.json_format import MessageToDict, Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from whymiss.model import Attribute
from whymiss.wire.fields import is_readable, read_span, span_ids
from whymiss.wire.json_in import traces_from_json
from whymiss.wire.splice import splice
from whymiss.wire.split import assemble, span_count, split, upb_in_use

SPANS, ATTRIBUTES, ROUNDS = 512, 15, 30
VERDICT: Mapping[str, Attribute] = {
    "prefix_cache.miss.cause": "evicted",
    "prefix_cache.miss.owner": "platform",
    "prefix_cache.miss.evidence": "direct",
    "prefix_cache.prompt_tokens": 4096,
    "prefix_cache.cached_tokens": 1024,
}
SECRETS = ("cache_salt", "prefix_cache.lookup.*", "gen_ai.request.attribute.3")


def request() -> ExportTraceServiceRequest:
    """A request as a batching SDK sends it: one resource and scope, a third each of texts, integers, floats."""
    made = ExportTraceServiceRequest()
    resource_spans = made.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = "vllm"
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "vllm.llm_engine"
    for number in range(SPANS):
        span = scope_spans.spans.add(
            trace_id=(number + 1).to_bytes(16, "big"),
            span_id=(number + 1).to_bytes(8, "big"),
            parent_span_id=bytes(7) + b"\x01",
            name="llm_request",
            kind=Span.SPAN_KIND_SERVER,
            start_time_unix_nano=1_760_000_000_000_000_000 + number,
            end_time_unix_nano=1_760_000_001_000_000_000 + number,
            flags=0x300,
        )
        for attribute in range(ATTRIBUTES):
            value = span.attributes.add(key=f"gen_ai.request.attribute.{attribute}").value
            if attribute % 3 == 0:
                value.string_value = f"text of some length {number} {attribute}"
            elif attribute % 3 == 1:
                value.int_value = number * 100 + attribute
            else:
                value.double_value = number / 7
        event = span.events.add(name="first_token", time_unix_nano=1_760_000_000_500_000_000 + number)
        event.attributes.add(key="tokens").value.int_value = number
    return made


def as_json(made: ExportTraceServiceRequest) -> tuple[bytes, bytes]:
    """The request in OTLP/JSON, and as ``json_format`` wants it (ids in base64)."""
    written = MessageToDict(made, use_integers_for_enums=True)
    for_json_format = json.dumps(written).encode()
    spans = made.resource_spans[0].scope_spans[0].spans
    for span, fields in zip(spans, written["resourceSpans"][0]["scopeSpans"][0]["spans"], strict=True):
        fields |= {
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            "parentSpanId": span.parent_span_id.hex(),
        }
    return json.dumps(written).encode(), for_json_format


def read_fully(body: bytes) -> list[dict[str, object]]:
    """What a receiver does that parses everything and makes dictionaries of the attributes."""
    return [
        {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in span.attributes}
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def append_fully(body: bytes) -> bytes:
    """The same five attributes by way of protobuf's own messages."""
    made = ExportTraceServiceRequest.FromString(body)
    for span in made.resource_spans[0].scope_spans[0].spans:
        for key, value in VERDICT.items():
            added = span.attributes.add(key=key).value
            if isinstance(value, str):
                added.string_value = value
            elif isinstance(value, int):
                added.int_value = value
    return made.SerializeToString()


def append(body: bytes) -> bytes:
    return assemble([(envelope, [splice(raw, VERDICT) for raw in spans]) for envelope, spans in split(body)])


def cases() -> dict[str, Callable[[], object]]:
    made = request()
    body = made.SerializeToString()
    raws = split(body)[0].spans
    in_json, for_json_format = as_json(made)
    replaced = {**VERDICT, "gen_ai.request.attribute.3": "new"}
    assert ExportTraceServiceRequest.FromString(append(body)) == ExportTraceServiceRequest.FromString(
        append_fully(body)
    )
    assert ExportTraceServiceRequest.FromString(traces_from_json(in_json)) == made
    print(f"{len(body) / SPANS:.0f} B a span in protobuf, {len(in_json) / SPANS:.0f} B in JSON")
    return {
        "full parse": lambda: ExportTraceServiceRequest.FromString(body),
        "full parse + attributes as dicts": lambda: read_fully(body),
        "full parse + append 5 + serialise": lambda: append_fully(body),
        "span_count": lambda: span_count(body),
        "split": lambda: split(body),
        "split + assemble": lambda: assemble(split(body)),
        "split + append 5 + assemble": lambda: append(body),
        "span_ids": lambda: [span_ids(raw) for raw in raws],
        "is_readable": lambda: [is_readable(raw) for raw in raws],
        "read_span": lambda: [read_span(raw) for raw in raws],
        "splice: append 5": lambda: [splice(raw, VERDICT) for raw in raws],
        "splice: append 5, replace 1": lambda: [splice(raw, replaced) for raw in raws],
        "splice: append 5, remove 1 of 3 names": lambda: [splice(raw, VERDICT, remove=SECRETS) for raw in raws],
        "JSON: msgspec to dicts, no more": lambda: msgspec.json.decode(in_json),
        "JSON: traces_from_json": lambda: traces_from_json(in_json),
        "JSON: json_format": lambda: Parse(for_json_format, ExportTraceServiceRequest()),
    }


@pytest.mark.bench
def test_speed() -> None:
    measured: dict[str, list[float]] = {}
    todo = cases()
    print(
        f"{SPANS} spans a request, {ATTRIBUTES} attributes and 1 event a span; {ROUNDS} rounds, one thread\n"
        f"Python {platform.python_version()}, protobuf {google.protobuf.__version__} "
        f"({'upb' if upb_in_use() else 'not upb'}), msgspec {msgspec.__version__}, "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    for _ in range(ROUNDS):
        for name, run in todo.items():
            began = time.perf_counter()
            run()
            measured.setdefault(name, []).append(time.perf_counter() - began)
    print(f"{'':40} {'best ms':>8} {'median':>8} {'us/span':>8} {'spans/s':>11} {'x full parse':>13}")
    parse = min(measured["full parse"])
    for name, seconds in measured.items():
        best = min(seconds)
        print(
            f"{name:40} {best * 1e3:8.2f} {statistics.median(seconds) * 1e3:8.2f} {best / SPANS * 1e6:8.2f} "
            f"{SPANS / best:11,.0f} {best / parse:13.2f}"
        )


if __name__ == "__main__":
    test_speed()
