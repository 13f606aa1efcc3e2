"""Keeps the ledger in a file, so that a restart costs the gap and not the window.

The file is replaced whole: a crash while it is written leaves the former one. The key under which its digests were
made is in a file of its own, made once. Both can be read by this user only; whoever has both can test guesses at
a prompt against the digests, so leave the key out of backups of the other file.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from ..errors import BadInput
from ..ledger.ports import HistorySnapshots
from .telemetry.logs import Log

KEY_BYTES: Final = 32

_PRIVATE: Final = 0o600
_SLICE: Final = 1 << 20  # bytes written before others have their turn

_log = Log("checkpoint")


class CheckpointFile:
    """A checkpoint on disk, and the key beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key_path = path.with_name(path.name + ".key")
        self._lock: int | None = None

    def key(self) -> bytes:
        """The key of the digests; made where there is none yet.

        Raises:
            OSError: it can neither be read nor be made.
            BadInput: the file holds something else.
        """
        try:
            key = self._key_path.read_bytes()
        except FileNotFoundError:
            key = secrets.token_bytes(KEY_BYTES)
            _replace(self._key_path, [key])
            return key
        if len(key) != KEY_BYTES:
            raise BadInput(f"{self._key_path}: not a key of {KEY_BYTES} bytes")
        return key

    def take(self) -> None:
        """Keep other processes from it until ``let_go``; what two of them wrote would be neither's record.

        Raises:
            BlockingIOError: another process has it.
        """
        lock = os.open(self._key_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise BlockingIOError(error.errno, "another process has the checkpoint", str(self._path)) from None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def let_go(self) -> None:
        """Let another process have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def resume(self, history: HistorySnapshots, now: float) -> int:
        """Read the checkpoint into an empty history; returns how many streams it follows again.

        One that is damaged is one line in the log and a record that begins now.
        """
        try:
            with self._path.open("rb") as file:
                # Unmapped with the last view of it, and an error that is caught still holds some.
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            count = history.load(memoryview(content), now=now, unix_nanos=time.time_ns())
        except FileNotFoundError:
            return 0
        except (BadInput, OSError, ValueError) as error:
            _log.error("the checkpoint cannot be read; the record begins anew", error=error, path=str(self._path))
            return 0
        _log.info("the record goes on from its checkpoint", path=str(self._path), streams=count)
        return count

    def write(self, history: HistorySnapshots, now: float) -> None:
        """Write all of it at once. Raises ``OSError``."""
        _replace(self._path, history.dump(now=now, unix_nanos=time.time_ns()))

    async def write_in_turns(self, history: HistorySnapshots, now: float) -> None:
        """Write what the history is now, while it goes on. Raises ``OSError``."""
        temporary = _beside(self._path)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        try:
            for chunk in history.dump(now=now, unix_nanos=time.time_ns()):
                for begin in range(0, len(chunk), _SLICE):
                    _write(file, chunk[begin : begin + _SLICE])
                    await asyncio.sleep(0)
            await asyncio.to_thread(os.fsync, file)
        finally:
            os.close(file)
        _settle(temporary, self._path)


class Checkpoints:
    """Writes the checkpoint every ``seconds``; ``run`` it as a task, and ``stop`` once nothing is taken any more."""

    def __init__(
        self,
        file: CheckpointFile,
        history: HistorySnapshots,
        seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._file = file
        self._history = history
        self._seconds = seconds
        self._now = now
        self._sleep = sleep

    async def run(self) -> None:
        """Write again and again, until cancelled."""
        while True:
            await self._sleep(self._seconds)
            try:
                await self._file.write_in_turns(self._history, self._now())
            except OSError as error:
                _log.error("the checkpoint cannot be written", error=error)

    def stop(self) -> None:
        """Write the last one."""
        try:
            self._file.write(self._history, self._now())
        except OSError as error:
            _log.error("the checkpoint cannot be written", error=error)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _replace(path: Path, chunks: Iterable[bytes]) -> None:
    temporary = _beside(path)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    try:
        for chunk in chunks:
            _write(file, chunk)
        os.fsync(file)
    finally:
        os.close(file)
    _settle(temporary, path)


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _settle(temporary: Path, path: Path) -> None:
    """Put a complete file in the place of the former one, and make the name last."""
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
