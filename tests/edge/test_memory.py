from __future__ import annotations

import asyncio
import errno
import re
import tracemalloc
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.edge.cores import PassingCore, counted
from tests.edge.doors import call, post
from tests.edge.loops import looped
from tests.edge.paces import HeldPace
from tests.edge.sink import Sink
from tests.edge.traffic import numbers, redacted, span, traces
from whymiss.config import Config, ExporterConfig, RetryConfig, parse
from whymiss.edge.exporters.delivery import Deferred, Delivered, Refused, Reply
from whymiss.edge.exporters.exporter import Exporter
from whymiss.edge.exporters.fan_out import FanOut
from whymiss.edge.exporters.owed import ITEM_BYTES, Owed
from whymiss.edge.memory import STEP_BYTES, Limits, Memory, Residence, container_bytes, limits_of
from whymiss.edge.receivers.request_intake import RequestIntake
from whymiss.edge.service import serving
from whymiss.errors import Overloaded
from whymiss.pipeline import Pipeline
from whymiss.redaction import Signal

MIB = 1 << 20
WIDE = Limits(ledger=0, soft=1 << 40, hard=1 << 40, resident=None)


@dataclass
class Fitful:
    """A next hop that answers as its script says, and then takes everything; nothing while the gate is shut."""

    script: deque[Reply] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, signal: Signal, body: bytes) -> Reply:
        del signal, body
        await self.gate.wait()
        return self.script.popleft() if self.script else Delivered()

    async def close(self) -> None:
        pass


@dataclass
class Fixed(Residence):
    """A process of a size that a test chooses."""

    size: int = 0
    after_trim: int | None = None
    trims: int = 0
    failure: OSError | None = None

    def read(self) -> int:
        if self.failure is not None:
            raise self.failure
        return self.size

    def trim(self) -> None:
        self.trims += 1
        if self.after_trim is not None:
            self.size = self.after_trim


class Held:
    """Memory over a core that holds, and destinations that a test opens and shuts."""

    def __init__(
        self, limits: Limits, *scripts: deque[Reply], core: PassingCore | None = None, size: int = 0, trimmed: int = 0
    ) -> None:
        self.core = core or PassingCore()
        self.pace = HeldPace()
        self.hops = [Fitful(script) for script in scripts or (deque(),)]
        retry = RetryConfig(initial_seconds=1, max_seconds=2, max_elapsed_seconds=5)
        config = ExporterConfig(endpoint="next:4317", insecure=True, retry=retry)
        owed = Owed()
        self.exporters = [
            Exporter(f"next{number}", config, hop, self.core.measures, self.pace, ended=owed.ended)
            for number, hop in enumerate(self.hops)
        ]
        self.fan_out = FanOut(self.exporters, owed)
        self.residence = Fixed(size, trimmed or None)
        self.memory = Memory(limits, self.core, self.fan_out, self.pace, self.residence)
        self.intake = RequestIntake(self.core, self.fan_out, self.pace.now, lambda: None, memory=self.memory)

    async def accept(self, body: bytes) -> None:
        await self.intake.accept("http", Signal.TRACES, body)

    async def until_delivered(self) -> None:
        while self.fan_out.held_bytes:
            self.pace.pass_by(0.5)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        stopping = asyncio.create_task(self.fan_out.stop(1000))
        while not stopping.done():
            await asyncio.sleep(0)
            self.pace.pass_by(0.5)
        await stopping

    def refused(self, limit: str) -> float:
        return counted(self.core.measures, "whymiss.memory.refused_requests", limit=limit)


