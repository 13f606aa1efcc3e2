"""The block pool of a vLLM engine: what is resident, what is freed in which order, what is published.

Source of the rules: vllm 0.33.0 ``v1/core/block_pool.py`` and ``kv_cache_manager.py``, as reference notes have
them. A free block keeps its content until it is taken; the least recently freed is taken first; a request
frees its blocks from the tail. One key may sit in several blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias


class Removed(NamedTuple):
    """One physical copy of a key left the pool."""

    key: int


class Stored(NamedTuple):
    """Blocks ``start`` to ``end`` of a prompt were given their keys; of the sparse group only the states at ``ends``."""

    number: int
    start: int
    end: int
    ends: tuple[int, ...] = ()


_STATE = 1 << 64


def state_key(key: int) -> int:
    """The pool's name for a sparse group's state at the end of a block: published, both have one hash."""
    return key | _STATE


def is_state(key: int) -> bool:
    """Whether a pool's key is a state's."""
    return bool(key & _STATE)


Operation: TypeAlias = Removed | Stored


class Pool:
    """One engine's blocks; ``capacity`` None is as many as are wanted."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self._key: dict[int, int] = {}
        self._references: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(capacity or 0))
        self._made = capacity or 0
        self._copies: dict[int, list[int]] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._copies

    @property
    def free(self) -> int | None:
        """Blocks that can be taken; None is any number."""
        return None if self.capacity is None else len(self._free)

    def leading(self, keys: Sequence[int]) -> int:
        """How many leading keys are there."""
        for count, key in enumerate(keys):
            if key not in self._copies:
                return count
        return len(keys)

    def hold(self, keys: Iterable[int]) -> list[int]:
        """Take a reference to a block of each key."""
        blocks = []
        for key in keys:
            block = self._copies[key][0]
            if not self._references.get(block):
                del self._free[block]
            self._references[block] = self._references.get(block, 0) + 1
            blocks.append(block)
        return blocks

    def take(self, count: int) -> tuple[list[int], list[Removed]]:
        """Take free blocks; what they held is gone."""
        blocks, removed = [], []
        for _ in range(count):
            if self.capacity is not None:
                block, _ = self._free.popitem(last=False)
            else:
                block, self._made = self._made, self._made + 1
            key = self._key.pop(block, None)
            if key is not None:
                removed.append(Removed(key))
                self._drop(key, block)
            self._references[block] = 1
            blocks.append(block)
        return blocks, removed

    def fill(self, blocks: Iterable[int], keys: Iterable[int]) -> None:
        """Full blocks get their keys and can be hit from now on."""
        for block, key in zip(blocks, keys, strict=True):
            self._key[block] = key
            self._copies.setdefault(key, []).append(block)

    def let_go(self, blocks: Sequence[int]) -> None:
        """Give back a request's blocks, the tail first."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None

    def clear(self) -> bool:
        """Forget every key; refused, as in the engine, while a request holds a block."""
        if any(self._references.values()):
            return False
        self._key.clear()
        self._copies.clear()
        return True

    def _drop(self, key: int, block: int) -> None:
        copies = self._copies[key]
        copies.remove(block)
        if not copies:
            del self._copies[key]
