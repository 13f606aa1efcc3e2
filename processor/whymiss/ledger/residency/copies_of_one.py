"""Point lookup: the state of one block, counted operation by operation. Arrays of one entry are slow.

The rule is that of ``copies``, which counts many blocks in columns; a property test holds them together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model import Removal, Residency
from ..segment.operations import Operation
from .resets import ResetColumns, ResetEffect

_OF_EFFECT = {ResetEffect.HOLE: None, ResetEffect.CLEARED: Removal.CLEARED, ResetEffect.RESTARTED: Removal.RESTARTED}


class BlockResidency(msgspec.Struct, frozen=True, gc=False):
    """What is known of a block, and the ordinal of the event that made it so."""

    state: Residency
    removal: Removal | None
    ordinal: int
    at_reset: bool


def residency_of_one(operations: Sequence[Operation], resets: ResetColumns, position: int) -> BlockResidency:
    """What operations on one block before a position mean; there is at least one, and no re-announcement."""
    epoch, begun, barred = 0, ResetEffect.CLEARED, False
    last = operations[-1][0]
    if resets.ordinals.size:
        epoch = int(resets.ordinals.searchsorted(last))
        if epoch:
            begun = ResetEffect(int(resets.effects[epoch - 1]))
            since = int(resets.ordinals[epoch - 1])
            # The event of a clear counts among what came before it.
            operations = [one for one in operations if one[0] > since]  # guard: one-epoch
        barred = int(resets.ordinals.searchsorted(position)) > epoch  # guard: one-barrier-position
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
        residency = BlockResidency(Residency.RESIDENT, None, stored, False)
    elif least < 0 or begun is ResetEffect.HOLE:  # guard: one-hole-unsure, one-surplus
        residency = BlockResidency(Residency.AMBIGUOUS, None, last, False)
    else:
        residency = BlockResidency(Residency.EVICTED, Removal.REMOVED, last, False)
    return _after_reset(residency, resets, epoch, position) if barred else residency


def _after_reset(residency: BlockResidency, resets: ResetColumns, epoch: int, position: int) -> BlockResidency:
    """The same where a reset came after the block's last operation."""
    until, first = int(resets.ordinals.searchsorted(position)), int(resets.ordinals[epoch])
    if resets.holes_before[until] > resets.holes_before[epoch]:
        return BlockResidency(Residency.UNKNOWN, None, first, True)  # guard: one-lost
    match residency.state:
        case Residency.RESIDENT:
            # guard: one-ended
            return BlockResidency(Residency.EVICTED, _OF_EFFECT[ResetEffect(int(resets.effects[epoch]))], first, True)
        case Residency.AMBIGUOUS:
            # What may have been gone already surely is now, but not surely through the barrier.
            return BlockResidency(Residency.EVICTED, None, first, True)  # guard: one-ended-unsure
        case _:
            return residency
