"""The section about the spool: what is on disk before it is acknowledged."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..errors import ConfigError
from .kinds import GIB, MIB, Bytes, Count, SecondsAboveZero, Section

FsyncPolicy: TypeAlias = Literal["always", "interval", "never"]


class SpoolConfig(Section, frozen=True, kw_only=True):
    """Requests on disk from before they are acknowledged until they are delivered."""

    directory: str | None = None
    """Directory of its own for each process; it is made, and closed to other users, because requests may hold
    prompts. Default null: no spool, and a crash loses what was held."""
    bytes_max: Bytes = GIB
    """Bytes on disk; beyond it senders are asked to retry. Default 1 GiB; not below ``segment_bytes``."""
    segment_bytes: Bytes = 16 * MIB
    """Size at which a new file is begun; a file goes when all in it is delivered. Default 16 MiB; not zero."""
    fsync: FsyncPolicy = "interval"
    """When the device must have what was written: before each acknowledgement (``always``), each ``fsync_seconds``
    (``interval``, the default) or when the system likes (``never``). A crash of the process loses nothing with any of
    them; a power failure loses nothing, the last ``fsync_seconds``, or what the system had not written."""
    fsync_seconds: SecondsAboveZero = 1.0
    """Time between two of them with ``interval``, in seconds. Default 1; not zero."""
    replay_requests_per_second: Count = 500
    """Requests sent again each second after a crash, beside the new ones. Default 500; not zero."""
    attempts_max: Count = 3
    """Starts at which a request from disk is tried, where a stage fails on it or the process dies of it; then it is
    given up. Default 3; not zero."""

    def __post_init__(self) -> None:
        if self.directory is not None and not self.directory.strip():
            raise ConfigError("directory", "must not be empty; null is off")
        if self.bytes_max < self.segment_bytes:
            raise ConfigError("bytes_max", "must not be below segment_bytes")
