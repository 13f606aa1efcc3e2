"""The spool between receivers and exporters of a real service, with a real next hop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from tests.edge.cores import PassingCore, counted
from tests.edge.doors import call, post
from tests.edge.loops import looped
from tests.edge.sink import GrpcFault, Sink
from tests.edge.test_service import config, get
from tests.edge.traffic import BODIES, numbers, traces
from whymiss.edge.pace import Pace
from whymiss.edge.service import Service, serving
from whymiss.edge.spool.spool import Spool
from whymiss.errors import BadInput, Overloaded
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from pathlib import Path

    from whymiss.config import Config
    from whymiss.redaction import Redacted


def spooling(sink: Sink, directory: Path, *, more: str = "", exporter: str = "", deadline: float = 5) -> Config:
    return config(sink, more=f'spool: {{directory: "{directory}" {more}}}', exporter=exporter, deadline=deadline)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.glob("*.segment")]


async def until_counted(service: Service, name: str, count: int = 1, **labels: str) -> None:
    while counted(service.measures, name, **labels) < count:
        await get(service.metrics_port, "/metrics")


async def until_replayed(service: Service, count: int) -> None:
    await until_counted(service, "whymiss.spool.replayed_requests", count)


async def leave_behind(settings: Config, *bodies: tuple[Signal, bytes]) -> None:
    """Put requests into a spool and die."""
    spool = Spool(settings.spool, PassingCore().measures, Pace())
    await spool.start()
    for signal, body in bodies:
        await spool.append(signal, body)
    await spool.stop()


@looped
async def test_all_signals_leave_and_nothing_stays_on_disk(tmp_path: Path) -> None:
    async with Sink() as sink:
        async with serving(spooling(sink, tmp_path)) as service:
            for signal, body in BODIES.items():
                await call(service.grpc_port, signal, body)
            await sink.until_taken(3)
        assert sorted(one.signal for one in sink.taken) == ["logs", "metrics", "traces"]
    assert files(tmp_path) == []


@looped
async def test_what_is_acknowledged_is_on_disk_by_then_held_or_queued(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.gate.clear()
        async with serving(spooling(sink, tmp_path), PassingCore(hold_seconds=600)) as service:
            body = traces(1, padding=500)
            await call(service.grpc_port, "traces", body)
            assert body in b"".join(contents(tmp_path))
            sink.gate.set()
    assert files(tmp_path) == []


@looped
async def test_a_refused_request_stays_neither_on_disk_nor_in_the_queue(tmp_path: Path) -> None:
    async with Sink() as sink:
        for failure in (BadInput("bad"), Overloaded("full", limit_key="some.key"), ZeroDivisionError()):
            async with serving(spooling(sink, tmp_path), PassingCore(failure=failure)) as service:
                with pytest.raises(grpc.aio.AioRpcError):
                    await call(service.grpc_port, "traces", traces(1))
            assert files(tmp_path) == []
        assert sink.attempts == []


@looped
async def test_an_empty_request_is_acknowledged_and_over(tmp_path: Path) -> None:
    async with Sink() as sink, serving(spooling(sink, tmp_path)) as service:
        await call(service.grpc_port, "traces", b"")
    assert files(tmp_path) == []


@looped
async def test_what_an_earlier_run_left_is_sent_and_counted(tmp_path: Path) -> None:
    async with Sink() as sink:
        settings = spooling(sink, tmp_path)
        await leave_behind(
            settings,
            *((Signal.TRACES, traces(number)) for number in range(40)),
            (Signal.TRACES, b"\xff\xff\xff"),
            (Signal.METRICS, BODIES[Signal.METRICS]),
        )
        async with serving(settings) as service:
            await sink.until_spans(40)
            await until_replayed(service, 42)
            assert counted(service.measures, "whymiss.spool.replayed_requests", outcome="failed") == 1
        assert sorted(numbers(*(one.body for one in sink.taken if one.signal == "traces"))) == list(range(40))
        assert [one.body for one in sink.taken if one.signal == "metrics"] == [BODIES[Signal.METRICS]]
    assert files(tmp_path) == []


@looped
async def test_a_replay_is_throttled_and_does_not_keep_new_requests_out(tmp_path: Path) -> None:
    async with Sink() as sink:
        settings = spooling(sink, tmp_path, more=", replay_requests_per_second: 1")
        await leave_behind(settings, *((Signal.TRACES, traces(number)) for number in range(30)))
        async with serving(settings) as service:
            await call(service.grpc_port, "traces", traces(99))
            await sink.until_spans(2)
            assert counted(service.measures, "whymiss.spool.replayed_requests") < 5
        taken = numbers(*(one.body for one in sink.taken))
        assert {0, 99} <= set(taken)
        assert sorted(set(taken) - {99}) == list(range(len(taken) - 1))
    assert len(files(tmp_path)) == 2  # the rest is for the next start


@looped
async def test_a_replay_leaves_half_of_the_queue_to_new_requests(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.gate.clear()
        settings = spooling(
            sink, tmp_path, more=", replay_requests_per_second: 100000", exporter=", queue_requests_max: 20"
        )
        await leave_behind(settings, *((Signal.TRACES, traces(number)) for number in range(60)))
        async with serving(settings) as service:
            await until_replayed(service, 11)
            await call(service.grpc_port, "traces", traces(99))
            assert counted(service.measures, "whymiss.spool.replayed_requests") == 11
            sink.gate.set()
            await sink.until_spans(61)
    assert files(tmp_path) == []


@looped
async def test_what_the_shutdown_could_not_send_stays_on_disk_and_is_not_given_up(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.gate.clear()
        settings = spooling(sink, tmp_path, deadline=0.2)
        async with serving(settings) as service:
            await call(service.grpc_port, "traces", traces(1))
        assert service.given_up == 0
        assert counted(service.measures, "whymiss.exporter.failed_spans") == 0
        sink.gate.set()
        sink.taken.clear()
        async with serving(settings):
            await sink.until_spans(1)
        assert numbers(*(one.body for one in sink.taken)) == [1]
    assert files(tmp_path) == []


@looped
async def test_what_is_given_up_for_good_does_not_stay_on_disk(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.grpc_script.append(GrpcFault(grpc.StatusCode.PERMISSION_DENIED))
        async with serving(spooling(sink, tmp_path)) as service:
            await call(service.grpc_port, "traces", traces(1))
        assert counted(service.measures, "whymiss.exporter.failed_spans", error_type="refused") == 1
    assert files(tmp_path) == []


@looped
async def test_a_spool_that_cannot_be_written_refuses_by_name_and_the_service_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_bytes(b"in the way")
    async with Sink() as sink, serving(spooling(sink, place)) as service:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(service.grpc_port, "traces", traces(1))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "spool.directory" in (refused.value.details() or "")
        answer = await post(service.http_port, "/v1/traces", traces(1))
        assert (answer.status, answer.headers.get("Retry-After")) == (503, "1")
        place.unlink()
        await call(service.grpc_port, "traces", traces(2))
        await sink.until_spans(1)
        assert numbers(*(one.body for one in sink.taken)) == [2]


@looped
async def test_a_second_service_does_not_start_in_the_same_directory(tmp_path: Path) -> None:
    async with Sink() as sink, serving(spooling(sink, tmp_path)):
        with pytest.raises(BlockingIOError):
            async with serving(spooling(sink, tmp_path)):
                pass


@looped
async def test_a_request_that_a_stage_fails_on_is_tried_at_each_start_and_given_up_at_last(tmp_path: Path) -> None:
    async with Sink() as sink:
        settings = spooling(sink, tmp_path, more=", attempts_max: 2")
        await leave_behind(settings, (Signal.TRACES, traces(1)), (Signal.TRACES, traces(2)))
        for outcome in ("postponed", "given_up"):
            async with serving(settings, PassingCore(failure=ZeroDivisionError())) as service:
                await until_replayed(service, 2)
                assert counted(service.measures, "whymiss.spool.replayed_requests", outcome=outcome) == 2
        assert sink.attempts == []
    assert files(tmp_path) == []


@looped
async def test_a_request_that_a_stage_failed_on_is_sent_by_a_release_that_is_mended(tmp_path: Path) -> None:
    async with Sink() as sink:
        settings = spooling(sink, tmp_path)
        await leave_behind(settings, (Signal.TRACES, traces(1)))
        full = Overloaded("full", limit_key="some.key")
        for failure in (ZeroDivisionError(), full, None):
            async with serving(settings, PassingCore(failure=failure)) as service:
                await until_replayed(service, 1)
        assert numbers(*(one.body for one in sink.taken)) == [1]
    assert files(tmp_path) == []


@dataclass
class LosingCore(PassingCore):
    """Loses what it lets go of."""

    def advance(self, now: float) -> tuple[Redacted, ...]:
        super().advance(now)
        raise ZeroDivisionError


@looped
async def test_what_a_failed_release_lost_is_tried_again_at_the_next_start(tmp_path: Path) -> None:
    async with Sink() as sink:
        settings = spooling(sink, tmp_path, more=", attempts_max: 2")
        async with serving(settings, LosingCore(hold_seconds=0)) as service:
            await call(service.grpc_port, "traces", traces(1))
            await until_counted(service, "whymiss.spool.swept_requests", outcome="postponed")
        async with serving(settings, LosingCore(hold_seconds=0)) as service:
            await until_counted(service, "whymiss.spool.swept_requests", outcome="given_up")
        assert sink.attempts == []
    assert files(tmp_path) == []
