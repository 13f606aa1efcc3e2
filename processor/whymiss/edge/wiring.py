"""Builds the parts of the service, from the exporters to the receivers, each with all that it needs. Nothing starts here."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import zmq
import zmq.asyncio

from ..pipeline import Pipeline
from . import references
from .advance import Advance
from .checkpoint_file import CheckpointFile
from .exporters.exporter import Exporter
from .exporters.fan_out import FanOut
from .exporters.owed import Owed
from .exporters.receipts import Receipts
from .exporters.transports import connect
from .kv.discovery import Discovery, World
from .kv.listener import KvListener, source_name
from .kv.push import kv_push_service
from .kv.silence import Attended, Silence
from .memory import Limits, Memory, container_bytes, limits_of
from .pace import Pace
from .receivers.backlog import BacklogReplay
from .receivers.otlp_grpc import GrpcReceiver
from .receivers.otlp_http import HttpReceiver
from .receivers.request_intake import RequestIntake
from .reload import Reload, ReloadRequests
from .security import Doorkeeper
from .spool.spool import Spool
from .status.site import StatusSite
from .status.survey import Survey, Surveyed
from .telemetry.health import Probes, Readiness
from .telemetry.logs import Log
from .telemetry.metrics_page import MetricsPage
from .telemetry.metrics_push import OtlpMetricsPush
from .telemetry.resource import own_resource
from .telemetry.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..config import Config, KvSourceConfig
    from ..ledger.ports import HistorySnapshots
    from ..measures import Measures
    from .core import Core
    from .telemetry.metrics_push import Temporality

_RECEIVERS_SHARE = 0.1  # of the shutdown's deadline; requests under way take milliseconds

_log = Log("service")


class Checkpointed(NamedTuple):
    """The history, and the file that keeps it from one run to the next."""

    file: CheckpointFile
    history: HistorySnapshots
    seconds: float
    """Time between two checkpoints."""


class Telemetry(NamedTuple):
    """What the service says of itself; ``None`` for what is not configured."""

    survey: Survey
    readiness: Readiness
    health: Site | None
    metrics: Site | None
    push: OtlpMetricsPush | None


class Parts(NamedTuple):
    """A service that is built and does not run; ``None`` for what is not configured."""

    config: Config
    """In force: the record may be smaller than configured, so that it fits into the container."""
    core: Core
    telemetry: Telemetry
    spool: Spool | None
    fan_out: FanOut
    advance: Advance
    record: Checkpointed | None
    subscriptions: zmq.asyncio.Context
    silence: Silence
    discovery: Discovery
    memory: Memory
    replay: BacklogReplay | None
    grpc: GrpcReceiver | None
    http: HttpReceiver | None
    reload: Reload | None


class _Gauged(Protocol):
    def gauge(self) -> None:
        """Bring the gauges up to date."""
        ...


async def build(
    configured: Config, other_core: Core | None, requests: ReloadRequests, temporality: Temporality
) -> Parts:
    """Build all parts. What was built is closed again where a later part cannot be.

    ``other_core`` takes the place of the pipeline.

    Raises:
        OSError: the key of the checkpoint can neither be read nor be made.
        BadInput: the file of that key, or of a reference, holds something else.
        ConfigError: the file of a reference, of a certificate or of a key cannot be used.
    """
    limits = limits_of(configured, container_bytes())
    config = _fitted(configured, limits)
    pipeline, record = _pipeline(config, recorded=other_core is None)
    core: Core = other_core or pipeline
    pace = Pace()
    async with AsyncExitStack() as unfinished:
        spool = None if config.spool.directory is None else Spool(config.spool, core.measures, pace)
        owed = Owed(None if spool is None else Receipts(core.holds, spool.settle, spool.postpone))
        fan_out = FanOut(_exporters(config, core.measures, pace, owed, unfinished), owed)
        advance = Advance(core, fan_out, pace)
        subscriptions = zmq.asyncio.Context()
        unfinished.callback(subscriptions.destroy, linger=0)
        subscriptions.set(zmq.MAX_SOCKETS, subscriptions.get(zmq.SOCKET_LIMIT))  # by default 1023: few for a fleet
        silence = Silence(core.measures, config.kv_events.silence_seconds)
        discovery = _discovery(config, core, subscriptions, silence, advance)
        memory = Memory(limits, core, fan_out, pace)
        intake = RequestIntake(core, fan_out, pace.now, advance.look, memory=memory, spool=spool)
        replay = (
            None
            if spool is None
            else BacklogReplay(spool, intake, fan_out, pace, config.spool.replay_requests_per_second)
        )
        doorkeeper = Doorkeeper(config.receivers.bearer_tokens)
        grpc = _grpc_receiver(config, core, intake, advance, doorkeeper)
        http = _http_receiver(config, intake, doorkeeper)
        gauged = [part for part in (fan_out, spool, memory) if part is not None]
        surveyed = Surveyed(Readiness(), fan_out, silence, spool, None if other_core is not None else pipeline)
        telemetry = _telemetry(config, _measuring(core, gauged), surveyed, temporality)
        reload = (
            None
            if requests.read is None
            else Reload(
                configured,
                requests,
                read=requests.read,
                pipeline=pipeline,
                discovery=discovery,
                taken=telemetry.survey.adopt,
            )
        )
        unfinished.pop_all()
    return Parts(
        config=config,
        core=core,
        telemetry=telemetry,
        spool=spool,
        fan_out=fan_out,
        advance=advance,
        record=record,
        subscriptions=subscriptions,
        silence=silence,
        discovery=discovery,
        memory=memory,
        replay=replay,
        grpc=grpc,
        http=http,
        reload=reload,
    )


def _fitted(config: Config, limits: Limits) -> Config:
    """The configuration with a record that fits into the container."""
    if limits.ledger >= config.ledger.bytes_max:
        return config
    _log.warning("the record must be smaller than configured", limit_key="ledger.bytes_max", bytes=limits.ledger)
    return msgspec.structs.replace(config, ledger=msgspec.structs.replace(config.ledger, bytes_max=limits.ledger))


def _pipeline(config: Config, *, recorded: bool) -> tuple[Pipeline, Checkpointed | None]:
    path = config.ledger.checkpoint_path
    file = CheckpointFile(Path(path)) if path is not None and recorded else None
    pipeline = Pipeline(
        config,
        process_key=secrets.token_bytes(32),
        start_unix_nanos=time.time_ns(),
        record_key=None if file is None else file.key(),
    )
    pipeline.adopt(config.redaction, references.load(config), config.references.scope)
    return pipeline, None if file is None else Checkpointed(file, pipeline.snapshots, config.ledger.checkpoint_seconds)


def _exporters(
    config: Config, measures: Measures, pace: Pace, owed: Owed, unfinished: AsyncExitStack
) -> Sequence[Exporter]:
    exporters = []
    for name, settings in config.exporters.items():
        transport = connect(settings)
        unfinished.push_async_callback(transport.close)
        exporters.append(Exporter(name, settings, transport, measures, pace, ended=owed.ended))
    return exporters


def _discovery(
    config: Config, core: Core, subscriptions: zmq.asyncio.Context, silence: Silence, advance: Advance
) -> Discovery:
    def subscribe(source: KvSourceConfig) -> Attended:
        return Attended(
            source_name(source),
            silence,
            lambda taken: KvListener(source, core, subscriptions, taken),
            advance.look,
        )

    return Discovery(config.kv_events, subscribe, core.measures, World(os.environ))


def _grpc_receiver(
    config: Config, core: Core, intake: RequestIntake, advance: Advance, doorkeeper: Doorkeeper
) -> GrpcReceiver | None:
    settings = config.receivers.grpc
    if settings.endpoint is None:
        return None
    return GrpcReceiver(
        settings.endpoint,
        settings,
        intake,
        grace_seconds=config.shutdown.deadline_seconds * _RECEIVERS_SHARE,
        doorkeeper=doorkeeper,
        services=[kv_push_service(core, advance.look, doorkeeper.admits)],
    )


def _http_receiver(config: Config, intake: RequestIntake, doorkeeper: Doorkeeper) -> HttpReceiver | None:
    settings = config.receivers.http
    if settings.endpoint is None:
        return None
    return HttpReceiver(
        settings.endpoint,
        settings,
        intake,
        grace_seconds=config.shutdown.deadline_seconds * _RECEIVERS_SHARE,
        doorkeeper=doorkeeper,
    )


def _measuring(core: Core, gauged: Sequence[_Gauged]) -> Callable[[], Measures]:
    """Make what brings all gauges up to date and gives what is counted."""

    def measure() -> Measures:
        for part in gauged:
            part.gauge()
        return core.measures

    return measure


def _telemetry(
    config: Config, measure: Callable[[], Measures], surveyed: Surveyed, temporality: Temporality
) -> Telemetry:
    survey = Survey(config, measure, surveyed)
    resource: Mapping[str, str] = own_resource()
    settings = config.telemetry
    health = metrics = push = None
    if config.health.endpoint is not None:
        pages = StatusSite(survey.take).routes if config.health.status_page else {}
        health = Site(config.health.endpoint, {**pages, **Probes(surveyed.readiness).routes})
    if settings.metrics_endpoint is not None:
        metrics = Site(settings.metrics_endpoint, MetricsPage(lambda: measure().in_turn(), resource).routes)
    if settings.otlp_endpoint is not None:
        push = OtlpMetricsPush(settings, lambda reader: measure().snapshot(reader), resource, temporality=temporality)
    return Telemetry(survey, surveyed.readiness, health, metrics, push)
