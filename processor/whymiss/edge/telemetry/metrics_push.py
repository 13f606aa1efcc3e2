"""Where the service's metrics are sent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource

from .logs import Log
from .otlp_metrics import Sent, batches, metrics_of

if TYPE_CHECKING:
    from ...config import TelemetryConfig
    from ...measures import MetricSnapshot

Collect: TypeAlias = Callable[[str | None], tuple["MetricSnapshot", ...]]
"""Brings the gauges up to date and takes a snapshot for a reader; always called on the event loop."""

Temporality: TypeAlias = Literal["cumulative", "delta", "lowmemory"]
"""``lowmemory`` is delta for the kinds of metric that there are here."""

_READER = "otlp"
_TIMEOUT_SECONDS = 10.0
"""For a push with all its retries: the specification's default."""

_log = Log("telemetry")


class OtlpMetricsPush:
    """Sends all metrics over OTLP, periodically and once more at the end.

    Headers, certificates and compression come from the standard ``OTEL_EXPORTER_OTLP_*`` variables, which
    the SDK's exporter reads. A failed push costs nothing: totals are sent again, and a delta becomes part
    of the next one.
    """

    def __init__(
        self, config: TelemetryConfig, collect: Collect, resource: Mapping[str, str], *, temporality: Temporality
    ) -> None:
        self._config = config
        self._collect = collect
        self._resource = Resource(dict(resource))
        self._sent = Sent(delta=temporality != "cumulative")
        self._stopping = asyncio.Event()
        self._running: tuple[MetricExporter, ThreadPoolExecutor, asyncio.Task[None]] | None = None

    async def start(self) -> None:
        """Begin; the first push is one interval away."""
        exporter = _exporter(self._config)
        thread = ThreadPoolExecutor(1, thread_name_prefix="otlp-metrics")
        self._running = exporter, thread, asyncio.create_task(self._run(exporter, thread))

    async def stop(self, *, patience_seconds: float = 5.0) -> None:
        """Push once more; retries end with the patience, a call under way with its own timeout."""
        if self._running is None:
            return
        exporter, thread, task = self._running
        self._running = None
        self._stopping.set()
        await asyncio.wait({task}, timeout=patience_seconds)
        exporter.shutdown()
        await task
        thread.shutdown()

    async def _run(self, exporter: MetricExporter, thread: ThreadPoolExecutor) -> None:
        last = False
        while not last:
            with contextlib.suppress(TimeoutError):
                last = await asyncio.wait_for(self._stopping.wait(), self._config.otlp_interval_seconds)
            try:
                push = partial(self._push, exporter, self._collect(_READER), time.time_ns())
                if not await asyncio.get_running_loop().run_in_executor(thread, push):
                    _log.warning("metrics not delivered", endpoint=self._config.otlp_endpoint)
            except Exception as error:
                _log.error("metrics not pushed", error=error, endpoint=self._config.otlp_endpoint)

    def _push(self, exporter: MetricExporter, snapshot: tuple[MetricSnapshot, ...], unix_nanos: int) -> bool:
        for batch in batches(snapshot):
            metrics = metrics_of(batch, self._sent, self._resource, unix_nanos)
            if metrics is not None and exporter.export(metrics) is not MetricExportResult.SUCCESS:
                return False
            self._sent.acknowledge(batch, unix_nanos)
        return True


def _exporter(config: TelemetryConfig) -> MetricExporter:
    endpoint = config.otlp_endpoint or ""
    if config.otlp_protocol == "grpc":
        plain = endpoint.startswith("http://")
        return GrpcExporter(endpoint=endpoint, insecure=plain, timeout=_TIMEOUT_SECONDS)
    return HttpExporter(endpoint=f"{endpoint.rstrip('/')}/v1/metrics", timeout=_TIMEOUT_SECONDS)
