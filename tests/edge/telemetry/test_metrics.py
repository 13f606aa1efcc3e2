"""Metrics over real loopback sockets: scraped by a client, pushed to a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp
import grpc
import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.openmetrics import parser

from whymiss.config import TelemetryConfig
from whymiss.edge.telemetry.metrics_page import MetricsPage
from whymiss.edge.telemetry.metrics_push import Collect, OtlpMetricsPush, Temporality
from whymiss.edge.telemetry.prometheus import Exposition, Format
from whymiss.edge.telemetry.resource import own_resource
from whymiss.edge.telemetry.site import Site
from whymiss.measures import Dimensions, Measures, MetricSnapshot
from whymiss.model import Cause, Owner, Verdict

RESOURCE = own_resource()
METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


def measures() -> Measures:
    return Measures(dimensions=(), values_max=100, series_max=2000, start_unix_nanos=1)


def late_spans(request: ExportMetricsServiceRequest) -> list[int]:
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    return [point.as_int for one in metrics if one.name == "whymiss.spans.late" for point in one.sum.data_points]


class Receiver:
    """An OTLP/HTTP server that answers with the given codes in turn, the last one for ever."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.requests: list[ExportMetricsServiceRequest] = []
        self.arrived = asyncio.Condition()

    async def export(self, request: web.Request) -> web.Response:
        received = ExportMetricsServiceRequest.FromString(await request.read())
        async with self.arrived:
            self.requests.append(received)
            self.arrived.notify_all()
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        return web.Response(status=code, content_type="application/x-protobuf")

    async def seen(self, number: int) -> None:
        async with asyncio.timeout(20), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= number)


@asynccontextmanager
async def served(receiver: Receiver) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/metrics", receiver.export)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def push_to(
    endpoint: str,
    collect: Collect,
    *,
    protocol: Literal["grpc", "http/protobuf"] = "http/protobuf",
    interval_seconds: float = 3600,
    temporality: Temporality = "cumulative",
) -> OtlpMetricsPush:
    config = TelemetryConfig(otlp_endpoint=endpoint, otlp_protocol=protocol, otlp_interval_seconds=interval_seconds)
    return OtlpMetricsPush(config, collect, RESOURCE, temporality=temporality)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("", "text/plain"), ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text")],
)
def test_scrape_gets_the_format_that_it_asks_for(accept: str, content_type: str) -> None:
    async def run() -> tuple[str, str]:
        seen = measures()
        seen.count("whymiss.spans.claimed", 3, dialect="vllm")
        server = Site("127.0.0.1:0", MetricsPage(seen.in_turn, RESOURCE).routes)
        await server.start()
        url = f"http://127.0.0.1:{server.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, headers={"Accept": accept}) as response:
            answer = response.headers["Content-Type"], await response.text()
        await server.stop()
        return answer

    given_type, text = asyncio.run(run())
    assert given_type.startswith(content_type)
    assert 'whymiss_spans_claimed_total{dialect="vllm"} 3\n' in text
    if accept:
        metrics = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        assert {metric.name for metric in metrics} >= {"target", "whymiss_spans_claimed"}


def test_scrape_is_compressed_on_request() -> None:
    async def run() -> list[tuple[str | None, bytes]]:
        server = Site("127.0.0.1:0", MetricsPage(measures().in_turn, RESOURCE).routes)
        await server.start()
        url, answers = f"http://127.0.0.1:{server.port}/metrics", []
        async with aiohttp.ClientSession() as session:
            for coding in ("gzip", "identity"):
                async with session.get(url, headers={"Accept-Encoding": coding}) as response:
                    answers.append((response.headers.get("Content-Encoding"), await response.read()))
        await server.stop()
        return answers

    (packed, from_packed), (plain, text) = asyncio.run(run())
    assert (packed, plain) == ("gzip", None)
    assert from_packed == text
    assert b"whymiss_spans_late_total 0\n" in text


def test_head_is_answered_without_a_body() -> None:
    async def run() -> tuple[int, bytes, int]:
        server = Site("127.0.0.1:0", MetricsPage(measures().in_turn, RESOURCE).routes)
        await server.start()
        url = f"http://127.0.0.1:{server.port}/metrics"
        async with aiohttp.ClientSession() as session:
            async with session.head(url) as response:
                head = response.status, await response.read()
            async with session.get(url) as response:
                status = response.status
        await server.stop()
        return *head, status

    assert asyncio.run(run()) == (200, b"", 200)


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_others_on_the_loop_have_their_turn_while_a_scrape_is_written(coding: str) -> None:
    seen = Measures(dimensions=("model",), values_max=300, series_max=300, start_unix_nanos=1)
    for number in range(250):
        hit = Verdict(cause=Cause.NONE, owner=Owner.NONE, prompt_tokens=64, cached_tokens=48, recomputed_tokens=16)
        seen.observe(hit, Dimensions(model=f"{number:03}" * 40), first_token_seconds=1.0)
    portions = [*Exposition(RESOURCE).portions(seen.snapshot(), Format.TEXT)]
    turns = 0

    async def run() -> int:
        server = Site("127.0.0.1:0", MetricsPage(show, RESOURCE).routes)
        await server.start()
        url = f"http://127.0.0.1:{server.port}/metrics"
        headers = {"Accept-Encoding": coding}
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            counted = turns
            await response.read()
        ticking.clear()
        await server.stop()
        return counted

    ticking: list[asyncio.Handle] = []

    def tick() -> None:
        nonlocal turns
        turns += 1
        if ticking:
            ticking[0] = asyncio.get_running_loop().call_soon(tick)

    def show() -> Iterator[MetricSnapshot]:
        ticking.append(asyncio.get_running_loop().call_soon(tick))
        return seen.in_turn()

    assert len(portions) > 5
    assert asyncio.run(run()) >= len(portions)


