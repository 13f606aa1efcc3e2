"""The service: wired by hand, started from the exporter backwards, stopped from the receiver forwards."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
import zmq
import zmq.asyncio

from ..errors import BadInput, ConfigError
from ..pipeline import Pipeline
from ..wire.split import upb_in_use
from . import references
from .advance import Advance
from .checkpoint import CheckpointFile, Checkpoints
from .chores import Chores
from .exporters.exporter import Exporter
from .exporters.fan_out import FanOut
from .exporters.receipts import Receipts
from .exporters.transports import connect
from .kv.discovery import Discovery, World
from .kv.events import KvListener, source_name
from .kv.push import kv_push_service
from .kv.silence import Attended, Silence
from .memory import Limits, Memory, container_bytes, limits_of
from .pace import Pace
from .receivers.intake import Intake
from .receivers.listener import allow_open_files
from .receivers.otlp_grpc import GrpcReceiver
from .receivers.otlp_http import HttpReceiver
from .receivers.replay import Replay
from .reload import Reload
from .security import Doorkeeper
from .spool.spool import Spool
from .status.site import StatusSite
from .status.survey import Survey
from .telemetry import logs
from .telemetry.health import Health, Status
from .telemetry.metrics import MetricsServer, OtlpMetricsPush, own_resource

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ..config import Config, KvSourceConfig
    from ..measures import Measures, MetricSnapshot
    from .core import Core
    from .telemetry.metrics import Temporality

_RECEIVERS_SHARE = 0.1  # of the shutdown's deadline; requests under way take milliseconds
_PUSH_SECONDS_MAX = 5.0

_log = logs.Log("service")


class Service:
    """A running whymiss: ``async with Service(config) as service``. Ports of 0 can be read once it runs.

    Leaving the block drains: receivers close, the core releases all it holds, the exporters send it.
    ``core`` is what stands between receivers and exporters, the pipeline by default. ``read`` reads the configuration
    again when ``reload`` is called; it may raise ``ConfigError``.

    Raises:
        OSError: the key of the checkpoint can neither be read nor be made.
        BadInput: the file of that key, or of a reference, holds something else.
        ConfigError: the file of a reference cannot be used.
    """

    def __init__(
        self,
        config: Config,
        core: Core | None = None,
        *,
        temporality: Temporality = "cumulative",
        read: Callable[[], Config] | None = None,
    ) -> None:
        self._reload = None if read is None else Reload(config, read)
        self._limits = limits_of(config, container_bytes())
        self._config = config = _fitted(config, self._limits)
        self._temporality = temporality
        path = config.ledger.checkpoint_path
        self._checkpoint = None if path is None or core is not None else CheckpointFile(Path(path))
        self._pipeline = Pipeline(
            config,
            process_key=secrets.token_bytes(32),
            start_unix_nanos=time.time_ns(),
            record_key=None if self._checkpoint is None else self._checkpoint.key(),
        )
        self._pipeline.adopt(config.redaction, references.load(config), config.references.scope)
        self._core: Core = core or self._pipeline
        self._chores = Chores(self._core.measures)
        self._survey = Survey(config, self._measure, None if core is not None else self._pipeline)
        if self._reload is not None:
            self._reload.taken = self._survey.adopt
        self._fan_out = FanOut([])
        self._memory: Memory | None = None
        self._spool: Spool | None = None
        self._stack = AsyncExitStack()
        self._stop_by = 0.0
        self.grpc_port = self.http_port = self.metrics_port = self.health_port = 0
        self.given_up = 0
        """Requests that could not be delivered before the deadline of the shutdown."""

    async def __aenter__(self) -> Self:
        config, core, pace = self._config, self._core, Pace()
        # What is entered here is left in the opposite order: at the end, or where a later part fails to start.
        async with AsyncExitStack() as stack:
            health = await self._start_health(stack)
            await self._start_telemetry(stack)
            self._spool = await self._start_spool(stack, pace)
            receipts = None if self._spool is None else Receipts(core.holds, self._spool.settle, self._spool.postpone)
            self._fan_out = self._connect(pace, receipts)
            self._survey.fan_out, self._survey.spool = self._fan_out, self._spool
            stack.push_async_callback(self._stop_exporters)
            stack.callback(self._drain)
            advance = Advance(core, self._fan_out, pace)
            self._chores.begin(stack, "advance", advance.run())
            self._resume(stack)
            discovery = await self._start_listeners(stack, advance)
            self._memory = Memory(self._limits, core, self._fan_out, pace)
            self._chores.begin(stack, "memory", self._memory.run())
            intake = Intake(core, self._fan_out, pace.now, advance.look, self._spool)
            intake.memory = self._memory
            if self._spool is not None:
                replay = Replay(self._spool, intake, self._fan_out, pace, config.spool.replay_requests_per_second)
                self._chores.begin(stack, "replay", replay.run())
            await self._start_receivers(stack, intake, advance)
            if self._reload is not None:
                self._chores.begin(stack, "reload", self._reload.run(self._pipeline, discovery))
            stack.callback(self._begin_to_stop, health)
            self._stack = stack.pop_all()
        if health is not None:
            health.set_status(Status.OK)
        _log.info("running", grpc_port=self.grpc_port, http_port=self.http_port, upb=upb_in_use())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        _log.info("stopped", given_up=self.given_up)

    async def _start_health(self, stack: AsyncExitStack) -> Health | None:
        if self._config.health.endpoint is None:
            return None
        pages = StatusSite(self._survey.take).routes if self._config.health.status_page else None
        self._survey.health = health = Health(self._config.health.endpoint, pages)
        self._chores.begin(stack, "survey", self._survey.run())
        stack.push_async_callback(health.stop)
        await health.start()
        self.health_port = health.port
        return health

    async def _start_telemetry(self, stack: AsyncExitStack) -> None:
        settings, resource = self._config.telemetry, own_resource()
        if settings.metrics_endpoint is not None:
            server = MetricsServer(settings.metrics_endpoint, lambda: self._measure().in_turn(), resource)
            stack.push_async_callback(server.stop)
            await server.start()
            self.metrics_port = server.port
        if settings.otlp_endpoint is not None:
            push = OtlpMetricsPush(settings, self._collect, resource, temporality=self._temporality)
            stack.push_async_callback(push.stop, patience_seconds=_PUSH_SECONDS_MAX)
            await push.start()

    async def _start_spool(self, stack: AsyncExitStack, pace: Pace) -> Spool | None:
        if self._config.spool.directory is None:
            return None
        spool = Spool(self._config.spool, self._core.measures, pace)
        stack.push_async_callback(spool.stop)
        await spool.start()
        return spool

    def _connect(self, pace: Pace, receipts: Receipts | None) -> FanOut:
        exporters = [
            Exporter(name, settings, connect(settings), self._core.measures, pace)
            for name, settings in self._config.exporters.items()
        ]
        return FanOut(exporters, receipts)

    def _resume(self, stack: AsyncExitStack) -> None:
        """Go on with the record of the former run, and keep this one's."""
        if self._checkpoint is None:
            return
        history = self._pipeline.snapshots
        self._checkpoint.take()
        stack.callback(self._checkpoint.let_go)
        self._checkpoint.resume(history, time.monotonic())
        checkpoints = Checkpoints(self._checkpoint, history, self._config.ledger.checkpoint_seconds)
        stack.callback(checkpoints.stop)
        self._chores.begin(stack, "checkpoints", checkpoints.run())

    def reload(self) -> None:
        """Have the configuration read again; without a file to read it from that is only a line in the log."""
        if self._reload is None:
            _log.warning("there is no configuration file to read again")
        else:
            self._reload.ask()

    async def _start_listeners(self, stack: AsyncExitStack, advance: Advance) -> Discovery:
        context = zmq.asyncio.Context()
        context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))  # the default is 1023: too few for a fleet
        stack.callback(context.destroy, linger=0)
        settings = self._config.kv_events
        self._survey.silence = silence = Silence(self._core.measures, settings.silence_seconds)
        self._chores.begin(stack, "silence", silence.run())

        def subscribe(source: KvSourceConfig) -> Attended:
            return Attended(
                source_name(source),
                silence,
                lambda taken: KvListener(source, self._core, context, taken),
                advance.look,
            )

        discovery = Discovery(settings, subscribe, self._core.measures, World(os.environ))
        stack.push_async_callback(discovery.stop)
        await discovery.start()
        return discovery

    async def _start_receivers(self, stack: AsyncExitStack, intake: Intake, advance: Advance) -> None:
        settings = self._config.receivers
        grace_seconds = self._config.shutdown.deadline_seconds * _RECEIVERS_SHARE
        doorkeeper = Doorkeeper(settings.bearer_tokens)
        if settings.grpc.endpoint is not None:
            grpc = GrpcReceiver(
                settings.grpc.endpoint, settings.grpc, intake, grace_seconds=grace_seconds, doorkeeper=doorkeeper
            )
            grpc.add(kv_push_service(self._core, advance.look, doorkeeper.admits))
            stack.push_async_callback(grpc.stop)
            await grpc.start()
            self.grpc_port = grpc.port
        if settings.http.endpoint is not None:
            http = HttpReceiver(
                settings.http.endpoint, settings.http, intake, grace_seconds=grace_seconds, doorkeeper=doorkeeper
            )
            stack.push_async_callback(http.stop)
            await http.start()
            self.http_port = http.port

    @property
    def measures(self) -> Measures:
        """What the service counts."""
        return self._core.measures

    def _measure(self) -> Measures:
        self._fan_out.gauge()
        if self._spool is not None:
            self._spool.gauge()
        if self._memory is not None:
            self._memory.gauge()
        return self._core.measures

    def _collect(self, reader: str | None) -> tuple[MetricSnapshot, ...]:
        return self._measure().snapshot(reader)

    def _begin_to_stop(self, health: Health | None) -> None:
        self._stop_by = time.monotonic() + self._config.shutdown.deadline_seconds
        if health is not None:
            health.set_status(Status.STOPPING)

    def _drain(self) -> None:
        try:
            self._fan_out.enqueue(self._core.drain())
        except Exception as error:
            self._core.measures.count("whymiss.stage.failures", stage="drain", error_type=type(error).__name__)
            _log.error("held spans could not be released", error=error)

    async def _stop_exporters(self) -> None:
        self.given_up = await self._fan_out.stop(max(0.0, self._stop_by - time.monotonic()))


def _fitted(config: Config, limits: Limits) -> Config:
    """The configuration with a record that fits into the container."""
    if limits.ledger >= config.ledger.bytes_max:
        return config
    _log.warning("the record must be smaller than configured", limit_key="ledger.bytes_max", bytes=limits.ledger)
    return msgspec.structs.replace(config, ledger=msgspec.structs.replace(config.ledger, bytes_max=limits.ledger))


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
    try:
        service = Service(config, temporality=_temporality(preference), read=read)
        loop.add_signal_handler(signal.SIGHUP, service.reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])  # what came while we started is met now
        async with service:
            spare_collections()
            await stopping.wait()
    except (OSError, BadInput, ConfigError) as error:
        _log.error("cannot start", error=error)
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, BadInput) else 1
    return 1 if service.given_up else 0
