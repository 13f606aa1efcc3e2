"""The service: its parts are built, started from the exporters backwards and stopped from the receivers forwards."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ..errors import BadInput, ConfigError
from ..wire.split import upb_in_use
from .checkpoint_file import Checkpoints
from .chores import Chores
from .receivers.listener import allow_open_files
from .reload import ReloadRequests
from .telemetry import logs
from .telemetry.health import Status
from .wiring import Parts, build

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..config import Config
    from ..measures import Measures
    from .core import Core
    from .telemetry.metrics_push import Temporality
    from .wiring import Checkpointed

_PUSH_SECONDS_MAX = 5.0

_log = logs.Log("service")


class Service:
    """A service that runs, as `serving` yields it. A port is 0 where nothing is listened on."""

    def __init__(self, parts: Parts, requests: ReloadRequests) -> None:
        self._parts = parts
        self._requests = requests

    @property
    def core(self) -> Core:
        """What is between receivers and exporters."""
        return self._parts.core

    @property
    def measures(self) -> Measures:
        """What the service counts."""
        return self._parts.core.measures

    @property
    def grpc_port(self) -> int:
        """Where OTLP over gRPC is taken."""
        return 0 if self._parts.grpc is None else self._parts.grpc.port

    @property
    def http_port(self) -> int:
        """Where OTLP over HTTP is taken."""
        return 0 if self._parts.http is None else self._parts.http.port

    @property
    def metrics_port(self) -> int:
        """Where Prometheus reads."""
        metrics = self._parts.telemetry.metrics
        return 0 if metrics is None else metrics.port

    @property
    def health_port(self) -> int:
        """Where probes ask."""
        health = self._parts.telemetry.health
        return 0 if health is None else health.port

    @property
    def given_up(self) -> int:
        """Requests that could not be delivered before the deadline of the shutdown; 0 until it is over."""
        return self._parts.fan_out.given_up

    def reload(self) -> None:
        """Have the configuration read again; without a file to read it from that is only a line in the log."""
        self._requests.ask()


@asynccontextmanager
async def serving(
    config: Config,
    core: Core | None = None,
    *,
    temporality: Temporality = "cumulative",
    requests: ReloadRequests | None = None,
) -> AsyncIterator[Service]:
    """Run whymiss for as long as an ``async with`` block does.

    Leaving the block drains: receivers close, the core releases all it holds, the exporters send it.
    ``core`` is what is between receivers and exporters, the pipeline by default. ``requests`` are those to read the
    configuration again.

    Raises:
        OSError: an address, the spool or the checkpoint, or its key, cannot be had.
        BadInput: the file of that key, or of a reference, holds something else.
        ConfigError: a file that the configuration names cannot be used.
    """
    requests = requests or ReloadRequests(None)
    parts = await build(config, core, requests, temporality)
    # What is entered here is left in the opposite order: at the end, or where a later part fails to start.
    async with AsyncExitStack() as stack:
        await _start(stack, parts)
        started = stack.pop_all()
    try:
        parts.telemetry.readiness.become(Status.OK)
        service = Service(parts, requests)
        _log.info("running", grpc_port=service.grpc_port, http_port=service.http_port, upb=upb_in_use())
        yield service
    finally:
        await started.aclose()
        _log.info("stopped", given_up=parts.fan_out.given_up)


async def _start(stack: AsyncExitStack, parts: Parts) -> None:
    chores, shutdown = Chores(parts.core.measures), _Shutdown(parts)
    _stop_at_last(stack, chores, parts)
    # These need no start, but hold resources: they are closed wherever the start ends.
    stack.callback(parts.subscriptions.destroy, linger=0)
    stack.push_async_callback(shutdown.stop_exporters)
    for first in (parts.telemetry.health, parts.telemetry.metrics, parts.telemetry.push, parts.spool):
        if first is not None:
            await first.start()
    stack.callback(shutdown.drain)
    chores.begin(stack, "advance", parts.advance.run())
    if parts.record is not None:
        _resume(stack, chores, parts.record)
    chores.begin(stack, "silence", parts.silence.run())
    stack.push_async_callback(parts.discovery.stop)
    await parts.discovery.start()
    chores.begin(stack, "memory", parts.memory.run())
    if parts.replay is not None:
        chores.begin(stack, "replay", parts.replay.run())
    for receiver in (parts.grpc, parts.http):
        if receiver is not None:
            stack.push_async_callback(receiver.stop)
            await receiver.start()
    if parts.reload is not None:
        chores.begin(stack, "reload", parts.reload.run())
    stack.callback(shutdown.begin)


def _stop_at_last(stack: AsyncExitStack, chores: Chores, parts: Parts) -> None:
    """Have what is started first be stopped last, also where it cannot be started."""
    telemetry = parts.telemetry
    if telemetry.health is not None:
        chores.begin(stack, "survey", telemetry.survey.run())
        stack.push_async_callback(telemetry.health.stop)
    if telemetry.metrics is not None:
        stack.push_async_callback(telemetry.metrics.stop)
    if telemetry.push is not None:
        stack.push_async_callback(telemetry.push.stop, patience_seconds=_PUSH_SECONDS_MAX)
    if parts.spool is not None:
        stack.push_async_callback(parts.spool.stop)


def _resume(stack: AsyncExitStack, chores: Chores, record: Checkpointed) -> None:
    """Go on with the record of the former run, and keep this one's."""
    record.file.take()
    stack.callback(record.file.let_go)
    record.file.resume(record.history, time.monotonic())
    checkpoints = Checkpoints(record.file, record.history, record.seconds)
    stack.callback(checkpoints.stop)
    chores.begin(stack, "checkpoints", checkpoints.run())


