"""Aggregation over a block's operations: from stores and removals to the copies held at a position, for many blocks.

Copies are counted as an interval ``[low, high]``, because vLLM stores and removes per physical copy and a
record that has a hole does not know how many there were. A store raises both ends, a removal lowers
them (never below zero), and a removal of what the record did not hold makes ``high`` unknown. After a
clear or a restart both are zero, after a hole ``low`` is zero and ``high`` unknown. So, with S the sum
of the steps (+1, -1) since then and M the least partial sum or zero: ``low = S - M``; and ``high = low``
if M is zero and there was no hole, else unknown.

``copies_of_one`` is the same rule for one block, operation by operation; a property test holds them together.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ...model import Removal, Residency
from ..columnar.kernels import Flags, Integers
from ..segment.operations import CountedOperations, SelectedOperations
from .resets import ResetColumns, ResetEffect

Codes = npt.NDArray[np.int8]

STATES = tuple(Residency)
REMOVALS = tuple(Removal)
_NEVER_SEEN, _RESIDENT, _EVICTED = (
    STATES.index(Residency.NEVER_SEEN),
    STATES.index(Residency.RESIDENT),
    STATES.index(Residency.EVICTED),
)
_AMBIGUOUS, _UNKNOWN = STATES.index(Residency.AMBIGUOUS), STATES.index(Residency.UNKNOWN)
_REMOVED = REMOVALS.index(Removal.REMOVED)
_OF_HELD = np.array([_EVICTED, _RESIDENT], np.int8)
_OF_HELD_AFTER_HOLE = np.array([_AMBIGUOUS, _RESIDENT], np.int8)
_REMOVAL_OF_HELD = np.array([_REMOVED, -1], np.int8)
_REMOVAL_UNKNOWN = np.array([-1, -1], np.int8)
_OF_EFFECT = np.array([-1, REMOVALS.index(Removal.CLEARED), REMOVALS.index(Removal.RESTARTED)], np.int8)


class CopyCounts(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The copies of the blocks that some operations concern, before a position. One entry a block."""

    owners: Integers
    starts: Integers
    """Each block's first row among the operations."""
    last: Integers
    """Its last row."""
    low: Integers
    unsure: Flags
    """Whether there may be more copies than ``low``."""
    surplus: Flags
    """Whether that is only because more copies were removed than had been stored."""
    counted: Flags
    """One entry an operation: whether it came after the last reset before the block's last one."""
    reset: Integers
    """Index of the first reset after its last operation; -1 where there is none before the position."""
    lost: Flags
    """Whether there is a hole after its last operation."""


def count_copies(hits: CountedOperations | SelectedOperations, resets: ResetColumns, position: int) -> CopyCounts:
    """Counts the copies of each block, in the order of ``hits``, which are before the position and grouped by block.

    There is at least one, and none is a re-announcement.
    """
    owners, ordinals = hits.owners, hits.ordinals
    count = owners.size
    changes = np.flatnonzero(owners[1:] != owners[:-1]) + 1
    starts = np.concatenate((np.zeros(1, np.int64), changes))
    last = np.concatenate((changes, np.full(1, count))) - 1
    lengths = last - starts + 1
    steps = np.where(hits.stores, 1, -1)  # guard: tally-copies
    if not resets.ordinals.size:
        low, surplus = _copies(steps, starts, last, lengths)
        none = np.full(low.size, -1)
        whole = np.ones(count, np.bool_)
        return CopyCounts(owners[starts], starts, last, low, surplus, surplus, whole, none, np.zeros_like(surplus))
    epochs = resets.ordinals.searchsorted(ordinals)
    epoch = epochs[last]
    counted = epochs == epoch.repeat(lengths)
    low, surplus = _copies(steps * counted, starts, last, lengths)  # guard: tally-epoch
    begun = np.where(epoch > 0, resets.effects[np.maximum(epoch, 1) - 1], np.int8(ResetEffect.CLEARED))
    until = int(resets.ordinals.searchsorted(position))
    # guard: tally-hole-unsure, tally-barrier-position, tally-lost
    return CopyCounts(
        owners[starts],
        starts,
        last,
        low,
        surplus | (begun == ResetEffect.HOLE),
        surplus & (begun != ResetEffect.HOLE),
        counted,
        np.where(epoch < until, epoch, -1),
        resets.holes_before[until] > resets.holes_before[np.minimum(epoch, until)],
    )


