"""What a next hop that is dead for a while does to the queue, the spool and the memory, and what its return does.

A real service with a spool is under a steady load. Its next hop is there for a sixth of the time, gone for half
of it, and there again until all is out. Run with ``make bench``, or by itself
(``PYTHONPATH=. python tests/bench/bench_dead_downstream.py --seconds 180``).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import tempfile
import time
from dataclasses import dataclass, field

import aiohttp

from tests.bench.outside import Outside, outside, sparkline
from tests.edge.sink import Sink
from tests.edge.test_crash import engine_request
from tests.edge.traffic import numbers, traces

MIB = 1 << 20
HARD_MIB = 32
ALIVE, DEAD = 1 / 6, 1 / 2
"""Parts of the time for which the next hop is there at first, and then gone."""

DRAIN_SECONDS = 120.0


@dataclass
class Row:
    seconds: float
    hop: str
    queue_mib: float
    join_mib: float
    spool_mib: float
    resident_mib: float
    accepted: float
    refused: float
    attempts: float
    arrived: float


@dataclass
class Load:
    """Requests a second, one in four with a span that is held; what was acknowledged, by number."""

    service: Outside
    per_second: float
    padding: int
    acknowledged: set[int] = field(default_factory=set)
    refused: int = 0
    broken: int = 0

    async def run(self) -> None:
        numbered = itertools.count(0, 2)
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while True:
                due += 1 / self.per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._send(next(numbered)))

    async def _send(self, number: int) -> None:
        held = number % 8 == 0
        body = engine_request(number) if held else traces(number, number + 1, padding=self.padding // 2)
        try:
            status = await self.service.send(body)
        except aiohttp.ClientError:
            self.broken += 1
            return
        if status == 200:
            self.acknowledged |= {number, number + 1}
        else:
            assert status == 503, status
            self.refused += 1


def config(sink: Sink, directory: str, hard_mib: int) -> str:
    return f"""
exporters:
  sink:
    endpoint: "127.0.0.1:{sink.grpc_port}"
    insecure: true
    queue_requests_max: 100000
    retry: {{max_seconds: 5, max_elapsed_seconds: 0}}
spool: {{directory: "{directory}"}}
ledger: {{bytes_max: 1MiB}}
join: {{hold_seconds: 2, linger_seconds: 1}}
memory: {{hard_limit_bytes: {hard_mib + 1}MiB, soft_limit_bytes: {hard_mib * 4 // 5 + 1}MiB}}
"""


async def row(load: Load, sink: Sink, hop: str, begun: float, last: dict[str, float]) -> Row:
    """Look, and take what has been counted since the last look."""
    found = await load.service.totals()
    seconds = time.monotonic() - begun
    found |= {"refused": load.refused, "arrived": len(sink.taken), "at": seconds}
    passed = max(seconds - last.get("at", 0.0), 1e-3)

    def rate(name: str) -> float:
        return (found.get(name, 0.0) - last.get(name, 0.0)) / passed

    made = Row(
        seconds=seconds,
        hop=hop,
        queue_mib=found["whymiss_memory_held_bytes{queue}"] / MIB,
        join_mib=found["whymiss_memory_held_bytes{join}"] / MIB,
        spool_mib=found["whymiss_spool_size_bytes"] / MIB,
        resident_mib=load.service.resident_mib(),
        accepted=rate("whymiss_receiver_accepted_requests_total"),
        refused=rate("refused"),
        attempts=rate("whymiss_exporter_deferred_attempts_total"),
        arrived=rate("arrived"),
    )
    last.update(found)
    print(
        f"{made.seconds:6.1f} {made.hop:>6} {made.queue_mib:9.1f} {made.join_mib:8.2f} {made.spool_mib:9.1f} "
        f"{made.resident_mib:8.1f} {made.accepted:10.1f} {made.refused:9.1f} {made.attempts:9.1f} {made.arrived:9.1f}",
        flush=True,
    )
    return made


async def measure(seconds: float, per_second: float, padding: int, hard_mib: int) -> None:
    rows: list[Row] = []
    last: dict[str, float] = {}
    step = max(1.0, seconds / 30)
    with tempfile.TemporaryDirectory() as directory:
        async with Sink() as sink, outside(config(sink, directory, hard_mib)) as service:
            load = Load(service, per_second, padding)
            sending = asyncio.create_task(load.run())
            begun, hop = time.monotonic(), "there"
            print("  time    hop queue MiB hold MiB spool MiB  rss MiB accepted/s refused/s retries/s arrived/s")
            while (passed := time.monotonic() - begun) < seconds:
                gone = ALIVE <= passed / seconds < ALIVE + DEAD
                if gone and hop == "there":
                    await sink.vanish()
                if not gone and hop == "gone":
                    await sink.listen()
                hop = "gone" if gone else "there"
                rows.append(await row(load, sink, hop, begun, last))
                await asyncio.sleep(step)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            while rows[-1].queue_mib or rows[-1].join_mib:
                assert time.monotonic() - begun < seconds + DRAIN_SECONDS, "the queue does not drain"
                rows.append(await row(load, sink, "there", begun, last))
                await asyncio.sleep(step)
            failed = last.get("whymiss_exporter_failed_spans_total", 0.0)
        arrived = numbers(*(one.body for one in sink.taken))
    show(rows)
    lost = load.acknowledged - set(arrived)
    print(
        f"acknowledged {len(load.acknowledged)} spans: {len(lost)} did not come out, {len(arrived) - len(set(arrived))} "
        f"came twice; {load.refused} requests refused, {load.broken} broken off, {failed:.0f} spans given up"
    )
    assert not lost


def show(rows: list[Row]) -> None:
    for name, unit in (
        ("queue_mib", "MiB"), ("spool_mib", "MiB"), ("resident_mib", "MiB"), ("accepted", "/s"), ("refused", "/s"),
        ("attempts", "/s"), ("arrived", "/s"),
    ):  # fmt: skip
        values = [getattr(one, name) for one in rows]
        print(f"{name.removesuffix('_mib'):>9} {sparkline(values)}  at most {max(values):,.1f} {unit}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--rate", type=float, default=60.0, help="requests a second")
    options.add_argument("--bytes", type=int, default=50_000, help="bytes of a request")
    options.add_argument("--hard-mib", type=int, default=HARD_MIB, help="room for what is under way")
    chosen = options.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {chosen.rate:g} requests/s of "
        f"{chosen.bytes:,} bytes, room for {chosen.hard_mib} MiB, next hop gone for {chosen.seconds * DEAD:g} s"
    )
    asyncio.run(measure(chosen.seconds, chosen.rate, chosen.bytes, chosen.hard_mib))


if __name__ == "__main__":
    main()
