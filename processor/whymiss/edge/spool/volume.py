"""The directory of a spool: the only place that touches its files."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

from .records import NOTE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

_SEGMENT: Final = ".segment"
_NOTES: Final = ".notes"
_MARK: Final = "replaying"


class Volume:
    """One directory, held by one process. A segment is known by its first sequence number.

    Everything here raises ``OSError``. Directory and files are closed to other users, because requests may hold
    prompts.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    def open(self) -> list[int]:
        """Take the directory, made where it is missing, and list its segments in order.

        Raises:
            BlockingIOError: another process holds it.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = sorted(int(path.stem) for path in self._directory.glob(f"*{_SEGMENT}") if path.stem.isdecimal())
        except BlockingIOError as error:
            os.close(lock)
            raise BlockingIOError(error.errno, "another process has the spool", str(self._directory)) from None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        return found

    def close(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove_orphans(self, segments: Sequence[int]) -> None:
        """Remove what a crash left of segments that are gone."""
        kept = {self._path(first, _NOTES) for first in segments}
        for path in self._directory.glob(f"*{_NOTES}"):
            if path not in kept:
                path.unlink()

    def create(self, first: int) -> int:
        """Create a segment and return its descriptor; one of that number holds no record, and is begun anew."""
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path(first, _SEGMENT), flags, 0o600)

    def write(self, descriptor: int, content: bytes) -> None:
        """Append all of it, or raise with a part of it written."""
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]

    def sync(self, descriptor: int) -> None:
        """Have the device keep what was written, and know the file's name."""
        os.fdatasync(descriptor)
        if self._lock is not None:
            os.fsync(self._lock)

    def truncate(self, descriptor: int, size: int) -> None:
        """Take the end of an open segment back."""
        os.ftruncate(descriptor, size)

    def cut(self, first: int, size: int) -> None:
        """Cut the end of a segment of an earlier run off."""
        os.truncate(self._path(first, _SEGMENT), size)

    def read(self, first: int) -> tuple[BinaryIO, int]:
        """Open a segment to be read, and tell its size."""
        file = self._path(first, _SEGMENT).open("rb")
        return file, os.fstat(file.fileno()).st_size

    def size(self, first: int) -> int:
        """Bytes of a segment and of what is noted beside it."""
        return sum(path.stat().st_size for suffix in (_SEGMENT, _NOTES) if (path := self._path(first, suffix)).exists())

    def notes(self, first: int) -> bytes:
        """Read what is noted beside a segment."""
        path = self._path(first, _NOTES)
        return path.read_bytes() if path.exists() else b""

    def note(self, first: int, content: bytes) -> None:
        """Append to what is noted beside a segment."""
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path(first, _NOTES), flags, 0o600)
        try:
            # Entries are found by their place, so half a one would hide all that follow.
            size = os.fstat(descriptor).st_size
            whole = size - size % NOTE_BYTES
            if whole < size:
                os.ftruncate(descriptor, whole)
            self.write(descriptor, content)
        finally:
            os.close(descriptor)

    def mark(self, content: bytes) -> None:
        """Write anew what is being tried. It survives the process, and not the machine."""
        descriptor = os.open(self._directory / _MARK, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def marked(self) -> bytes:
        """Read what was being tried."""
        path = self._directory / _MARK
        return path.read_bytes() if path.exists() else b""

    def unmark(self) -> None:
        """Forget what was being tried."""
        (self._directory / _MARK).unlink(missing_ok=True)

    def remove(self, first: int) -> None:
        """Remove a segment, then what is noted beside it: the other order could replay all of it."""
        self._path(first, _SEGMENT).unlink(missing_ok=True)
        self._path(first, _NOTES).unlink(missing_ok=True)

    def _path(self, first: int, suffix: str) -> Path:
        return self._directory / f"{first:020d}{suffix}"
