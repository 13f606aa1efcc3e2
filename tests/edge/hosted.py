"""The service in a process of its own: what it logs, holds and counts is seen from outside, as an operator sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc

from whymiss.edge.otlp_names import METHODS
from whymiss.redaction import Signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

START_SECONDS = 120.0
STOP_SECONDS = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@dataclass
class Hosted:
    """A running service. ``receivers`` and ``more`` are YAML, of the receivers in flow style and of further sections."""

    sink_port: int
    receivers: str = "grpc: {endpoint: '127.0.0.1:0'}, http: {endpoint: '127.0.0.1:0'}"
    more: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    """What it has written to standard error."""

    def __enter__(self) -> Self:
        self._metrics_port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "whymiss", "run", "--config", "-"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ) | self.environment,
        )
        self._said = threading.Condition()
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()
        assert self._process.stdin is not None
        self._process.stdin.write(self._config())
        self._process.stdin.close()
        try:
            running = self.until_said('"message":"running"', START_SECONDS)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.grpc_port: int = running["grpc_port"]
        self.http_port: int = running["http_port"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listening.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def stop(self) -> int:
        """Ask it to stop, and return its exit code: 0 where all that it had was delivered."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_SECONDS)
        self._listening.join()
        return code

    def is_running(self) -> bool:
        return self._process.poll() is None

    def until_said(self, words: str, seconds: float = 10.0) -> dict[str, Any]:
        """Wait for a line of the log, and return its fields."""

        def found() -> str | None:
            return next((line for line in self.lines if words in line), None)

        with self._said:
            line = self._said.wait_for(lambda: found() or not self.is_running(), seconds)
            assert isinstance(line, str), f"not said: {words}; but {self.lines[-5:]}"
        fields: dict[str, Any] = json.loads(line)
        return fields

    def resident_mib(self, *, peak: bool = False) -> float:
        """Resident memory now, or the most there was."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def forget_peak(self) -> float:
        """Begin to look for the peak anew, and return the resident memory now, in MiB."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")
        return self.resident_mib()

    def counted(self, name: str, **labels: str) -> float:
        """The total of a metric, as Prometheus sees it, over the series that have the labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if re.match(rf"{name}[ {{]", line) and all(one in line for one in wanted)
        )

    def until(self, happened: Callable[[], bool], seconds: float = 20.0) -> None:
        """Ask again and again until something is true; each question is a round trip to the service."""
        deadline = threading.Event()
        timer = threading.Timer(seconds, deadline.set)
        timer.start()
        try:
            while not happened():
                assert not deadline.is_set(), f"did not happen; {self.lines[-5:]}"
        finally:
            timer.cancel()
            timer.join()

    def mistakes(self) -> list[str]:
        """Lines that tell of a mistake of ours, or are no line of our log."""
        return [line for line in self.lines if not line.startswith('{"time":') or '"level":"error"' in line]

    def _config(self) -> str:
        return f"""
receivers: {{{self.receivers}}}
exporters: {{sink: {{endpoint: "127.0.0.1:{self.sink_port}", insecure: true, retry: {{initial_seconds: 0.01}}}}}}
join: {{hold_seconds: 0.3, linger_seconds: 0.1}}
telemetry: {{metrics_endpoint: "127.0.0.1:{self._metrics_port}"}}
health: {{endpoint: null}}
{self.more}
"""

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._said:
                self.lines.append(line.rstrip("\n"))
                self._said.notify_all()
        with self._said:
            self._said.notify_all()


class ThreadedSink:
    """A next hop that takes everything, on threads of its own."""

    def __init__(self) -> None:
        self.bodies: dict[Signal, list[bytes]] = {signal: [] for signal in Signal}
        self._threads = ThreadPoolExecutor(2)
        self._server = grpc.server(self._threads, options=[("grpc.max_receive_message_length", -1)])
        for signal_, path in METHODS.items():
            service, _, method = path.strip("/").partition("/")
            handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._keeper(signal_))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def _keeper(self, signal_: Signal) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def keep(body: bytes, context: grpc.ServicerContext) -> bytes:
            del context
            self.bodies[signal_].append(body)
            return b""

        return keep

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()
        self._threads.shutdown()