def test_stop_pushes_once_more() -> None:
    async def run() -> list[ExportMetricsServiceRequest]:
        receiver, seen = Receiver(200), measures()
        async with served(receiver) as endpoint:
            push = push_to(endpoint, seen.snapshot)
            await push.start()
            seen.count("whymiss.spans.late", 5)
            await push.stop()
            await push.stop()
        return receiver.requests

    (request,) = asyncio.run(run())
    assert late_spans(request) == [5]
    resource = {pair.key: pair.value.string_value for pair in request.resource_metrics[0].resource.attributes}
    assert resource == RESOURCE


def test_push_is_periodic() -> None:
    async def run() -> int:
        receiver = Receiver(200)
        async with served(receiver) as endpoint:
            push = push_to(endpoint, measures().snapshot, interval_seconds=0.001)
            await push.start()
            await receiver.seen(3)
            await push.stop()
        return len(receiver.requests)

    assert asyncio.run(run()) >= 4


@pytest.mark.parametrize(("temporality", "known"), [("delta", sum), ("cumulative", max)])
def test_push_that_is_refused_is_made_good_by_the_next(
    temporality: Temporality, known: Callable[[list[int]], int]
) -> None:
    async def run() -> list[int]:
        receiver, seen = Receiver(400, 200), measures()
        async with served(receiver) as endpoint:
            push = push_to(endpoint, seen.snapshot, interval_seconds=0.001, temporality=temporality)
            seen.count("whymiss.spans.late", 2)
            await push.start()
            await receiver.seen(2)
            seen.count("whymiss.spans.late", 1)
            await push.stop()
        return [told for request in receiver.requests for told in late_spans(request)]

    refused, *delivered = asyncio.run(run())
    assert (refused, known(delivered)) == (2, 3)


def test_push_without_news_is_not_sent() -> None:
    async def run() -> int:
        receiver = Receiver(200)
        async with served(receiver) as endpoint:
            push = push_to(endpoint, measures().snapshot, temporality="delta")
            await push.start()
            await push.stop()
        return len(receiver.requests)

    assert asyncio.run(run()) == 0


def test_collecting_that_fails_does_not_end_the_pushes() -> None:
    async def run() -> int:
        receiver, seen = Receiver(200), measures()
        failures = iter([ValueError("once")])

        def collect(reader: str | None) -> tuple[MetricSnapshot, ...]:
            for failure in failures:
                raise failure
            return seen.snapshot(reader)

        async with served(receiver) as endpoint:
            push = push_to(endpoint, collect, interval_seconds=0.001)
            await push.start()
            await receiver.seen(1)
            await push.stop()
        return len(receiver.requests)

    assert asyncio.run(run()) >= 1


def test_stop_does_not_wait_for_a_receiver_that_is_away() -> None:
    async def run() -> float:
        async with served(Receiver(200)) as endpoint:
            away = endpoint
        push = push_to(away, measures().snapshot)
        await push.start()
        loop = asyncio.get_running_loop()
        before = loop.time()
        await push.stop(patience_seconds=0.05)
        return loop.time() - before

    assert asyncio.run(run()) < 5


def test_grpc_receiver_gets_the_same() -> None:
    received: list[ExportMetricsServiceRequest] = []

    def export(request: ExportMetricsServiceRequest, _: grpc.ServicerContext) -> ExportMetricsServiceResponse:
        received.append(request)
        return ExportMetricsServiceResponse()

    service, method = METHOD.strip("/").split("/")
    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {
        method: grpc.unary_unary_rpc_method_handler(
            export,
            request_deserializer=ExportMetricsServiceRequest.FromString,
            response_serializer=ExportMetricsServiceResponse.SerializeToString,
        )
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def run() -> None:
        seen = measures()
        seen.count("whymiss.spans.late", 4)
        push = push_to(f"http://127.0.0.1:{port}", seen.snapshot, protocol="grpc")
        await push.start()
        await push.stop()

    asyncio.run(run())
    server.stop(None).wait()
    assert [*map(late_spans, received)] == [[4]]


def test_every_process_is_another_instance() -> None:
    assert own_resource()["service.instance.id"] != own_resource()["service.instance.id"]
