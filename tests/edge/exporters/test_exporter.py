from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.edge.cores import counted, measures
from tests.edge.loops import looped
from tests.edge.paces import HeldPace
from tests.edge.traffic import BODIES, numbers, redacted, traces
from whymiss.config import ExporterConfig, RetryConfig
from whymiss.edge.exporters.delivery import Deferred, Delivered, Refused
from whymiss.edge.exporters.exporter import CONCURRENCY, GATHER_SECONDS, REQUEST_BYTES_MAX, Exporter
from whymiss.edge.exporters.fan_out import FanOut
from whymiss.edge.exporters.owed import Owed
from whymiss.errors import Overloaded
from whymiss.redaction import Signal, untouched

if TYPE_CHECKING:
    from whymiss.edge.exporters.delivery import Reply


@dataclass
class Hop:
    """A transport to a next hop that answers as its script says, and takes everything once that is over."""

    script: deque[Reply | Exception] = field(default_factory=deque)
    attempts: list[tuple[Signal, bytes]] = field(default_factory=list)
    taken: list[tuple[Signal, bytes]] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self._tried = asyncio.Event()

    async def send(self, signal: Signal, body: bytes) -> Reply:
        self.attempts.append((signal, body))
        self._tried.set()
        reply = self.script.popleft() if self.script else Delivered()
        await self.gate.wait()
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Delivered):
            self.taken.append((signal, body))
        return reply

    async def close(self) -> None:
        self.closed = True

    async def until_attempts(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.attempts) < count:
                self._tried.clear()
                await self._tried.wait()

    @property
    def numbers(self) -> list[int]:
        return numbers(*(body for _, body in self.taken))


class Bench:
    """An exporter between a hop and a held clock."""

    def __init__(self, *script: Reply | Exception, **settings: object) -> None:
        self.measures = measures()
        self.hop = Hop(deque(script))
        self.pace = HeldPace()
        retry = settings.pop("retry", RetryConfig(initial_seconds=1, max_seconds=8, max_elapsed_seconds=60))
        config = ExporterConfig(endpoint="next:4317", insecure=True, retry=retry, **settings)  # type: ignore[arg-type]
        self.exporter = Exporter("next", config, self.hop, self.measures, self.pace)

    def lost(self, how: str) -> float:
        return counted(self.measures, "whymiss.exporter.failed_spans", exporter="next", error_type=how)

    @property
    def sent(self) -> float:
        return counted(self.measures, "whymiss.exporter.sent_spans", exporter="next")

    async def gather(self) -> None:
        """Let the requests that were queued gather and leave."""
        await self.pace.until_waits(len(self.pace.waits) or 1)
        self.pace.pass_by(GATHER_SECONDS)

    async def stop(self) -> int:
        stopping = asyncio.create_task(self.exporter.stop(5))
        while not stopping.done():
            await asyncio.sleep(0)
            self.pace.pass_by(0.001)
        return stopping.result()


@looped
async def test_small_trace_requests_leave_as_one() -> None:
    bench = Bench()
    for number in range(5):
        bench.exporter.submit(redacted(number))
    await bench.gather()
    assert await bench.stop() == 0
    assert len(bench.hop.attempts) == 1
    assert bench.hop.numbers == [0, 1, 2, 3, 4]
    assert bench.sent == 5
    assert bench.hop.closed


@looped
async def test_signals_do_not_mix_and_metrics_and_logs_travel_alone() -> None:
    bench = Bench()
    order = [Signal.TRACES, Signal.METRICS, Signal.METRICS, Signal.LOGS, Signal.LOGS, Signal.TRACES]
    for signal in order:
        bench.exporter.submit(untouched(signal, BODIES[signal], 1 if signal is Signal.TRACES else 0))
    assert await bench.stop() == 0
    assert sorted(bench.hop.taken) == sorted((signal, BODIES[signal]) for signal in order)


@looped
async def test_what_is_merged_stays_below_the_limit_of_a_request() -> None:
    bench = Bench()
    for number in range(9):
        bench.exporter.submit(redacted(number, padding=1_000_000))
    assert await bench.stop() == 0
    assert bench.hop.numbers == list(range(9))
    assert max(len(body) for _, body in bench.hop.attempts) <= REQUEST_BYTES_MAX
    assert len(bench.hop.attempts) == 3


@looped
async def test_a_request_above_the_limit_leaves_in_portions_and_a_span_above_it_is_counted() -> None:
    bench = Bench()
    bench.exporter.submit(redacted(*range(10), padding=1_000_000))
    bench.exporter.submit(redacted(10, padding=REQUEST_BYTES_MAX))
    assert await bench.stop() == 0
    assert bench.hop.numbers == list(range(10))
    assert max(len(body) for _, body in bench.hop.attempts) <= REQUEST_BYTES_MAX
    assert (bench.sent, bench.lost("too_large")) == (10, 1)


