"""What an engine does with a request that it admits: look it up, and take blocks for it.

With a sparse group (a Mamba layer) a hit needs, beside the dense blocks, the state at its very end. Such states
are kept at the end of a prompt's last match unit, and where a lookup saw that the dense group alone held more.
With a sliding window it needs the blocks of the window before its end; those before the window are freed early.
"""

from __future__ import annotations

import random

from tests.fleet.engines import Engine
from tests.fleet.pool import Operation, Stored, state_key
from tests.fleet.prompts import Prompt
from tests.fleet.spec import FleetSpec
from tests.fleet.tier import Found


def look_up(engine: Engine, prompt: Prompt, spec: FleetSpec, chance: random.Random) -> Found:
    """The longest reusable prefix; the last token is always computed."""
    size, unit = spec.block_size, spec.unit_blocks
    matchable = (prompt.length - 1) // (size * unit) * unit
    opted_out = chance.random() < spec.opted_out
    blind = opted_out or chance.random() < spec.blind
    dense = engine.pool.leading(prompt.keys[: (prompt.length - 1) // size])
    held = 0 if blind else min(dense, matchable) // unit * unit
    while spec.sparse and held and not all(key in engine.pool for key in states_needed(prompt, held, spec)):
        held -= unit
    if spec.eagle and held:
        held -= 1
    offer = engine.tier.ask(prompt.keys[held:matchable], chance) if engine.tier is not None else None
    return Found(matchable, held, dense, offer, opted_out)


def states_needed(prompt: Prompt, held: int, spec: FleetSpec) -> list[int]:
    """What of the sparse group a hit of so many blocks needs, as keys of the pool."""
    return [state_key(key) for key in prompt.keys[max(0, held - (spec.window_blocks or 1)) : held]]


def states_wanted(prompt: Prompt, found: Found, spec: FleetSpec) -> list[int]:
    """Where a sparse group keeps its state, as numbers of leading blocks."""
    if not spec.sparse:
        return []
    if spec.window_blocks:
        return list(range(found.held + 1, len(prompt.keys) + 1))
    unit = spec.unit_blocks
    ends = {len(prompt.keys) // unit * unit, min(found.dense, found.matchable) // unit * unit}
    return sorted(end for end in ends if end > found.held)


def keep_states(
    engine: Engine, prompt: Prompt, found: Found, spec: FleetSpec, operations: list[Operation]
) -> list[int]:
    """Give the states their blocks, and say so in one event that spans the computed blocks; returns those."""
    ends = states_wanted(prompt, found, spec)
    kept = engine.pool.hold(states_needed(prompt, found.held, spec)) if spec.window_blocks else []
    if not ends:
        return kept
    blocks, removed = engine.pool.take(len(ends))
    operations.extend(removed)
    engine.pool.fill(blocks, [state_key(prompt.keys[end - 1]) for end in ends])
    operations.append(Stored(prompt.number, found.held, len(prompt.keys), tuple(ends)))
    return [*kept, *blocks]
