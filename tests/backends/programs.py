"""The real programs of ``versions.toml``: where they are, and how a test runs them on loopback.

``build.sh`` builds them into a cache; ``WHYMISS_BACKENDS`` names another folder. Importing this puts the
folder on the PATH, which is where the marker ``server`` looks.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import yaml

ROOT = Path(__file__).resolve().parents[2]
PINS = (Path(__file__).with_name("versions.toml"), Path(__file__).parent / "manifests" / "main.go")
PATIENCE_SECONDS = 60.0

_Found = TypeVar("_Found")


def cache() -> Path:
    """The folder that ``build.sh`` fills."""
    named = os.environ.get("WHYMISS_BACKENDS")
    if named:
        return Path(named)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pinned = b"".join(file.read_bytes() for file in PINS)
    return home / "whymiss-backends" / hashlib.sha256(pinned).hexdigest()[:16]


def _put_on_path() -> None:
    folder, path = str(cache()), os.environ.get("PATH", "")
    if folder not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((folder, path))


_put_on_path()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def eventually(what: str, look: Callable[[], _Found | None], seconds: float = PATIENCE_SECONDS) -> _Found:
    """What ``look`` finds at last. Real programs tell nobody when they are done: they have to be asked."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)
    return found


def get(url: str, **query: str) -> Any:
    """A JSON answer, ``None`` while there is none."""
    try:
        with urllib.request.urlopen(f"{url}?{urlencode(query)}" if query else url, timeout=5) as answer:
            body = answer.read()
    except (urllib.error.URLError, OSError):
        return None
    try:
        return json.loads(body)
    except ValueError:
        return {}


def post(url: str, body: bytes) -> None:
    """Send an OTLP request as it is."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/x-protobuf"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def samples(url: str, name: str, **labels: str) -> list[float]:
    """The values of a metric in Prometheus' text, of those series that have all the labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except (urllib.error.URLError, OSError):
        return []
    ours = (line for line in lines if line.startswith((f"{name} ", f"{name}{{")))
    return [float(line.rpartition(" ")[2]) for line in ours if all(one in line for one in wanted)]


def yaml_of(path: str) -> Any:
    """A file of the repository that operators use, to be moved to free ports."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


class Program:
    """A running program; its output is in ``log`` and is shown when it dies early."""

    def __init__(self, log: Path, *command: str, ready: str, environ: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._command = command
        self._ready = ready
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, env=self._environ)
        try:
            eventually(f"{self._command[0]} answers", self._answer)
        except BaseException:
            self.stop()
            raise

    def _answer(self) -> object:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"{self._command[0]} ended: {self._log.read_text()[-3000:]}")
        return get(self._ready)

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise
            finally:
                self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def collector(folder: Path, name: str, config: Mapping[str, Any], health: int) -> Program:
    """A collector with a health check at a port."""
    config = {**config, "extensions": {"health_check": {"endpoint": f"127.0.0.1:{health}"}}}
    config["service"] = {**config["service"], "extensions": ["health_check"]}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Program(folder / f"{name}.log", "otelcol", "--config", str(file), ready=f"http://127.0.0.1:{health}/")


def whymiss(folder: Path, name: str, config: str, environ: Mapping[str, str], health: int) -> Program:
    """The service with a configuration of the repository and its variables set."""
    command = (sys.executable, "-m", "whymiss", "run", "--config", config)
    return Program(folder / f"{name}.log", *command, ready=f"http://127.0.0.1:{health}/readyz", environ=environ)