def _copies(steps: Integers, starts: Integers, last: Integers, lengths: Integers) -> tuple[Integers, Flags]:
    """The copies surely left of each block, and whether more were removed than stored."""
    running = steps.cumsum()
    partial = running - (running[starts] - steps[starts]).repeat(lengths)
    least = np.minimum(np.minimum.reduceat(partial, starts), 0)
    return partial[last] - least, least < 0  # guard: tally-surplus, tally-never-negative


class Residencies(msgspec.Struct, frozen=True, eq=False):
    """Columns of what counts mean, one entry a block; ``ordinals`` are those of the events that made it so."""

    states: Codes
    removals: Codes
    ordinals: Integers
    at_reset: Flags


def residencies_of(
    counts: CopyCounts, hits: CountedOperations | SelectedOperations, resets: ResetColumns
) -> Residencies:
    """The states of the blocks that were counted, one entry a block in the order of ``counts``."""
    held, sure = counts.low > 0, ~counts.unsure
    states = np.where(held, _RESIDENT, np.where(sure, _EVICTED, _AMBIGUOUS)).astype(np.int8)  # guard: judge-unsure
    stored = np.where(hits.stores & counts.counted, np.arange(hits.stores.size), -1)
    ordinals = hits.ordinals[np.where(held, np.maximum.reduceat(stored, counts.starts), counts.last)]
    removals = np.where(states == _EVICTED, _REMOVED, -1).astype(np.int8)
    after = counts.reset >= 0
    if not after.any():
        return Residencies(states, removals, ordinals, after)
    ended = after & (held | counts.unsure)  # guard: judge-ended-unsure
    states[ended] = _EVICTED  # guard: judge-ended
    states[counts.lost] = _UNKNOWN  # guard: judge-lost
    # What may have been gone already surely is now, but not surely through the barrier.
    effects = np.where(held, _OF_EFFECT[resets.effects[counts.reset]], -1)  # guard: judge-ended-reason
    removals = np.where(counts.lost, -1, np.where(ended, effects, removals)).astype(np.int8)
    at_reset = ended | counts.lost
    first = resets.ordinals[np.maximum(counts.reset, 0)]
    return Residencies(states, removals, np.where(at_reset, first, ordinals), at_reset)


class Alternation(msgspec.Struct, frozen=True, eq=False):
    """Blocks each of which was stored and removed in turns, with no reset in between or after."""

    owners: Integers
    held: Flags
    last: Integers
    """Each block's last operation."""
    unsure: bool
    """Whether there may have been copies before, as a hole was the last barrier."""

    @property
    def states(self) -> Codes:
        """Index in ``STATES`` of what the record says of each: int8."""
        return (_OF_HELD_AFTER_HOLE if self.unsure else _OF_HELD).take(self.held)

    @property
    def removals(self) -> Codes:
        """Index in ``REMOVALS`` of how each evicted block went, else -1: int8."""
        return (_REMOVAL_UNKNOWN if self.unsure else _REMOVAL_OF_HELD).take(self.held)


def out_of_turn(stores: Flags, ends: Flags) -> Flags:
    """Which operations but the first are out of turn: a store of a held block, or a removal of one that is not held.

    ``stores`` and ``ends`` have one entry an operation, grouped by block and in order; ``ends`` marks each block's last
    one. One entry less comes back: the first operation is out of turn where it is a removal.
    """
    odd: Flags = stores[1:] == (stores[:-1] > ends[:-1])
    return odd


def alternating(hits: CountedOperations, resets: ResetColumns, position: int) -> Alternation | None:
    """The blocks that some operations before a position concern; ``None`` where copies must be counted.

    So it is where a block was stored while it was held, or removed while it was not, and where a reset may be near.
    """
    owners, stores = hits.owners, hits.stores
    until = int(resets.ordinals.searchsorted(position)) if resets.ordinals.size else 0
    if until and resets.ordinals[until - 1] >= hits.begin:  # guard: turns-barrier
        return None
    ends = np.empty(owners.size, np.bool_)
    ends[-1] = True
    np.not_equal(owners[1:], owners[:-1], out=ends[:-1])
    if not stores[0] or out_of_turn(stores, ends).any():  # guard: turns-twice, turns-first
        return None
    last = ends.nonzero()[0]
    unsure = bool(until) and resets.effects[until - 1] == ResetEffect.HOLE  # guard: turns-hole
    return Alternation(owners.take(last), stores.take(last), last, bool(unsure))
