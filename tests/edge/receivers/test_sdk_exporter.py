"""The exporters of OpenTelemetry's Python SDK, as applications have them: batched, compressed, by TLS, with a token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
import requests
import trustme
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from tests.edge.cores import counted
from tests.edge.loops import looped
from tests.edge.sinks import GrpcSink
from whymiss.config import parse
from whymiss.edge.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKEN = "a-token-of-some-length"
SPANS = 1000


class Files:
    """An authority and the service's certificate, on disk."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        self.root, self.cert, self.key = directory / "ca.pem", directory / "server.pem", directory / "server.key"
        authority.cert_pem.write_to_path(self.root)
        self.cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def by_grpc(service: Service, files: Files, compression: str) -> SpanExporter:
    return GrpcSpanExporter(
        endpoint=f"https://localhost:{service.grpc_port}",
        credentials=grpc.ssl_channel_credentials(files.root.read_bytes()),
        headers={"authorization": f"Bearer {TOKEN}"},
        compression=grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression,
    )


def by_http(service: Service, files: Files, compression: str) -> SpanExporter:
    session = requests.Session()
    session.trust_env = False  # an authority that the environment names would come before ours
    return HttpSpanExporter(
        session=session,
        endpoint=f"https://127.0.0.1:{service.http_port}/v1/traces",
        certificate_file=str(files.root),
        headers={"Authorization": f"Bearer {TOKEN}"},
        compression=Compression(compression),
    )


def send(exporter: SpanExporter) -> bool:
    """Work as an application does, and say whether all spans were sent."""
    provider = TracerProvider(shutdown_on_exit=False)
    processor = BatchSpanProcessor(exporter, max_export_batch_size=100, max_queue_size=2 * SPANS)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("a test")
    for number in range(SPANS):
        with tracer.start_as_current_span(f"work {number}") as span:
            span.set_attribute("number", number)
            span.add_event("something", {"at": number})
    flushed = provider.force_flush()
    provider.shutdown()
    return flushed


MAKERS = [(by_grpc, "none"), (by_grpc, "gzip"), (by_http, "none"), (by_http, "gzip"), (by_http, "deflate")]


@pytest.mark.parametrize(("make", "compression"), MAKERS)
def test_every_span_of_an_application_comes_out_once(
    files: Files, make: Callable[[Service, Files, str], SpanExporter], compression: str
) -> None:
    tls = f'tls: {{cert_file: "{files.cert}", key_file: "{files.key}"}}'

    @looped
    async def scene() -> None:
        async with GrpcSink() as sink:
            text = f"""
receivers:
  grpc: {{endpoint: "127.0.0.1:0", {tls}}}
  http: {{endpoint: "127.0.0.1:0", {tls}}}
  bearer_tokens: [{TOKEN}]
exporters: {{sink: {{endpoint: "127.0.0.1:{sink.port}", insecure: true}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
"""
            async with serving(parse(text, {})) as service:
                assert await asyncio.to_thread(send, make(service, files, compression))
                spans = await sink.wait_for_spans(SPANS)
                assert sorted(span.name for span in spans) == sorted(f"work {number}" for number in range(SPANS))
                assert counted(service.measures, "whymiss.receiver.accepted_spans") == SPANS
                assert counted(service.measures, "whymiss.receiver.refused_connections") == 0

    scene()
