"""What the record says of many blocks: from the operations on them to findings whose details are found when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...model import Residency
from ..columnar.kernels import Integers
from ..segment.operations import CountedOperations
from .copies import Codes, in_turns, judge, tally
from .facts import Details, Findings, states_of
from .resets import BarrierColumns

NanosOf: TypeAlias = Callable[[Integers], Integers]
"""When events happened."""


def findings_of(
    hits: CountedOperations, order: Integers, barriers: BarrierColumns, position: int, nanos_of: NanosOf
) -> Findings:
    """What some operations before a position mean for blocks; ``order`` are those whom their owners number."""
    if not hits.owners.size:
        return Findings.all_of(Residency.NEVER_SEEN, order.size)
    owners, judged, details = _judged(hits, barriers, position, nanos_of)
    states = states_of(Residency.NEVER_SEEN, order.size)
    blocks = order.take(owners)
    states[blocks] = judged

    def of_all() -> Details:
        known = Details.none_of(order.size)
        known.fill(blocks, details())
        return known

    return Findings(states, of_all)


def _judged(
    hits: CountedOperations, barriers: BarrierColumns, position: int, nanos_of: NanosOf
) -> tuple[Integers, Codes, Callable[[], Details]]:
    """The blocks that some operations concern, their states, and what else there is to say of them."""
    turns = in_turns(hits, barriers, position)
    if turns is not None:

        def plainly() -> Details:
            ordinals = hits.ordinals.take(turns.last)
            return Details(turns.removals, ordinals, nanos_of(ordinals))

        return turns.owners, turns.states, plainly
    found = tally(hits, barriers, position)
    judged = judge(found, hits, barriers)

    def in_full() -> Details:
        at_barrier = judged.at_barrier
        nanos = np.empty(at_barrier.size, np.int64)
        nanos[at_barrier] = barriers.nanos[barriers.ordinals.searchsorted(judged.ordinals[at_barrier])]
        nanos[~at_barrier] = nanos_of(judged.ordinals[~at_barrier])
        return Details(judged.removals, judged.ordinals, nanos)

    return found.owners, judged.states, in_full
