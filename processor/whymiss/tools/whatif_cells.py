"""What one fleet of ``whymiss whatif`` did: the figures that are shown, drawn and printed as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from ..attribution import TABLE
from ..model import Cause, Owner
from .fleet.replay import Outcome, Why
from .fleet.setup import Setup

OWNERS: Mapping[Cause, Owner] = {row.cause: row.owner for row in TABLE}
NEW = frozenset({Cause.NEW_CONTENT, Cause.NO_RECENT_MATCH})
"""What no fleet could have had in a cache."""


class Cell(msgspec.Struct, frozen=True):
    """One fleet of the grid and what it did."""

    setup: Setup
    outcome: Outcome

    @property
    def lost(self) -> Counter[Cause]:
        """Tokens that were computed again, by cause."""
        lost: Counter[Cause] = Counter()
        for why, tokens in self.outcome.missed_tokens.items():
            if why.cause not in NEW:
                lost[why.cause] += tokens
        return lost

    @property
    def new_tokens(self) -> int:
        """Tokens of blocks that nobody had computed before."""
        return sum(tokens for why, tokens in self.outcome.missed_tokens.items() if why.cause in NEW)

    @property
    def hit_share(self) -> float:
        """The share of the queried tokens that was reused."""
        return share(self.outcome.hit_tokens, self.outcome.queried_tokens)

    @property
    def busiest_share(self) -> float:
        """The share of the computed tokens that one worker had to compute."""
        computed = self.outcome.computed_tokens_of
        return share(max(computed), sum(computed))

    def saved_tokens(self, first: Cell) -> int | None:
        """Tokens that it computes less than another fleet; None where both did not serve the same requests."""
        if self.outcome.refused != first.outcome.refused:
            return None
        return self.outcome.hit_tokens - first.outcome.hit_tokens


def share(part: int, whole: int) -> float:
    """A part of a whole, 0 of nothing."""
    return part / whole if whole else 0.0


def record(cell: Cell, first: Cell) -> dict[str, object]:
    """A fleet's figures for machines, exact; ``saved_tokens`` is against the first fleet of the grid."""
    outcome = cell.outcome
    whys = sorted(
        outcome.missed_tokens.keys() | outcome.lookups.keys(),
        key=lambda why: (list(Cause).index(why.cause), why.reason),
    )
    return {
        **msgspec.structs.asdict(cell.setup),
        "requests": outcome.requests,
        "refused": outcome.refused,
        "queried_tokens": outcome.queried_tokens,
        "hit_tokens": outcome.hit_tokens,
        "loaded_tokens": outcome.loaded_tokens,
        "lost_tokens": cell.lost.total(),
        "new_tokens": cell.new_tokens,
        "unmatchable_tokens": outcome.unmatchable_tokens,
        "saved_tokens": cell.saved_tokens(first),
        "hit_share": round(cell.hit_share, 6),
        "busiest_share": round(cell.busiest_share, 6),
        "causes": [_row(why, outcome) for why in whys],
    }


def _row(why: Why, outcome: Outcome) -> dict[str, object]:
    return {
        "cause": why.cause,
        "reason": why.reason,
        "owner": OWNERS[why.cause],
        "lookups": outcome.lookups[why],
        "missed_tokens": outcome.missed_tokens[why],
    }
