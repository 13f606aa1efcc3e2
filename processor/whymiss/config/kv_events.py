"""The section about the publishers of KV-cache events: named one by one, or found by name or in a file.

``expand`` turns what is named into one source a socket, for engines that publish each data-parallel rank on
a port of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from ..errors import ConfigError
from .endpoints import PORT_MAX, check_listener, check_text, check_zmq
from .kinds import Count, CountOrZero, SecondsAboveZero, Section

_TCP = re.compile(r"tcp://(?P<host>.*):(?P<port>[0-9]+)")


class KvSourceConfig(Section, frozen=True, kw_only=True):
    """One publisher of KV-cache events."""

    endpoint: str
    """ZMQ address, such as ``tcp://engine-0:5557`` or ``ipc:///run/kv``. No default."""
    bind: bool = False
    """Whether we bind and the publishers connect. Default false: we connect. True suits a whole fleet on one address."""
    topic: str = ""
    """Prefix of the topics to take. Default empty, which takes all."""
    replay_endpoint: str | None = None
    """ZMQ address at which missed batches can be asked for again. Default null: a gap stays a hole."""
    worker: str | None = None
    """Name of the worker that publishes here. Default null: taken from topics of the form ``kv@worker@model``."""
    default_worker: str | None = None
    """Name of the worker where neither ``worker`` nor a topic says it. Default null: the endpoint."""
    rank: CountOrZero | None = None
    """Data-parallel rank that publishes here, from 0. Default null: taken from each batch, else 0."""
    ranks: Count = 1
    """Data-parallel ranks of the worker: rank r publishes on the endpoint's port + r, and replays on the replay
    endpoint's. Default 1, which takes the ports as they are."""
    model: str | None = None
    """Model served by the worker. Default null: taken from the topic."""
    kv_connector: bool = False
    """Whether the worker loads blocks through a KV connector, which stores without computing. Default false."""
    hash_family: str | None = None
    """Name shared by the workers whose block hashes are comparable. Default null: those of one model are."""

    def __post_init__(self) -> None:
        check_zmq("endpoint", self.endpoint)
        check_zmq("replay_endpoint", self.replay_endpoint)
        if self.replay_endpoint is not None and self.bind and self.worker is None:
            raise ConfigError("replay_endpoint", "needs worker: with bind, several publishers share one endpoint")
        check_text("worker", self.worker)
        check_text("default_worker", self.default_worker)
        check_text("hash_family", self.hash_family)
        check_text("model", self.model)
        check_text("topic", self.topic or None)
        if self.ranks > 1:
            self._check_ranks()

    def _check_ranks(self) -> None:
        if self.rank is not None:
            raise ConfigError("rank", "has no use beside ranks: each rank has its own port")
        for key, endpoint in (("endpoint", self.endpoint), ("replay_endpoint", self.replay_endpoint)):
            if endpoint is None:
                continue
            found = _TCP.fullmatch(endpoint)
            if found is None:
                raise ConfigError(key, "must be tcp:// where ranks exceeds 1")
            if int(found["port"]) + self.ranks - 1 > PORT_MAX:
                raise ConfigError(key, f"has a port above {PORT_MAX} for the last of the ranks")


