"""A ledger of plain dictionaries and lists that answers a verdict's questions as the columns do, each in one look-up.

It knows what the benchmark publishes: stores and removals of one group of the device, without clears and holes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from whymiss.ledger.events import ExtraKey, KvBatch, Removed, Singles, Stored
from whymiss.ledger.hashing import Digester
from whymiss.model import Residency

_MASK = (1 << 64) - 1


@dataclass(slots=True)
class Identity:
    """A block as its last store described it."""

    parent: int | None
    depth: int
    own: int | None
    prefix: int | None
    extras: tuple[ExtraKey, ...]


@dataclass
class PlainLedger:
    """One publisher's record."""

    digester: Digester
    end: int = 0
    ordinals: dict[int, list[int]] = field(default_factory=dict)
    """Of each block's operations: twice the ordinal of the event, plus one for a store."""
    blocks: dict[int, Identity] = field(default_factory=dict)
    under: dict[int | None, list[tuple[int, int]]] = field(default_factory=dict)
    """Ordinals and keys of what was stored under a parent."""
    by_own: dict[int, list[int]] = field(default_factory=dict)
    by_prefix: dict[int, list[int]] = field(default_factory=dict)
    nanos: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def apply(self, batch: KvBatch) -> None:
        """Take one batch."""
        for event in batch.events:
            if isinstance(event, Stored):
                self._store(event, self.end + event.index)
            elif isinstance(event, Singles):
                self._singles(event)
            elif isinstance(event, Removed):
                for key, at in zip(event.keys.tolist(), event.at.tolist(), strict=True):
                    self.ordinals.setdefault(key, []).append(2 * (self.end + at))
        self.end += batch.count
        self.nanos.append(batch.unix_nanos)
        self.ends.append(self.end)

    def _singles(self, event: Singles) -> None:
        # Not expanded first: what that costs would be no cost of the dictionaries.
        own = iter(() if event.own is None else event.own.tolist())
        for key, at, parent in zip(event.keys.tolist(), event.at, event.parents, strict=True):
            ordinal = self.end + at
            if parent is None:
                self.ordinals.setdefault(key, []).append(2 * ordinal)
                continue
            above = self.blocks.get(parent)
            depth, digest, prefix = 0 if above is None else above.depth + 1, next(own, None), None
            if digest is not None and above is not None and above.prefix is not None:
                multiplier = self.digester.depth_multipliers(depth, 1).item(0)
                prefix = (digest * multiplier + above.prefix) & _MASK
            self.ordinals.setdefault(key, []).append(2 * ordinal + 1)
            self.blocks[key] = Identity(parent, depth, digest, prefix, ())
            self.under.setdefault(parent, []).append((ordinal, key))
            if digest is not None and prefix is not None:
                self.by_own.setdefault(digest, []).append(key)
                self.by_prefix.setdefault(prefix, []).append(key)

    def _store(self, event: Stored, ordinal: int) -> None:
        keys: list[int] = event.keys.tolist()
        above = None if event.parent is None else self.blocks.get(event.parent)
        depth = -1 if above is None else above.depth
        own: list[int | None] = [None] * len(keys)
        prefixes = own
        if event.own is not None:
            own = event.own.tolist()
            parent_prefix = 0 if above is None else above.prefix
            if parent_prefix is not None:
                prefixes = self.digester.prefix_digests(event.own, parent_prefix, depth + 1).tolist()
        parent = event.parent
        extras = event.extras or [()] * len(keys)
        for key, digest, prefix, extra in zip(keys, own, prefixes, extras, strict=True):
            depth += 1
            self.ordinals.setdefault(key, []).append(2 * ordinal + 1)
            self.blocks[key] = Identity(parent, depth, digest, prefix, extra)
            self.under.setdefault(parent, []).append((ordinal, key))
            if digest is not None and prefix is not None:
                self.by_own.setdefault(digest, []).append(key)
                self.by_prefix.setdefault(prefix, []).append(key)
            parent = key

    def state(self, key: int, position: int) -> Residency:
        """What the record says of a block before an ordinal."""
        codes = self.ordinals.get(key)
        before = 0 if codes is None else bisect_left(codes, 2 * position)
        if codes is None or not before:
            return Residency.NEVER_SEEN
        copies, surplus = 0, False
        for code in codes[:before]:
            copies += 1 if code & 1 else -1
            if copies < 0:
                copies, surplus = 0, True
        if copies:
            return Residency.RESIDENT
        return Residency.AMBIGUOUS if surplus else Residency.EVICTED

    def states(self, keys: Sequence[int], position: int) -> list[Residency]:
        """The same of many."""
        return [self.state(key, position) for key in keys]

    def children(self, parent: int | None, position: int) -> list[int]:
        """What was stored under a block before an ordinal, in order."""
        found = self.under.get(parent, [])
        return list(dict.fromkeys(key for ordinal, key in found[: bisect_left(found, (position, 0))]))

    def same_tokens(self, key: int, position: int) -> set[int]:
        """Other resident blocks with the same tokens from block 0 on."""
        mine = self.blocks.get(key)
        equal_tokens = () if mine is None or mine.prefix is None else self.by_prefix.get(mine.prefix, ())
        return {other for other in equal_tokens if other != key and self.state(other, position) is Residency.RESIDENT}
