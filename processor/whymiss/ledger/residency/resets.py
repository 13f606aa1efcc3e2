"""Resets, the range tombstones of a stream: clears, restarts and holes, which change every block at once."""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from ...model import Removal, Tier
from ..columnar.kernels import NO_INTEGERS, Integers


class ResetEffect(IntEnum):
    """What a barrier means for the blocks of one tier."""

    HOLE = 0
    """Nothing is known of what happened to them."""
    CLEARED = 1
    RESTARTED = 2


class Reset(msgspec.Struct, frozen=True):
    """One of them. ``removal`` is ``None`` for a hole; ``tier`` is the one that was cleared."""

    ordinal: int
    unix_nanos: int
    removal: Removal | None = None
    tier: Tier = Tier.DEVICE

    def effect_on(self, tier: Tier) -> ResetEffect | None:
        """What it means for a tier; ``None`` where nothing."""
        if self.removal is Removal.CLEARED:
            if tier is self.tier:  # guard: barrier-tier
                return ResetEffect.CLEARED
            # Whether a reset of the device reaches the tiers below it is not said.
            return ResetEffect.HOLE if self.tier is Tier.DEVICE else None  # guard: barrier-below, barrier-above
        if self.removal is Removal.RESTARTED and tier in _OF_THE_PROCESS:  # guard: barrier-restart-process
            return ResetEffect.RESTARTED  # guard: barrier-restart
        return ResetEffect.HOLE


_OF_THE_PROCESS = frozenset({Tier.DEVICE, Tier.HOST})


class ResetColumns(msgspec.Struct, frozen=True, eq=False):
    """The barriers of one tier as columns, in order."""

    ordinals: Integers
    nanos: Integers
    effects: npt.NDArray[np.int8]
    holes_before: Integers
    """How many holes precede each barrier; one longer than the others."""


NO_RESETS = ResetColumns(NO_INTEGERS, NO_INTEGERS, np.zeros(0, np.int8), np.zeros(1, np.int64))


class Resets:
    """The barriers of one stream."""

    def __init__(self) -> None:
        self.all: list[Reset] = []
        self._columns: dict[Tier, ResetColumns] = {}

    def add(self, reset: Reset) -> None:
        """Append a barrier; ordinals ascend."""
        self.all.append(reset)
        self._columns.clear()

    def of(self, tier: Tier) -> ResetColumns:
        """Those that mean something for a tier."""
        if not self.all:
            return NO_RESETS
        columns = self._columns.get(tier)
        if columns is None:
            pairs = [(reset, effect) for reset in self.all if (effect := reset.effect_on(tier)) is not None]
            effects = np.array([effect for _, effect in pairs], np.int8)
            holes = np.concatenate((np.zeros(1, np.int64), (effects == ResetEffect.HOLE).cumsum()))
            columns = self._columns[tier] = ResetColumns(
                np.array([reset.ordinal for reset, _ in pairs], np.int64),
                np.array([reset.unix_nanos for reset, _ in pairs], np.int64),
                effects,
                holes,
            )
        return columns

    def between(self, tier: Tier, first: int, last: int) -> bool:
        """Whether there is one in ``[first, last)``."""
        if not self.all:
            return False
        ordinals = self.of(tier).ordinals
        return bool(ordinals.searchsorted(first) < ordinals.searchsorted(last))

    def begin_unknown(self, edge: int, unix_nanos: int) -> None:
        """Drop what lies before an ordinal, and let nothing be known of what happened until then."""
        self.all = [Reset(edge - 1, unix_nanos), *(reset for reset in self.all if reset.ordinal >= edge)]
        self._columns.clear()

    def forget(self, edge: int) -> None:
        """Drop what lies before an ordinal, but for each tier's last one: counts begin there."""
        kept = {reset.ordinal for reset in self.all if reset.ordinal >= edge}
        for tier in Tier:
            before = [reset.ordinal for reset in self.all if reset.ordinal < edge and reset.effect_on(tier) is not None]
            kept.update(before[-1:])  # guard: barrier-last-kept
        if len(kept) < len(self.all):
            self.all = [reset for reset in self.all if reset.ordinal in kept]
            self._columns.clear()
