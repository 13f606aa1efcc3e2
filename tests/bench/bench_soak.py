"""A real service under a steady rate of lookups and KV events: does its memory stay flat, and does it keep up?

The KV events are those of an engine whose cache is full: each request stores its blocks and removes as many old ones.
The record is kept for a tenth of the time, so that it is full early: after that, and the five minutes for which late
events are waited for. What comes before is not judged, in runs that are long enough.
Run with ``make bench``, or by itself (``PYTHONPATH=. python tests/bench/bench_soak.py --minutes 60``).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections import deque
from dataclasses import dataclass, field

import msgspec
import zmq
import zmq.asyncio
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.outside import Outside, outside, slope, sparkline
from whymiss.ledger.retention import LATE_SECONDS

BLOCKS = 32
BLOCK_TOKENS = 16
RESIDENT_REQUESTS = 500
"""Requests whose blocks fit into the engine's cache."""

BATCH = 10
"""Lookups in one request, and foreign spans beside them."""

WARM = 0.3
"""Part of the time that is not judged in short runs."""

NANOS = 1_000_000_000


def keys_of(number: int) -> list[int]:
    return [(number * BLOCKS + block) * 2_654_435_761 % 2**64 for block in range(BLOCKS)]


def events(number: int, at: float) -> bytes:
    """What the engine says once it has computed a prompt."""
    stored = {
        "type": "BlockStored",
        "block_hashes": keys_of(number),
        "parent_block_hash": None,
        "token_ids": [number * 7 + token for token in range(BLOCKS * BLOCK_TOKENS)],
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    batch: list[object] = [stored]
    if number >= RESIDENT_REQUESTS:
        removed = {"type": "BlockRemoved", "block_hashes": keys_of(number - RESIDENT_REQUESTS), "medium": "GPU"}
        batch.insert(0, removed)
    return msgspec.msgpack.encode([at, batch, 0])


def spans(first: int, finished: list[float]) -> bytes:
    """The engine's spans of some requests, and as many that no dialect claims."""
    request = ExportTraceServiceRequest()
    engine = request.resource_spans.add().scope_spans.add()
    engine.scope.name = "vllm.tracing.otel"
    others = request.resource_spans.add().scope_spans.add()
    for number, end in enumerate(finished, first):
        span = engine.spans.add(name="llm_request", trace_id=os.urandom(16), flags=0x300)
        span.span_id = (number + 1).to_bytes(8, "big")
        span.start_time_unix_nano = round((end - 0.1) * NANOS)
        span.end_time_unix_nano = round(end * NANOS)
        for key, value in (
            ("gen_ai.latency.time_to_first_token", 0.05),
            ("gen_ai.latency.time_in_queue", 0.001),
            ("gen_ai.latency.time_in_model_prefill", 0.04),
        ):
            span.attributes.add(key=key).value.double_value = value
        span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = BLOCKS * BLOCK_TOKENS + 1
        span.attributes.add(key="gen_ai.request.id").value.string_value = f"cmpl-{number}-0"
        other = others.spans.add(name="db.query", trace_id=span.trace_id, span_id=os.urandom(8), flags=0x301)
        other.attributes.add(key="db.statement").value.string_value = "select " + "x" * 300
    return request.SerializeToString()


@dataclass
class Hop:
    """Takes everything, keeps nothing but the delays of the spans that were held."""

    sent: dict[int, float] = field(default_factory=dict)
    delays: deque[float] = field(default_factory=deque)
    count: int = 0
    twice: int = 0

    async def take(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        now = time.monotonic()
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                self.count += len(scope.spans)
                for span in scope.spans:
                    if span.name == "llm_request":
                        self._note(int.from_bytes(span.span_id, "big") - 1, now)
        return web.Response(content_type="application/x-protobuf")

    def _note(self, number: int, now: float) -> None:
        sent = self.sent.pop(number, None)
        if sent is None:
            self.twice += 1  # an answer of ours that came too late
        else:
            self.delays.append(now - sent)


@dataclass
class Load:
    """Lookups at a steady rate; what is late is made up for at once."""

    service: Outside
    publisher: zmq.asyncio.Socket
    hop: Hop
    per_second: float
    sent: int = 0
    refused: int = 0
    over: bool = False

    async def run(self) -> None:
        """Send until it is over, and then what is left."""
        begun = time.monotonic()
        finished: list[float] = []
        async with asyncio.TaskGroup() as group:
            while not self.over or finished:
                await asyncio.sleep(max(0.0, begun + self.sent / self.per_second - time.monotonic()))
                now = time.time()
                await self.publisher.send_multipart(
                    [b"kv@engine@m", self.sent.to_bytes(8, "big"), events(self.sent, now - 0.055)]
                )
                self.hop.sent[self.sent] = time.monotonic()
                finished.append(now)
                self.sent += 1
                if len(finished) == BATCH:
                    group.create_task(self._send(self.sent - BATCH, finished))
                    finished = []

    async def _send(self, first: int, finished: list[float]) -> None:
        if await self.service.send(spans(first, finished)) != 200:
            self.refused += 1
            for number in range(first, first + BATCH):
                self.hop.sent.pop(number, None)


@dataclass
class Row:
    minutes: float
    resident_mib: float
    held_mib: float
    record_mib: float
    processor: float
    lookups: float
    spans: float
    kv_lag_ms: float
    delay_seconds: float
    unknown: float


async def row(load: Load, begun: float, last: dict[str, float]) -> Row:
    """Look, and take what has been counted since the last look."""
    found = await load.service.totals()
    seconds = time.monotonic() - begun
    found |= {"processor": load.service.cpu_seconds(), "spans": load.hop.count, "at": seconds}
    passed = max(seconds - last.get("at", 0.0), 1e-3)

    def rate(name: str) -> float:
        return (found.get(name, 0.0) - last.get(name, 0.0)) / passed

    delays, load.hop.delays = sorted(load.hop.delays), deque()
    lookups = rate("prefix_cache_requests_total")
    made = Row(
        minutes=seconds / 60,
        resident_mib=load.service.resident_mib(),
        held_mib=sum(found[f"whymiss_memory_held_bytes{{{part}}}"] for part in ("receiving", "join", "queue")) / 2**20,
        record_mib=found["whymiss_memory_held_bytes{record}"] / 2**20,
        processor=100 * rate("processor"),
        lookups=lookups,
        spans=rate("spans"),
        kv_lag_ms=1000 * found.get("whymiss_ledger_lag_seconds", 0.0),
        delay_seconds=delays[len(delays) * 99 // 100] if delays else 0.0,
        unknown=100 * rate("prefix_cache_unknown_total") / lookups if lookups else 0.0,
    )
    last.update(found)
    print(
        f"{made.minutes:6.2f} {made.resident_mib:8.1f} {made.held_mib:8.2f} {made.record_mib:10.1f} {made.processor:5.1f} "
        f"{made.lookups:9.1f} {made.spans:7.1f} {made.kv_lag_ms:10.1f} {made.delay_seconds:11.2f} {made.unknown:9.1f}",
        flush=True,
    )
    return made


def window_of(minutes: float) -> float:
    """How long the record is kept, in seconds."""
    return max(5.0, minutes * 6)


def full_after(minutes: float) -> float:
    """When as much is forgotten as is learned, in minutes; in short runs a part of them."""
    full = (2 * window_of(minutes) + LATE_SECONDS) / 60  # what is over goes with the segment that it is in
    return full if full < 0.8 * minutes else WARM * minutes


async def measure(minutes: float, per_second: float) -> None:
    hop, rows, last = Hop(), list[Row](), dict[str, float]()
    step = max(2.0, minutes * 2)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/traces", hop.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    context = zmq.asyncio.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.set(zmq.SNDHWM, 0)
    kv_port = publisher.bind_to_random_port("tcp://127.0.0.1")
    text = f"""
exporters: {{hop: {{protocol: http/protobuf, endpoint: "http://127.0.0.1:{runner.addresses[0][1]}"}}}}
kv_events: {{sources: [{{endpoint: "tcp://127.0.0.1:{kv_port}"}}]}}
workers: {{sole_source: engine}}
ledger: {{window_seconds: {window_of(minutes)}}}
join: {{hold_seconds: 2, linger_seconds: 1, remembered_seconds: {max(5.0, min(60.0, minutes * 6))}}}
"""
    async with outside(text) as service:
        await publisher.recv()  # the subscription
        load = Load(service, publisher, hop, per_second)
        begun = time.monotonic()
        sending = asyncio.create_task(load.run())
        print("   min  rss MiB held MiB record MiB cpu % lookups/s spans/s kv lag ms p99 delay s unknown %")
        while time.monotonic() - begun < minutes * 60:
            await asyncio.sleep(step)
            rows.append(await row(load, begun, last))
        load.over = True
        await sending
    await runner.cleanup()
    context.destroy(linger=0)
    show(rows, load)


def show(rows: list[Row], load: Load) -> None:
    judged = [one for one in rows if one.minutes >= full_after(rows[-1].minutes)]
    times = [one.minutes for one in judged]
    for name, unit in (
        ("resident_mib", "MiB"),
        ("record_mib", "MiB"),
        ("kv_lag_ms", "ms"),
        ("delay_seconds", "s"),
        ("lookups", "/s"),
    ):
        values = [getattr(one, name) for one in judged]
        print(
            f"{name:>13} {sparkline([getattr(one, name) for one in rows])}  {min(values):,.2f} to {max(values):,.2f} {unit}, "
            f"slope {60 * slope(times, values):+,.2f} {unit} an hour"
        )
    print(
        f"{load.sent} lookups sent ({load.sent / rows[-1].minutes / 60:.1f}/s), {load.refused * BATCH} refused, {len(load.hop.sent)} did not come out, {load.hop.twice} came twice"
    )
    assert not load.hop.sent, "every lookup comes out"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--rate", type=float, default=100.0, help="lookups a second")
    chosen = options.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {chosen.rate:g} lookups/s, "
        f"each with {BLOCKS} blocks stored and as many removed, for {chosen.minutes:g} min"
    )
    asyncio.run(measure(chosen.minutes, chosen.rate))


if __name__ == "__main__":
    main()
