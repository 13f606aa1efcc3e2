"""Infers the event ordinal of the lookup behind a store: the start of the eviction run before it (vLLM evicts, then stores).

Removals that a request causes precede its stores in the batch (vLLM's block pool), so a run of removals before a store
belongs to that store. The groups of a hybrid model store side by side for one request; two stores of one group are of
two requests, also where both continue the same block.
"""

from __future__ import annotations

import msgspec


class LookupPositions(msgspec.Struct, gc=False):
    """The events of one batch in order, as far as the next one's lookup depends on them."""

    run_start: int = -1
    """Ordinal of the first of the removals since the last store."""
    parent: int | None = None
    """What the last store continued, if nothing came since."""
    position: int = -1
    """Where its lookup stood."""
    groups: set[int] = msgspec.field(default_factory=set)
    """The cache groups that it was stored in so far."""

    def store(self, ordinal: int, parent: int | None, group: int = 0) -> int:
        """Take a store; returns the position of its lookup."""
        begun = self.run_start if self.run_start >= 0 else ordinal  # guard: admissions-run
        self.run_start = -1  # guard: admissions-run-ends
        # guard: admissions-groups, admissions-parent, admissions-twin
        if self.position < 0 or self.parent != parent or group in self.groups:
            self.position, self.parent = begun, parent
            self.groups.clear()
        self.groups.add(group)
        return self.position

    def remove(self, ordinal: int) -> None:
        """Take a removal."""
        if self.run_start < 0:  # guard: admissions-run-first
            self.run_start = ordinal
        self.position = -1  # guard: admissions-ends

    def clear(self) -> None:
        """Take a clear."""
        self.run_start = self.position = -1  # guard: admissions-cleared
