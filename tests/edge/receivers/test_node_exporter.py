"""The exporters of OpenTelemetry for Node send, and what they sent comes out as it was."""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.edge.loops import looped
from tests.edge.sinks import GrpcSink
from whymiss.config import parse
from whymiss.edge.service import Service, serving
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NODE = Path(__file__).parent / "node"
TOKEN = "a-token-of-some-length"


@pytest.fixture
def modules() -> Path:
    """Where ``install.sh`` has put the exporters."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    lock = hashlib.sha256((NODE / "package-lock.json").read_bytes()).hexdigest()[:16]
    target = cache / "whymiss-node" / lock
    if not (target / ".installed").exists():
        reason = "the exporters for Node are not installed: run tests/edge/receivers/node/install.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return target / "node_modules"


@asynccontextmanager
async def running(sink: GrpcSink) -> AsyncIterator[Service]:
    text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}, bearer_tokens: [{TOKEN}]}}
exporters: {{sink: {{endpoint: "127.0.0.1:{sink.port}", insecure: true}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
    async with sink, serving(parse(text, {})) as service:
        yield service


async def send(modules: Path, kind: str, url: str, token: str = TOKEN) -> tuple[int, str]:
    """Run the sender, and return how it ended and what it complained of."""
    sender = await asyncio.create_subprocess_exec(
        "node", str(NODE / "send.cjs"), kind, url, token,
        env=dict(os.environ) | {"NODE_PATH": str(modules)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await sender.communicate()
    assert sender.returncode is not None
    return sender.returncode, said.decode()


def url_of(service: Service, kind: str) -> str:
    return (
        f"http://127.0.0.1:{service.grpc_port}" if kind == "grpc" else f"http://127.0.0.1:{service.http_port}/v1/traces"
    )


@pytest.mark.server("node")
@pytest.mark.parametrize("kind", ["proto", "json", "grpc"])
def test_what_node_sends_comes_out_as_it_was(modules: Path, kind: str) -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            assert await send(modules, kind, url_of(service, kind)) == (0, "")
            await sink.wait_for_spans(3)
        request = ExportTraceServiceRequest()
        for body in sink.bodies[Signal.TRACES]:
            request.MergeFromString(body)
        assert {one.resource.attributes[0].value.string_value for one in request.resource_spans} == {"node"}
        spans = [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
        assert sorted(span.name for span in spans) == ["work 0", "work 1", "work 2"]
        for number, span in enumerate(sorted(spans, key=lambda span: span.name)):
            values = {attribute.key: attribute.value for attribute in span.attributes}
            assert values["number"].int_value == number
            assert values["half"].double_value == 0.5
            assert values["yes"].bool_value
            assert [one.string_value for one in values["words"].array_value.values] == ["a", "ü"]
            assert values["large"].int_value == 2**53 - 1
            assert (len(span.trace_id), len(span.span_id)) == (16, 8)
            assert span.links[0].trace_id.hex() == "ab" * 16
            assert span.events[0].attributes[0].value.int_value == number
            assert (span.status.code, span.status.message) == (2, "on purpose")

    looped(scene, 60)()


@pytest.mark.server("node")
@pytest.mark.parametrize("kind", ["proto", "grpc"])
def test_node_hears_that_its_token_is_wrong(modules: Path, kind: str) -> None:
    async def scene() -> None:
        sink = GrpcSink()
        async with running(sink) as service:
            code, said = await send(modules, kind, url_of(service, kind), "another-token-of-length")
            assert code == 1
            assert "bearer" in said.lower()
        assert sink.spans() == []

    looped(scene, 60)()
