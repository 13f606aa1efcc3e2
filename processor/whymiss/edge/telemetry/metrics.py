"""Where the service's metrics are read and where they are sent."""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import uuid4

from aiohttp import web
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource

from ... import __version__
from .logs import Log
from .negotiation import format_for, takes_gzip
from .otlp_metrics import Sent, batches, metrics_of
from .prometheus import Exposition
from .web import Site

if TYPE_CHECKING:
    from ...config import TelemetryConfig
    from ...measures import MetricSnapshot

Collect: TypeAlias = Callable[[str | None], tuple["MetricSnapshot", ...]]
"""Brings the gauges up to date and takes a snapshot for a reader; always called on the event loop."""

Show: TypeAlias = Callable[[], Iterable["MetricSnapshot"]]
"""The same for whoever takes one metric at a time, between which others have their turn."""

Temporality: TypeAlias = Literal["cumulative", "delta", "lowmemory"]
"""``lowmemory`` is delta for the kinds of metric that there are here."""

_READER = "otlp"
_TIMEOUT_SECONDS = 10.0
"""For a push with all its retries: the specification's default."""

_log = Log("telemetry")


def own_resource() -> dict[str, str]:
    """The attributes of this process as a resource. Make it once: the instance id is random."""
    return {"service.name": "whymiss", "service.version": __version__, "service.instance.id": str(uuid4())}


class MetricsServer:
    """Serves ``/metrics`` on ``endpoint`` (``host:port``): Prometheus text, or OpenMetrics with exemplars."""

    def __init__(self, endpoint: str, show: Show, resource: Mapping[str, str]) -> None:
        self._show = show
        self._exposition = Exposition(resource)
        self._turn = asyncio.Lock()
        self._site = Site(endpoint, {"/metrics": self._metrics})

    async def start(self) -> None:
        """Listen. Raises `OSError` where the address cannot be had."""
        await self._site.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._site.stop()

    @property
    def port(self) -> int:
        """The port that is listened on, after `start`."""
        return self._site.port

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        form, gzipped = format_for(_header(request, "Accept")), takes_gzip(_header(request, "Accept-Encoding"))
        headers = {"Content-Type": form.value, "Vary": "Accept, Accept-Encoding"}
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        # One at a time: a full set of series is megabytes of text, and many scrapers are one too many. Who reads
        # slowly keeps its own text only, and nobody waiting.
        async with self._turn:
            pieces = await _in_turns(self._exposition.portions(self._show(), form), gzipped=gzipped)
        response = web.StreamResponse(headers=headers)
        response.content_length = sum(map(len, pieces))
        await response.prepare(request)
        for piece in pieces if request.method != "HEAD" else ():
            await response.write(piece)
        await response.write_eof()
        return response


async def _in_turns(portions: Iterable[bytes], *, gzipped: bool) -> list[bytes]:
    """Make all portions, and let everybody else on the loop have a turn after each."""
    made: list[bytes] = []
    # The text repeats itself so much that the quickest level leaves a fiftieth of it.
    packer = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16) if gzipped else None
    for portion in portions:
        made.append(portion if packer is None else packer.compress(portion))
        await asyncio.sleep(0)
    if packer is not None:
        made.append(packer.flush())
    return [piece for piece in made if piece]


def _header(request: web.Request, name: str) -> str:
    """A list-valued header, which may come in several lines."""
    return ",".join(request.headers.getall(name, []))


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
