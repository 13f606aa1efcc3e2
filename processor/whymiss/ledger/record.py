"""One publisher's record: everything that its numbered events said, in order.

The record answers questions about a *position* (a number of events), never about "now". Copies of a
block are counted as an interval ``[low, high]``: vLLM stores and removes per physical copy, and a
record that did not begin at the publisher's birth cannot know how many copies there were. A block is
resident when ``low > 0``, gone when ``high == 0``, and ambiguous in between.

This file refuses to know clocks, sockets and who asks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from ..model import (
    Block,
    Coverage,
    Fact,
    GroupSpec,
    Hole,
    Removal,
    Residency,
    Store,
    StreamId,
    Tier,
)
from .events import Cleared, Keys, KvBatch, Removed, Stored
from .marks import Barrier, Operation, mixed, reported_ranges

MANY = 1 << 30
"""An unknown number of copies."""

_Place: TypeAlias = tuple[Tier, int, int]


class StreamRecord:
    """What one (worker, rank) published. ``apply`` is called in sequence order only."""

    def __init__(self, stream: StreamId, *, from_birth: bool, begins_unix_nanos: int) -> None:
        self.stream = stream
        self.from_birth = from_birth
        self.begins_unix_nanos = begins_unix_nanos
        self.holes: list[Hole] = []
        self.model: str | None = None
        self._batch_nanos: list[int] = []
        self._batch_ends: list[int] = []
        self._ordinal = 0
        self._operations: dict[_Place, list[Operation]] = {}
        self._barriers: list[Barrier] = []
        self._blocks: dict[int, Block] = {}
        self._first: dict[int, int] = {}
        self._children: dict[int | None, list[int]] = defaultdict(list)
        self._by_prefix: dict[int, list[int]] = defaultdict(list)
        self._by_own: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._tails: dict[int, int] = {}
        self._stores: list[Store] = []
        self._store_nanos: list[int] = []
        self._groups: dict[int, GroupSpec] = {}
        self._tiers: set[Tier] = set()
        self._block_size: int | None = None
        if not from_birth:
            self._bar(begins_unix_nanos, None)

    # --- writing ------------------------------------------------------------------------------

    def apply(self, batch: KvBatch) -> int:
        """Append one batch; returns the number of block operations in it."""
        base = self._ordinal
        operations = 0
        run_start: int | None = None
        admission: tuple[int, int | None] | None = None
        shadow = reported_ranges(batch.events)
        for event in batch.events:
            if isinstance(event, Removed):
                # Removals that a request causes precede its stores in the batch (reference: vLLM
                # block pool), so the run of removals before a store belongs to that store.
                run_start = base + int(event.at[0]) if run_start is None else run_start
                admission = None
                operations += self._remove(event, base, batch.unix_nanos)
            elif isinstance(event, Stored):
                position = base + event.index if run_start is None else run_start
                run_start = None
                # The groups of a hybrid model store side by side for one request.
                if admission is not None and admission[1] == event.parent:
                    position = admission[0]
                admission = (position, event.parent)
                operations += self._store(event, base + event.index, batch.unix_nanos, position, shadow)
            else:
                run_start = None
                admission = None
                self._clear(event, base + event.index, batch.unix_nanos)
                operations += 1
        self._ordinal = base + batch.count
        self._batch_nanos.append(batch.unix_nanos)
        self._batch_ends.append(self._ordinal)
        return operations

    def restart(self, unix_nanos: int) -> None:
        """The publisher began a new life: nothing it held before is left."""
        self._bar(unix_nanos, Removal.RESTARTED)

    def break_at(self, hole: Hole) -> None:
        """The record has a hole here; what happened inside is not known."""
        self.holes.append(hole)
        self._bar(hole.until_unix_nanos, None)

    def _bar(self, unix_nanos: int, removal: Removal | None) -> None:
        # A barrier between two batches takes an ordinal of its own, so that "before" and "after"
        # it are different positions.
        self._barriers.append(Barrier(self._ordinal, unix_nanos, removal))
        self._ordinal += 1

    def _current(self, key: _Place) -> tuple[int, int]:
        operations = self._operations.get(key)
        barrier = self._barriers[-1] if self._barriers else None
        if operations and (barrier is None or operations[-1].ordinal > barrier.ordinal):
            return operations[-1].low, operations[-1].high
        if barrier is None or barrier.removal is not None:
            return 0, 0
        return 0, MANY

    def _append(self, key: _Place, operation: Operation) -> None:
        self._operations.setdefault(key, []).append(operation)

    def _remove(self, event: Removed, base: int, unix_nanos: int) -> int:
        keys = _integers(event.keys)
        groups = (event.group,) if event.group is not None else tuple(self._groups) or (0,)
        for group in groups:
            for key, index in zip(keys, event.at.tolist(), strict=True):
                place = (event.tier, group, key)
                low, high = self._current(place)
                if high == 0:
                    # A removal without a store: the record does not understand this block.
                    high = MANY
                high = high if high >= MANY else high - 1
                self._append(place, Operation(base + index, unix_nanos, max(0, low - 1), high))
        return len(keys)

    def _clear(self, event: Cleared, ordinal: int, unix_nanos: int) -> None:
        del event
        self._barriers.append(Barrier(ordinal, unix_nanos, Removal.CLEARED))

    def _store(
        self, event: Stored, ordinal: int, unix_nanos: int, position: int, shadow: frozenset[tuple[int, ...]]
    ) -> int:
        keys = _integers(event.keys)
        if event.tier is not Tier.DEVICE:
            self._tiers.add(event.tier)
        spec = self._learn_group(event)
        dense = event.tier is Tier.DEVICE and spec.dense
        reported = self._is_report(event, keys, spec, shadow)
        tail = self._tails.get(event.parent) if event.parent is not None else None
        if not reported:
            for key in keys:
                place = (event.tier, event.group, key)
                low, high = self._current(place)
                self._append(place, Operation(ordinal, unix_nanos, low + 1, min(MANY, high + 1)))
        if dense and keys:
            start = self._learn_blocks(event, keys, ordinal)
            self._tails[keys[-1]] = unix_nanos
            self._stores.append(
                Store(
                    keys=keys,
                    start=start,
                    parent=event.parent,
                    position=position,
                    unix_nanos=unix_nanos,
                    reported=reported,
                    parent_tail_unix_nanos=tail,
                )
            )
            self._store_nanos.append(unix_nanos)
        return len(keys)

    def _is_report(
        self, event: Stored, keys: Sequence[int], spec: GroupSpec, shadow: frozenset[tuple[int, ...]]
    ) -> bool:
        """Whether a store only repeats what is resident (vLLM's ``kv_cache_report_mode=full``)."""
        if not event.session or event.parent is not None or not keys:
            return False
        if spec.dense:
            return all(self._current((event.tier, event.group, key))[0] > 0 for key in keys)
        # A sparse group repeats the dense group's list, naming blocks that it never stored.
        return tuple(keys) in shadow

    def _learn_group(self, event: Stored) -> GroupSpec:
        known = self._groups.get(event.group)
        if event.placeholder or event.tier is not Tier.DEVICE:
            return known or GroupSpec(group=event.group, kind=event.kind)
        if known is None or known.block_size != event.block_size:
            known = GroupSpec(
                group=event.group, kind=event.kind, block_size=event.block_size, window=event.sliding_window
            )
            self._groups[event.group] = known
        if known.dense:
            self._block_size = event.block_size
        return known

    def _learn_blocks(self, event: Stored, keys: Sequence[int], ordinal: int) -> int | None:
        parent = None if event.parent is None else self._blocks.get(event.parent)
        if event.parent is not None and parent is None:
            return None
        start = 0 if parent is None else parent.depth + 1
        own = None if event.own is None else _integers(event.own)
        for index, key in enumerate(keys):
            known = self._blocks.get(key)
            if known is None:
                known = self._identify(event, index, key, parent, None if own is None else own[index])
                self._blocks[key] = known
                self._first[key] = ordinal
                self._children[known.parent].append(key)
                if known.prefix is not None and known.tokens is not None:
                    self._by_prefix[known.prefix].append(key)
                    self._by_own[(known.depth, known.tokens)].append(key)
            parent = known
        return start

    def _identify(self, event: Stored, index: int, key: int, parent: Block | None, own: int | None) -> Block:
        extras = event.extras[index] if event.extras is not None else ()
        above_prefix = 0 if parent is None else parent.prefix
        salted = (0 if parent is None else parent.extras) if event.described else None
        for _, digest in extras:
            salted = None if salted is None else mixed(salted, digest)
        return Block(
            key=key,
            parent=None if parent is None else parent.key,
            depth=0 if parent is None else parent.depth + 1,
            tokens=own,
            prefix=None if own is None or above_prefix is None else mixed(above_prefix, own),
            extras=salted,
            kinds=tuple(sorted({kind for kind, _ in extras} | set(() if parent is None else parent.kinds))),
        )

    # --- reading ------------------------------------------------------------------------------

    @property
    def confirmed_unix_nanos(self) -> int:
        """Publisher's time of the newest batch."""
        return self._batch_nanos[-1] if self._batch_nanos else self.begins_unix_nanos

    def block_size(self) -> int | None:
        """Tokens a block of the dense group."""
        return self._block_size

    def groups(self) -> Sequence[GroupSpec]:
        """The groups seen, dense ones first."""
        return sorted(self._groups.values(), key=lambda spec: (not spec.dense, spec.group))

    def tiers(self) -> Sequence[Tier]:
        """Tiers below the device that were named."""
        return sorted(self._tiers)

    def position_at(self, unix_nanos: int) -> int:
        """Events of all batches published at or before a time."""
        index = bisect_right(self._batch_nanos, unix_nanos)
        return self._batch_ends[index - 1] if index else 0

    def confirmed_position(self, unix_nanos: int) -> int | None:
        """The position after the first batch published later than a time, or ``None`` before it came."""
        index = bisect_right(self._batch_nanos, unix_nanos)
        return self._batch_ends[index] if index < len(self._batch_ends) else None

    def _first_barrier_between(self, ordinal: int, position: int) -> Barrier | None:
        index = bisect_right(self._barriers, ordinal, key=lambda barrier: barrier.ordinal)
        found = self._barriers[index] if index < len(self._barriers) else None
        return found if found is not None and found.ordinal < position else None

    def _dense_group(self) -> int:
        groups = self.groups()
        return groups[0].group if groups else 0

    def as_of(self, keys: Sequence[int], position: int, tier: Tier, group: int | None) -> Sequence[Fact]:
        """What the record says of each key before event ordinal ``position``."""
        where = self._dense_group() if group is None else group
        return [self._fact((tier, where, key), position) for key in keys]

    def _fact(self, place: _Place, position: int) -> Fact:
        operations = self._operations.get(place, [])
        index = bisect_left(operations, position, key=lambda operation: operation.ordinal)
        if not index:
            return Fact(state=Residency.NEVER_SEEN)
        last = operations[index - 1]
        barrier = self._first_barrier_between(last.ordinal, position)
        if barrier is not None and barrier.removal is None:
            return Fact(state=Residency.UNKNOWN, at_unix_nanos=barrier.unix_nanos, ordinal=barrier.ordinal)
        if barrier is not None and last.high > 0:
            return Fact(
                state=Residency.EVICTED,
                at_unix_nanos=barrier.unix_nanos,
                removal=barrier.removal,
                ordinal=barrier.ordinal,
            )
        if last.low > 0:
            return Fact(state=Residency.RESIDENT, at_unix_nanos=last.unix_nanos, ordinal=last.ordinal)
        if last.high == 0:
            return Fact(
                state=Residency.EVICTED, at_unix_nanos=last.unix_nanos, removal=Removal.REMOVED, ordinal=last.ordinal
            )
        return Fact(state=Residency.AMBIGUOUS, at_unix_nanos=last.unix_nanos, ordinal=last.ordinal)

    def touched(self, key: int, first: int, last: int) -> bool:
        """Whether any event in ``[first, last)`` concerned the key on the device."""
        if any(first <= barrier.ordinal < last for barrier in self._barriers):
            return True
        place = (Tier.DEVICE, self._dense_group(), key)
        return any(first <= operation.ordinal < last for operation in self._operations.get(place, ()))

    def stores_between(self, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``."""
        first = bisect_right(self._store_nanos, after_unix_nanos)
        last = bisect_right(self._store_nanos, until_unix_nanos)
        return self._stores[first:last]

    def block(self, key: int) -> Block | None:
        """The identity of a block."""
        return self._blocks.get(key)

    def children(self, parent: int | None, position: int) -> Sequence[int]:
        """Blocks first stored under a parent before a position."""
        return [key for key in self._children.get(parent, ()) if self._first[key] < position]

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        """Other resident blocks with the same tokens from block 0 on."""
        block = self._blocks.get(key)
        return [] if block is None else self.like(block, position)

    def like(self, block: Block, position: int) -> Sequence[Block]:
        """Resident blocks with the tokens of any stream's block from block 0 on, under other keys."""
        if block.prefix is None:
            return []
        named = self._by_prefix.get(block.prefix, ())
        others = [other for other in named if other != block.key and self._first[other] < position]
        facts = self.as_of(others, position, Tier.DEVICE, None)
        return [
            self._blocks[other]
            for other, fact in zip(others, facts, strict=True)
            if fact.state is Residency.RESIDENT and self._blocks[other].depth == block.depth
        ]

    def reconverges(self, keys: Sequence[int], position: int) -> int:
        """How many of ``keys[1:]`` a sibling chain repeats, own tokens by own tokens, at the same depth."""
        head = self._blocks.get(keys[0]) if keys else None
        if head is None or head.tokens is None:
            return 0
        matched: dict[int, int] = defaultdict(int)
        for key in keys[1:]:
            block = self._blocks.get(key)
            if block is None or block.tokens is None:
                break
            roots = {
                self._ancestor(other, head.depth)
                for other in self._by_own[(block.depth, block.tokens)]
                if other != key and self._first[other] < position
            }
            for root in roots:
                sibling = None if root is None else self._blocks[root]
                if sibling is not None and sibling.parent == head.parent and sibling.tokens not in (None, head.tokens):
                    matched[sibling.key] += 1
        return max(matched.values(), default=0)

    def _ancestor(self, key: int, depth: int) -> int | None:
        block: Block | None = self._blocks[key]
        while block is not None and block.depth > depth:
            block = None if block.parent is None else self._blocks.get(block.parent)
        return None if block is None else block.key

    def coverage(self, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """Holes that touch an interval, and the bounds of the record."""
        touching = tuple(
            hole
            for hole in self.holes
            if hole.after_unix_nanos < until_unix_nanos and hole.until_unix_nanos > after_unix_nanos
        )
        return Coverage(
            holes=touching,
            begins_unix_nanos=self.begins_unix_nanos,
            from_birth=self.from_birth,
            confirmed_unix_nanos=self.confirmed_unix_nanos,
        )


def _integers(values: Keys) -> tuple[int, ...]:
    return tuple(values.tolist())
