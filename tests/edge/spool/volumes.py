"""A directory that runs full, as a disk does: in the middle of a write."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from whymiss.edge.spool.volume import Volume

if TYPE_CHECKING:
    from pathlib import Path


class SmallVolume(Volume):
    """A volume with ``room`` bytes left, which a test changes; ``broken`` names what fails besides."""

    def __init__(self, directory: Path, room: int) -> None:
        super().__init__(directory)
        self.room = room
        self.broken: set[str] = set()
        self.synced = 0

    def write(self, descriptor: int, content: bytes) -> None:
        self._check("write")
        if len(content) > self.room:
            super().write(descriptor, content[: self.room])
            self.room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, content)
        self.room -= len(content)

    def create(self, first: int) -> int:
        self._check("create")
        return super().create(first)

    def truncate(self, descriptor: int, size: int) -> None:
        self._check("truncate")
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self._check("sync")
        self.synced += 1
        super().sync(descriptor)

    def remove(self, first: int) -> None:
        self._check("remove")
        super().remove(first)

    def _check(self, operation: str) -> None:
        if operation in self.broken:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
