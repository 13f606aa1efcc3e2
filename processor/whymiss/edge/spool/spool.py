"""Requests on disk from before they are acknowledged until they are delivered.

One task owns the file that is written to. What waits when it looks is written at once, and with ``fsync: always``
synced at once. A failure of the disk refuses the requests that met it, is undone on disk, and changes nothing for
those after it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ...errors import Overloaded
from .records import HEADER_BYTES, encode_header, encode_prefix
from .shelf import Shelf
from .spool_segment import cost
from .volume import Volume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...config import SpoolConfig
    from ...measures import Measures
    from ...redaction import Signal
    from ..pace import Pace
    from .records import Record
    from .spool_segment import SpoolSegment

NOTE_SECONDS: Final = 0.2
"""What is settled is noted on disk this often; a crash in between costs duplicates."""

_THREADED_BYTES: Final = 256 << 10  # below it a write to the page cache is quicker than a change of threads
_WRITE_BYTES_MAX: Final = 4 << 20
_IDLE_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 5.0


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request on its way to the disk, and who waits for it."""

    signal: Signal
    body: bytes
    placed: asyncio.Future[int]


class Spool:
    """Bounded, append-only and at least once: ``append``, then ``settle`` when nothing of the request is owed."""

    def __init__(self, settings: SpoolConfig, measures: Measures, pace: Pace, volume: Volume | None = None) -> None:
        self._settings = settings
        self._measures = measures
        self._pace = pace
        self._volume = volume or Volume(Path(settings.directory or ""))
        self._shelf = Shelf(self._volume, measures, settings.attempts_max)
        self._active: SpoolSegment | None = None
        self._descriptor = -1
        self._written = 0
        self._waiting: deque[_Waiting] = deque()
        self._stir = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsynced_since: float | None = None
        self._note_at: float | None = None

    @property
    def size(self) -> int:
        """Bytes on disk, and those that notes will take."""
        return self._shelf.size

    @property
    def replaying_bytes(self) -> int:
        """Bytes of requests that were read back and are not settled."""
        return self._shelf.replaying_bytes

    async def start(self) -> None:
        """Open the directory; one that cannot be had is tried again with each request.

        Raises:
            BlockingIOError: another process has it.
        """
        try:
            self._shelf.open()
        except BlockingIOError:
            raise
        except OSError as error:
            self._shelf.fail("open", error)
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Note what is settled and let the directory go. Call it when nobody appends or settles any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._active is not None:
            await self._close()
        self._shelf.note()
        self._volume.close()

    async def append(self, signal: Signal, body: bytes) -> int:
        """Put a request on disk and return its ticket.

        Raises:
            Overloaded: there is no room, or the disk refuses; nothing of the request is kept.
        """
        waiting = _Waiting(signal, body, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._stir.set()
        try:
            return await waiting.placed
        except asyncio.CancelledError:
            # Whoever sent it is gone, and was told nothing.
            placed = waiting.placed
            if placed.done() and not placed.cancelled() and placed.exception() is None:
                self.settle(placed.result())
            raise

    def settle(self, ticket: int) -> None:
        """Forget a request: all of it has left, or its sender knows that it was not taken."""
        self._shelf.settle(ticket)
        self._plan_notes()

    @contextmanager
    def trying(self, ticket: int) -> Iterator[None]:
        """Have the disk know that a request from it is tried, so that one the process dies of is found out."""
        self._shelf.mark(ticket)
        yield
        self._shelf.mark(0)

    def postpone(self, ticket: int) -> bool:
        """Leave a request that was tried in vain to the next start; false where it is given up instead."""
        postponed = self._shelf.postpone(ticket)
        self._plan_notes()
        return postponed

    def _plan_notes(self) -> None:
        if self._note_at is None and self._shelf.has_unnoted:
            self._note_at = self._pace.now() + NOTE_SECONDS
            self._stir.set()

    def gauge(self) -> None:
        """Bring the gauges up to date."""
        self._measures.gauge("whymiss.spool.size", self.size)
        self._measures.gauge("whymiss.spool.capacity", self._settings.bytes_max)

    async def backlog(self) -> Iterator[Record]:
        """Wait until the directory is open; then read back, in order, what earlier runs left unsettled."""
        await self._shelf.opened.wait()
        return self._shelf.backlog()

    def end_trying(self) -> None:
        """Know that no request from disk will be tried any more in this run."""
        self._shelf.unmark()

    async def _work(self) -> None:
        while True:
            await self._pace.wait(self._stir, self._seconds_to_next())
            self._stir.clear()
            while self._waiting:
                await self._write_some()
            now = self._pace.now()
            if self._note_at is not None and now >= self._note_at:
                self._shelf.note()
                self._note_at = now + _RETRY_SECONDS if self._shelf.has_unnoted else None
            if self._unsynced_since is not None and now >= self._unsynced_since + self._settings.fsync_seconds:
                await self._sync()

    def _seconds_to_next(self) -> float:
        now = self._pace.now()
        dues = [now + _IDLE_SECONDS]
        if self._note_at is not None:
            dues.append(self._note_at)
        if self._unsynced_since is not None:
            dues.append(self._unsynced_since + self._settings.fsync_seconds)
        return max(0.0, min(dues) - now)

    async def _write_some(self) -> None:
        """Write the oldest request, and with it those behind it that fit into the same segment."""
        # Whatever it is, nobody may wait for ever, and the task must outlive it.
        try:
            segment = await self._segment_for(cost(self._waiting[0].body))
        except Exception as error:
            self._refuse(self._waiting.popleft(), error)
            return
        taken = self._take(segment)
        pieces: list[bytes] = []
        for number, one in enumerate(taken, segment.next_sequence):
            pieces += (encode_prefix(number, one.signal, one.body), one.body)
        content = b"".join(pieces)
        try:
            await self._put(content)
        except Exception as error:
            self._take_back(segment)
            for one in taken:
                self._refuse(one, error)
            return
        self._written += len(content)
        if self._settings.fsync == "interval" and self._unsynced_since is None:
            self._unsynced_since = self._pace.now()
        for one in taken:
            self._place(segment, one)

    def _take(self, segment: SpoolSegment) -> list[_Waiting]:
        """Take the oldest request, for which there is room, and those behind it for which there is too."""
        taken = [self._waiting.popleft()]
        size = cost(taken[0].body)
        while self._waiting:
            larger = size + cost(self._waiting[0].body)
            if (
                larger > _WRITE_BYTES_MAX
                or segment.size + larger > self._settings.segment_bytes
                or self.size + larger > self._settings.bytes_max
            ):
                break
            taken.append(self._waiting.popleft())
            size = larger
        return taken

    async def _put(self, content: bytes) -> None:
        """Write, and sync where an acknowledgement promises that."""
        descriptor, always = self._descriptor, self._settings.fsync == "always"

        def put() -> None:
            self._volume.write(descriptor, content)
            if always:
                self._volume.sync(descriptor)

        if always or len(content) >= _THREADED_BYTES:
            await _to_the_end(put)
        else:
            put()

    def _place(self, segment: SpoolSegment, one: _Waiting) -> None:
        sequence = self._shelf.place(segment, cost(one.body))
        if one.placed.cancelled():
            self.settle(sequence)
        else:
            one.placed.set_result(sequence)

    def _refuse(self, one: _Waiting, error: Exception) -> None:
        match error:
            case Overloaded():
                reason = "full"
            case OSError():
                reason = "disk"
                self._shelf.fail("write", error)
                error = Overloaded(
                    f"the spool cannot be written: {error.strerror or 'the disk failed'}",
                    limit_key="spool.directory",
                    remedy="see to the disk of spool.directory",
                )
            case _:
                reason = "mistake"  # ours; whoever answers the sender logs it
        self._measures.count("whymiss.spool.refused_requests", reason=reason)
        if not one.placed.cancelled():
            one.placed.set_exception(error)

    async def _segment_for(self, size: int) -> SpoolSegment:
        """Have a segment with room for a request."""
        if not self._shelf.opened.is_set():
            self._shelf.open()
        active, settings = self._active, self._settings
        if active is not None and active.next_sequence > active.first:
            full = active.size + size > settings.segment_bytes
            # What is settled takes room until its segment goes, and only a closed one does.
            if full or (not active.left and self.size + size > settings.bytes_max):
                await self._close()
        room = settings.bytes_max - self.size - (HEADER_BYTES if self._active is None else 0)
        if size > room:
            raise Overloaded("the spool is full", limit_key="spool.bytes_max")
        return self._active or self._begin()

    def _begin(self) -> SpoolSegment:
        first = self._shelf.next_sequence
        descriptor = self._volume.create(first)
        try:
            self._volume.write(descriptor, encode_header(first))
        except OSError:
            os.close(descriptor)
            self._volume.remove(first)
            raise
        self._descriptor, self._written = descriptor, HEADER_BYTES
        self._active = self._shelf.begin(HEADER_BYTES)
        return self._active

    def _take_back(self, segment: SpoolSegment) -> None:
        """Undo a write that failed; where that fails too, leave the segment as it is and begin another."""
        try:
            self._volume.truncate(self._descriptor, self._written)
        except OSError as error:
            self._shelf.fail("truncate", error)
        else:
            if segment.next_sequence > segment.first:
                return
        # An empty segment would be in the way of one with the same first number.
        self._let_go(segment)

    async def _sync(self) -> None:
        self._unsynced_since = None
        descriptor = self._descriptor
        try:
            await _to_the_end(lambda: self._volume.sync(descriptor))
        except OSError as error:
            self._shelf.fail("sync", error)

    async def _close(self) -> None:
        assert self._active is not None, "there is a segment to close"
        if self._unsynced_since is not None:
            await self._sync()
        self._let_go(self._active)

    def _let_go(self, segment: SpoolSegment) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._active, self._unsynced_since = None, None
        try:
            os.close(descriptor)
        except OSError as error:
            self._shelf.fail("close", error)
        self._shelf.close(segment)
        self._plan_notes()


async def _to_the_end(work: Callable[[], None]) -> None:
    """Run in a thread, even when cancelled: a file must not be closed under a thread that writes to it."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise
