"""What the record says of one block. Most questions are about one, and arrays of one are slow.

The counting is that of ``tally``, operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model import Removal, Residency
from ..segment.operations import Operation
from .resets import BarrierColumns, Effect

_OF_EFFECT = {Effect.HOLE: None, Effect.CLEARED: Removal.CLEARED, Effect.RESTARTED: Removal.RESTARTED}


class Finding(msgspec.Struct, frozen=True, gc=False):
    """What is known of a block, and the ordinal of the event that made it so."""

    state: Residency
    removal: Removal | None
    ordinal: int
    at_barrier: bool


def judge_one(operations: Sequence[Operation], barriers: BarrierColumns, position: int) -> Finding:
    """What operations on one block before a position mean; there is at least one, and no re-announcement."""
    epoch, begun, barred = 0, Effect.CLEARED, False
    last = operations[-1][0]
    if barriers.ordinals.size:
        epoch = int(barriers.ordinals.searchsorted(last))
        if epoch:
            begun = Effect(int(barriers.effects[epoch - 1]))
            since = int(barriers.ordinals[epoch - 1])
            # The event of a clear counts among what came before it.
            operations = [one for one in operations if one[0] > since]  # guard: one-epoch
        barred = int(barriers.ordinals.searchsorted(position)) > epoch  # guard: one-barrier-position
    copies = least = 0
    stored = last
    for ordinal, stores in operations:
        if stores:
            copies += 1
            stored = ordinal
        else:
            copies -= 1
            least = min(least, copies)
    if copies > least:  # guard: one-never-negative
        found = Finding(Residency.RESIDENT, None, stored, False)
    elif least < 0 or begun is Effect.HOLE:  # guard: one-hole-unsure, one-surplus
        found = Finding(Residency.AMBIGUOUS, None, last, False)
    else:
        found = Finding(Residency.EVICTED, Removal.REMOVED, last, False)
    return _after_barrier(found, barriers, epoch, position) if barred else found


def _after_barrier(found: Finding, barriers: BarrierColumns, epoch: int, position: int) -> Finding:
    """The same where every block changed at once after the block's last operation."""
    until, first = int(barriers.ordinals.searchsorted(position)), int(barriers.ordinals[epoch])
    if barriers.holes_before[until] > barriers.holes_before[epoch]:
        return Finding(Residency.UNKNOWN, None, first, True)  # guard: one-lost
    match found.state:
        case Residency.RESIDENT:
            # guard: one-ended
            return Finding(Residency.EVICTED, _OF_EFFECT[Effect(int(barriers.effects[epoch]))], first, True)
        case Residency.AMBIGUOUS:
            # What may have been gone already surely is now, but not surely through the barrier.
            return Finding(Residency.EVICTED, None, first, True)  # guard: one-ended-unsure
        case _:
            return found