class KvDiscoveryConfig(Section, frozen=True, kw_only=True):
    """Publishers that are looked up, again and again, while the service runs."""

    dns: str | None = None
    """``name:port``: each address behind the name, A or AAAA, is a publisher, and the address is its worker's name
    unless ``worker`` or a topic says another. While the name cannot be resolved, the last answer holds. Default null."""
    file: str | None = None
    """Path of a YAML file with a list of publishers, each with the keys of ``kv_events.sources``; read again when it
    changes. While it cannot be read, the last list holds. Default null; one of ``dns`` and ``file`` must be given."""
    refresh_seconds: SecondsAboveZero = 5.0
    """How often the name is resolved, or the file looked at, in seconds. Default 5; not zero."""
    replay_port: Count | None = None
    """With ``dns``: port at which each address replays missed batches. Default null: a gap stays a hole."""
    ranks: Count = 1
    """With ``dns``: data-parallel ranks at each address, rank r on port + r. Default 1."""
    topic: str = ""
    """With ``dns``: prefix of the topics to take. Default empty, which takes all."""
    worker: str | None = None
    """With ``dns``: name of the one worker behind the name. Default null: each address is a worker."""
    model: str | None = None
    """With ``dns``: model served by the workers. Default null: taken from the topic."""
    kv_connector: bool = False
    """With ``dns``: whether the workers load blocks through a KV connector. Default false."""
    hash_family: str | None = None
    """With ``dns``: name shared by the workers whose block hashes are comparable. Default null: those of one model."""

    def __post_init__(self) -> None:
        if (self.dns is None) == (self.file is None):
            raise ConfigError("dns", "must be given, or else file: exactly one of them")
        if self.dns is None:
            self._check_file()
            return
        check_listener("dns", self.dns)
        if self.port < 1 or self.port + self.ranks - 1 > PORT_MAX:
            raise ConfigError("dns", f"must have a port from 1 to {PORT_MAX} for each of the ranks")
        if self.replay_port is not None and self.replay_port + self.ranks - 1 > PORT_MAX:
            raise ConfigError("replay_port", f"must be a port from 1 to {PORT_MAX} for each of the ranks")
        check_text("worker", self.worker)
        check_text("hash_family", self.hash_family)

    def _check_file(self) -> None:
        check_text("file", self.file)
        for name in _OF_DNS:
            if getattr(self, name) != getattr(_NO_TEMPLATE, name):
                raise ConfigError(name, "is for dns; with file it belongs in the file")

    @property
    def name(self) -> str:
        """What is looked up: the name without its port, or the path."""
        return self.file if self.file is not None else str(self.dns).rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port behind the name; for ``dns`` only."""
        return int(str(self.dns).rpartition(":")[2])


_OF_DNS = ("replay_port", "ranks", "topic", "worker", "model", "kv_connector", "hash_family")
_NO_TEMPLATE = KvDiscoveryConfig(dns="none:1")


class KvEventsConfig(Section, frozen=True, kw_only=True):
    """Where KV-cache events come from."""

    sources: tuple[KvSourceConfig, ...] = ()
    """The publishers. Default none: causes that need events end in ``unknown`` (``no_event_source``)."""
    discovery: tuple[KvDiscoveryConfig, ...] = ()
    """Names and files in which further publishers are found. Default none."""
    silence_seconds: SecondsAboveZero = 60.0
    """A source without a batch for this long is reported as silent, in seconds. Default 60; not zero."""

    def __post_init__(self) -> None:
        check_distinct("sources", self.sources)


def check_distinct(key: str, sources: Iterable[KvSourceConfig]) -> None:
    """Check that no two of the sources under a key read the same events, or are two publishers of one name."""
    sources = tuple(sources)
    seen: dict[tuple[str, str], int] = {}
    for index, source in enumerate(sources):
        for one in expand([source]):
            first = seen.setdefault((one.endpoint, one.topic), index)
            if first != index:
                raise ConfigError(f"{key}[{index}].endpoint", f"the same endpoint and topic as {key}[{first}]")
    _check_names(key, sources)


def _check_names(key: str, sources: Iterable[KvSourceConfig]) -> None:
    """Check that no two publishers have one name: their sequence numbers would read as one stream that restarts all the time."""
    for field in ("worker", "default_worker"):
        seen: dict[str, dict[int | None, int]] = {}
        for index, source in enumerate(sources):
            for one in expand([source]):
                name = getattr(one, field)
                if name is None or (field == "default_worker" and one.worker is not None):
                    continue
                ranks = seen.setdefault(name, {})
                if ranks and (one.rank is None or None in ranks or one.rank in ranks):
                    other = ranks.get(one.rank, min(ranks.values()))
                    raise ConfigError(
                        f"{key}[{index}].{field}", f"is {key}[{other}]'s too: name each worker, or give each its rank"
                    )
                ranks[one.rank] = index


def expand(sources: Iterable[KvSourceConfig]) -> tuple[KvSourceConfig, ...]:
    """Make one source a data-parallel rank, in order; a source of one rank stays as it is.

    All ranks of one source are one worker: where it has no name, the first rank's host and port name it.
    """
    return tuple(one for source in sources for one in _ranks_of(source))


def _ranks_of(source: KvSourceConfig) -> Iterable[KvSourceConfig]:
    if source.ranks == 1:
        yield source
        return
    for rank in range(source.ranks):
        yield replace(
            source,
            endpoint=_offset(source.endpoint, rank),
            replay_endpoint=None if source.replay_endpoint is None else _offset(source.replay_endpoint, rank),
            default_worker=source.default_worker or source.endpoint.removeprefix("tcp://"),
            rank=rank,
            ranks=1,
        )


def _offset(endpoint: str, rank: int) -> str:
    head, _, port = endpoint.rpartition(":")
    return f"{head}:{int(port) + rank}"


def sources_at(config: KvDiscoveryConfig, addresses: Iterable[str]) -> tuple[KvSourceConfig, ...]:
    """Make the sources of a ``dns`` entry from the addresses behind its name, sorted, each once."""
    return expand(_source_at(config, address) for address in sorted(set(addresses)))


def _source_at(config: KvDiscoveryConfig, address: str) -> KvSourceConfig:
    host = f"[{address}]" if ":" in address else address
    return KvSourceConfig(
        endpoint=f"tcp://{host}:{config.port}",
        replay_endpoint=None if config.replay_port is None else f"tcp://{host}:{config.replay_port}",
        ranks=config.ranks,
        topic=config.topic,
        worker=config.worker,
        default_worker=address,
        model=config.model,
        kv_connector=config.kv_connector,
        hash_family=config.hash_family,
    )
