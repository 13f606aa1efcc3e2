"""What goes in and out of the pipeline, as the edge sees it."""

from __future__ import annotations

import msgspec

from ..model import Request, Verdict
from ..redaction import Redacted


class Accepted(msgspec.Struct, frozen=True):
    """What became of one request: what can leave at once, and how many items were rejected."""

    outgoing: tuple[Redacted, ...] = ()
    rejected: int = 0
    message: str = ""


class KvSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where KV-event frames came from, as the operator configured it.

    ``can_replay`` says that what is missing can be asked for.
    """

    name: str
    worker: str | None = None
    default_worker: str | None = None
    """The worker where neither ``worker`` nor a topic names one; without it the source's own name."""
    rank: int | None = None
    model: str | None = None
    kv_connector: bool = False
    can_replay: bool = False


class KvOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one message of a publisher.

    ``kind`` is ``applied``, ``duplicate``, ``gap``, ``restarted``, ``late_join``, ``bad`` or ``end`` (of a
    replay). For a gap the sequence numbers that are missing, inclusive.
    """

    kind: str
    missing_first: int | None = None
    missing_last: int | None = None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One lookup with its verdict."""

    request: Request
    verdict: Verdict
