"""``whymiss demo``: a recording of a real vLLM through the real service, over real sockets.

A publisher of KV events and an OTLP client play the recording against the service on loopback, an OTLP sink
takes the collector's place, and what the engine said is shown beside what whymiss says of it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import aiohttp
import grpc
import zmq
import zmq.asyncio
from rich import box
from rich.console import Console
from rich.table import Table

from ..config import Config, parse
from ..edge.service import Service
from ..errors import BadInput
from ..model import Attribute
from ..wire.fields import read_span
from ..wire.split import split
from .recording import KvMessage, OtlpRequest, Recording

RECORDING = Path(__file__).resolve().parents[3] / "tests" / "captures" / "01-vanilla-sha256-bytes"
SPEED = 20.0
"""Recorded seconds a second."""
PATIENCE_SECONDS = 30.0
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

CONFIG = """
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: null}}}}
exporters: {{next_hop: {{protocol: grpc, endpoint: "127.0.0.1:{sink}", insecure: true}}}}
join: {{hold_seconds: 1, linger_seconds: 0.3}}
kv_events: {{sources: [{{endpoint: "tcp://127.0.0.1:{events}"}}]}}
workers: {{sole_source: true}}
telemetry: {{metrics_endpoint: "127.0.0.1:0", log_level: warning}}
health: {{endpoint: "127.0.0.1:0"}}
"""

NUMBERS = frozenset({"prompt", "engine: cached", "lost"})
STYLES = {"none": "dim", "new_content": "dim", "no_recent_match": "", "unknown": ""}
"""Causes without an entry are highlighted, because somebody has to act on them."""

Seen = Mapping[str, Attribute]


class Sink:
    """The next hop: an OTLP/gRPC receiver that keeps what arrives."""

    def __init__(self) -> None:
        self.spans: dict[str, Seen] = {}
        self._arrived = asyncio.Condition()
        self._server = grpc.aio.server()
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        export: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._export)
        service, _, method = EXPORT.strip("/").partition("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: export}),))

    async def _export(self, body: bytes, context: object) -> bytes:
        del context
        async with self._arrived:
            for group in split(body):
                for raw in group.spans:
                    span = read_span(raw)
                    if "prefix_cache.miss.cause" in span.attributes:
                        self.spans[span.span_id.hex()] = {"trace_id": span.trace_id.hex(), **span.attributes}
            self._arrived.notify_all()
        return b""

    async def start(self) -> None:
        """Listen."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop(None)

    async def wait_for(self, count: int) -> None:
        """Wait until so many judged spans have arrived. Raises ``TimeoutError``."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: len(self.spans) >= count)


async def _play(recording: Recording, config: Config, publisher: zmq.asyncio.Socket, sink: Sink) -> str:
    """Play the recording against a running service; returns its /metrics text."""
    expected = sum(request.body.count(b"llm_request") for request in recording.otlp)
    async with Service(config) as service:
        # The subscription arrives when the service is connected: nothing published before is lost.
        async with asyncio.timeout(PATIENCE_SECONDS):
            await publisher.recv()
        arrivals: list[KvMessage | OtlpRequest] = [*recording.kv_events, *recording.otlp]
        arrivals.sort(key=lambda one: one.received_unix_nanos)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
            export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
            before = arrivals[0].received_unix_nanos
            for arrival in arrivals:
                await asyncio.sleep((arrival.received_unix_nanos - before) / 1e9 / SPEED)
                before = arrival.received_unix_nanos
                if isinstance(arrival, KvMessage):
                    await publisher.send_multipart(arrival.frames)
                else:
                    await export(arrival.body)
        await sink.wait_for(expected)
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{service.metrics_port}/metrics") as answer,
        ):
            return await answer.text()


async def _demo(recording: Recording) -> tuple[dict[str, Seen], str]:
    sink = Sink()
    await sink.start()
    context = zmq.asyncio.Context()
    publisher = context.socket(zmq.XPUB)
    try:
        events = publisher.bind_to_random_port("tcp://127.0.0.1")
        config = parse(CONFIG.format(sink=sink.port, events=events), {})
        return sink.spans, await _play(recording, config, publisher, sink)
    finally:
        publisher.close(linger=0)
        context.term()
        await sink.stop()


def run(*, directory: Path | None = None, out: TextIO = sys.stdout) -> int:
    """Play a recording (by default the project's own) and show what came of it.

    Raises ``BadInput`` when the recording is not there or cannot be read.
    """
    chosen = directory or RECORDING
    if not chosen.is_dir():
        raise BadInput(f"{chosen}: the recording is not there; name one: whymiss demo --recording DIR")
    recording = Recording(chosen)
    spans, metrics = asyncio.run(_demo(recording))
    console = Console(file=out, highlight=False, width=118)
    _show_requests(console, spans, _said(chosen))
    _show_metrics(console, metrics)
    _show_span(console, spans)
    return 0


def _said(directory: Path) -> Mapping[str, Mapping[str, str | int | None]]:
    """What the engine's API answered, by trace id."""
    summary = directory / "summary.jsonl"
    lines = summary.read_text().splitlines() if summary.is_file() else []
    return {line["trace_id"]: line for line in map(json.loads, lines) if line.get("trace_id")}


def _show_requests(
    console: Console, spans: Mapping[str, Seen], said: Mapping[str, Mapping[str, str | int | None]]
) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="What the engine said, and why", title_justify="left")
    for heading in ("request", "prompt", "engine: cached", "whymiss: cause", "owner", "reason", "lost"):
        table.add_column(heading, justify="right" if heading in NUMBERS else "left", no_wrap=True)
    of_trace = Counter(str(seen["trace_id"]) for seen in spans.values())
    for seen in sorted(spans.values(), key=_order):
        trace = str(seen["trace_id"])
        cached = _cell(said.get(trace, {}).get("cached_tokens"))
        cause = str(seen["prefix_cache.miss.cause"])
        table.add_row(
            _name(seen),
            _cell(seen.get("gen_ai.usage.prompt_tokens")),
            f"{cached} in sum" if of_trace[trace] > 1 else cached,
            cause,
            _cell(seen.get("prefix_cache.miss.owner")),
            _cell(seen.get("prefix_cache.miss.reason")),
            _cell(seen.get("prefix_cache.lost_tokens")),
            style=STYLES.get(cause, "bold"),
        )
    console.print(table)


