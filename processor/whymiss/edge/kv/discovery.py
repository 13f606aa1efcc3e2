"""Keeps the subscribers that run equal to the publishers that there are.

Publishers are named in the configuration, are behind a host name or are listed in a file. Names and files are
looked at again and again; what is new is followed, what is gone is let go. What cannot be looked up or read
changes nothing: the last answer holds, because an engine does not die with its name server.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from ...config import KvDiscoveryConfig, KvEventsConfig, KvSourceConfig, expand, parse_sources, sources_at
from ...errors import ConfigError
from ...measures import Measures
from ..telemetry.logs import Log

log = Log("kv_discovery")

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger file is a mistake."""


class Subscriber(Protocol):
    """Follows one publisher."""

    async def start(self) -> None:
        """Begin; raises ``OSError``, and leaves nothing behind, where the address cannot be used."""
        ...

    async def stop(self) -> None:
        """End; may be called again."""
        ...


Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses behind a host name; raises ``OSError`` where there are none."""
Sleep: TypeAlias = Callable[[float], Awaitable[object]]


async def addresses_of(name: str) -> Sequence[str]:
    """Ask the system's resolver for the A and AAAA addresses of a name."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class World(NamedTuple):
    """What is outside of the process: variables for ``${env:NAME}`` in files, the resolver of names, and a sleep in seconds."""

    environ: Mapping[str, str]
    resolve: Resolve = addresses_of
    sleep: Sleep = asyncio.sleep


