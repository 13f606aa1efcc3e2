"""Whatever becomes of a request's spans, its ticket is held or leaves with them, and in the end is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whymiss.config import parse
from whymiss.pipeline import Pipeline
from whymiss.redaction import Redacted

FOREIGN, ENGINE, NAMELESS = "foreign", "engine", "nameless"


def pipeline(more: str = "") -> Pipeline:
    return Pipeline(parse(f"join: {{open_spans_max: 4}}\n{more}", {}), process_key=bytes(32), start_unix_nanos=0)


def request(spans: list[tuple[str, int]]) -> bytes:
    message = ExportTraceServiceRequest()
    for kind, number in spans:
        scope = message.resource_spans.add().scope_spans.add()
        scope.scope.name = "other" if kind == FOREIGN else "vllm.tracing.otel"
        span = scope.spans.add(name="llm_request", start_time_unix_nano=1 + number, end_time_unix_nano=9 + number)
        if kind != NAMELESS:
            span.trace_id, span.span_id = number.to_bytes(16, "big"), number.to_bytes(8, "big")
        span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 65
    return message.SerializeToString()


spans = st.lists(st.tuples(st.sampled_from([FOREIGN, ENGINE, NAMELESS]), st.integers(1, 5)), max_size=4)
steps = st.lists(st.tuples(spans, st.floats(0, 12)), max_size=10)


@given(steps)
def test_a_ticket_is_held_until_all_of_its_spans_have_left(script: list[tuple[list[tuple[str, int]], float]]) -> None:
    flow = pipeline()
    now, left = 0.0, list[Redacted]()
    known: dict[int, set[int]] = {}
    for ticket, (content, pause) in enumerate(script, 1):
        now += pause
        left += flow.advance(now)
        left += flow.traces(request(content), now, ticket=ticket).outgoing
        known[ticket] = {number for kind, number in content if kind == ENGINE}
        for one, engine in known.items():
            carried = {ticket for item in left for ticket in item.tickets}
            # A span that came twice is owed for by the ticket that it came with first.
            assert flow.holds(one) or one in carried or not engine or any(engine & known[n] for n in known if n < one)
    left += flow.drain()
    assert not any(flow.holds(ticket) for ticket in known)
    assert {ticket for item in left for ticket in item.tickets} <= set(known)
    assert all(item.tickets for item in left)


def test_a_request_without_a_ticket_leaves_without_one() -> None:
    flow = pipeline()
    left = [*flow.traces(request([(FOREIGN, 1), (ENGINE, 2)]), 0.0).outgoing, *flow.drain()]
    assert [item.tickets for item in left] == [(), ()]


def test_what_leaves_together_carries_the_tickets_of_all() -> None:
    flow = pipeline()
    for ticket in (7, 8):
        message = ExportTraceServiceRequest.FromString(request([(ENGINE, ticket)]))
        message.resource_spans[0].scope_spans[0].spans[0].trace_id = bytes([1]) * 16
        flow.traces(message.SerializeToString(), 0.0, ticket=ticket)
    assert flow.holds(7)
    assert flow.holds(8)
    (item,) = flow.drain()
    assert item.tickets == (7, 8)
