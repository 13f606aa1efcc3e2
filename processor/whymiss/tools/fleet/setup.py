"""One fleet that a trace is replayed on."""

from __future__ import annotations

import msgspec

ROUTINGS = {
    "round_robin": "one worker after the other",
    "random": "any worker, the same choices in every run",
    "least_loaded": "the worker that computed least lately (half-life 30 s)",
    "sticky": "a session stays on its worker",
    "prefix": "the worker with the longest match if that is half of the prompt or more, else the least loaded",
    "prefix_greedy": "the worker with the longest match, however short, else the least loaded",
}
"""What a router goes by."""


class Tier(msgspec.Struct, frozen=True):
    """A second place for blocks, behind the engines' own: all that is computed is also written there (LRU)."""

    blocks: int | None
    """None: without end."""
    shared: bool = False
    """One tier for all workers, rather than one for each."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet. Field by field what can be varied."""

    workers: int = 1
    capacity: int | None = None
    """Blocks of one worker's own cache; None: without end."""
    routing: str = "round_robin"
    """One of ``ROUTINGS``."""
    tier: Tier | None = None
    keep_seconds: float | None = None
    """Blocks that were not used for so long leave, from the tier as well; None: they may stay."""
    index_lag_seconds: float = 0.0
    """How far the index of a prefix-aware router trails what workers store and drop."""