class Discovery:
    """All publishers of ``kv_events``, from ``start`` to ``stop``.

    ``subscribe`` makes the subscriber of one source, which has one rank; followed sources and failed looks are
    counted in ``measures``.
    """

    def __init__(
        self,
        config: KvEventsConfig,
        subscribe: Callable[[KvSourceConfig], Subscriber],
        measures: Measures,
        world: World,
    ) -> None:
        self._fixed = expand(config.sources)
        self._subscribe = subscribe
        self._measures = measures
        self._world = world
        self._lookups = [self._lookup_of(one) for one in config.discovery]
        self._running: dict[KvSourceConfig, Subscriber] = {}
        self._refused: set[KvSourceConfig] = set()
        self._settled: list[tuple[KvSourceConfig, ...]] | None = []
        self._turn = asyncio.Lock()
        self._tasks: dict[_Lookup, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Follow the configured sources, and begin to look for others; no name server can hold up the start.

        Raises ``OSError`` where the address of a configured source cannot be used.
        """
        for source in self._fixed:
            await self._begin(source)
        self._show()
        self._watch_all()

    async def change(self, config: KvEventsConfig) -> None:
        """Follow what is configured now: what stays is not touched, and an entry that stays keeps what it found.

        A new source whose address cannot be used is a line in the log, and tried again with the next look or change.
        """
        # Nobody starts or stops a subscriber while others' lookups are let go.
        async with self._turn:
            free = list(self._lookups)
            lookups: list[_Lookup] = []
            for one in config.discovery:
                same = next((lookup for lookup in free if lookup.config == one), None)
                if same is not None:
                    free.remove(same)
                lookups.append(same or self._lookup_of(one))
            await self._forget(free)
            self._fixed, self._lookups = expand(config.sources), lookups
            self._settled = None
        await self._settle()
        self._watch_all()

    async def stop(self) -> None:
        """Stop looking, and stop all subscribers."""
        await self._forget(list(self._tasks))
        running, self._running = self._running, {}
        await asyncio.gather(*(subscriber.stop() for subscriber in running.values()))

    @property
    def sources(self) -> tuple[KvSourceConfig, ...]:
        """The sources that are followed now."""
        return tuple(self._running)

    def _lookup_of(self, config: KvDiscoveryConfig) -> _Lookup:
        return _Name(config, self._world.resolve) if config.dns is not None else _File(config, self._world.environ)

    def _watch_all(self) -> None:
        for lookup in self._lookups:
            if lookup not in self._tasks:
                self._tasks[lookup] = asyncio.create_task(self._watch(lookup))

    async def _forget(self, lookups: Sequence[_Lookup]) -> None:
        tasks = [self._tasks.pop(lookup) for lookup in lookups]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, lookup: _Lookup) -> None:
        while True:
            try:
                if not await lookup.look():
                    self._measures.count("whymiss.ledger.discovery_failures", discovery=lookup.config.name)
                await self._settle()
            except Exception as error:
                # The next look may do better, and the publishers that are followed stay.
                log.error("looking for publishers failed", error=error, name=lookup.config.name)
                self._measures.count("whymiss.ledger.discovery_failures", discovery=lookup.config.name)
            await self._world.sleep(lookup.config.refresh_seconds)

    async def _settle(self) -> None:
        """Start what is wanted and does not run; stop what runs and is not wanted."""
        async with self._turn:
            found = [lookup.found for lookup in self._lookups]
            if found == self._settled and not self._refused:
                return
            wanted = self._wanted()
            self._refused.intersection_update(wanted)
            # Gone ones first: a changed entry has the address of the one that it replaces.
            for source in [source for source in self._running if source not in wanted]:
                await self._running[source].stop()
                del self._running[source]
                log.info("publisher left", source=source.endpoint)
            for source in wanted:
                if source not in self._running:
                    await self._follow(source)
            self._settled = found
            self._show()

    def _show(self) -> None:
        self._measures.gauge("whymiss.ledger.sources", len(self._running))

    def _wanted(self) -> Sequence[KvSourceConfig]:
        """What is configured wins over what is found, and what is found first over the rest."""
        wanted: dict[tuple[str, str], KvSourceConfig] = {}
        for source in (*self._fixed, *(one for lookup in self._lookups for one in lookup.found)):
            wanted.setdefault((source.endpoint, source.topic), source)
        return tuple(wanted.values())

    async def _follow(self, source: KvSourceConfig) -> None:
        try:
            await self._begin(source)
        except Exception as error:  # also ZMQ's own, where it has no socket left
            if source not in self._refused:
                log.error("publisher cannot be followed", error=error, source=source.endpoint)
                self._refused.add(source)
            return
        self._refused.discard(source)
        log.info("publisher found", source=source.endpoint)

    async def _begin(self, source: KvSourceConfig) -> None:
        # On the list before it starts, so that `stop` finds it wherever this is cancelled.
        self._running[source] = subscriber = self._subscribe(source)
        try:
            await subscriber.start()
        except Exception:
            del self._running[source]
            raise


class _Name:
    """A host name; its last good answer holds."""

    def __init__(self, config: KvDiscoveryConfig, resolve: Resolve) -> None:
        self.config = config
        self.found: tuple[KvSourceConfig, ...] = ()
        self._resolve = resolve
        self._failing = False

    async def look(self) -> bool:
        """Resolve the name; one line when it begins to fail, and one when it ends. Returns whether it could."""
        try:
            self.found = sources_at(self.config, await self._resolve(self.config.name))
        except OSError as error:
            if not self._failing:
                log.warning("name not resolved, the last answer holds", error=error, name=self.config.name)
            self._failing = True
            return False
        if self._failing:
            log.info("name resolved again", name=self.config.name)
        self._failing = False
        return True


class _File:
    """A list in a file; the last good list holds."""

    def __init__(self, config: KvDiscoveryConfig, environ: Mapping[str, str]) -> None:
        self.config = config
        self.found: tuple[KvSourceConfig, ...] = ()
        self._environ = environ
        self._version: _Version = ()
        self._holds = True

    async def look(self) -> bool:
        """Read the file if it changed; one line for each way and version in which it fails. Returns whether it can be used."""
        try:
            version, text = await asyncio.to_thread(_changed, Path(self.config.name), self._version)
        except OSError as error:
            if self._version is not _UNREADABLE:
                log.error("file of publishers not read, the last list holds", error=error, file=self.config.name)
            self._version = _UNREADABLE
            return False
        if text is None:
            return self._holds
        self._version = version
        try:
            self.found = expand(parse_sources(text, self._environ))
            self._holds = True
        except ConfigError as error:
            log.error("file of publishers is broken, the last list holds", error=error, file=self.config.name)
            self._holds = False
        return self._holds


_Version: TypeAlias = tuple[int, ...]
_UNREADABLE: Final[_Version] = (-1,)
_Lookup: TypeAlias = _Name | _File


def _changed(path: Path, known: _Version) -> tuple[_Version, str | None]:
    """Return what tells this version of a file from others, and the text if the version is another one."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if version == known:
            return version, None
        body = file.read(FILE_BYTES_MAX + 1)
    if len(body) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return version, body.decode("utf-8", "replace")
