"""What happens to a span: every exit has a name."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from .spans import Span


class ReleaseReason(StrEnum):
    """Why the joiner let a request go."""

    COMPLETE = "complete"
    HOLD = "hold"
    DRAIN = "drain"
    SHED = "shed"


class Released(msgspec.Struct, frozen=True):
    """A request left the joiner, with all the spans that had arrived for it."""

    spans: tuple[Span, ...]
    reason: ReleaseReason
    arrived: float
    """When its first span arrived, on the joiner's clock."""


class Late(msgspec.Struct, frozen=True):
    """A span that arrived after its request had been released."""

    span: Span


JoinOutcome: TypeAlias = Released | Late