REPLIES = st.sampled_from([Delivered(), Refused("400"), Deferred("503"), Delivered(1, "too old")])
STEPS = st.one_of(
    st.tuples(st.just("accept"), st.integers(0, 3000)),
    st.tuples(st.sampled_from(["advance", "relieve", "pass"]), st.integers(0, 20)),
)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    scripts=st.lists(st.lists(REPLIES, max_size=6), min_size=1, max_size=3),
    hold=st.sampled_from([None, 3.0]),
    soft=st.sampled_from([0, 3000, 1 << 40]),
)
def test_the_sum_is_never_negative_and_zero_once_everything_has_left(
    steps: list[tuple[str, int]], scripts: list[list[Reply]], hold: float | None, soft: int
) -> None:
    @looped
    async def scenario() -> None:
        limits = Limits(ledger=0, soft=soft, hard=1 << 40, resident=None)
        held = Held(limits, *(deque(one) for one in scripts), core=PassingCore(hold))
        for number, (step, size) in enumerate(steps):
            match step:
                case "accept":
                    before = held.memory.held_bytes
                    await held.accept(traces(number, padding=size))
                    assert held.memory.held_bytes > before
                case "advance":
                    held.fan_out.enqueue(held.core.advance(held.pace.now()))
                case "relieve":
                    held.memory.relieve()
                case _:
                    held.pace.pass_by(size / 10)
                    await asyncio.sleep(0)
            assert held.memory.held_bytes >= 0
        held.fan_out.enqueue(held.core.drain())
        await held.stop()
        assert held.memory.held_bytes == 0

    scenario()


@looped
async def test_what_destinations_share_is_counted_once_until_the_last_has_it() -> None:
    held = Held(WIDE, deque(), deque())
    first, second = held.hops
    first.gate.clear()
    second.gate.clear()
    body = traces(1, padding=10_000)
    await held.accept(body)
    assert held.memory.held_bytes == len(body) + ITEM_BYTES
    second.gate.set()
    while held.exporters[1].held_requests:
        held.pace.pass_by(1)
        await asyncio.sleep(0)
    assert held.memory.held_bytes == 2 * len(body) + ITEM_BYTES  # under way to the first one: there is a copy
    first.gate.set()
    await held.stop()
    assert held.memory.held_bytes == 0


@looped
async def test_a_queued_request_is_counted_as_no_less_than_it_takes() -> None:
    held = Held(WIDE)
    held.hops[0].gate.clear()
    bodies = [redacted(number) for number in range(3000)]
    counts, size = len(bodies), sum(len(one.body) for one in bodies)
    del bodies
    tracemalloc.start()
    try:
        held.fan_out.enqueue(redacted(number) for number in range(counts))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size < taken < held.memory.held_bytes < 4 * taken
    held.hops[0].gate.set()
    await held.stop()


