"""Notices publishers that say nothing.

An engine without work says nothing either, and ZMQ tells nobody that a publisher is gone, so silence is a
count and a line and never an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from ...measures import Measures
from ..telemetry.logs import Log
from .discovery import Subscriber

LOOKS: Final = 4
"""How often a silence of full length is looked for within its length: it is noticed a quarter late at most."""

_log = Log("kv_silence")


class _Source(msgspec.Struct):
    last: float
    silent: bool = False
    heard: bool = False

    def hear(self, now: float) -> bool:
        """Take note of a message; returns whether it ends a silence."""
        was_silent = self.silent
        self.last, self.heard, self.silent = now, True, False
        return was_silent

    def look(self, latest: float) -> bool:
        """Returns whether a silence begins: whether the last message came at ``latest`` or before."""
        begins = not self.silent and self.last <= latest
        self.silent = self.silent or begins
        return begins


class Heard(msgspec.Struct, frozen=True):
    """What is known of a source: the age in seconds of its last message, ``None`` before the first; whether it is silent."""

    seconds: float | None
    silent: bool


class Silence:
    """Counts sources without a message for ``silence_seconds``; ``run`` it as a task."""

    def __init__(
        self,
        measures: Measures,
        silence_seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._measures = measures
        self._silence_seconds = silence_seconds
        self._now = now
        self._sleep = sleep
        self._sources: dict[str, _Source] = {}

    def follow(self, name: str) -> None:
        """Begin to expect messages of a source."""
        self._sources[name] = _Source(self._now())

    def forget(self, name: str) -> None:
        """Expect none any more."""
        self._sources.pop(name, None)

    def hear(self, name: str) -> None:
        """Note a message."""
        source = self._sources.get(name)
        if source is not None and source.hear(self._now()):
            _log.info("publisher is heard again", source=name)
            self._show()

    def look(self) -> None:
        """See who has been silent for too long."""
        latest = self._now() - self._silence_seconds
        for name, source in self._sources.items():
            if source.look(latest):
                self._measures.count("whymiss.ledger.silences", source=name)
                _log.warning("publisher says nothing", source=name, seconds=self._silence_seconds)
        self._show()

    def heard(self) -> Mapping[str, Heard]:
        """All sources that messages are expected of."""
        now = self._now()
        return {name: Heard(now - one.last if one.heard else None, one.silent) for name, one in self._sources.items()}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._sleep(self._silence_seconds / LOOKS)
            self.look()

    def _show(self) -> None:
        self._measures.gauge("whymiss.ledger.silent_sources", sum(one.silent for one in self._sources.values()))


class Attended:
    """A subscriber whose silence is noticed. ``subscribe`` is given what to call after each message."""

    def __init__(
        self,
        name: str,
        silence: Silence,
        subscribe: Callable[[Callable[[], None]], Subscriber],
        taken: Callable[[], None],
    ) -> None:
        self._name = name
        self._silence = silence
        self._taken = taken
        self._subscriber = subscribe(self._hear)

    async def start(self) -> None:
        """Begin; raises ``OSError`` where the address cannot be used."""
        await self._subscriber.start()
        self._silence.follow(self._name)

    async def stop(self) -> None:
        """End."""
        self._silence.forget(self._name)
        await self._subscriber.stop()

    def _hear(self) -> None:
        self._silence.hear(self._name)
        self._taken()
