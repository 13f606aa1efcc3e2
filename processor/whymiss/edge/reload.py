"""A new configuration for a service that runs.

What can be changed is: the publishers of KV events, how spans are redacted and under which key, and the references.
The rest is named in one line and waits for a restart. A configuration that is refused changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from ..errors import BadInput, ConfigError
from .references import load
from .telemetry.logs import Log

if TYPE_CHECKING:
    from ..config import Config
    from ..pipeline import Pipeline
    from .kv.discovery import Discovery

LIVE: Final = ("kv_events.sources", "kv_events.discovery", "redaction", "references")
"""Keys, and sections of keys, that a running service can change."""

_log = Log("reload")
_service_log = Log("service")  # the log of who asks


class ReloadRequests:
    """Requests to read the configuration again, which may come before there is a service to reload.

    ``read`` reads it again, and raises ``ConfigError`` for one that cannot be used; it is ``None`` without a file.
    """

    def __init__(self, read: Callable[[], Config] | None) -> None:
        self.read = read
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have the configuration read again soon; several requests may be met by one reading."""
        if self.read is None:
            _service_log.warning("there is no configuration file to read again")
        else:
            self._asked.set()

    async def next(self) -> None:
        """Wait for a request; those that come from now on are another one."""
        await self._asked.wait()
        self._asked.clear()


class Reload:
    """Meets requests to read the configuration again; ``run`` it as a task.

    ``config`` is the one that was begun with; ``taken`` is told what is in force once that has changed.
    """

    def __init__(  # noqa: PLR0913 - all that a new configuration changes
        self,
        config: Config,
        requests: ReloadRequests,
        *,
        read: Callable[[], Config],
        pipeline: Pipeline,
        discovery: Discovery,
        taken: Callable[[Config], None],
    ) -> None:
        self._config = config
        self._requests = requests
        self._read = read
        self._pipeline = pipeline
        self._discovery = discovery
        self._taken = taken

    async def run(self) -> None:
        """Meet requests until cancelled."""
        while True:
            await self._requests.next()
            outcome = "ok" if await self._once() else "failed"
            self._pipeline.measures.count("whymiss.config.reloads", outcome=outcome)

    async def _once(self) -> bool:
        """Read the configuration and take what can be taken; returns whether it was one that can be used."""
        try:
            await self._take(await asyncio.to_thread(self._read))
        except (ConfigError, BadInput, OSError) as error:
            _log.error("the new configuration is refused, the old one stays", error=error)
            return False
        except Exception as error:
            _log.error("the configuration could not be changed", error=error)
            return False
        return True

    async def _take(self, new: Config) -> None:
        old = self._config
        waiting = [key for key in differences(old, new) if not _is_live(key)]
        # The rules between sections hold for what will really be in force.
        config: Config = msgspec.structs.replace(
            old,
            kv_events=msgspec.structs.replace(new.kv_events, silence_seconds=old.kv_events.silence_seconds),
            redaction=new.redaction,
            references=new.references,
        )
        references = await asyncio.to_thread(load, config)
        self._pipeline.adopt(config.redaction, references, config.references.scope)
        await self._discovery.change(config.kv_events)
        self._config = config
        self._taken(config)
        _log.info("the configuration was read again", sources=len(self._discovery.sources), references=len(references))
        if waiting:
            _log.warning("part of the new configuration needs a restart", needs_a_restart=", ".join(waiting))


def differences(old: object, new: object, key: str = "") -> Iterator[str]:
    """The keys, as in the file, whose values differ; a list is one value."""
    if isinstance(old, msgspec.Struct) and type(old) is type(new):
        for name in old.__struct_fields__:
            yield from differences(getattr(old, name), getattr(new, name), f"{key}.{name}" if key else name)
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from differences(old.get(name), new.get(name), f"{key}.{name}")
    elif old != new:
        yield key


def _is_live(key: str) -> bool:
    return any(key == live or key.startswith(f"{live}.") for live in LIVE)
