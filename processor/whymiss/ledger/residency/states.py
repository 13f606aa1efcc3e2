"""Vectorised lookup: from the operations on many blocks to their states, and to the details of a fact when one needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...model import Residency
from ..columnar.kernels import Integers
from ..segment.operations import CountedOperations
from .copies import Codes, alternating, count_copies, residencies_of
from .facts import ColumnFacts, Details, states_of
from .resets import ResetColumns

NanosOf: TypeAlias = Callable[[Integers], Integers]
"""From event ordinals to publisher's times: int64 nanoseconds, aligned."""


def facts_of(
    hits: CountedOperations, order: Integers, resets: ResetColumns, position: int, nanos_of: NanosOf
) -> ColumnFacts:
    """Facts about ``order.size`` blocks from the operations on them before a position.

    ``order`` maps the owners of ``hits`` to the blocks as they were asked for: int64, a permutation.
    """
    if not hits.owners.size:
        return ColumnFacts.all_of(Residency.NEVER_SEEN, order.size)
    owners, judged, details = _judged(hits, resets, position, nanos_of)
    states = states_of(Residency.NEVER_SEEN, order.size)
    blocks = order.take(owners)
    states[blocks] = judged

    def of_all() -> Details:
        known = Details.none_of(order.size)
        known.fill(blocks, details())
        return known

    return ColumnFacts(states, of_all)


def _judged(
    hits: CountedOperations, resets: ResetColumns, position: int, nanos_of: NanosOf
) -> tuple[Integers, Codes, Callable[[], Details]]:
    """The blocks that some operations concern, their states, and what else there is to say of them."""
    turns = alternating(hits, resets, position)
    if turns is not None:

        def plainly() -> Details:
            ordinals = hits.ordinals.take(turns.last)
            return Details(turns.removals, ordinals, nanos_of(ordinals))

        return turns.owners, turns.states, plainly
    alternation = count_copies(hits, resets, position)
    judged = residencies_of(alternation, hits, resets)

    def in_full() -> Details:
        at_reset = judged.at_reset
        nanos = np.empty(at_reset.size, np.int64)
        nanos[at_reset] = resets.nanos[resets.ordinals.searchsorted(judged.ordinals[at_reset])]
        nanos[~at_reset] = nanos_of(judged.ordinals[~at_reset])
        return Details(judged.removals, judged.ordinals, nanos)

    return alternation.owners, judged.states, in_full