class _Shutdown:
    """The shutdown's steps that have a deadline in common; without `begin` it is over already."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stop_by = 0.0

    def begin(self) -> None:
        """Let the deadline run, and say so to the probes."""
        self._stop_by = time.monotonic() + self._parts.config.shutdown.deadline_seconds
        self._parts.telemetry.readiness.become(Status.STOPPING)

    def drain(self) -> None:
        """Queue all that the core holds."""
        core = self._parts.core
        try:
            self._parts.fan_out.enqueue(core.drain())
        except Exception as error:
            core.measures.count("whymiss.stage.failures", stage="drain", error_type=type(error).__name__)
            _log.error("held spans could not be released", error=error)

    async def stop_exporters(self) -> None:
        """Send what is queued until the deadline, then disconnect."""
        await self._parts.fan_out.stop(max(0.0, self._stop_by - time.monotonic()))


def _temporality(preference: str) -> Temporality:
    """Read OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE; as in the SDKs, any other word is ``cumulative``."""
    match preference.strip().lower():
        case "delta":
            return "delta"
        case "lowmemory":
            return "lowmemory"
        case _:
            return "cumulative"


def run(config: Config, read: Callable[[], Config] | None = None) -> int:
    """Run until SIGTERM or SIGINT, then drain; a second signal ends the process at once.

    SIGHUP has the configuration read again, by ``read``.
    Returns 0, or 1 where an address or the checkpoint's key could not be had, or accepted data was given up; 2 where
    a file that the configuration names cannot be used, 3 where it holds something else.
    """
    logs.configure(config.telemetry.log_level)
    allow_open_files()
    return asyncio.run(_run(config, read))


def spare_collections() -> None:
    """Keep what was made by now out of the garbage collector's walks: it lives to the end.

    Each full collection would stop the event loop for the tens of milliseconds that a walk over it takes.
    """
    gc.collect()
    gc.freeze()


async def _run(config: Config, read: Callable[[], Config] | None) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    preference = os.environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "")
    requests = ReloadRequests(read)
    loop.add_signal_handler(signal.SIGHUP, requests.ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])  # what came while we started is met once we run
    try:
        async with serving(config, temporality=_temporality(preference), requests=requests) as service:
            spare_collections()
            await stopping.wait()
    except (OSError, BadInput, ConfigError) as error:
        _log.error("cannot start", error=error)
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, BadInput) else 1
    return 1 if service.given_up else 0
