"""What the edge needs of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..measures import Measures
    from ..pipeline import Accepted, KvOutcome, KvSource
    from ..redaction import Redacted


class Core(Protocol):
    """What the edge needs of the pipeline. One event loop owns it; no call overlaps another."""

    measures: Measures

    @property
    def next_deadline(self) -> float | None:
        """When `advance` next has something to release, or ``None`` while nothing is held."""
        ...

    def traces(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        """Take an encoded ExportTraceServiceRequest; raises `BadInput`, `Overloaded`.

        What leaves of it, now or later, carries its ticket, unless that is 0.
        """
        ...

    def metrics(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        """Take an encoded ExportMetricsServiceRequest; raises `BadInput`, `Overloaded`."""
        ...

    def logs(self, body: bytes, now: float, *, ticket: int = 0) -> Accepted:
        """Take an encoded ExportLogsServiceRequest; raises `BadInput`, `Overloaded`."""
        ...

    def kv_frames(
        self, source: KvSource, frames: Sequence[bytes], received_unix_nanos: int, *, replayed: bool, now: float
    ) -> KvOutcome:
        """Take one ZMQ message of a publisher, or of its replay socket."""
        ...

    def holds(self, ticket: int) -> bool:
        """Whether something that came with this ticket has not left."""
        ...

    def advance(self, now: float) -> tuple[Redacted, ...]:
        """Release what is due."""
        ...

    def drain(self) -> tuple[Redacted, ...]:
        """Release everything."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of the spans that are held."""
        ...

    @property
    def recorded_bytes(self) -> int:
        """Bytes of the record of the workers' caches, and of what is remembered of requests."""
        ...

    def shed(self, bytes_max: int, now: float) -> tuple[Redacted, ...]:
        """Release the oldest that is held, until no more than so many bytes are."""
        ...
