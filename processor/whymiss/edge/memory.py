"""Every byte held by any part, in one sum: what must give when it is too much, and who is asked to come again.

Over the soft limit the hold is shed, oldest requests first, a bounded part at a time. Over the hard one requests
are refused before anything of them is taken. Resident memory is looked at too, because not every byte of a process
is held by somebody who counts; but Python gives little of it back, so it is only believed as long as there is
something to let go of.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ..errors import Overloaded
from ..evidence.requests.request_log import LIFE_BYTES, LIVES_MAX
from ..join import NAME_BYTES, REMEMBERED_BYTES
from ..pipeline.verdicts import VERDICT_BYTES
from .telemetry.logs import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config import Config
    from .core import Core
    from .exporters.fan_out import FanOut
    from .pace import Pace

CHECK_SECONDS: Final = 0.5
"""How often the record and the resident memory are looked at."""

STEP_SECONDS: Final = 0.02
"""Time between two parts of the hold that are shed: others have their turn."""

STEP_BYTES: Final = 1 << 20
"""The part of the hold that is shed at once."""

TRIM_SECONDS: Final = 10.0
"""Least time between two attempts to give freed memory back to the system.

One stops the process: for 0.1 s with 600 MB in pieces of 700 bytes of which six in seven are free, 0.5 s of 3,000."""

_FLOOR_SHARE: Final = 16
"""Below a sixteenth of the resident limit what is held is not what fills the memory."""

_UNLIMITED_BYTES: Final = 1 << 60
"""From here on a cgroup's number means that it has no limit."""

_log = Log("memory")


class Limits(msgspec.Struct, frozen=True):
    """The limits in force, in bytes. ``ledger`` is that of the record, which may have had to be lowered."""

    ledger: int
    soft: int
    hard: int
    resident: int | None


