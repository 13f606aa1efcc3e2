"""The ledger once more, as a dictionary of lists: slow, simple, and what the columns must agree with.

Every operation is an object in the list of its block; every question replays a list up to a position. Digests
are numbers given out in order of appearance, so only whether two are equal can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.ledger.batches import apart
from whymiss.ledger.events import KvBatch, Removed, Stored
from whymiss.model import Block, Coverage, Fact, GroupSpec, Hole, Removal, Residency, Store, Tier

MANY = 1 << 30
"""An unknown number of copies."""

Place = tuple[Tier, int]


@dataclass(slots=True)
class Operation:
    """A store or a removal of one block."""

    ordinal: int
    unix_nanos: int
    stores: bool
    reported: bool = False
    block: Block | None = None
    missed_chain: bool = False


@dataclass
class Reset:
    """Everything changed at once."""

    ordinal: int
    unix_nanos: int
    removal: Removal | None
    tier: Tier | None = None


class NaiveRecord:
    """What one publisher said. The same questions as ``StreamRecord``."""

    def __init__(self, *, from_birth: bool, begins_unix_nanos: int) -> None:
        self.from_birth = from_birth
        self.begins_unix_nanos = begins_unix_nanos
        self.holes: list[Hole] = []
        self.end = 0
        self.edge = 0
        self.edge_nanos: int | None = None
        self.batches: list[tuple[int, int, int]] = []
        self.operations: dict[tuple[Tier, int, int], list[Operation]] = {}
        self.resets: list[Reset] = []
        self.stores: list[tuple[int, Store]] = []
        self.specs: dict[int, GroupSpec] = {}
        self.life: set[int] = set()
        self.below: set[Tier] = set()
        self.size: int | None = None
        self.numbers: dict[object, int] = {}
        self.remembered: dict[tuple[int, int, int], dict[int, Block]] = {}
        if not from_birth:
            self.add_reset(begins_unix_nanos, None)

    # --- writing ------------------------------------------------------------------------------

    def apply(self, batch: KvBatch) -> None:
        base, nanos = self.end, max(batch.unix_nanos, self.confirmed)
        run_start: int | None = None
        admission: tuple[int, int | None, set[int]] | None = None
        decided: dict[tuple[int, ...], bool] = {}
        events = list(apart(batch.events))
        for index, event in enumerate(events):
            if isinstance(event, Removed):
                run_start = base + int(event.at[0]) if run_start is None else run_start
                admission = None
                self.remove(event, base, nanos)
            elif isinstance(event, Stored):
                position = base + event.index if run_start is None else run_start
                run_start = None
                groups: set[int] = set()
                if admission is not None and admission[1] == event.parent and event.group not in admission[2]:
                    position, groups = admission[0], admission[2]
                admission = (position, event.parent, groups | {event.group})
                self.store(event, base + event.index, nanos, position, events[index + 1 :], decided)
            else:
                run_start = admission = None
                self.resets.append(Reset(base + event.index, batch.unix_nanos, Removal.CLEARED, event.tier))
        self.end = base + batch.count
        self.batches.append((nanos, base, self.end))

    def restart(self, unix_nanos: int) -> None:
        self.add_reset(unix_nanos, Removal.RESTARTED)
        self.life.clear()

    def add_hole(self, hole: Hole) -> None:
        self.holes.append(hole)
        self.add_reset(hole.until_unix_nanos, None)

    def add_reset(self, unix_nanos: int, removal: Removal | None) -> None:
        self.resets.append(Reset(self.end, unix_nanos, removal))
        self.end += 1

    def remove(self, event: Removed, base: int, nanos: int) -> None:
        for group in (event.group,) if event.group is not None else tuple(self.specs) or (0,):
            for key, at in zip(event.keys.tolist(), event.at.tolist(), strict=True):
                self.operations.setdefault((event.tier, group, key), []).append(Operation(base + at, nanos, False))

    def store(
        self,
        event: Stored,
        ordinal: int,
        nanos: int,
        position: int,
        later: Sequence[object],
        decided: dict[tuple[int, ...], bool],
    ) -> None:
        dense = self.learn(event) and event.tier is Tier.DEVICE
        keys = tuple(event.keys.tolist())
        if not keys:
            return
        reported = self.is_reannouncement(event, keys, ordinal, later, decided, dense=dense)
        if reported and not dense:
            return
        blocks = self.identify(event, keys) if dense else [None] * len(keys)
        for index, (key, block) in enumerate(zip(keys, blocks, strict=True)):
            one = Operation(ordinal, nanos, True, reported, block, missed_chain=dense and index == len(keys) - 1)
            self.operations.setdefault((event.tier, event.group, key), []).append(one)
        if dense and not event.placeholder:
            start = None if blocks[0] is None else blocks[0].depth
            told = Store(
                keys=keys,
                start=start,
                parent=event.parent,
                position=position,
                unix_nanos=nanos,
                reported=reported,
                ordinal=ordinal,
                session=event.session,
            )
            self.stores.append((ordinal, told))

    def is_reannouncement(
        self,
        event: Stored,
        keys: tuple[int, ...],
        ordinal: int,
        later: Sequence[object],
        decided: dict[tuple[int, ...], bool],
        *,
        dense: bool,
    ) -> bool:
        if not event.session or event.parent is not None or event.tier is not Tier.DEVICE:
            return False
        if dense:
            decided[keys] = self.all_held(event.group, keys, ordinal)
            return decided[keys]
        if keys in decided:
            return decided[keys]
        groups = [
            other.group
            for other in later
            if isinstance(other, Stored)
            and (other.session, other.parent, other.tier) == (True, None, Tier.DEVICE)
            and GroupSpec(group=0, kind=other.kind).dense
            and tuple(other.keys.tolist()) == keys
        ]
        return bool(groups) and self.all_held(groups[-1], keys, ordinal)

    def all_held(self, group: int, keys: Sequence[int], ordinal: int) -> bool:
        return all(self.copies((Tier.DEVICE, group, key), ordinal)[0] > 0 for key in keys)

    def learn(self, event: Stored) -> bool:
        if event.tier is not Tier.DEVICE:
            self.below.add(event.tier)
        spec = self.specs.get(event.group)
        if event.placeholder or event.tier is not Tier.DEVICE:
            return (spec or GroupSpec(group=0, kind=event.kind)).dense
        if spec is None or event.group not in self.life or spec.block_size != event.block_size:
            kind = spec.kind if spec is not None and event.group in self.life else event.kind
            spec = GroupSpec(group=event.group, kind=kind, block_size=event.block_size, window=event.sliding_window)
            self.specs[event.group] = spec
            self.life.add(event.group)
        if spec.dense:
            self.size = event.block_size
        return spec.dense

    def identify(self, event: Stored, keys: Sequence[int]) -> list[Block | None]:
        self.remembered.clear()
        above = None if event.parent is None else self.block(event.parent)
        if event.placeholder or event.sparse or (event.parent is not None and above is None):
            return [None] * len(keys)
        found: list[Block | None] = []
        for index, key in enumerate(keys):
            extras = event.extras[index] if event.extras is not None else ()
            own = None if event.own is None else int(event.own[index])
            prefix: int | None = 0 if above is None else above.prefix
            mixed: int | None = 0 if above is None else above.extras
            above = Block(
                key=key,
                parent=event.parent if index == 0 else keys[index - 1],
                depth=0 if above is None else above.depth + 1,
                tokens=own,
                prefix=None if own is None or prefix is None else self.number((prefix, own)),
                extras=None if not event.described or mixed is None else self.number((mixed, extras)),
                kinds=tuple(sorted({kind for kind, _ in extras} | set(above.kinds if above else ()))),
            )
            found.append(above)
        return found

    def number(self, value: object) -> int:
        return self.numbers.setdefault(value, len(self.numbers) + 1)

    def expire(self, edge: int) -> None:
        """Forget what was before a position, but for the copies held there."""
        self.edge_nanos = max(nanos for nanos, begin, _ in self.batches if begin < edge)
        for place, operations in list(self.operations.items()):
            low, _, surplus = self.counted(place, edge)
            before = [one for one in operations if one.ordinal < edge and not one.reported]
            stores = [one for one in before if one.stores]
            kept = stores[len(stores) - low :]
            if surplus:
                # That more was removed than stored stays known.
                kept.insert(0, replace(kept[0] if kept else before[-1], stores=False, block=None, missed_chain=False))
            self.operations[place] = kept + [one for one in operations if one.ordinal >= edge]
        self.stores = [(ordinal, store) for ordinal, store in self.stores if ordinal >= edge]
        self.holes = [hole for hole in self.holes if hole.until_unix_nanos > self.edge_nanos]
        self.edge = edge

    def lose(self, edge: int) -> None:
        """Forget what was before a position, and what was held there too."""
        self.edge_nanos = max(nanos for nanos, begin, _ in self.batches if begin < edge)
        for place, operations in self.operations.items():
            self.operations[place] = [one for one in operations if one.ordinal >= edge]
        later = [one for one in self.resets if one.ordinal >= edge]
        self.resets = [Reset(edge - 1, self.edge_nanos, None), *later]
        self.stores = [(ordinal, store) for ordinal, store in self.stores if ordinal >= edge]
        self.holes = [hole for hole in self.holes if hole.until_unix_nanos > self.edge_nanos]
        self.edge = edge

    # --- reading ------------------------------------------------------------------------------

    @property
    def confirmed(self) -> int:
        return self.batches[-1][0] if self.batches else self.begins_unix_nanos

    @property
    def dense(self) -> int:
        groups = self.groups()
        return groups[0].group if groups else 0

    def groups(self) -> Sequence[GroupSpec]:
        return sorted(self.specs.values(), key=lambda spec: (not spec.dense, spec.group))

    def position_at(self, unix_nanos: int) -> int:
        return max((end for nanos, _, end in self.batches if nanos <= unix_nanos), default=0)

    def confirmed_position(self, unix_nanos: int) -> int | None:
        return min((end for nanos, _, end in self.batches if nanos > unix_nanos), default=None)

    def published_before(self, unix_nanos: int) -> int | None:
        return max((nanos for nanos, _, _ in self.batches if nanos < unix_nanos), default=None)

    def happened(self, place: tuple[Tier, int, int], position: int) -> Iterator[Operation | Reset]:
        """Operations that count and barriers that mean something, in order."""
        operations = [one for one in self.operations.get(place, []) if one.ordinal < position and not one.reported]
        resets = [one for one in self.resets if one.ordinal < position and meaning(one, place[0]) != "nothing"]
        happened: list[Operation | Reset] = [*operations, *resets]
        yield from sorted(happened, key=lambda one: one.ordinal)

    def counted(self, place: tuple[Tier, int, int], position: int) -> tuple[int, int, bool]:
        low = high = 0
        surplus = False
        for one in self.happened(place, position):
            if isinstance(one, Reset):
                low, high, surplus = 0, (MANY if meaning(one, place[0]) == "hole" else 0), False
            elif one.stores:
                low, high = low + 1, min(MANY, high + 1)
            else:
                if high == 0:
                    high, surplus = MANY, True
                low, high = max(0, low - 1), high if high >= MANY else high - 1
        return low, high, surplus

    def copies(self, place: tuple[Tier, int, int], position: int) -> tuple[int, int]:
        low, high, _ = self.counted(place, position)
        return low, high

    def as_of(self, keys: Sequence[int], position: int, tier: Tier, group: int | None) -> list[Fact]:
        where = self.dense if group is None else group
        if position < self.edge:
            return [Fact(state=Residency.UNKNOWN) for _ in keys]
        return [self.fact((tier, where, key), position) for key in keys]

    def fact(self, place: tuple[Tier, int, int], position: int) -> Fact:
        happened = list(self.happened(place, position))
        operations = [one for one in happened if isinstance(one, Operation)]
        if not operations:
            return Fact(state=Residency.NEVER_SEEN)
        last = operations[-1]
        low, high, _ = self.counted(place, last.ordinal + 1)
        after = [one for one in happened if isinstance(one, Reset) and one.ordinal > last.ordinal]
        meanings = [meaning(one, place[0]) for one in after]
        if "hole" in meanings:
            return Fact(state=Residency.UNKNOWN, at_unix_nanos=after[0].unix_nanos, ordinal=after[0].ordinal)
        if after and high > 0:
            # The barrier took what was there, and only what surely was there surely left with it.
            removal = Removal(meanings[0]) if low > 0 else None
            return Fact(
                state=Residency.EVICTED,
                at_unix_nanos=after[0].unix_nanos,
                removal=removal,
                ordinal=after[0].ordinal,
            )
        if low > 0:
            last = [one for one in operations if one.stores][-1]
            return Fact(state=Residency.RESIDENT, at_unix_nanos=last.unix_nanos, ordinal=last.ordinal)
        state = Residency.AMBIGUOUS if high else Residency.EVICTED
        return Fact(
            state=state,
            at_unix_nanos=last.unix_nanos,
            ordinal=last.ordinal,
            removal=None if high else Removal.REMOVED,
        )

    def touched(self, key: int, first: int, last: int) -> bool:
        if any(first <= one.ordinal < last and meaning(one, Tier.DEVICE) != "nothing" for one in self.resets):
            return True
        operations = self.operations.get((Tier.DEVICE, self.dense, key), ())
        return any(first <= one.ordinal < last and not one.reported for one in operations)

    def stores_between(self, after: int, until: int) -> Sequence[Store]:
        first, last = self.position_at(after), self.position_at(until)
        return [
            replace_tail(store, self.missed_chain(store.parent, ordinal))
            for ordinal, store in self.stores
            if first <= ordinal < last
        ]

    def missed_chain(self, parent: int | None, ordinal: int) -> int | None:
        if parent is None:
            return None
        ends = [one for one in self.chained() if one[0] == parent and one[1].missed_chain and one[1].ordinal < ordinal]
        return max(ends, key=lambda one: one[1].ordinal)[1].unix_nanos if ends else None

    def chained(self) -> list[tuple[int, Operation]]:
        """Stores on the device in order, each with its key."""
        found = [
            (key, one)
            for (tier, _, key), operations in self.operations.items()
            for one in operations
            if tier is Tier.DEVICE and one.stores
        ]
        return sorted(found, key=lambda pair: pair[1].ordinal)

    def placed(self, position: int = MANY) -> dict[int, Block]:
        """Blocks whose place in a chain is known, in the order in which they were first stored."""
        known = self.remembered.get((self.end, self.edge, position))
        if known is not None:
            return known
        found: dict[int, Block] = {}
        for key, one in self.chained():
            if one.block is not None and one.ordinal < position:
                found.setdefault(key, one.block)
        self.remembered[self.end, self.edge, position] = found
        return found

    def block(self, key: int) -> Block | None:
        return self.placed().get(key)

    def children(self, parent: int | None, position: int) -> Sequence[int]:
        return [key for key, block in self.placed(position).items() if block.parent == parent]

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        mine = self.block(key)
        if mine is None or mine.prefix is None:
            return []
        return [
            other
            for other in self.placed(position).values()
            if other.key != key
            and (other.prefix, other.depth) == (mine.prefix, mine.depth)
            and self.fact((Tier.DEVICE, self.dense, other.key), position).state is Residency.RESIDENT
        ]

    def reconverges(self, keys: Sequence[int], position: int) -> int:
        head = self.block(keys[0]) if keys else None
        if head is None or head.tokens is None:
            return 0
        everybody, before = self.placed(), self.placed(position)
        wanted: dict[int, Block] = {}
        for key in keys[1:]:
            block = everybody.get(key)
            if block is None or block.tokens is None:
                break
            wanted[block.depth] = block
        best = 0
        for end in before.values():
            chain = way_down(everybody, end, head.depth)
            if chain and chain[0].parent == head.parent and chain[0].tokens not in {None, head.tokens}:
                best = max(best, sum(self._repeats(other, wanted, before) for other in chain[1:]))
        return best

    @staticmethod
    def _repeats(other: Block, wanted: dict[int, Block], before: dict[int, Block]) -> bool:
        block = wanted.get(other.depth)
        known = other.key in before and other.prefix is not None
        return block is not None and known and other.key != block.key and other.tokens == block.tokens

    def coverage(self, after: int, until: int) -> Coverage:
        return Coverage(
            holes=tuple(one for one in self.holes if one.after_unix_nanos < until and one.until_unix_nanos > after),
            begins_unix_nanos=max(self.begins_unix_nanos, self.edge_nanos or self.begins_unix_nanos),
            from_birth=self.from_birth and self.edge_nanos is None,
            confirmed_unix_nanos=self.confirmed,
            expired=self.edge_nanos is not None,
        )


def meaning(reset: Reset, tier: Tier) -> str:
    """What a barrier means for a tier: ``hole``, ``cleared``, ``restarted`` or ``nothing``."""
    if reset.removal is None:
        return "hole"
    if reset.removal is Removal.CLEARED:
        if reset.tier is tier:
            return "cleared"
        return "hole" if reset.tier is Tier.DEVICE else "nothing"
    return "restarted" if tier in {Tier.DEVICE, Tier.HOST} else "hole"


def way_down(everybody: dict[int, Block], block: Block, depth: int) -> list[Block]:
    """The chain from a depth to a block; empty where a block of it is not known."""
    chain = [block]
    while chain[0].depth > depth:
        above = None if chain[0].parent is None else everybody.get(chain[0].parent)
        if above is None:
            return []
        chain.insert(0, above)
    return chain if chain[0].depth == depth else []


def replace_tail(store: Store, missed_chain: int | None) -> Store:
    return Store(
        keys=store.keys,
        start=store.start,
        parent=store.parent,
        position=store.position,
        unix_nanos=store.unix_nanos,
        reported=store.reported,
        parent_tail_unix_nanos=missed_chain,
        ordinal=store.ordinal,
        session=store.session,
    )
