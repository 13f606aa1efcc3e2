"""Whose record a request's is: from the names that spans carry to the streams of the history.

Stock vLLM spans name no worker and ``service.instance.id`` is random per process, so the operator
sets resource attributes on the engines, or maps them, or declares a sole source. A name that fits two
workers fits none: a wrong worker would be a wrong verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ...config import WorkersConfig
from ...model import FleetView, Reason, Request, ResourceIdentity, RouteDecision, StreamId
from ...model.worker_name import address_of, plain_name, split_rank

NAMES_MAX = 4096
"""Names and resources whose worker is remembered; each is resolved once, not once a request."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The streams that may be a request's own (several: ranks of one worker), or why there are none."""

    worker: str | None = None
    streams: tuple[StreamId, ...] = ()
    gap: Reason = Reason.NONE


class KnownWorkers:
    """The workers of some streams, by the names that may mean them."""

    def __init__(self, streams: Sequence[StreamId], aliases: Mapping[str, set[str]]) -> None:
        self.names = sorted({stream.worker for stream in streams})
        self.streams: defaultdict[str, list[StreamId]] = defaultdict(list)
        self.ranks: defaultdict[tuple[str, int], list[StreamId]] = defaultdict(list)
        for stream in streams:
            self.streams[stream.worker].append(stream)
            self.ranks[stream.worker, stream.rank].append(stream)
        self._aliases = aliases
        self._plain: defaultdict[str, set[str]] = defaultdict(set)
        self._hosts: defaultdict[str, set[str]] = defaultdict(set)
        for worker in self.names:
            plain = plain_name(worker)
            self._plain[plain].add(worker)
            self._hosts[address_of(plain).host].add(worker)
        self._meant: dict[str, tuple[str | None, int | None]] = {}
        self.resources: dict[ResourceIdentity, tuple[str | None, int | None]] = {}
        """What resources meant, by the one who asked."""

    def find(self, name: str) -> tuple[str | None, int | None]:
        """The one worker that a name means, and the rank that llm-d appends as ``-rank-N``."""
        meant = self._meant.get(name)
        if meant is None:
            if len(self._meant) >= NAMES_MAX:
                self._meant.clear()
            meant = self._meant[name] = self._find(name)
        return meant

    def _find(self, name: str) -> tuple[str | None, int | None]:
        worker = self.of_name(name)
        if worker is not None:
            return worker, None
        base, rank = split_rank(plain_name(name))
        worker = self.of_name(base) if rank is not None else None
        return worker, rank if worker is not None else None

    def of_name(self, name: str) -> str | None:
        """The one worker that a name means, or ``None`` when it means none or several."""
        plain = plain_name(name)
        workers = set(self._aliases.get(plain, ()))
        exact = set(self._plain.get(plain, ()))
        if not workers and not exact:
            # A bare address means a worker only if a single one lives there.
            asked = address_of(plain)
            exact = set(self._hosts.get(asked.host, ())) if asked.is_host else set()  # guard: workers-host-dot
            if asked.port is not None and any(address_of(plain_name(worker)).port is not None for worker in exact):
                exact = set()  # guard: workers-host-port
        workers |= exact
        return workers.pop() if len(workers) == 1 else None  # guard: workers-name-one


class Workers:
    """Names and aliases of the workers that the history knows."""

    def __init__(self, config: WorkersConfig) -> None:
        self._config = config
        self._aliases: dict[str, set[str]] = {}
        for worker, names in config.aliases.items():
            for name in (worker, *names):
                self._aliases.setdefault(plain_name(name), set()).add(worker)
        self._known: tuple[Sequence[StreamId] | None, KnownWorkers] = None, KnownWorkers((), self._aliases)

    def known(self, streams: Sequence[StreamId]) -> KnownWorkers:
        """The workers of these streams; the same as long as the streams are the same object."""
        if self._known[0] is not streams:
            self._known = streams, KnownWorkers(streams, self._aliases)
        return self._known[1]

    def resolve(self, request: Request, fleet: FleetView) -> Resolved:
        """The streams of the worker that served a request."""
        streams = fleet.streams()
        known = self.known(streams)
        worker, rank = self._named(request, known)
        if worker is None:
            # guard: workers-none, workers-no-source
            return Resolved(gap=Reason.NO_WORKER if streams else Reason.NO_EVENT_SOURCE)
        mine = known.streams.get(worker, [])
        if rank is not None:
            mine = known.ranks.get((worker, rank), [])  # guard: workers-rank
        if not mine:  # guard: workers-silent
            return Resolved(worker=worker, gap=Reason.NO_EVENT_SOURCE)
        return Resolved(worker=worker, streams=tuple(mine))

    def _named(self, request: Request, known: KnownWorkers) -> tuple[str | None, int | None]:
        rank: int | None = None
        worker: str | None = None
        for span in (request.lookup, request.engine):
            if span is None:
                continue
            found, mapped_rank = self._of_resource(span.resource, known)
            if None not in {found, worker} and found != worker:
                return None, None  # guard: workers-disagree
            worker = worker or found
            rank = rank if rank is not None else (mapped_rank if mapped_rank is not None else span.resource.rank)
        if worker is None:  # guard: workers-routes-last
            worker, routed_rank = self._of_routes(request, known)
            rank = rank if rank is not None else routed_rank
        if worker is None:
            worker = self._sole(known.names)
        return worker, rank

    def _of_resource(self, resource: ResourceIdentity, known: KnownWorkers) -> tuple[str | None, int | None]:
        found = known.resources.get(resource)
        if found is None:
            if len(known.resources) >= NAMES_MAX:
                known.resources.clear()
            found = known.resources[resource] = self._means(resource, known)
        return found

    def _means(self, resource: ResourceIdentity, known: KnownWorkers) -> tuple[str | None, int | None]:
        attributes = dict(resource.attributes)
        for entry in self._config.map:
            if _agrees(entry.match, attributes):
                return entry.worker, entry.rank
        if resource.worker is not None:
            worker, rank = known.find(resource.worker)
            return worker or resource.worker, rank if resource.rank is None else resource.rank
        names = [resource.pod_uid, resource.pod_name, resource.pod_ip, resource.instance_id, resource.service_name]
        if resource.namespace and resource.pod_name:
            names.insert(0, f"{resource.namespace}/{resource.pod_name}")
        found = {worker for name in names if name and (worker := known.of_name(name))}
        return (found.pop() if len(found) == 1 else None), resource.rank  # guard: workers-resource-one

    def _of_routes(self, request: Request, known: KnownWorkers) -> tuple[str | None, int | None]:
        routes = [said for span in request.routes for said in span.says if isinstance(said, RouteDecision)]
        found: set[tuple[str, int | None]] = set()
        for said in routes:
            worker, rank = known.find(said.worker) if said.worker else (None, None)
            if worker is not None:
                found.add((worker, rank if said.rank is None else said.rank))
        if len({worker for worker, _ in found}) == 1:
            # One span may name the rank that another leaves out.
            found -= {(worker, None) for worker, rank in found if rank is not None}  # guard: workers-route-rank
        return found.pop() if len(found) == 1 else (None, None)  # guard: workers-routes-one

    def _sole(self, known: Sequence[str]) -> str | None:
        sole = self._config.sole_source
        if isinstance(sole, str):
            return sole
        return known[0] if sole and len(known) == 1 else None  # guard: workers-sole, workers-sole-one


def _agrees(match: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    # guard: workers-map-empty, workers-map-every
    return bool(match) and all(attributes.get(key) == value for key, value in match.items())