def _order(seen: Seen) -> tuple[str, str]:
    request_id = str(seen.get("gen_ai.request.id")).removeprefix("chat")
    return request_id, str(seen.get("prefix_cache.miss.cause"))


def _name(seen: Seen) -> str:
    """``cmpl-req-05-salt-0`` is the recording's ``salt-0``."""
    return re.sub(r"^(chat)?cmpl-(req-\d+-)?", "", str(seen.get("gen_ai.request.id", "-")))


def _cell(value: Attribute) -> str:
    return "" if value is None or isinstance(value, bytes) else str(value)


def _show_metrics(console: Console, metrics: str) -> None:
    console.print("Class metrics (/metrics), summed over all labels but these\n")
    for sample, value in class_sums(metrics).items():
        console.print(f"  {sample} {value:g}", highlight=False, markup=False, soft_wrap=True)
    console.print()


def class_sums(metrics: str) -> dict[str, float]:
    """The class metrics of a Prometheus text by cause, owner and reason alone."""
    wanted = ("prefix_cache_misses_total", "prefix_cache_lost_tokens_total", "prefix_cache_unknown_total")
    sums: dict[str, float] = {}
    for line in metrics.splitlines():
        if line.startswith(wanted):
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("}")
            kept = [pair for pair in labels.split(",") if pair.split("=")[0] in {"cause", "owner", "reason"}]
            sample = f"{name}{{{','.join(kept)}}}"
            sums[sample] = sums.get(sample, 0.0) + float(value)
    return sums


def _show_span(console: Console, spans: Mapping[str, Seen]) -> None:
    chosen: Sequence[Seen] = [seen for seen in spans.values() if seen["prefix_cache.miss.cause"] == "evicted"]
    if not chosen:
        return
    seen = chosen[0]
    console.print(
        f"One span as it left: llm_request {_cell(seen.get('gen_ai.request.id'))}, trace {_cell(seen['trace_id'])}\n"
    )
    for key, value in seen.items():
        if key.startswith("prefix_cache."):
            console.print(f"  {key} = {_cell(value)}")