@looped
async def test_an_empty_request_is_not_sent() -> None:
    bench = Bench()
    bench.exporter.submit(untouched(Signal.TRACES, b"", 0))
    assert await bench.stop() == 0
    assert bench.hop.attempts == []


@looped
async def test_a_deferred_request_is_tried_again_after_growing_waits() -> None:
    bench = Bench(*[Deferred("UNAVAILABLE")] * 6)
    bench.exporter.submit(redacted(1))
    await bench.pace.until_waits(1)
    bench.pace.pass_by(GATHER_SECONDS)
    for attempt in range(6):
        await bench.pace.until_waits(2 + attempt)
        bench.pace.pass_by(bench.pace.waits[-1])
    assert await bench.stop() == 0
    assert bench.pace.waits[1:7] == [1, 1.5, 2.25, 3.375, 5.0625, 7.59375]
    assert bench.hop.numbers == [1]


@looped
async def test_a_hint_lengthens_the_wait_and_never_shortens_it() -> None:
    bench = Bench(Deferred("UNAVAILABLE", 7.0), Deferred("UNAVAILABLE", 0.1))
    bench.exporter.submit(redacted(1))
    await bench.pace.until_waits(1)
    bench.pace.pass_by(GATHER_SECONDS)
    for attempt in range(2):
        await bench.pace.until_waits(2 + attempt)
        bench.pace.pass_by(bench.pace.waits[-1])
    assert await bench.stop() == 0
    assert bench.pace.waits[1:3] == [7.0, 1.5]


@looped
async def test_retries_end_before_a_wait_that_would_pass_their_limit() -> None:
    bench = Bench(*[Deferred("UNAVAILABLE", 25.0)] * 9)
    bench.exporter.submit(redacted(1, 2))
    await bench.pace.until_waits(1)
    bench.pace.pass_by(GATHER_SECONDS)
    for attempt in range(2):
        await bench.pace.until_waits(2 + attempt)
        bench.pace.pass_by(25.0)
    assert await bench.stop() == 0
    assert len(bench.hop.attempts) == 3
    assert (bench.sent, bench.lost("retries_exhausted")) == (0, 2)


@looped
async def test_a_refused_request_is_never_sent_again() -> None:
    bench = Bench(Refused("PERMISSION_DENIED"))
    bench.exporter.submit(redacted(1, 2))
    bench.exporter.submit(redacted(3))
    assert await bench.stop() == 0
    assert len(bench.hop.attempts) == 1
    assert bench.lost("refused") == 3


@looped
async def test_a_malformed_request_does_not_spoil_those_it_was_merged_with() -> None:
    bench = Bench(Refused("INVALID_ARGUMENT"), Delivered(), Refused("INVALID_ARGUMENT"), Delivered())
    for number in range(3):
        bench.exporter.submit(redacted(number))
    assert await bench.stop() == 0
    assert bench.hop.numbers == [0, 2]
    assert (bench.sent, bench.lost("refused")) == (2, 1)


class Narrow(Hop):
    """Takes no body above 300 kB."""

    async def send(self, signal: Signal, body: bytes) -> Reply:
        if len(body) > 300_000:
            self.attempts.append((signal, body))
            return Refused("413")
        return await super().send(signal, body)


@looped
async def test_what_a_next_hop_finds_too_large_goes_again_in_parts_and_only_the_largest_span_is_lost() -> None:
    bench = Bench()
    hop = Narrow()
    bench.exporter = Exporter(
        "next", ExporterConfig(endpoint="next:4317", insecure=True), hop, bench.measures, bench.pace
    )
    small, large = traces(*range(40), padding=25_000), traces(99, padding=400_000)
    bench.exporter.enqueue(untouched(Signal.TRACES, small, 40))
    bench.exporter.enqueue(untouched(Signal.TRACES, large, 1))
    await bench.stop()
    assert hop.numbers == list(range(40))
    assert (bench.sent, bench.lost("refused")) == (40, 1)
    assert len(hop.attempts) < 15


@looped
async def test_a_partial_success_is_counted_and_never_sent_again() -> None:
    bench = Bench(Delivered(rejected=2, message="two were too old"))
    bench.exporter.submit(redacted(1, 2, 3))
    assert await bench.stop() == 0
    assert len(bench.hop.attempts) == 1
    assert (bench.sent, bench.lost("rejected")) == (1, 2)


@looped
async def test_what_a_transport_raises_is_no_answer_and_is_tried_again() -> None:
    bench = Bench(ZeroDivisionError())
    bench.exporter.submit(redacted(1))
    await bench.gather()
    await bench.hop.until_attempts(1)
    bench.exporter.submit(redacted(2))
    assert await bench.stop() == 0
    assert (sorted(bench.hop.numbers), bench.lost("refused")) == ([1, 2], 0)
    deferred = {"exporter": "next", "code": "ZeroDivisionError"}
    assert counted(bench.measures, "whymiss.exporter.deferred_attempts", **deferred) == 1


