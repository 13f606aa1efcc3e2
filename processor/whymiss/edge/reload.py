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


class Reload:
    """Reads the configuration again when it is asked to; ``run`` it as a task.

    ``config`` is the one that was begun with; ``read`` raises ``ConfigError`` for one that cannot be used.
    """

    def __init__(self, config: Config, read: Callable[[], Config]) -> None:
        self._config = config
        self._read = read
        self._asked = asyncio.Event()
        self.taken: Callable[[Config], None] | None = None
        """Who is told what is in force once that has changed."""

    def ask(self) -> None:
        """Have the configuration read again soon; several requests may be met by one reading."""
        self._asked.set()

    async def run(self, pipeline: Pipeline, discovery: Discovery) -> None:
        """Meet requests until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            outcome = "ok" if await self._once(pipeline, discovery) else "failed"
            pipeline.measures.count("whymiss.config.reloads", outcome=outcome)

    async def _once(self, pipeline: Pipeline, discovery: Discovery) -> bool:
        """Read the configuration and take what can be taken; tells whether it was one that can be used."""
        try:
            await self._take(await asyncio.to_thread(self._read), pipeline, discovery)
        except (ConfigError, BadInput, OSError) as error:
            _log.error("the new configuration is refused, the old one stays", error=error)
            return False
        except Exception as error:
            _log.error("the configuration could not be changed", error=error)
            return False
        return True

    async def _take(self, new: Config, pipeline: Pipeline, discovery: Discovery) -> None:
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
        pipeline.adopt(config.redaction, references, config.references.scope)
        await discovery.change(config.kv_events)
        self._config = config
        if self.taken is not None:
            self.taken(config)
        _log.info("the configuration was read again", sources=len(discovery.sources), references=len(references))
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
