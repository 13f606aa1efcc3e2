"""A real service with real traffic: a recording of vLLM over ZMQ and gRPC, one next hop that takes and one that is dead."""

from __future__ import annotations

import functools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import msgspec
import zmq
import zmq.asyncio

from tests.edge.doors import post
from tests.edge.loops import looped
from tests.edge.sink import Sink
from tests.edge.traffic import BODIES, traces
from whymiss.config import Config, parse
from whymiss.edge.service import Service, serving
from whymiss.redaction import Signal
from whymiss.tools.recording import Recording

patient = functools.partial(looped, seconds=120.0)
"""For tests that start a browser, or wait for verdicts, on a machine that is busy with others."""

RECORDING = Path(__file__).parents[2] / "captures" / "01-vanilla-sha256-bytes"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
HOSTILE = "<img src=x onerror=\"document.title='broken'\"></table><script>document.title='broken'</script>" + "x" * 400
"""What a publisher may call its worker."""

SECRETS = ("0123-bearer-of-clients", "path-with-a-tenant", "Basic of-the-next-hop", "0123-key-of-digests")
"""What the configuration knows and nobody may read: also in the path of an address there may be a secret."""


def config(sink: Sink, events: int, dead: int) -> Config:
    return parse(
        f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}, bearer_tokens: ["{SECRETS[0]}"]}}
exporters:
  collector: {{endpoint: "127.0.0.1:{sink.grpc_port}", insecure: true}}
  archive:
    protocol: http/protobuf
    endpoint: "http://127.0.0.1:{dead}/{SECRETS[1]}"
    headers: {{authorization: "{SECRETS[2]}"}}
    retry: {{initial_seconds: 30}}
join: {{hold_seconds: 2, linger_seconds: 0.2}}
kv_events:
  sources:
    - {{endpoint: "tcp://127.0.0.1:{events}", default_worker: vllm-replica-0, rank: 0}}
    - {{endpoint: "tcp://127.0.0.1:{dead}", worker: vllm-replica-0, rank: 1}}
workers: {{sole_source: vllm-replica-0}}
redaction: {{digest_key: "{SECRETS[3]}"}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: "127.0.0.1:0"}}
shutdown: {{deadline_seconds: 0.2}}
""",
        {},
    )


@asynccontextmanager
async def busy_service() -> AsyncIterator[Service]:
    """Everything that the recording holds has been judged and sent when this begins."""
    recording = Recording(RECORDING)
    with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as publisher, socket.socket() as taken:
        publisher.linger = 0
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        events, dead = publisher.bind_to_random_port("tcp://127.0.0.1"), taken.getsockname()[1]
        async with Sink() as sink, serving(config(sink, events, dead)) as service:
            await publisher.recv()  # the subscription has arrived
            for message in recording.kv_events:
                await publisher.send_multipart(message.frames)
            await publisher.send_multipart([f"kv@{HOSTILE}@m".encode(), (0).to_bytes(8, "big"), _batch()])
            await _send(service, recording)
            await sink.until_spans(sum(one.body.count(b"llm_request") for one in recording.otlp) + 3, within_seconds=60)
            yield service


async def _send(service: Service, recording: Recording) -> None:
    bearer = f"Bearer {SECRETS[0]}"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
        for request in recording.otlp:
            await export(request.body, metadata=[("authorization", bearer)])
    for path, body, status in (
        ("/v1/traces", traces(1, 2, 3), 200),
        ("/v1/logs", BODIES[Signal.LOGS], 200),
        ("/v1/traces", b"\xff", 400),
    ):
        assert (await post(service.http_port, path, body, authorization=bearer)).status == status


def _batch() -> bytes:
    """A batch of events without an event."""
    return msgspec.msgpack.encode([1_795_965_357.0, []])
