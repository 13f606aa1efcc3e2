"""The bounds of one request in one stream: which stores can be its own, and where it can have been looked up.

Both bounds of a request are bounds of its *scheduled time*. Its lookup comes later in the same round, and nothing is
published between the scheduled time and the end of that round, however slow the round is: so the lookup is placed by
batch, in the first one published at or after the scheduled time, and not by clock.
"""

from __future__ import annotations

import msgspec

from .stream import Placed, Stream
from .values import NEVER, Limits, Request

ROUNDS_OF_PREEMPTION = 3
"""A request is not admitted again in the round that preempts it, nor preempted in the one that admits it."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Depths in blocks, times in Unix nanoseconds with the tolerance applied, positions of the stream."""

    last: int
    """The prefill's chain ends at this depth."""
    matchable: int
    """So many blocks a lookup can match at most."""
    fills_min: int
    fills_max: int
    low: int
    first: int
    finish: int
    begin: int
    """The lookup was at this position or later,"""
    end: int
    """and at this one or earlier."""
    batch: int
    """The first batch that can carry the lookup,"""
    last_batch: int
    """and the last one."""
    prefill: int | None
    rounding: int

    def lookup_from(self, stream: Stream, final: int) -> int:
        """The position from which on a request was looked up whose last prefill store came at a time: an engine's own clock."""
        assert self.prefill is not None, "asked where a prefill is known"
        return stream.begin_of(stream.batch_at(final - self.prefill - self.rounding))

    def rounds(self, stream: Stream) -> int:
        """So many batches, at most, were published between the scheduled time and the first token."""
        if self.prefill is None:
            return stream.batch_at(self.first) - self.batch
        most = 0
        for batch in range(self.batch, self.last_batch + 1):
            scheduled = stream.time_of(batch - 1)
            most = max(most, stream.batch_at(min(self.first, scheduled + self.prefill + self.rounding)) - batch)
        return most

    def scheduled_from(self, final: int) -> int:
        """The earliest scheduled time, on the engine's clock, of such a request."""
        return 0 if self.prefill is None else final - self.prefill

    def spans(self, first: Placed, later: Placed) -> bool:
        """Whether both can be stores of one prefill: it is not longer than the engine says."""
        return self.prefill is None or later.unix_nanos - first.unix_nanos <= self.prefill + self.rounding


def last_of(request: Request, stream: Stream) -> int:
    """The depth at which a request's prefill ends in a stream."""
    return max(0, request.prompt_tokens - stream.habits.pairs) // stream.block_size


def window_of(request: Request, stream: Stream, limits: Limits) -> Window:
    """The bounds of a request in a stream."""
    size, habits = stream.block_size, stream.habits
    keyed = request.prompt_tokens - habits.pairs
    last = last_of(request, stream)
    matchable = max(0, keyed - 1) // size
    tolerance = limits.tolerance_nanos
    finish = request.end + tolerance
    fills_min, fills_max = 0, NEVER
    if request.completion_tokens is not None:
        total = keyed + request.completion_tokens
        # The last token that is generated is never computed; a step that was scheduled ahead may have computed it.
        fills_max = max(0, total // size - last)
        if habits.replays_last:
            fills_max += 1
        if request.completion_tokens and stream.confirmed_unix_nanos >= finish and not habits.deferred:
            fills_min = max(0, (total - 1) // size - last)
    first_batch = stream.batch_at(request.low - tolerance)
    last_batch = stream.batch_at(max(request.low, request.high) + tolerance)
    return Window(
        last=last,
        matchable=matchable,
        fills_min=fills_min,
        fills_max=fills_max,
        low=request.low - tolerance,
        first=request.first + tolerance,
        finish=finish,
        begin=stream.begin_of(first_batch),
        end=stream.end_of(last_batch),
        batch=first_batch,
        last_batch=last_batch,
        prefill=request.prefill_nanos,
        rounding=limits.rounding_nanos,
    )