@looped
async def test_over_the_soft_limit_the_oldest_go_first_and_only_as_many_as_it_takes() -> None:
    body = traces(0, padding=STEP_BYTES // 4)
    held = Held(Limits(0, soft=6 * len(body), hard=1 << 40, resident=None), core=PassingCore(hold_seconds=100))
    for number in range(8):
        await held.accept(traces(number, padding=STEP_BYTES // 4))
    assert held.memory.is_pressed
    rounds = 0
    while held.memory.relieve():
        await held.until_delivered()
        rounds += 1
    await held.until_delivered()
    left = numbers(*(item.body for _, item in held.core.held))
    assert left == list(range(8 - len(left), 8))
    assert 4 <= len(left) <= 6
    assert rounds <= 2
    assert not held.memory.is_pressed
    await held.stop()


@looped
async def test_a_request_over_the_hard_limit_is_refused_before_anything_of_it_is_taken() -> None:
    body = traces(1, padding=1000)
    held = Held(Limits(0, soft=1 << 40, hard=3 * len(body), resident=None), core=PassingCore(hold_seconds=100))
    for _ in range(3):
        await held.accept(body)
    with pytest.raises(Overloaded, match=r"raise memory\.hard_limit_bytes") as refused:
        await held.accept(body)
    assert refused.value.limit_key == "memory.hard_limit_bytes"
    assert len(held.core.bodies) == 3
    assert held.refused("hard") == 1
    held.core.drain()
    await held.accept(body)
    assert len(held.core.bodies) == 4
    await held.stop()


@looped
async def test_the_record_counts_and_yet_one_request_at_a_time_always_gets_in() -> None:
    held = Held(Limits(0, soft=1 << 40, hard=1000, resident=None), core=PassingCore(100, recorded_bytes=10_000))
    held.memory.look()
    assert held.memory.held_bytes == 10_000
    await held.accept(traces(1))
    with pytest.raises(Overloaded):
        await held.accept(traces(2))
    held.core.drain()
    await held.accept(traces(3))
    await held.stop()


@looped
async def test_resident_memory_refuses_only_while_there_is_something_to_let_go_of() -> None:
    held = Held(Limits(0, soft=1 << 40, hard=1 << 40, resident=16_000), core=PassingCore(100), size=16_001)
    held.memory.look()
    await held.accept(traces(1, padding=500))
    await held.accept(traces(2, padding=500))
    with pytest.raises(Overloaded, match=r"memory\.resident_limit_bytes"):
        await held.accept(traces(3))
    assert held.refused("resident") == 1
    assert held.memory.is_pressed
    while held.memory.relieve():
        pass
    assert held.core.held == []
    await held.stop()
    await held.accept(traces(4))  # as large as ever, and nothing left to let go of
    held.residence.size = 16_000
    held.memory.look()
    await held.accept(traces(5, padding=2000))
    await held.accept(traces(6))


@looped
async def test_freed_memory_is_given_back_at_most_now_and_then() -> None:
    held = Held(Limits(0, soft=1 << 40, hard=1 << 40, resident=1000), size=2000, trimmed=900)
    held.memory.look()
    held.memory.look()
    assert (held.residence.trims, held.residence.size) == (1, 900)
    held.residence.size = 2000
    held.memory.look()
    assert held.residence.trims == 1
    held.pace.pass_by(60)
    held.memory.look()
    assert held.residence.trims == 2


@looped
async def test_while_resident_memory_cannot_be_read_the_last_figure_holds() -> None:
    held = Held(Limits(0, soft=1 << 40, hard=1 << 40, resident=1000), core=PassingCore(100), size=2000)
    held.memory.look()
    held.residence.failure = OSError(errno.EMFILE, "no descriptor is left")
    held.pace.pass_by(60)
    held.memory.look()
    held.memory.gauge()
    assert counted(held.core.measures, "whymiss.process.memory") == 2000
    await held.accept(traces(1, padding=500))
    with pytest.raises(Overloaded, match=r"memory\.resident_limit_bytes"):
        await held.accept(traces(2))
    held.core.drain()
    await held.stop()


def engine_request(number: int) -> bytes:
    """An engine's span, which the core holds for its companions."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    held = scope.spans.add()
    held.CopyFrom(span(number, padding=2000))
    held.name = "llm_request"
    held.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 65
    held.attributes.add(key="gen_ai.request.id").value.string_value = f"cmpl-{number}-0"
    return request.SerializeToString()


def test_what_is_shed_leaves_counted_and_its_verdict_names_no_cause() -> None:
    core = Pipeline(parse("", {}), process_key=bytes(32), start_unix_nanos=0)
    for number in range(10):
        core.traces(engine_request(number), float(number))
    outgoing = core.shed(core.held_bytes // 2, 10.0)
    assert numbers(*(one.body for one in outgoing)) == [0, 1, 2, 3, 4]
    assert counted(core.measures, "whymiss.join.released", reason="shed") == 5
    assert counted(core.measures, "prefix_cache.requests", cause="unknown") == 5
    assert counted(core.measures, "prefix_cache.unknown", reason="partial_trace") == 5
    core.shed(0, 11.0)
    assert core.held_bytes == 0


@given(
    ledger=st.integers(1, 1 << 40),
    joined=st.integers(1, 1 << 40),
    queue=st.integers(64 * MIB, 1 << 40),
    container=st.none() | st.integers(1, 1 << 40),
)
def test_open_limits_are_in_order_and_leave_room_beside_the_record(
    ledger: int, joined: int, queue: int, container: int | None
) -> None:
    text = f"""
ledger: {{bytes_max: {ledger}}}
join: {{open_bytes_max: {joined}}}
exporters: {{a: {{endpoint: "a:1", queue_bytes_max: {queue}}}, b: {{endpoint: "b:1", queue_bytes_max: {queue}}}}}
"""
    limits = limits_of(parse(text, {}), container)
    assert limits.ledger <= limits.soft <= limits.hard
    if container is None:
        parts = ledger + joined + 2 * queue
        assert (limits.ledger, limits.resident) == (ledger, None)
        assert parts < limits.hard < parts + 256 * MIB
    else:
        assert limits.resident is not None
        assert limits.hard <= limits.resident < container
        assert limits.ledger <= limits.resident // 3


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, 1000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a.slice/b.service\n", {"a.slice/b.service/memory.max": "2000", "a.slice/memory.max": "1500"}, 1500),
        ("0::/of/the/host\n", {"memory.max": "3000"}, 3000),
        ("5:cpu:/\n4:memory,x:/c\n0::/\n", {"memory/c/memory.limit_in_bytes": "4000"}, 4000),
        ("4:memory:/c\n", {"memory/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
        (None, {}, None),
    ],
)
def test_the_lowest_limit_of_the_own_cgroup_and_those_above_is_the_containers(
    groups: str | None, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups, encoding="utf-8")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    assert container_bytes(tmp_path) == limit


def test_limits_in_the_file_are_the_limits() -> None:
    text = "memory: {soft_limit_bytes: 2GiB, hard_limit_bytes: 3GiB, resident_limit_bytes: 8GiB}"
    assert limits_of(parse(text, {}), 1 << 40) == Limits(1 << 30, 2 << 30, 3 << 30, 8 << 30)


# --- a real service ---------------------------------------------------------------------------------

FLOOD_HARD = 24 * MIB


def test_resident_memory_is_that_of_a_python_process() -> None:
    assert 5_000_000 < Residence().read() < 50_000_000_000


def flooded(sink: Sink, more: str = "") -> Config:
    text = f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0", max_body_bytes: 4MiB}}}}
exporters:
  sink:
    endpoint: "127.0.0.1:{sink.grpc_port}"
    insecure: true
    compression: none
    queue_requests_max: 100000
    retry: {{initial_seconds: 0.01, max_seconds: 0.05, max_elapsed_seconds: 0}}
telemetry: {{metrics_endpoint: "127.0.0.1:0"}}
health: {{endpoint: null}}
ledger: {{bytes_max: 1MiB}}
join: {{hold_seconds: 60}}
memory: {{hard_limit_bytes: {FLOOD_HARD}, soft_limit_bytes: {FLOOD_HARD // 2}}}
{more}
"""
    return parse(text, {})


async def held_by(port: int) -> dict[str, int]:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    return {
        part: int(float(value))
        for part, value in re.findall(r'whymiss_memory_held_bytes{part="(\w+)"[^}]*} (\S+)', text)
    }


@pytest.mark.parametrize("more", ["", "spool: {directory: '%s', bytes_max: 256MiB, fsync: never}"])
def test_a_dead_next_hop_costs_bounded_memory_then_refusals_and_then_nothing(more: str, tmp_path: Path) -> None:
    @looped
    async def scenario() -> None:
        async with Sink() as sink, serving(flooded(sink, more and more % tmp_path)) as service:
            await sink.vanish()
            taken: list[int] = []
            most, refusals = 0, 0
            for number in range(400):
                # Half are ours and held, half pass through.
                body = engine_request(number) if number % 2 else traces(number, padding=200_000)
                answer = await post(service.http_port, "/v1/traces", body)
                if answer.status == 200:
                    taken.append(number)
                else:
                    assert answer.status == 503
                    assert int(answer.headers["Retry-After"]) >= 1
                    assert b"memory.hard_limit_bytes" in answer.body
                    refusals += 1
                held = await held_by(service.metrics_port)
                most = max(most, sum(held.values()))
            assert refusals > 100
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(service.grpc_port, "traces", traces(1, padding=MIB))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            trailers = dict(refused.value.trailing_metadata() or ())
            hint = RetryInfo.FromString(bytes(trailers["google.rpc.retryinfo-bin"]))
            assert 1 <= hint.retry_delay.seconds <= 3
            # What the exporter puts together under way comes on top: ten requests of 4 MiB at the most.
            assert FLOOD_HARD // 2 < most < FLOOD_HARD * 1.5
            assert counted(service.measures, "whymiss.join.released", reason="shed") > 0
            await sink.listen()
            await sink.until_spans(len(taken), within_seconds=20)
            assert {int.from_bytes(one.span_id, "big") - 1 for one in sink.spans()} == set(taken)
            flowing = 1
            while flowing:
                held = await held_by(service.metrics_port)
                flowing = held["receiving"] + held["join"] + held["queue"]
            assert (await post(service.http_port, "/v1/traces", traces(1000))).status == 200
            assert service.given_up == 0

    scenario()
