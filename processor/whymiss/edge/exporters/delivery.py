"""What a destination answers to one request, and the connection that carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from ...redaction import Signal


class Delivered(msgspec.Struct, frozen=True):
    """It has the request. What it rejected of it must not be sent again."""

    rejected: int = 0
    message: str = ""


class Refused(msgspec.Struct, frozen=True):
    """It will never take this request; ``code`` is the gRPC or HTTP status."""

    code: str


class Deferred(msgspec.Struct, frozen=True):
    """It may take the request later, and not before ``hint_seconds`` where it said so."""

    code: str
    hint_seconds: float | None = None


Reply: TypeAlias = Delivered | Refused | Deferred


class DeliveryState:
    """How deliveries to a destination go: whether it defers what it is sent, since when, and the last thing that went wrong.

    Times are on the clock of `Pace`; ``None`` where there was none.
    """

    def __init__(self) -> None:
        self.answered_at: float | None = None
        """When it last gave an answer for good."""
        self.deferring_since: float | None = None
        self.code: str | None = None
        """Of the last answer that was not a delivery: a gRPC or HTTP status, or the kind of failure."""
        self.failed_at: float | None = None

    def note(self, reply: Reply, now: float) -> None:
        """Take an answer to one attempt."""
        if not isinstance(reply, Delivered):
            self.code, self.failed_at = reply.code, now
        if not isinstance(reply, Deferred):
            self.answered_at, self.deferring_since = now, None
        elif self.deferring_since is None:
            self.deferring_since = now


class Transport(Protocol):
    """A connection to one destination."""

    async def send(self, signal: Signal, body: bytes) -> Reply:
        """Make one attempt with an encoded Export*ServiceRequest; every failure of the world is a reply."""
        ...

    async def close(self) -> None:
        """Give the connection up, and what is being sent with it."""
        ...
