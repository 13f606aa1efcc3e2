"""A service in a process of its own, as a bench sees it from outside: its metrics, its memory, and curves of both."""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

PROTOBUF = {"Content-Type": "application/x-protobuf"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@dataclass(frozen=True)
class Outside:
    """A running service; it listens for OTLP/HTTP on ``port``."""

    process: asyncio.subprocess.Process
    port: int
    metrics_port: int
    client: aiohttp.ClientSession

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * mmap.PAGESIZE / (1 << 20)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def totals(self) -> dict[str, float]:
        """Every metric, its series added up, and each series of one label as ``name{value}``."""
        async with self.client.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            text = await answer.text()
        found: dict[str, float] = defaultdict(float)
        for name, labels, value in re.findall(r"^(\w+)(?:\{([^}]*)\})? (\S+)", text, re.MULTILINE):
            found[name] += float(value)
            for _, word in re.findall(r'(\w+)="([^"]*)"', labels):
                found[f"{name}{{{word}}}"] += float(value)
        return found

    async def send(self, body: bytes) -> int:
        """Send spans; returns the status of the answer."""
        url = f"http://127.0.0.1:{self.port}/v1/traces"
        async with self.client.post(url, data=body, headers=PROTOBUF) as answer:
            return answer.status


@asynccontextmanager
async def outside(config: str) -> AsyncIterator[Outside]:
    """Run a service with OTLP/HTTP and metrics on free ports beside what ``config`` says; end it in peace."""
    port, metrics_port = free_port(), free_port()
    text = f"""
receivers: {{grpc: {{endpoint: null}}, http: {{endpoint: "127.0.0.1:{port}", max_body_bytes: 1MiB}}}}
telemetry: {{metrics_endpoint: "127.0.0.1:{metrics_port}", log_level: error}}
health: {{endpoint: null}}
{config}
"""
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "whymiss", "run", "--config", "-", stdin=asyncio.subprocess.PIPE, stderr=said
        )
        assert process.stdin is not None
        process.stdin.write(text.encode())
        process.stdin.close()
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
                await _listening(process, metrics_port)
                await _listening(process, port)
                yield Outside(process, port, metrics_port, client)
        finally:
            if process.returncode is None:
                process.terminate()
            code = await process.wait()
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            if code or lines:
                print(f"the service ended with {code} and {len(lines)} lines in its log, the last of them:")
                print("\n".join(lines[-5:]))


async def _listening(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            assert process.returncode is None, "the service did not start"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def sparkline(values: Sequence[float]) -> str:
    """A curve from zero to its largest value, in one line."""
    top = max(values, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * max(value, 0) / top))] for value in values)


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Least squares: how fast the values grow, per unit of time."""
    count = len(times)
    mean_time, mean_value = sum(times) / count, sum(values) / count
    spread = sum((time - mean_time) ** 2 for time in times)
    if not spread:
        return 0.0
    return sum((time - mean_time) * (value - mean_value) for time, value in zip(times, values, strict=True)) / spread
