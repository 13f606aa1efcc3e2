"""The service: everything wired by hand, started from the exporter backwards, stopped from the receiver forwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

import zmq.asyncio

from .. import __version__
from ..config import Config
from ..measures import MetricSnapshot
from ..pipeline import Pipeline
from .exporter import Exporter
from .health import Health, Status
from .intake import Intake
from .kv_events import KvSubscriber
from .logs import Log, configure
from .otlp_grpc import GrpcReceiver
from .otlp_http import HttpReceiver
from .telemetry import MetricsServer, OtlpMetricsPush, own_resource, resident_bytes

log = Log("service")

RECEIVER_GRACE_SECONDS = 2.0
Temporality = Literal["cumulative", "delta", "lowmemory"]


class Service:
    """A running whymiss: ``async with Service(config) as service``. Ports that were 0 can be read."""

    def __init__(self, config: Config, *, temporality: Temporality = "cumulative") -> None:
        self._config = config
        self.pipeline = Pipeline(config, process_key=secrets.token_bytes(32), start_unix_nanos=time.time_ns())
        measures = self.pipeline.measures
        self.exporters = [Exporter(name, one, measures) for name, one in config.exporters.items()]
        self._intake = Intake(self.pipeline, self.exporters)
        self._context = zmq.asyncio.Context()
        self._subscribers = [KvSubscriber(one, self._intake, self._context) for one in config.kv_events.sources]
        receivers = config.receivers
        self._grpc = GrpcReceiver(receivers.grpc, self._intake) if receivers.grpc.endpoint else None
        self._http = HttpReceiver(receivers.http, self._intake) if receivers.http.endpoint else None
        resource = own_resource()
        telemetry = config.telemetry
        self._metrics = (
            MetricsServer(telemetry.metrics_endpoint, self._collect, resource) if telemetry.metrics_endpoint else None
        )
        self._push = (
            OtlpMetricsPush(telemetry, self._collect, resource, temporality=temporality)
            if telemetry.otlp_endpoint
            else None
        )
        self._health = Health(config.health.endpoint) if config.health.endpoint else None

    def _collect(self, reader: str | None) -> tuple[MetricSnapshot, ...]:
        self.pipeline.measures.gauge("whymiss.process.memory", resident_bytes())
        return self.pipeline.measures.snapshot(reader)

    async def start(self) -> None:
        """Start all parts. Raises ``OSError`` naming the address that cannot be had; nothing keeps running then."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        if self._health is not None:
            await self._health.start()
        if self._metrics is not None:
            await self._metrics.start()
        if self._push is not None:
            await self._push.start()
        for exporter in self.exporters:
            await exporter.start()
        await self._intake.start()
        for subscriber in self._subscribers:
            await subscriber.start()
        if self._grpc is not None:
            await self._grpc.start()
        if self._http is not None:
            await self._http.start()
        if self._health is not None:
            self._health.set_status(Status.OK)
        log.info("started", version=__version__, grpc_port=self.grpc_port, http_port=self.http_port)

    async def stop(self) -> None:
        """Take nothing new, release what is held, send what is queued, within the deadline."""
        deadline = time.monotonic() + self._config.shutdown.deadline_seconds
        if self._health is not None:
            self._health.set_status(Status.STOPPING)
        if self._grpc is not None:
            await self._grpc.stop(RECEIVER_GRACE_SECONDS)
        if self._http is not None:
            await self._http.stop()
        for subscriber in self._subscribers:
            await subscriber.stop()
        await self._intake.stop()
        left = max(0.1, deadline - time.monotonic())
        await asyncio.gather(*(exporter.stop(left) for exporter in self.exporters))
        if self._push is not None:
            await self._push.stop()
        if self._metrics is not None:
            await self._metrics.stop()
        if self._health is not None:
            await self._health.stop()
        self._context.destroy(linger=0)
        log.info("stopped")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def grpc_port(self) -> int | None:
        """The port of OTLP/gRPC, after ``start``."""
        return self._grpc.port if self._grpc is not None else None

    @property
    def http_port(self) -> int | None:
        """The port of OTLP/HTTP, after ``start``."""
        return self._http.port if self._http is not None else None

    @property
    def metrics_port(self) -> int | None:
        """The port of ``/metrics``, after ``start``."""
        return self._metrics.port if self._metrics is not None else None

    @property
    def health_port(self) -> int | None:
        """The port of the probes, after ``start``."""
        return self._health.port if self._health is not None else None


def temporality_of(environ: Mapping[str, str]) -> Temporality:
    """``OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE``; anything unknown is ``cumulative``, as the SDKs do."""
    preference = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
    if preference == "delta":
        return "delta"
    return "lowmemory" if preference == "lowmemory" else "cumulative"


async def serve(config: Config, temporality: Temporality) -> None:
    """Run until SIGTERM or SIGINT, then drain."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with Service(config, temporality=temporality):
        await stopping.wait()
        log.info("stopping", deadline_seconds=config.shutdown.deadline_seconds)


def run(config: Config) -> int:
    """Run the service in the foreground; returns the process's exit code."""
    configure(config.telemetry.log_level)
    try:
        asyncio.run(serve(config, temporality_of(os.environ)))
    except OSError as error:
        sys.stderr.write(f"whymiss: {error}\n")
        return 1
    except KeyboardInterrupt:
        with contextlib.suppress(ValueError):
            sys.stderr.flush()
        return 130
    return 0
