from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import grpc
import grpc.aio
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.edge.cores import PassingCore
from tests.edge.doors import call, post
from tests.edge.hosted import free_port
from tests.edge.loops import looped
from tests.edge.publisher import Publisher
from tests.edge.sink import GrpcFault, Sink
from tests.edge.traffic import BODIES, numbers, traces
from whymiss.config import Config, parse
from whymiss.edge.service import Service, serving, spare_collections

if TYPE_CHECKING:
    from whymiss.redaction import Redacted


def config(sink: Sink, *, more: str = "", exporter: str = "", deadline: float = 5) -> Config:
    """Everything on ports of the system's choice, and a sink to send to."""
    text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}}}
exporters:
  sink: {{endpoint: "127.0.0.1:{sink.grpc_port}", insecure: true, retry: {{initial_seconds: 0.01}} {exporter}}}
telemetry: {{metrics_endpoint: "127.0.0.1:0"}}
health: {{endpoint: "127.0.0.1:0"}}
shutdown: {{deadline_seconds: {deadline}}}
{more}
"""
    return parse(text, {})


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


@looped
async def test_every_signal_comes_out_as_it_went_in() -> None:
    async with Sink() as sink:
        async with serving(config(sink)) as service:
            for signal_, body in BODIES.items():
                await call(service.grpc_port, signal_, body)
                await post(service.http_port, f"/v1/{signal_}", body)
        assert numbers(*(one.body for one in sink.taken if one.signal == "traces")) == [0, 0]
        assert sorted(one.body for one in sink.taken if one.signal != "traces") == sorted(
            [BODIES["metrics"], BODIES["logs"]] * 2  # type: ignore[index]
        )


@pytest.mark.parametrize("transport", ["grpc", "http"])
@looped
async def test_the_spans_of_a_real_sdk_come_out(transport: str) -> None:
    def send(service: Service) -> None:
        exporter = (
            GrpcSpanExporter(endpoint=f"127.0.0.1:{service.grpc_port}", insecure=True)
            if transport == "grpc"
            else HttpSpanExporter(endpoint=f"http://127.0.0.1:{service.http_port}/v1/traces")
        )
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        for number in range(700):  # more than one batch
            provider.get_tracer("sdk").start_span(f"work {number}").end()
        provider.shutdown()

    async with Sink() as sink:
        async with serving(config(sink)) as service:
            await asyncio.to_thread(send, service)
        assert sorted(span.name for span in sink.spans()) == sorted(f"work {number}" for number in range(700))


@looped
async def test_every_destination_gets_everything() -> None:
    async with Sink() as one, Sink() as two:
        settings = config(
            one, exporter=f"}}\n  two: {{protocol: http/protobuf, endpoint: 'http://127.0.0.1:{two.http_port}'"
        )
        async with serving(settings) as service:
            await call(service.grpc_port, "traces", traces(1, 2, 3))
        assert numbers(one.taken[0].body) == numbers(two.taken[0].body) == [1, 2, 3]


@looped
async def test_the_shutdown_sends_all_that_was_held_and_queued() -> None:
    core = PassingCore(hold_seconds=600)
    async with Sink() as sink:
        async with serving(config(sink), core) as service:
            for number in range(50):
                await post(service.http_port, "/v1/traces", traces(number))
            assert sink.attempts == []
        assert sorted(numbers(*(one.body for one in sink.taken))) == list(range(50))
        assert service.given_up == 0


@looped
async def test_nothing_accepted_is_lost_where_the_next_hop_fails_at_times() -> None:
    async with Sink() as sink:
        sink.grpc_script.extend([GrpcFault(grpc.StatusCode.UNAVAILABLE)] * 7)
        async with serving(config(sink)) as service:
            await asyncio.gather(*(call(service.grpc_port, "traces", traces(number)) for number in range(40)))
        assert sorted(numbers(*(one.body for one in sink.taken))) == list(range(40))


@looped
async def test_refusals_by_the_next_hop_do_not_wear_the_exporter_out() -> None:
    async with Sink() as sink:
        sink.grpc_script.extend([GrpcFault(grpc.StatusCode.PERMISSION_DENIED)] * 15)
        async with serving(config(sink)) as service:
            for number in range(16):
                await call(service.grpc_port, "traces", traces(number))
                await sink.until_attempts(number + 1)
            await sink.until_taken(1)
        assert numbers(sink.taken[0].body) == [15]


@looped
async def test_a_dead_next_hop_does_not_hold_the_shutdown_beyond_its_deadline() -> None:
    async with Sink() as sink:
        sink.gate.clear()
        loop = asyncio.get_running_loop()
        async with serving(config(sink, deadline=0.3)) as service:
            await call(service.grpc_port, "traces", traces(1))
            began = loop.time()
        assert loop.time() - began < 3
        assert service.given_up == 1


@looped
async def test_what_is_held_leaves_when_it_is_due() -> None:
    async with Sink() as sink, serving(config(sink), PassingCore(hold_seconds=0.05)) as service:
        await call(service.grpc_port, "traces", traces(1))
        await sink.until_spans(1)


@looped
async def test_a_full_queue_refuses_on_both_doors_until_there_is_room() -> None:
    async with Sink() as sink:
        sink.gate.clear()
        async with serving(config(sink, exporter=", queue_requests_max: 1")) as service:
            await call(service.grpc_port, "traces", traces(1))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(service.grpc_port, "traces", traces(2))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert (await post(service.http_port, "/v1/traces", traces(2))).status == 503
            sink.gate.set()
            await sink.until_taken(1)
            while (await post(service.http_port, "/v1/traces", traces(3))).status == 503:
                pass
        assert numbers(*(one.body for one in sink.taken)) == [1, 3]


@dataclass
class BrokenCore(PassingCore):
    """Cannot drain."""

    def drain(self) -> tuple[Redacted, ...]:
        raise ZeroDivisionError


@looped
async def test_a_stage_that_raises_while_draining_does_not_stop_the_stopping() -> None:
    async with Sink() as sink:
        sink.gate.clear()
        async with serving(config(sink), BrokenCore()) as service:
            await call(service.grpc_port, "traces", traces(1))
            sink.gate.set()
        assert numbers(sink.taken[0].body) == [1]
        with pytest.raises(OSError):  # noqa: PT011 - the operating system's own words
            await asyncio.open_connection("127.0.0.1", service.http_port)


@looped
async def test_an_address_in_use_undoes_what_had_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with Sink() as sink:
            grpc_port, metrics_port, health_port = free_port(), free_port(), free_port()
            text = f"""
