"""Whether the stores around a request are all explained by requests that were seen.

Elimination (a full hit because no chain is left; a chain because nobody else is there) holds only where every request was
seen, and that is measured, not assumed. All stores in the request's own life must be explained, and of the last ones before
it nearly all: by then their requests have ended and been told of, as far as they ever will be. By time alone it is blunt:
an idle stretch proves nothing, and in a busy one few seconds with one client that hung up cost every verdict.

Measured on recordings 01, 11 and 26 to 28 with 0, 2, 10, 30 and 50 % of the spans left out at random (12,226 lookups, of
which 95, 95, 95, 93 and 91 % would be said): without this rule 54 wrong counts, with the request's own life only 23, with
64 stores and a share of 4 % none; said are 95, 76, 34, 15 and 14 %.
"""

from __future__ import annotations

from collections.abc import Callable

from .outcome import Completeness
from .stream import Placed, Stream
from .values import Limits, Request


def around(request: Request, stream: Stream, limits: Limits, explained: Callable[[Placed], bool]) -> Completeness:
    """The completeness of a stream around a request's life."""
    first, last = request.low - limits.tolerance_nanos, request.end + limits.tolerance_nanos
    near, within = stream.before_and_within(first, last, limits.quiet_stores)
    before = [placed for placed in near if placed.unix_nanos >= first - limits.quiet_nanos]
    lost = stream.holes_between(before[0].batch if before else stream.batch_at(first), stream.batch_at(last))
    return Completeness(
        stores=len(before) + len(within),
        unexplained=tuple(placed.ordinal for placed in within if not explained(placed)),
        before=len(before),
        unexplained_before=sum(not explained(placed) for placed in before) + lost,
        share_max=limits.unexplained_share_max,
    )
