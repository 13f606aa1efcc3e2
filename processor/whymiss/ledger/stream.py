"""One stream: the memtable in front of a segment store, and every question about what one publisher said, in order.

The record answers questions about a *position* (a number of events), never about "now". A block is
resident when surely a copy is there, gone when surely none is, and ambiguous in between; see ``residency/copies``.
Batches wait in the memtable until there are enough of them or a question needs them (read-your-writes).

This file refuses to know clocks, sockets and who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from ..model import (
    Block,
    ChainContent,
    Coverage,
    GroupSpec,
    Hole,
    Lookback,
    MissedChain,
    PublishedBatch,
    Removal,
    Repeats,
    Store,
    StreamId,
    Tier,
)
from .cache_groups import CacheGroups
from .columnar.bloom_filter import Probe, probe_of
from .events import Cleared, Keys, KvBatch, Removed, Singles
from .hashing import Digester
from .memtable.segment_builder import SegmentBuilder
from .query.never_named import NamedBlocks
from .query.same_tokens import Content, EqualTokenBlocks
from .query.siblings import MissedColumns, Siblings
from .query.stores import keys_at_depth, stores
from .residency.facts import ColumnFacts, LazyChainFacts
from .residency.resets import Reset
from .segment.segment import Place
from .segment_store import SegmentStore

PENDING_ROWS = 1 << 13
"""Operations in the memtable before it is flushed."""

PENDING_BATCHES = 512
"""Batches in the memtable before it is flushed."""

HOLES_MAX = 1024
"""Holes told apart; when there are more, the two oldest become one."""


class StreamRecord:
    """What one (worker, rank) published; implements ``model.StreamView``. ``apply`` is called in sequence order only."""

    def __init__(self, stream: StreamId, digester: Digester, *, from_birth: bool, begins_unix_nanos: int) -> None:
        self.stream = stream
        self.from_birth = from_birth
        self.begins_unix_nanos = begins_unix_nanos
        self.holes: list[Hole] = []
        self.model: str | None = None
        self.clock_offset: int | None = None
        """Our clock less the publisher's, in nanoseconds, as its quickest live message showed it."""
        self.history = SegmentStore()
        self.cache_groups = CacheGroups()
        self.memtable = SegmentBuilder(self.history, self.cache_groups, digester)
        self.end = 0
        """The position after everything that was taken."""
        self._pending: list[tuple[int, KvBatch]] = []
        self._pending_rows = 0
        self._clears = False
        """Whether a batch in the memtable has a reset in it."""
        self.news = False
        """Whether one of them says something new of the groups: settle before they are looked at."""
        self._named = NamedBlocks(self.history, PENDING_ROWS)
        self._siblings = Siblings(self.history, self.memtable.chain_tails)
        self._equal_tokens = EqualTokenBlocks(self.history, self._dense_as_of, self._siblings.block_of)
        if not from_birth:  # guard: record-joined-late
            self.add_reset(begins_unix_nanos, None)

    # --- writing ------------------------------------------------------------------------------

    def apply(self, batch: KvBatch, seq: int = 0, now: float = 0.0) -> int:
        """Append one batch, taken at ``now`` seconds; returns the number of block operations in it."""
        operations = 0
        for event in batch.events:
            if isinstance(event, Cleared):
                operations += 1
                self._clears = True
                continue
            operations += event.keys.size
            if not self.news and not isinstance(event, Removed):
                self.news = self.cache_groups.is_news(event.first if isinstance(event, Singles) else event)
        if not self._pending:
            self.memtable.times = (now, now)
        self._pending.append((self.end, batch))
        self._pending_rows += operations
        self.end += batch.count
        self.history.time_index.append(seq, batch.unix_nanos, self.end)
        if self._pending_rows >= PENDING_ROWS or len(self._pending) >= PENDING_BATCHES:
            self.settle(now)
        return operations

    @property
    def pending_since(self) -> float | None:
        """When the first batch in the memtable was taken; ``None`` if it is empty."""
        return self.memtable.times[0] if self._pending else None

    def settle(self, now: float | None = None) -> None:
        """Flush the memtable: its batches become a segment."""
        if not self._pending:
            return
        if now is not None:
            self.memtable.times = (self.memtable.times[0], now)
        pending, self._pending, self._pending_rows = self._pending, [], 0
        self._clears = self.news = False
        self._named.forget_pending()  # guard: peer-pending
        for base, batch in pending:
            self.memtable.take(base, batch)
        self.memtable.flush(self.end)

    def _settle_for(self, position: int) -> None:
        """Read-your-writes: flush the memtable if a question is about what happened before a position.

        Most are about a lookup of some seconds ago, and what came since can wait: flushed for every question, a record
        of many small segments is slow to ask.
        """
        # guard: lazy-position, lazy-waits, lazy-news
        if self._pending and (self.news or self._pending[0][0] < position):
            self.settle()

    def restart(self, unix_nanos: int) -> None:
        """The publisher began a new life: nothing that it held before is left."""
        self.add_reset(unix_nanos, Removal.RESTARTED)  # guard: record-restart
        self.cache_groups.forget_life()
        self.history.time_index.begin_life()  # guard: record-restart-life

    def add_hole(self, hole: Hole) -> None:
        """The record has a hole here; what happened inside is not known."""
        self.holes.append(hole)  # guard: record-hole-kept
        if len(self.holes) > HOLES_MAX:
            first, second = self.holes[:2]
            joined = Hole(
                after_unix_nanos=first.after_unix_nanos, until_unix_nanos=second.until_unix_nanos, reason=second.reason
            )
            self.holes[:2] = [joined]  # guard: record-holes-joined
        self.add_reset(hole.until_unix_nanos, None)  # guard: record-hole-bar

    def add_reset(self, unix_nanos: int, removal: Removal | None) -> None:
        """Note that every block changed at once, between two batches."""
        self.settle()
        # It takes an ordinal of its own, so that before and after it are different positions.
        self.history.resets.add(Reset(self.end, unix_nanos, removal))
        self.end += 1

    def begin_at(self, position: int) -> None:
        """Go on where a checkpoint ended."""
        self.end = position
        self.memtable.flush(position)

    def expired(self) -> None:
        """Something left the window: nothing that it said is known any more."""
        self.memtable.chain_tails.forget()
        edge = self.history.edge_unix_nanos
        if edge is not None:
            self.holes = [hole for hole in self.holes if hole.until_unix_nanos > edge]

    def forget(self) -> None:
        """Drop all history, what is held now too."""
        self.add_reset(self.confirmed_unix_nanos, None)  # guard: record-forget-bar
        self.history.forget_all(self.end)
        self.expired()

    # --- reading ------------------------------------------------------------------------------

    @property
    def confirmed_unix_nanos(self) -> int:
        """Publisher's time of the newest batch."""
        nanos = self.history.time_index.nanos
        return nanos[-1] if nanos else self.begins_unix_nanos

    def block_size(self) -> int | None:
        """Tokens a block of the dense group."""
        if self.news:
            self.settle()
        return self.cache_groups.block_size

    @property
    def pairs(self) -> bool:
        """Whether token ids are pairs of a token and the next one."""
        if self.news:
            self.settle()
        return self.cache_groups.pairs

    def groups(self) -> Sequence[GroupSpec]:
        """The groups seen, dense ones first."""
        if self.news:
            self.settle()
        return self.cache_groups.listed()

    def match_unit(self) -> int | None:
        """The least common multiple of the groups' block sizes."""
        sizes = [spec.block_size for spec in self.groups() if spec.block_size]
        return lcm(*sizes) if sizes else None  # guard: fleet-unit

    def tiers(self) -> Sequence[Tier]:
        """Tiers below the device that were named."""
        if self.news:
            self.settle()
        return sorted(self.cache_groups.tiers)

    def position_at(self, unix_nanos: int) -> int:
        """Events of all batches published at or before a time."""
        return self.history.time_index.position_at(unix_nanos)

    def confirmed_position(self, unix_nanos: int) -> int | None:
        """The position after the first batch published later than a time, or ``None`` before it came."""
        return self.history.time_index.confirmed_position(unix_nanos)

    def published_before(self, unix_nanos: int) -> int | None:
        """When the last batch before a time was published, or ``None`` if none is known that was."""
        return self.history.time_index.published_before(unix_nanos)

    def surely_never_named(self, key: int, around: Lookback) -> bool:
        """Whether it is certain at a glance that a block was nothing to this stream around a lookup.

        No event names it, the record is whole over the window, and it went on after the lookup without a reset. Times
        are this publisher's.
        """
        edge, nanos = self.history.edge_unix_nanos, self.history.time_index.nanos
        if not nanos or nanos[-1] <= around.latest:  # guard: peer-silent, peer-empty
            return False
        begins = self.begins_unix_nanos if edge is None else max(edge, self.begins_unix_nanos)
        # guard: peer-edge, peer-begins, peer-birth
        if (edge is not None and edge > around.earliest) or (begins > around.since and not self._is_from_birth()):
            return False
        # guard: peer-hole, peer-hole-before, peer-hole-after
        if any(hole.after_unix_nanos < around.latest and hole.until_unix_nanos > around.since for hole in self.holes):
            return False
        if self._clears:  # guard: peer-clears
            self.settle()
        resets = self.history.resets.all
        # guard: peer-barrier, peer-barrier-before
        if resets and resets[-1].ordinal >= self.position_at(around.earliest):
            return False
        return not self._named.may_hold(key, self._pending)

    def _is_from_birth(self) -> bool:
        return self.from_birth and self.history.edge_unix_nanos is None  # guard: coverage-birth

    def as_of(
        self, keys: Sequence[int], position: int, tier: Tier = Tier.DEVICE, group: int | None = None
    ) -> LazyChainFacts:
        """What the record says of each key before event ordinal ``position``."""
        self._settle_for(position)
        place: Place = (tier, self.cache_groups.dense if group is None else group)

        return LazyChainFacts(
            lambda: self.history.first_of(place, keys[0], position),
            lambda: self.history.as_of(place, probe_of(tuple(keys)), position),
            len(keys),
        )

    def _dense_as_of(self, keys: Keys, position: int) -> ColumnFacts:
        return self.history.as_of((Tier.DEVICE, self.cache_groups.dense), Probe(keys), position)

    def touched(self, key: int, first: int, last: int) -> bool:
        """Whether any event in ``[first, last)`` concerned the key on the device."""
        self._settle_for(last)
        return self.history.touched((Tier.DEVICE, self.cache_groups.dense), key, first, last)

    def stores_between(self, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``."""
        first, last = self.position_at(after_unix_nanos), self.position_at(until_unix_nanos)
        self._settle_for(last)
        return stores(self.history, first, last)

    def batches_from(self, position: int) -> Sequence[PublishedBatch]:
        """The batches of which no event is before a position."""
        resets = self.history.resets.all
        lost = [reset.ordinal for reset in resets if reset.removal is None]
        restarts = [reset.ordinal for reset in resets if reset.removal is Removal.RESTARTED]
        return self.history.time_index.batches_from(position, lost, restarts)

    def stores_in(self, first: int, last: int) -> Sequence[Store]:
        """Dense device stores with ordinals in ``[first, last)``."""
        self._settle_for(last)
        return stores(self.history, first, last, with_tails=False)

    def changes(self, key: int, first: int, last: int) -> Sequence[int]:
        """Ordinals in ``[first, last)`` of what changed a block on the device, or all blocks."""
        self._settle_for(last)
        history = self.history
        found = [one[0] for one in history.operations_on((Tier.DEVICE, self.cache_groups.dense), key, first, last)]
        found += [reset.ordinal for reset in history.resets.all if first <= reset.ordinal < last]
        return sorted(set(found))

    @property
    def other_sizes(self) -> bool:
        """Whether the dense group stored blocks of another size than its own."""
        if self.news:
            self.settle()
        return self.cache_groups.other_sizes

    @property
    def knows_all_held(self) -> bool:
        """Whether every block that is resident was seen stored."""
        return self.from_birth and all(reset.removal is not None for reset in self.history.resets.all)

    def keys_at_depth(self, depth: int, before: int, limit: int) -> Sequence[int] | None:
        """Blocks that were stored at a depth before a position."""
        self._settle_for(before)
        return keys_at_depth(self.history, depth, before, limit)

    def block(self, key: int) -> Block | None:
        """The identity of a block."""
        self.settle()
        return self._siblings.block(key)

    def children(self, parent: int | None, position: int, limit: int | None = None) -> Sequence[int]:
        """Blocks stored under a parent before a position."""
        self._settle_for(position)
        return self._siblings.children(parent, position, limit)

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        """Other resident blocks with the same tokens from block 0 on."""
        self.settle()
        return self._equal_tokens.same_tokens(key, position)

    def like(self, block: Block, position: int) -> Sequence[Block]:
        """Resident blocks with the tokens of any stream's block from block 0 on, under other keys."""
        self._settle_for(position)
        return self._equal_tokens.like(block, position)

    def same_tokens_leading(self, keys: Sequence[int], position: int) -> int:
        """How many of the first blocks have a resident other with the same tokens from block 0 on."""
        self.settle()
        return self._equal_tokens.same_tokens_leading(keys, position)

    def content(self, keys: Sequence[int]) -> ChainContent | None:
        """What the first blocks of a chain are, whatever their keys."""
        self.settle()
        return self._equal_tokens.content(keys)

    def leading_like(self, content: ChainContent, position: int) -> int:
        """How many of the first blocks of any stream's chain are resident under other keys, with the same extra keys."""
        assert isinstance(content, Content), "what another ledger gave cannot be compared"
        self._settle_for(position)
        return self._equal_tokens.leading_like(content, position, with_extras=True)

    def tokens_known(self, keys: Sequence[int]) -> int:
        """How many of the first blocks have a known digest of their own tokens."""
        self.settle()
        return self._siblings.tokens_known(keys)

    def missed_chain(self, keys: Sequence[int]) -> MissedChain | None:
        """What of a chain can be compared with siblings of its first block."""
        self.settle()
        return self._siblings.missed_chain(keys)

    def repeats(self, missed_chain: MissedChain, position: int) -> Repeats:
        """How many blocks of any stream's tail one sibling chain repeats, own tokens by own tokens, at the same depth."""
        assert isinstance(missed_chain, MissedColumns), "what another ledger gave cannot be compared"
        self._settle_for(position)
        return self._siblings.repeats(missed_chain, position)

    def coverage(self, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """Holes that touch an interval, and the bounds of the record."""
        # guard: coverage-until, coverage-after
        touching = tuple(
            hole
            for hole in self.holes
            if hole.after_unix_nanos < until_unix_nanos and hole.until_unix_nanos > after_unix_nanos
        )
        edge = self.history.edge_unix_nanos
        # guard: coverage-edge
        return Coverage(
            holes=touching,
            begins_unix_nanos=self.begins_unix_nanos if edge is None else max(edge, self.begins_unix_nanos),
            from_birth=self._is_from_birth(),
            confirmed_unix_nanos=self.confirmed_unix_nanos,
            expired=edge is not None and edge >= self.begins_unix_nanos,
        )
