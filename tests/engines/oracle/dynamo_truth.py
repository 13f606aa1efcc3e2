"""What mock engines held by their own streams, and what a missed block may therefore be called in a fleet."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from .truth import History, Key


class Held:
    """Blocks of every worker, named by all tokens up to their end."""

    def __init__(self, workers: int, block: int) -> None:
        self.block = block
        self.now: list[Counter[Key]] = [Counter() for _ in range(workers)]
        self.ever: list[set[Key]] = [set() for _ in range(workers)]
        self._lost: list[set[Key]] = [set() for _ in range(workers)]
        self.fleet = History(block)
        self._chains: dict[int, tuple[int, ...]] = {}

    def copy(self) -> Held:
        return copy.deepcopy(self)

    def take(self, worker: int, payload: bytes) -> None:
        """A batch of a mocker's stream."""
        for event in msgspec.msgpack.decode(payload)[1]:
            match event["type"]:
                case "BlockStored":
                    self._stored(worker, event)
                case "BlockRemoved":
                    for name in event["block_hashes"]:
                        self.now[worker][self._chains[name]] -= 1
                        self._lost[worker].add(self._chains[name])
                case "AllBlocksCleared":
                    self.now[worker].clear()
                case other:
                    raise ValueError(f"an event that no mocker had: {other}")

    def _stored(self, worker: int, event: dict[str, Any]) -> None:
        parent = event["parent_block_hash"]
        tokens = self._chains[parent] if parent is not None else ()
        for index, name in enumerate(event["block_hashes"]):
            tokens += tuple(event["token_ids"][index * self.block : (index + 1) * self.block])
            self._chains[name] = tokens
            self.now[worker][tokens] = 1
            self.ever[worker].add(tokens)
            self.fleet.store(keys(tokens, self.block), tokens, len(tokens) // self.block - 1)

    def forget_lost(self) -> None:
        """From here on only what goes from now on counts as lost lately."""
        for lost in self._lost:
            lost.clear()

    def lost_lately(self, worker: int, tokens: Sequence[int], hit: int) -> bool:
        """Whether the first missed block of that prompt went since ``forget_lost``."""
        return keys(tokens, self.block)[hit // self.block] in self._lost[worker]

    def holds(self, worker: int, key: Key) -> bool:
        return self.now[worker][key] > 0


def keys(tokens: Sequence[int], block: int) -> list[Key]:
    """A key for each whole block."""
    return [tuple(tokens[: (index + 1) * block]) for index in range(len(tokens) // block)]


def causes(held: Held, worker: int, tokens: Sequence[int], hit: int, promised: int | None) -> tuple[str, ...]:
    """By the table's order, for engines without tiers and salts; ``promised`` is the router's, in blocks."""
    first, block = hit // held.block, held.block
    if len(tokens) < block:
        return ("below_match_unit",)
    if first >= (len(tokens) - 1) // block:
        return ("none",)
    if promised is not None and promised > first:
        return ("stale_index",)
    key = keys(tokens, block)[first]
    others = [other for other in range(len(held.now)) if other != worker]
    if any(held.holds(other, key) for other in others):
        return ("routing_miss",)
    if held.holds(worker, key):
        return ()
    if key in held.ever[worker]:
        return ("evicted",)
    if any(key in held.ever[other] for other in others):
        return ("evicted_elsewhere",)
    parent = keys(tokens, block)[first - 1] if first else None
    siblings = held.fleet.siblings(parent, held.fleet.own(tokens, first))
    if held.fleet.reconverges(siblings, tokens, first):
        return ("token_divergence",)
    return ("new_content",) if first and not siblings else ("no_recent_match",)
