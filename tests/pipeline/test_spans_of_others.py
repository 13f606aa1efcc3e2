"""Spans of routers, tiers and frameworks through the pipeline: their part of the verdict, and nothing of theirs that must not leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.dialects.emitted import SECRET, Value, any_value
from tests.dialects.test_dynamo_log import record, request_of
from whymiss.config import parse
from whymiss.pipeline import Pipeline
from whymiss.redaction import Redacted
from whymiss.wire.fields import read_span
from whymiss.wire.split import split

SECOND = 1_000_000_000


def pipeline() -> Pipeline:
    flow = Pipeline(parse("{}", {}), process_key=bytes(32), start_unix_nanos=0)
    flow.judged = []
    return flow


def request(
    scope: str, name: str, attributes: Mapping[str, Value], *, trace: int, number: int, status: str = "", flags: int = 1
) -> bytes:
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add().scope_spans.add()
    group.scope.name = scope
    span = group.spans.add(name=name, trace_id=bytes([trace]) * 16, span_id=bytes([number]) * 8, flags=0x100 | flags)
    span.start_time_unix_nano, span.end_time_unix_nano = SECOND, 3 * SECOND
    for key, value in attributes.items():
        span.attributes.add(key=key, value=any_value(value))
    if status:
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, status
        span.events.add(name="exception").attributes.add(key="exception.message", value=any_value(status))
    return made.SerializeToString()


def engine(trace: int = 1) -> bytes:
    attributes: dict[str, Value] = {"gen_ai.request.id": "chatcmpl-x", "gen_ai.usage.prompt_tokens": 100}
    return request("vllm.tracing.otel", "llm_request", attributes, trace=trace, number=1)


def lmcache(number: int = 2, **attributes: Value) -> bytes:
    mine = {"session_id": "chatcmpl-x-0123abcd", "cache_salt": SECRET, "transfer_key": SECRET, **attributes}
    return request("lmcache_mp.server", "request", mine, trace=7, number=number)


def spans(outgoing: Sequence[Redacted]) -> dict[str, dict[str, object]]:
    found = [read_span(raw) for item in outgoing for group in split(item.body) for raw in group.spans]
    return {one.name: dict(one.attributes) for one in found}


def test_a_tier_in_another_trace_gets_its_part_of_the_verdict() -> None:
    flow = pipeline()
    flow.traces(engine(), 0.0)
    flow.traces(lmcache(hit_tokens=0), 1.0)
    left = spans(flow.drain())
    assert len(flow.judged or ()) == 1
    assert left["request"]["prefix_cache.miss.cause"] == left["llm_request"]["prefix_cache.miss.cause"]
    assert left["request"]["prefix_cache.remote.lookup"] == "miss"


def test_a_tier_that_comes_late_gets_the_remembered_verdict() -> None:
    flow = pipeline()
    flow.traces(engine(), 0.0)
    flow.advance(9.0)
    left = spans(flow.traces(lmcache(hit_tokens=0), 10.0).outgoing)
    assert left["request"]["prefix_cache.miss.cause"] == "unknown"


def test_a_salt_leaves_as_a_digest_that_is_the_same_each_time() -> None:
    flow = pipeline()
    flow.traces(lmcache(2), 0.0)
    flow.traces(lmcache(3), 0.0)
    outgoing = flow.drain()
    assert all(SECRET.encode() not in item.body for item in outgoing)
    digests = {str(one["cache_salt"]) for one in spans(outgoing).values()}
    assert {len(digest) for digest in digests} == {16}
    assert len(digests) == 1


def test_a_salt_does_not_leave_on_an_unsampled_span_at_all() -> None:
    flow = pipeline()
    flow.traces(request("any", "proxy", {"cache_salt": SECRET}, trace=1, number=1, flags=2), 0.0)
    assert "cache_salt" not in spans(flow.drain())["proxy"]


def test_the_text_of_an_exception_leaves_neither_in_the_event_nor_in_the_status() -> None:
    flow = pipeline()
    flow.traces(
        request("lmcache_mp.timeout", "timeout", {"session_id": "s"}, trace=1, number=1, status=f"at {SECRET}"), 0.0
    )
    assert all(SECRET.encode() not in item.body for item in flow.drain())


def test_a_record_of_dynamo_is_evidence_and_leaves_without_its_payload() -> None:
    flow = pipeline()
    attributes: dict[str, Value] = {"input_tokens": 160, "request_id": "r-1"}
    flow.traces(request("dynamo", "engine.generate", attributes, trace=1, number=1), 0.0)
    accepted = flow.logs(request_of(record()).SerializeToString(), 0.5)
    (left,) = accepted.outgoing
    kept = ExportLogsServiceRequest.FromString(left.body).resource_logs[0].scope_logs[0].log_records[0]
    assert isinstance(kept, LogRecord)
    assert "payload" not in {pair.key for pair in kept.attributes}
    assert list(spans(flow.drain())) == ["engine.generate"]
    assert flow.judged is not None
    (judged,) = flow.judged
    assert judged.request.routes
