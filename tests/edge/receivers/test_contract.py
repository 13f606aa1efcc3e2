"""The contract of a receiver: what is acknowledged comes out at least once or is counted by name; nothing is invented.

As the collector's own contract test does it: numbered spans, and a next hop that fails at random, for good or not.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import grpc
import grpc.aio
from hypothesis import event, given, note
from hypothesis import strategies as st

from tests.edge.cores import counted
from tests.edge.doors import call, post
from tests.edge.sink import GrpcFault, HttpFault, Sink
from tests.edge.test_crash import engine_request
from tests.edge.traffic import numbers, traces
from whymiss.config import Config, parse
from whymiss.edge.service import Service, serving

if TYPE_CHECKING:
    from typing import TypeAlias

    Door: TypeAlias = Literal["grpc", "http"]

SPANS_A_REQUEST = 4

# By what an exporter is to do about it: come again, or give the request up.
FLEETING: dict[Door, tuple[GrpcFault | HttpFault, ...]] = {
    "grpc": tuple(
        GrpcFault(code)
        for code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.ABORTED,
            grpc.StatusCode.DATA_LOSS,
        )
    ),
    "http": tuple(HttpFault(status) for status in (0, 429, 502, 503, 504)),
}
FINAL: dict[Door, tuple[GrpcFault | HttpFault, ...]] = {
    "grpc": tuple(
        GrpcFault(code)
        for code in (
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNIMPLEMENTED,
        )
    ),
    "http": tuple(HttpFault(status) for status in (400, 401, 413, 500)),
}


@dataclass(frozen=True)
class Plan:
    """What is sent by which door, and how the next hop fails: the first attempts, in order."""

    requests: tuple[tuple[Door, bytes], ...]
    protocol: Door
    faults: tuple[GrpcFault | HttpFault, ...]
    queue_requests_max: int
    spooled: bool


@st.composite
def plans(draw: st.DrawFn, *, final: bool) -> Plan:
    protocol: Door = draw(st.sampled_from(("grpc", "http")))
    requests: list[tuple[Door, bytes]] = []
    for index in range(draw(st.integers(1, 12))):
        first = index * SPANS_A_REQUEST
        spans = draw(st.integers(1, SPANS_A_REQUEST))
        # What the service holds for its companions is at risk for longer than what it passes through.
        body = engine_request(first) if draw(st.booleans()) else traces(*range(first, first + spans))
        requests.append((draw(st.sampled_from(("grpc", "http"))), body))
    faults = FLEETING[protocol] + (FINAL[protocol] if final else ())
    return Plan(
        tuple(requests),
        protocol,
        tuple(draw(st.lists(st.sampled_from(faults), max_size=15))),
        draw(st.sampled_from((2, 1000))),
        draw(st.booleans()),
    )


def config(plan: Plan, sink: Sink, directory: str) -> Config:
    exporter = (
        f'protocol: http/protobuf, endpoint: "http://127.0.0.1:{sink.http_port}"'
        if plan.protocol == "http"
        else f'endpoint: "127.0.0.1:{sink.grpc_port}", insecure: true'
    )
    text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}}}
exporters:
  sink: {{{exporter}, queue_requests_max: {plan.queue_requests_max}, retry: {{initial_seconds: 0.001, max_seconds: 0.002}}}}
join: {{hold_seconds: 0.05, linger_seconds: 0.01}}
spool: {{directory: {f'"{directory}"' if plan.spooled else "null"}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
    return parse(text, {})


async def send(service: Service, door: Door, body: bytes) -> bool:
    """Whether the request was acknowledged; else a sender was told to come again."""
    if door == "http":
        status = (await post(service.http_port, "/v1/traces", body)).status
        assert status in {200, 503}
        return status == 200
    try:
        await call(service.grpc_port, "traces", body)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


async def carry_out(plan: Plan, directory: str) -> tuple[Counter[int], Counter[int], float]:
    """The spans that were acknowledged, those that came out, and how many were counted as given up."""
    async with Sink() as sink:
        for fault in plan.faults:
            if isinstance(fault, GrpcFault):
                sink.grpc_script.append(fault)
            else:
                sink.http_script.append(fault)
        async with serving(config(plan, sink, directory)) as service:
            answers = await asyncio.gather(*(send(service, door, body) for door, body in plan.requests))
        acknowledged = [body for (_, body), taken in zip(plan.requests, answers, strict=True) if taken]
        given_up = counted(service.measures, "whymiss.exporter.failed_spans")
        assert service.given_up == 0
        assert given_up == 0 or {
            dict(point.labels)["error.type"]
            for metric in service.measures.snapshot()
            if metric.instrument.name == "whymiss.exporter.failed_spans"
            for point in metric.points
        } <= {"refused", "rejected", "too_large", "retries_exhausted"}
        return Counter(numbers(*acknowledged)), Counter(numbers(*(one.body for one in sink.taken))), given_up


def run(plan: Plan) -> tuple[Counter[int], Counter[int], float]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(asyncio.wait_for(carry_out(plan, directory), 60))


@given(plans(final=False))
def test_what_is_acknowledged_comes_out_where_the_next_hop_recovers(plan: Plan) -> None:
    acknowledged, out, given_up = run(plan)
    note(f"acknowledged {sorted(acknowledged)}, out {sorted(out)}")
    assert out.keys() == acknowledged.keys()
    assert given_up == 0


@given(plans(final=True))
def test_what_is_acknowledged_comes_out_or_is_counted_by_name(plan: Plan) -> None:
    acknowledged, out, given_up = run(plan)
    note(f"acknowledged {sorted(acknowledged)}, out {sorted(out)}, {given_up} given up")
    event("some were given up" if given_up else "none was given up")
    assert out.keys() <= acknowledged.keys()
    assert len(acknowledged.keys() - out.keys()) == given_up