@looped
async def test_a_full_queue_refuses_by_requests_and_names_the_key() -> None:
    bench = Bench(queue_requests_max=3)
    bench.hop.gate.clear()
    for number in range(3):
        bench.exporter.submit(redacted(number))
    with pytest.raises(Overloaded, match=r"exporters\.next\.queue_requests_max"):
        bench.exporter.submit(redacted(3))
    bench.exporter.enqueue(redacted(4))  # what was acknowledged goes in all the same
    refusal = {"exporter": "next", "limit": "queue_requests_max"}
    assert counted(bench.measures, "whymiss.exporter.refused_requests", **refusal) == 1
    bench.hop.gate.set()
    assert await bench.stop() == 0
    assert bench.hop.numbers == [0, 1, 2, 4]


@looped
async def test_a_full_queue_refuses_by_bytes_also_while_they_are_under_way() -> None:
    item = redacted(1, padding=1000)
    bench = Bench(queue_bytes_max=len(item.body))
    bench.hop.gate.clear()
    bench.exporter.submit(item)
    await bench.gather()
    await bench.hop.until_attempts(1)
    with pytest.raises(Overloaded, match=r"exporters\.next\.queue_bytes_max"):
        bench.exporter.require_room()
    bench.hop.gate.set()
    assert await bench.stop() == 0
    bench.exporter.require_room()


@looped
async def test_no_more_requests_are_under_way_than_the_limit() -> None:
    bench = Bench()
    bench.hop.gate.clear()
    for number in range(CONCURRENCY + 5):
        bench.exporter.submit(untouched(Signal.METRICS, bytes([number]), 0))
    await bench.hop.until_attempts(CONCURRENCY)
    assert bench.exporter.held_requests == CONCURRENCY + 5
    assert len(bench.hop.attempts) == CONCURRENCY
    bench.hop.gate.set()
    assert await bench.stop() == 0
    assert len(bench.hop.taken) == CONCURRENCY + 5


@looped
async def test_the_shutdown_tries_at_once_what_was_waiting() -> None:
    bench = Bench(Deferred("UNAVAILABLE", 50.0))
    bench.exporter.submit(redacted(1))
    await bench.gather()
    await bench.pace.until_waits(2)
    assert await bench.exporter.stop(5) == 0
    assert bench.hop.numbers == [1]


@looped
async def test_the_shutdown_gives_up_at_its_deadline_and_counts_what_it_gave_up() -> None:
    bench = Bench()
    bench.hop.gate.clear()
    bench.exporter.submit(redacted(1, 2))
    await bench.gather()
    await bench.hop.until_attempts(1)
    bench.exporter.submit(redacted(3))
    assert await bench.stop() == 2
    assert (bench.sent, bench.lost("shutdown")) == (0, 3)
    assert bench.hop.closed


@looped
async def test_a_slow_destination_does_not_hold_up_another() -> None:
    slow, quick = Bench(), Bench()
    slow.hop.gate.clear()
    fan_out = FanOut([slow.exporter, quick.exporter], Owed())
    fan_out.enqueue([redacted(1), redacted(2)])
    await quick.gather()
    await quick.hop.until_attempts(1)
    assert quick.hop.numbers == [1, 2]
    slow.hop.gate.set()
    assert await fan_out.stop(5) == 0
    assert slow.hop.numbers == [1, 2]


@looped
async def test_one_full_queue_is_enough_to_refuse_a_request() -> None:
    full, empty = Bench(queue_requests_max=1), Bench()
    fan_out = FanOut([empty.exporter, full.exporter], Owed())
    fan_out.require_room()
    fan_out.enqueue([redacted(1)])
    with pytest.raises(Overloaded):
        fan_out.require_room()
    fan_out.gauge()
    assert counted(full.measures, "whymiss.exporter.queue_size") == 1
    assert counted(full.measures, "whymiss.exporter.queue_capacity") == 1
    assert await fan_out.stop(5) == 0


@looped
async def test_an_exporter_knows_since_when_it_retries_and_that_it_no_longer_does() -> None:
    bench = Bench(Deferred("UNAVAILABLE"), Deferred("UNAVAILABLE"))
    bench.exporter.submit(redacted(1))
    await bench.pace.until_waits(1)
    bench.pace.pass_by(GATHER_SECONDS)
    await bench.pace.until_waits(2)
    began = bench.pace.time
    bench.pace.pass_by(5)
    await bench.pace.until_waits(3)
    assert (bench.exporter.delivery.deferring_since, bench.exporter.delivery.code) == (began, "UNAVAILABLE")
    bench.pace.pass_by(30)
    await bench.hop.until_attempts(3)
    assert await bench.exporter.stop(10) == 0
    assert bench.exporter.delivery.deferring_since is None