def limits_of(config: Config, container_bytes: int | None) -> Limits:
    """Work out the limits that the file leaves open; ``container_bytes`` is the container's limit, if there is one."""
    settings = config.memory
    resident, ledger = settings.resident_limit_bytes, config.ledger.bytes_max
    if resident is None and container_bytes is not None:
        resident = container_bytes * 9 // 10
    if resident is not None:
        ledger = min(ledger, resident // 3)
    remembered = config.join.remembered_max * (REMEMBERED_BYTES + NAME_BYTES + VERDICT_BYTES) + LIVES_MAX * LIFE_BYTES
    hard = settings.hard_limit_bytes
    if hard is None:
        queues = sum(exporter.queue_bytes_max for exporter in config.exporters.values())
        hard = ledger + remembered + config.join.open_bytes_max + queues
        if resident is not None:
            hard = min(hard, resident * 2 // 3)
    soft = settings.soft_limit_bytes
    if soft is None or soft > hard:
        record = min(ledger + remembered, (ledger + hard) // 2)
        soft = hard - (hard - record) // 5
    return Limits(ledger, soft, hard, resident)


def container_bytes(root: Path = Path("/")) -> int | None:
    """The memory limit of this container or service: the lowest of its cgroup and those above, or ``None``."""
    limits = []
    for path in _limit_files(root):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    return min((limit for limit in limits if limit < _UNLIMITED_BYTES), default=None)


def _limit_files(root: Path) -> Iterator[Path]:
    """Where Linux (cgroup v2, and v1) keeps the limits; not all of these exist."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # Within a container the place may be the host's, and then only the top is there.
        here = top / place.lstrip("/")
        yield from (folder / name for folder in (here, *here.parents) if folder.is_relative_to(top))


class Residence:
    """What this process takes from the system; a test has one of its own."""

    def read(self) -> int:
        """Resident memory in bytes, from Linux's proc(5). Raises `OSError` where the system does not say."""
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE

    def trim(self) -> None:
        """Have the allocator give freed memory back, where it can (glibc)."""
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class Memory:
    """Sums up, sheds and refuses. It belongs to one event loop; `run` is its one task."""

    def __init__(
        self,
        limits: Limits,
        core: Core,
        fan_out: FanOut,
        pace: Pace,
        residence: Residence | None = None,
    ) -> None:
        self._limits = limits
        self._core = core
        self._fan_out = fan_out
        self._pace = pace
        self._residence = residence or Residence()
        self._trim_at = pace.now()
        self._receiving = 0
        self._recorded = 0
        self._resident = 0
        self._pressed = False
        self._stir = asyncio.Event()

    @property
    def flowing_bytes(self) -> int:
        """Bytes of what is on its way: requests being taken, the hold and the queues."""
        return self._receiving + self._core.held_bytes + self._fan_out.held_bytes

    @property
    def held_bytes(self) -> int:
        """All bytes held: what is on its way, and the record as it was last looked at."""
        return self.flowing_bytes + self._recorded

    @property
    def is_pressed(self) -> bool:
        """Whether so much is held that the hold is being shed."""
        return self._over_soft() is not None

    def require_room(self, size: int = 0) -> None:
        """Raise `Overloaded` where so many bytes more would exceed a limit.

        With nothing under way there is always room for one request: what fills the memory then is not going to leave.
        """
        flowing = self.flowing_bytes
        if not flowing:
            return
        if flowing + self._recorded + size > self._limits.hard:
            self._refuse("hard", "too much is held")
        if self._over_resident(flowing):
            self._refuse("resident", "the process takes too much memory")

    @contextlib.contextmanager
    def taking(self, size: int) -> Iterator[None]:
        """Count a request while it is being taken. Raises `Overloaded` before that where there is no room for it."""
        self.require_room(size)
        self._receiving += size
        try:
            yield
        finally:
            self._receiving -= size
            if self.is_pressed:
                self._stir.set()

    async def run(self) -> None:
        """Look at the memory and shed until cancelled."""
        while True:
            self.look()
            shedding = self.relieve()
            self._stir.clear()
            if shedding:
                await self._pace.wait(asyncio.Event(), STEP_SECONDS)
            else:
                await self._pace.wait(self._stir, CHECK_SECONDS)

    def look(self) -> None:
        """Measure what is too slow to be measured with every request."""
        self._recorded = self._core.recorded_bytes
        self._measure()
        limit, now = self._limits.resident, self._pace.now()
        if limit is not None and self._resident > limit and now >= self._trim_at:
            self._trim_at = now + TRIM_SECONDS
            self._residence.trim()
            self._measure()

    def relieve(self) -> bool:
        """Shed a part of the hold if there is too much of everything; returns whether there is more to shed."""
        limit = self._over_soft()
        self._tell(limit)
        held = self._core.held_bytes
        if limit is None or not held:
            return False
        excess = max(self.held_bytes - self._limits.soft, 0) or STEP_BYTES
        try:
            self._fan_out.enqueue(self._core.shed(max(0, held - min(excess, STEP_BYTES)), self._pace.now()))
        except Exception as error:
            self._core.measures.count("whymiss.stage.failures", stage="shed", error_type=type(error).__name__)
            _log.error("held spans could not be released", error=error)
            return False
        return self._over_soft() is not None and 0 < self._core.held_bytes < held

    def gauge(self) -> None:
        """Bring the gauges up to date."""
        measures, limits = self._core.measures, self._limits
        for part, held in (
            ("receiving", self._receiving),
            ("join", self._core.held_bytes),
            ("queue", self._fan_out.held_bytes),
            ("record", self._core.recorded_bytes),
        ):
            measures.gauge("whymiss.memory.held", held, part=part)
        for name, limit in (("soft", limits.soft), ("hard", limits.hard), ("resident", limits.resident)):
            if limit is not None:
                measures.gauge("whymiss.memory.limit", limit, limit=name)
        measures.gauge("whymiss.process.memory", self._measure())

    def _measure(self) -> int:
        """Read the resident memory; while it cannot be (no descriptor is left), the last figure holds."""
        with contextlib.suppress(OSError):
            self._resident = self._residence.read()
        return self._resident

    def _over_soft(self) -> str | None:
        """The key of the limit beyond which the hold goes, or ``None``."""
        flowing = self.flowing_bytes
        if flowing + self._recorded > self._limits.soft:
            return "memory.soft_limit_bytes"
        return "memory.resident_limit_bytes" if self._over_resident(flowing) else None

    def _over_resident(self, flowing: int) -> bool:
        limit = self._limits.resident
        return limit is not None and self._resident > limit and flowing > limit // _FLOOR_SHARE

    def _tell(self, limit: str | None) -> None:
        pressed = limit is not None
        if pressed and not self._pressed:
            _log.warning("too much is held: requests are released early", limit_key=limit, bytes=self.held_bytes)
        elif self._pressed and not pressed:
            _log.info("requests are held again", bytes=self.held_bytes)
        self._pressed = pressed

    def _refuse(self, limit: str, problem: str) -> None:
        self._core.measures.count("whymiss.memory.refused_requests", limit=limit)
        raise Overloaded(problem, limit_key=f"memory.{limit}_limit_bytes")
