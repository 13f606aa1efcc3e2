from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.edge.traffic import logs, numbers, traces
from whymiss.edge.exporters.portions import divide

REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=6), st.integers(0, 400)), max_size=5
)


@given(requests=REQUESTS, bytes_max=st.integers(50, 3000))
def test_every_span_is_in_one_portion_under_its_own_resource_and_scope(
    requests: list[tuple[list[int], int]], bytes_max: int
) -> None:
    body = b"".join(traces(*spans, padding=padding) for spans, padding in requests)
    portions = divide(body, bytes_max)
    assert numbers(*portions) == numbers(body)
    for portion in portions:
        for resource in ExportTraceServiceRequest.FromString(portion).resource_spans:
            assert resource.schema_url == "r"
            assert resource.resource.attributes[0].value.string_value == "sender"
            assert all((scope.scope.name, scope.schema_url) == ("test", "s") for scope in resource.scope_spans)


@given(requests=REQUESTS, bytes_max=st.integers(50, 3000))
def test_a_portion_exceeds_the_limit_only_with_a_single_span(
    requests: list[tuple[list[int], int]], bytes_max: int
) -> None:
    body = b"".join(traces(*spans, padding=padding) for spans, padding in requests)
    for portion in divide(body, bytes_max):
        assert len(portion) <= bytes_max or len(numbers(portion)) == 1


def test_a_request_within_the_limit_stays_as_it_is() -> None:
    body = traces(1, 2, 3)
    assert divide(body, len(body)) == [body]


def test_logs_are_cut_the_same_way() -> None:
    body = logs() * 10
    portions = divide(body, len(body) // 3)
    assert len(portions) > 2
    assert b"".join(portions) == body
    assert all(len(ExportLogsServiceRequest.FromString(portion).resource_logs) for portion in portions)


@given(body=st.binary(max_size=200), bytes_max=st.integers(1, 100))
def test_what_is_no_request_raises_nothing_and_loses_nothing_at_the_top(body: bytes, bytes_max: int) -> None:
    assert divide(body, bytes_max)
