"""Virtual time for an engine that is run without a model: a second costs nothing, and a seed gives one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

START_UNIX_SECONDS = 1_700_000_000.0
_BOOT_UNIX_SECONDS = 1_699_990_000.0
"""Where the monotonic clock began: what a span may not mix up with the wall clock."""


class Clock:
    """The wall and the monotonic clock of a run, in seconds; it moves only when told."""

    def __init__(self) -> None:
        self.now = START_UNIX_SECONDS

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now - _BOOT_UNIX_SECONDS

    perf_counter = monotonic

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def advance_to(self, moment: float) -> None:
        self.now = max(self.now, moment)

    @contextmanager
    def at(self, moment: float) -> Iterator[None]:
        """What another process does at ``moment``, while this one stays where it is."""
        before, self.now = self.now, moment
        try:
            yield
        finally:
            self.now = before

    def install(self, *others: tuple[ModuleType, str]) -> None:
        """Become the clock of this process, and of modules that hold a function of it by name."""
        for name in ("time", "monotonic", "time_ns"):
            setattr(time, name, getattr(self, name))
        for module, name in others:
            setattr(module, name, getattr(self, name))
