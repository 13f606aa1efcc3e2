"""What an engine knew at a lookup, and what the missed block may therefore be called.

Written from the engine's own state. It shares nothing with whymiss: where the two disagree, one is wrong.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field

Key = Hashable


@dataclass
class Node:
    """A block that was stored at least once: where it hangs, and what its tokens are."""

    parent: Key | None
    own: tuple[int, ...]
    depth: int
    content: int
    children: list[Key] = field(default_factory=list)


@dataclass(frozen=True)
class Lookup:
    """A request's chain as the engine had it: ``keys[i]`` names the first ``i + 1`` blocks of ``tokens``."""

    keys: Sequence[Key]
    tokens: Sequence[int]
    hit_tokens: int
    unit: int
    """What a hit is a multiple of, in tokens."""
    dense_tokens: int
    """How far the dense group alone could have been matched, in tokens, at most ``prompt - 1``."""
    boundary_tokens: int = 0
    """The boundary that the engine itself says a sparse group vetoed, 0 where none."""
    skipped: bool = False
    speculative: bool = False


class History:
    """Every block that the engine stored, as a tree: the engine's past, which its pool forgets."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._nodes: dict[Key, Node] = {}
        self._roots: list[Key] = []
        self._contents: dict[int, list[Key]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._nodes

    def store(self, keys: Sequence[Key], tokens: Sequence[int], index: int) -> None:
        """Block ``index`` of a request was stored."""
        key = keys[index]
        if key in self._nodes:
            return
        parent = keys[index - 1] if index else None
        content = self.content(tokens, index)
        node = Node(parent, self.own(tokens, index), index, content)
        self._nodes[key] = node
        self._contents.setdefault(content, []).append(key)
        siblings = self._roots if parent is None else self._nodes[parent].children
        siblings.append(key)

    def own(self, tokens: Sequence[int], index: int) -> tuple[int, ...]:
        return tuple(tokens[index * self.block : (index + 1) * self.block])

    def content(self, tokens: Sequence[int], index: int) -> int:
        return hash(tuple(tokens[: (index + 1) * self.block]))

    def same_content(self, tokens: Sequence[int], index: int, key: Key) -> list[Key]:
        return [other for other in self._contents.get(self.content(tokens, index), ()) if other != key]

    def siblings(self, parent: Key | None, own: tuple[int, ...]) -> list[Key]:
        """Blocks with that parent and other tokens."""
        under = self._roots if parent is None else self._nodes[parent].children if parent in self._nodes else []
        return [key for key in under if self._nodes[key].own != own]

    def reconverges(self, siblings: Sequence[Key], tokens: Sequence[int], first: int) -> bool:
        """Whether a chain that goes on from one of the siblings has a block's own tokens again at its index."""
        last = len(tokens) // self.block
        mine = {index: self.own(tokens, index) for index in range(first + 1, last)}
        waiting = list(siblings)
        while waiting:
            for child in self._nodes[waiting.pop()].children:
                node = self._nodes[child]
                if mine.get(node.depth) == node.own:
                    return True
                if node.depth < last:
                    waiting.append(child)
        return False


@dataclass(frozen=True)
class Judged:
    """The engine's word: ``state`` of the first missed block, and what the table calls it; nearly always one cause."""

    causes: tuple[str, ...]
    state: str
    first_missed: int | None


def judge(history: History, resident: Container[Key], lookup: Lookup) -> Judged:
    """The cause of a lookup's miss, by the table's order, on a fleet of one engine without tiers."""
    prompt, block = len(lookup.tokens), history.block
    first = lookup.hit_tokens // block
    if prompt < lookup.unit:
        return Judged(("below_match_unit",), "none", None)
    if first >= (prompt - 1) // lookup.unit * lookup.unit // block:
        return Judged(("none",), "none", None)
    key = lookup.keys[first]
    if lookup.skipped:
        return Judged(("cache_disabled",), "resident" if key in resident else "absent", first)
    held = max(lookup.dense_tokens, lookup.boundary_tokens) - lookup.hit_tokens
    vetoed = "speculative_replay" if lookup.speculative else "sparse_retention"
    if held > 0 and key in resident:
        return Judged((vetoed if held >= lookup.unit else "below_match_unit",), "resident", first)
    cause, state = _absent(history, resident, lookup, first)
    # A part of the block was there and vetoed: of the whole block, whose cause is asked, that is not said.
    return Judged((cause, vetoed) if held > 0 else (cause,), state, first)


def _absent(history: History, resident: Container[Key], lookup: Lookup, first: int) -> tuple[str, str]:
    key = lookup.keys[first]
    if key in history:
        return "evicted", "evicted"
    if any(other in resident for other in history.same_content(lookup.tokens, first, key)):
        return "extra_key_mismatch", "never"
    parent = lookup.keys[first - 1] if first else None
    siblings = history.siblings(parent, history.own(lookup.tokens, first))
    if history.reconverges(siblings, lookup.tokens, first):
        return "token_divergence", "never"
    return ("new_content" if first and not history.siblings(parent, ()) else "no_recent_match"), "never"
