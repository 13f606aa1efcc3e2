"""What keeps a stream from showing all that a request can have stored there."""

from __future__ import annotations

from .outcome import Why
from .stream import Stream
from .values import Request


def gap_of(request: Request, stream: Stream, tolerance_nanos: int) -> Why:
    """The gap in a stream's record of a request's life; `Why.NONE` where there is none."""
    first = request.low - tolerance_nanos
    if stream.begins_unix_nanos > first and not stream.from_birth:
        return Why.SHORT
    end = request.end + tolerance_nanos
    if stream.holes_between(stream.batch_at(first), stream.batch_at(end)):
        return Why.HOLE
    if stream.unknown_between(first, end):
        return Why.SHORT
    # What a request stored confirms itself; that it stored nothing is known once something came after its first token.
    if stream.confirmed_unix_nanos < request.first - tolerance_nanos:
        return Why.LATE
    return Why.NONE
