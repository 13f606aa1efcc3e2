"""What a place on disk costs: an append, beside SQLite in WAL mode in the same run, and the whole service with it.

The peer is the least that a spool in SQLite does: the requests that wait are inserted in one transaction
(``synchronous=OFF`` promises what ``fsync: never`` does, ``FULL`` what ``always`` does), and deleted in one when
they are delivered. Run with ``make bench`` or by itself; TMPDIR says which disk.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

import aiohttp

from tests.edge.cores import measures
from tests.edge.sink import Sink
from tests.edge.traffic import traces
from whymiss.config import SpoolConfig, parse
from whymiss.edge.pace import Pace
from whymiss.edge.service import serving
from whymiss.edge.spool.spool import Spool
from whymiss.redaction import Signal

ROUNDS = 3
SIZES = (1_000, 20_000, 200_000)
AT_ONCE = 16
SENDERS = 16
REQUESTS = 1500


async def ours(directory: Path, policy: str, size: int, count: int) -> float:
    """Microseconds for a request to be put on disk and forgotten, ``AT_ONCE`` at once."""
    spool = Spool(SpoolConfig(directory=str(directory), fsync=policy), measures(), Pace())  # type: ignore[arg-type]
    await spool.start()
    body = os.urandom(size)
    begin = time.perf_counter()
    for _ in range(count // AT_ONCE):
        for ticket in await asyncio.gather(*(spool.append(Signal.TRACES, body) for _ in range(AT_ONCE))):
            spool.settle(ticket)
    spent = time.perf_counter() - begin
    await spool.stop()
    return spent / count * 1e6


def sqlite(directory: Path, synchronous: str, size: int, count: int) -> float:
    """The same with SQLite, without tasks or threads around it."""
    connection = sqlite3.connect(directory / "spool.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE IF NOT EXISTS spool (id INTEGER PRIMARY KEY, body BLOB)")
    body = os.urandom(size)
    begin = time.perf_counter()
    for _ in range(count // AT_ONCE):
        connection.execute("BEGIN")
        tickets = [connection.execute("INSERT INTO spool (body) VALUES (?)", (body,)).lastrowid for _ in range(AT_ONCE)]
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM spool WHERE id = ?", [(ticket,) for ticket in tickets])
        connection.execute("COMMIT")
    spent = time.perf_counter() - begin
    connection.close()
    return spent / count * 1e6


async def through_the_service(directory: Path, spool: str) -> tuple[float, float]:
    """Requests of 64 foreign spans a second over HTTP, and milliseconds of processor time for each.

    Sender and next hop are in the same process and take most of both.
    """
    bodies = [traces(*range(number * 64, number * 64 + 64), padding=200) for number in range(REQUESTS)]
    async with Sink() as sink:
        text = f"""
receivers: {{grpc: {{endpoint: null}}, http: {{endpoint: "127.0.0.1:0"}}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{sink.grpc_port}", insecure: true, compression: none}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
spool: {{directory: {directory if spool != "off" else "null"}, fsync: {spool if spool != "off" else "never"}}}
"""
        queue = iter(bodies)

        async def send(client: aiohttp.ClientSession, port: int) -> None:
            for body in queue:
                async with client.post(
                    f"http://127.0.0.1:{port}/v1/traces", data=body, headers={"Content-Type": "application/x-protobuf"}
                ) as answer:
                    assert answer.status in {200, 503}

        async with serving(parse(text, {})) as service, aiohttp.ClientSession() as client:
            begin, used = time.perf_counter(), time.process_time()
            await asyncio.gather(*(send(client, service.http_port) for _ in range(SENDERS)))
            spent, used = time.perf_counter() - begin, time.process_time() - used
    return REQUESTS / spent, used / REQUESTS * 1e3


def main() -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, SQLite", end=" ")
    print(f"{sqlite3.sqlite_version}; medians of {ROUNDS}; disk of {tempfile.gettempdir()}")
    for policy, synchronous in (("never", "OFF"), ("interval", "NORMAL"), ("always", "FULL")):
        for size in SIZES:
            count = 320 if policy == "always" else 1600
            with tempfile.TemporaryDirectory() as place:
                mine = [asyncio.run(ours(Path(place, "own"), policy, size, count)) for _ in range(ROUNDS)]
                peers = [sqlite(Path(place), synchronous, size, count) for _ in range(ROUNDS)]
            print(
                f"append and settle, {size:7,} B, fsync {policy:8}: {statistics.median(mine):8.0f} us; "
                f"SQLite WAL, synchronous={synchronous:6}: {statistics.median(peers):8.0f} us"
            )
    found: dict[str, list[tuple[float, float]]] = {spool: [] for spool in ("off", "never", "interval", "always")}
    for _ in range(ROUNDS):
        for spool, rates in found.items():
            with tempfile.TemporaryDirectory() as place:
                rates.append(asyncio.run(through_the_service(Path(place), spool)))
    for spool, rates in found.items():
        rate, used = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"service over HTTP, 64 spans a request, spool {spool:8}: {rate:6.0f} requests/s, {used:.2f} ms CPU each")


if __name__ == "__main__":
    main()
