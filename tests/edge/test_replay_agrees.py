"""What a running service exported of a recorded day is what a replay of the recording says, byte for byte."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from tests.edge.loops import looped
from tests.edge.publisher import Publisher
from tests.edge.sinks import GrpcSink
from tests.recordings.plays import folder
from whymiss.config import parse
from whymiss.edge.otlp_names import METHODS
from whymiss.edge.service import Service, serving
from whymiss.ledger.decode.message import Frame, parse_frames
from whymiss.ledger.ledger import Ledger
from whymiss.pipeline import Pipeline
from whymiss.redaction import Signal
from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay
from whymiss.wire.fields import read_span
from whymiss.wire.split import split

NUMBERS = ("02", "03", "05", "08")


def judging(endpoint: str) -> str:
    """What both are told. A span is judged at the end of its hold, and by then all has come."""
    return f"""
kv_events: {{sources: [{{endpoint: '{endpoint}'}}]}}
workers: {{sole_source: true}}
redaction: {{digest_key: 'a key of these tests'}}
join: {{hold_seconds: 300}}
"""


def spans_of(*bodies: bytes) -> dict[tuple[bytes, bytes], bytes]:
    """Encoded spans by trace and span id."""
    encoded = [span for body in bodies for group in split(body) for span in group.spans]
    return {((fields := read_span(span)).trace_id, fields.span_id): span for span in encoded}


def heard(service: Service) -> list[int]:
    """The number of the last batch of each stream."""
    core = service.core
    assert isinstance(core, Pipeline)
    assert isinstance(core.ledger, Ledger)
    return [known.last for _, known in core.ledger.numbered()]


async def played_live(recording: Recording) -> dict[tuple[bytes, bytes], bytes]:
    """What a service exports that hears a recording from sockets: the events first, and then the spans."""
    async with Publisher() as publisher, GrpcSink() as sink:
        around = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{sink.port}", insecure: true}}}}
telemetry: {{metrics_endpoint: "127.0.0.1:0"}}
health: {{endpoint: "127.0.0.1:0"}}
"""
        async with serving(parse(around + judging(publisher.endpoint), {})) as service:
            last = parse_frames(recording.kv_events[-1].frames)
            assert isinstance(last, Frame), "a recording ends with a batch"
            await publisher.subscribed()
            for message in recording.kv_events:
                await publisher.send(*message.frames)
            async with asyncio.timeout(20):
                while heard(service) != [last.seq]:  # noqa: ASYNC110 - the ledger tells nobody
                    await asyncio.sleep(0)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
                export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHODS[Signal.TRACES])
                for request in recording.otlp:
                    await export(request.body)
    return spans_of(*sink.bodies[Signal.TRACES])


@pytest.mark.parametrize("number", NUMBERS)
@looped
async def test_a_replay_says_what_the_service_exported(number: str) -> None:
    recording = Recording(folder(number))
    replay = Replay(recording, parse(judging("tcp://127.0.0.1:5557"), {}))
    replay.play()
    recomputed = spans_of(*(item.body for item in replay.outgoing))
    exported = await played_live(recording)
    assert exported.keys() == recomputed.keys()
    assert sum(b"prefix_cache.miss.cause" in span for span in exported.values()) > 5
    assert any(b"prefix_cache.first_miss.digest" in span for span in exported.values())
    assert exported == recomputed
