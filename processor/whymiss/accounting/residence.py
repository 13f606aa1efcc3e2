"""What accounting asks of a record: whether a block was resident. The ledger answers; tests answer from raw events.

Where a record does not know, a block *may* have been resident, and is not *surely* so: both are asked for, so that not
knowing widens the choice of paths and never narrows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .values import Key


class Residence(Protocol):
    """The dense group on one stream's device, over positions."""

    def surely(self, key: Key, position: int) -> bool:
        """Whether a block was certainly resident at a position."""
        ...

    def maybe(self, key: Key, first: int, last: int) -> Sequence[tuple[int, int]]:
        """Runs of positions (both ends inclusive, ascending) in ``[first, last]`` at which a block may have been resident."""
        ...

    def maybe_at_depth(self, depth: int, first: int, last: int) -> tuple[int, int] | None:
        """The first and the last position in ``[first, last]`` at which any block of a depth may have been resident."""
        ...