receivers:
  grpc: {{endpoint: "127.0.0.1:{grpc_port}"}}
  http: {{endpoint: "127.0.0.1:{taken.getsockname()[1]}"}}
exporters: {{sink: {{endpoint: "127.0.0.1:{sink.grpc_port}", insecure: true}}}}
telemetry: {{metrics_endpoint: "127.0.0.1:{metrics_port}"}}
health: {{endpoint: "127.0.0.1:{health_port}"}}
"""
            with pytest.raises(OSError, match="Address already in use"):
                async with serving(parse(text, {})):
                    pass
            for port in (grpc_port, metrics_port, health_port):
                with pytest.raises(OSError):  # noqa: PT011 - the operating system's own words
                    await asyncio.open_connection("127.0.0.1", port)


def test_what_was_made_to_start_is_collected_no_more() -> None:
    try:
        spare_collections()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


@looped
async def test_probes_and_metrics_tell_how_it_is() -> None:
    async with Sink() as sink, Publisher() as publisher:
        more = f'kv_events: {{sources: [{{endpoint: "{publisher.endpoint}", worker: w}}]}}'
        async with serving(config(sink, more=more)) as service:
            assert (await get(service.health_port, "/readyz"))[0] == 200
            await publisher.subscribed()
            await call(service.grpc_port, "traces", traces(1, 2))
            await sink.until_spans(2)
            metrics = ""
            while "exporter_sent_spans" not in metrics:  # the sink has the spans before we have its answer
                metrics = (await get(service.metrics_port, "/metrics"))[1]
    for line in (
        'whymiss_receiver_accepted_requests_total{transport="grpc",signal="traces"} 1\n',
        'whymiss_receiver_accepted_spans_total{transport="grpc"} 2\n',
        'whymiss_exporter_sent_spans_total{exporter="sink"} 2\n',
        'whymiss_exporter_queue_capacity{exporter="sink"} 1000\n',
    ):
        assert line in metrics


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@looped
async def test_a_signal_drains_and_ends_the_process_well(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Sink() as sink:
        text = f"""
receivers: {{grpc: {{endpoint: null}}, http: {{endpoint: "127.0.0.1:{port}"}}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{sink.grpc_port}", insecure: true}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "whymiss", "run", "--config", "-",
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(text.encode())
        process.stdin.close()
        while b"running" not in await process.stderr.readline():
            pass
        assert (await post(port, "/v1/traces", traces(5))).status == 200
        process.send_signal(number)
        assert await process.wait() == 0
        assert numbers(*(one.body for one in sink.taken)) == [5]
