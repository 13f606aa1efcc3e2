"""All streams of a fleet as one store: numbered batches in, answers about any stream at a position out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import lcm

import msgspec

from ..model import SECOND, Block, Coverage, GroupSpec, Lookback, Repeats, Residency, Store, StreamId, Tier
from .decode.message import owns_tier
from .events import KvBatch
from .hashing import Digester
from .residency.facts import LazyChainFacts
from .retention import Retention
from .sequencer import Arrival, Delivery, SequencedBatch, Sequencer
from .stream import StreamRecord

__all__ = ["Arrival", "Delivery", "Ledger", "SequencedBatch", "StreamHealth"]

LIVE = Delivery()

# Keys nothing that is secret: it only spreads the digests of blocks, which have a key of their own.
_SPREADING = b"whymiss: prefix digests of a ledger without a digester"


class StreamHealth(StrEnum):
    """How far a stream can be relied on."""

    WHOLE = "whole"
    """Its record has no hole in the window."""
    BROKEN = "broken"
    """It has one, or begins inside the window."""
    WAITING = "waiting"
    """Batches wait behind a gap."""
    SILENT = "silent"
    """Nothing came for long."""


class Ledger:
    """The fleet's history. Implements ``model.LedgerView``.

    Args:
        window_seconds: how long history is kept, and the time for late spans beyond it.
        bytes_max: bytes of history; beyond it the oldest goes early.
        replay_wait_seconds: how long batches after a gap wait for the replay of what is missing.
        silence_seconds: after how long without a batch a stream is silent.
        digester: combines the digests of a chain's blocks; the one that made them.
    """

    def __init__(
        self,
        *,
        window_seconds: float = 3600.0,
        bytes_max: int = 1 << 30,
        replay_wait_seconds: float = 2.0,
        silence_seconds: float = 60.0,
        digester: Digester | None = None,
    ) -> None:
        self.digester = digester or Digester(_SPREADING)
        self.window_seconds = window_seconds
        self._streams: dict[StreamId, Sequencer] = {}
        self._records: list[StreamRecord] = []
        self._sorted: list[StreamId] = []
        self._owners: list[StreamId] = []
        self._retention = Retention(window_seconds, bytes_max)
        self._replay_wait_seconds = replay_wait_seconds
        self._silence_seconds = silence_seconds

    # --- writing ------------------------------------------------------------------------------

    def accept(self, stream: StreamId, seq: int, batch: KvBatch, delivery: Delivery = LIVE) -> SequencedBatch:
        """Take one batch of a publisher."""
        received = delivery.received_unix_nanos
        # guard: fleet-offset-replayed
        offset = received - batch.unix_nanos if received and batch.unix_nanos and not delivery.replayed else None
        if received and not batch.unix_nanos:  # guard: fleet-untimed
            batch = msgspec.structs.replace(batch, unix_nanos=received)
        sequencer = self._streams.get(stream)
        if sequencer is None:
            sequencer, joins = self._follow(stream, seq, batch, delivery)
            accepted = sequencer.join(seq, batch, delivery) if joins else sequencer.take(seq, batch, delivery)
        else:
            accepted = sequencer.take(seq, batch, delivery)
        if offset is not None:
            # guard: fleet-offset-quickest
            sequencer.offset = offset if sequencer.offset is None else min(sequencer.offset, offset)
        if sequencer.record.history.fresh:
            self._retention.maintain(sequencer.record, self._records, delivery.now)
        else:
            self._retention.catch_up(sequencer.record)
        return accepted

    def _follow(self, stream: StreamId, seq: int, batch: KvBatch, delivery: Delivery) -> tuple[Sequencer, bool]:
        joins = seq > 0 and not delivery.can_replay  # guard: fleet-joins-late
        record = StreamRecord(stream, self.digester, from_birth=not joins, begins_unix_nanos=batch.unix_nanos)
        record.model = delivery.model
        self._records.append(record)
        sequencer = self._streams[stream] = Sequencer(record, seq if joins else 0)
        return sequencer, joins

    def numbered(self) -> Sequence[tuple[StreamId, Sequencer]]:
        """All streams and their places in their numbering, for a checkpoint."""
        return list(self._streams.items())

    def resume(self, stream: StreamId, sequencer: Sequencer) -> None:
        """Go on with a stream of a checkpoint."""
        self._streams[stream] = sequencer
        self._records.append(sequencer.record)

    def expire(self, now: float) -> int:
        """End the waits that are over, let go of history that is due. Returns how many waits ended in a hole."""
        ended = 0
        for sequencer in self._streams.values():
            since = sequencer.waiting_since
            if since is not None and now - since >= self._replay_wait_seconds:  # guard: fleet-wait, fleet-wait-time
                sequencer.settle(now)
                ended += 1
        self._retention.pass_time(self._records, now)
        return ended

    def finish_compaction(self) -> None:
        """Do all merging and expiry that is due, however long it takes."""
        for record in self._records:
            record.settle()
            self._retention.finish(record)

    def settle(self) -> int:
        """End all waits at once (replay ended, shutdown). Returns how many there were."""
        waiting = [sequencer for sequencer in self._streams.values() if sequencer.waiting]
        for sequencer in waiting:
            sequencer.settle(sequencer.heard)
        return len(waiting)

    @property
    def next_deadline(self) -> float | None:
        """When the next wait ends. History that is due may stay until ``expire`` is called for any reason."""
        since = [known.waiting_since for known in self._streams.values() if known.waiting_since is not None]
        return min(since) + self._replay_wait_seconds if since else None

    @property
    def retained_operations(self) -> int:
        """Stores and removals held, what was stored before the window and is still resident included."""
        return sum(record.history.rows for record in self._records)

    @property
    def retained_bytes(self) -> int:
        """Bytes of history held."""
        return sum(record.history.nbytes for record in self._records)

    def health(self, now: float) -> Mapping[StreamId, StreamHealth]:
        """How far each stream can be relied on at a time on the clock of ``accept``."""
        return {stream: self._health(known, now) for stream, known in self._streams.items()}

    def _health(self, sequencer: Sequencer, now: float) -> StreamHealth:
        if sequencer.waiting:
            return StreamHealth.WAITING
        if now - sequencer.heard >= self._silence_seconds:
            return StreamHealth.SILENT
        end = sequencer.record.confirmed_unix_nanos
        begin = end - round(self.window_seconds * SECOND)
        coverage = sequencer.record.coverage(begin, end + 1)
        whole = not coverage.holes and (coverage.from_birth or coverage.begins_unix_nanos <= begin)
        return StreamHealth.WHOLE if whole else StreamHealth.BROKEN

    # --- reading (model.LedgerView) --------------------------------------------------------------

    def streams(self) -> Sequence[StreamId]:
        """All workers' streams with a record."""
        if len(self._sorted) + len(self._owners) != len(self._streams):
            self._owners = sorted(stream for stream in self._streams if owns_tier(stream.worker))
            self._sorted = sorted(self._streams.keys() - set(self._owners))
        return self._sorted

    def view_of(self, stream: StreamId) -> Sequence[StreamId]:
        """The other streams of the same model whose blocks have the same size."""
        # guard: fleet-view-self
        return [other for other in self.streams() if other != stream and self._serve_alike(stream, other)]

    def acquainted(self, stream: StreamId, key: int, around: Lookback, tolerance: int) -> Sequence[StreamId]:
        """The other streams that cannot be left out when a verdict asks about a block."""
        mine = self._streams[stream].offset
        found = []
        for other in self.view_of(stream):
            known = self._streams[other]
            shown = 0 if mine is None or known.offset is None else abs(mine - known.offset)
            apart = tolerance + shown  # guard: peer-clocks
            # guard: peer-clock-before, peer-clock-after
            theirs = Lookback(around.since, around.earliest - apart, around.latest + apart)
            if not known.record.surely_never_named(key, theirs):
                found.append(other)
        return found

    def tier_owners(self, stream: StreamId) -> Sequence[StreamId]:
        """Storage that workers of the stream's model share."""
        self.streams()
        return [other for other in self._owners if self._serve_alike(stream, other)]

    def _serve_alike(self, stream: StreamId, other: StreamId) -> bool:
        model = self._record(stream).model
        # guard: fleet-view-model, fleet-view-unnamed
        return model is None or self._record(other).model in {model, None}

    def _record(self, stream: StreamId) -> StreamRecord:
        return self._streams[stream].record

    def block_size(self, stream: StreamId) -> int | None:
        """Tokens a block of the dense group."""
        return self._record(stream).block_size()

    def match_unit(self, stream: StreamId) -> int | None:
        """The least common multiple of the groups' block sizes."""
        sizes = [spec.block_size for spec in self.groups(stream) if spec.block_size]
        return lcm(*sizes) if sizes else None  # guard: fleet-unit

    def groups(self, stream: StreamId) -> Sequence[GroupSpec]:
        """The stream's groups, dense first."""
        return self._record(stream).groups()

    def tiers(self, stream: StreamId) -> Sequence[Tier]:
        """Tiers below the device that the stream named."""
        return self._record(stream).tiers()

    def position_at(self, stream: StreamId, unix_nanos: int) -> int:
        """Events published at or before a time."""
        return self._record(stream).position_at(unix_nanos)

    def confirmed_position(self, stream: StreamId, unix_nanos: int) -> int | None:
        """The position after the first batch later than a time."""
        return self._record(stream).confirmed_position(unix_nanos)

    def published_before(self, stream: StreamId, unix_nanos: int) -> int | None:
        """When the last batch before a time was published."""
        return self._record(stream).published_before(unix_nanos)

    def as_of(
        self,
        stream: StreamId,
        keys: Sequence[int],
        position: int,
        *,
        tier: Tier = Tier.DEVICE,
        group: int | None = None,
    ) -> LazyChainFacts:
        """What the record says of each key at a position; facts are made when they are looked at."""
        return self._record(stream).as_of(keys, position, tier, group)

    def holders(self, stream: StreamId, keys: Sequence[int], unix_nanos: int) -> Mapping[StreamId, LazyChainFacts]:
        """What the other streams of the view say of a chain whose first block they have named by a time."""
        found = {}
        for other in self.view_of(stream):
            position = self.position_at(other, unix_nanos)
            said = self.as_of(other, keys, position)
            if said[0].state is not Residency.NEVER_SEEN:
                found[other] = said
        return found

    def lost_elsewhere(self, stream: StreamId, key: int, unix_nanos: int) -> bool:
        """Whether another stream of the view stored a block and evicted it before a time."""
        held = self.holders(stream, [key], unix_nanos)
        return any(one[0].state is Residency.EVICTED for one in held.values())

    def touched(self, stream: StreamId, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` concerned the key."""
        return self._record(stream).touched(key, first, last)

    def stores_between(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``."""
        return self._record(stream).stores_between(after_unix_nanos, until_unix_nanos)

    def block(self, stream: StreamId, key: int) -> Block | None:
        """The identity of a block."""
        return self._record(stream).block(key)

    def children(
        self, stream: StreamId, parent: int | None, position: int, *, limit: int | None = None
    ) -> Sequence[int]:
        """Blocks stored under a parent before a position; no more than ``limit``."""
        return self._record(stream).children(parent, position, limit)

    def siblings(self, stream: StreamId, key: int, parent: int | None, position: int) -> bool:
        """Whether another block than this one was stored under its parent before a position."""
        return any(other != key for other in self.children(stream, parent, position, limit=2))

    def same_tokens(self, stream: StreamId, key: int, position: int) -> Sequence[Block]:
        """Resident blocks with the same tokens under other keys."""
        return self._record(stream).same_tokens(key, position)

    def like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        """Resident blocks with the tokens of another stream's block under other keys."""
        return self._record(stream).like(block, position)

    def leading_like(self, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId) -> int:
        """How many of the first blocks of a chain another stream held under other keys."""
        content = self._record(stream).content(keys)
        return 0 if content is None else self._record(among).leading_like(content, position)

    def same_tokens_leading(self, stream: StreamId, keys: Sequence[int], position: int) -> int:
        """How many of the first blocks of a chain have a resident other with the same tokens."""
        return self._record(stream).same_tokens_leading(keys, position)

    def tokens_known(self, stream: StreamId, keys: Sequence[int]) -> int:
        """How many of the first blocks have a known digest of their own tokens."""
        return self._record(stream).tokens_known(keys)

    def reconverges(
        self, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId | None = None
    ) -> Repeats:
        """Blocks after the first that a sibling chain of a stream repeats."""
        missed_chain = self._record(stream).missed_chain(keys)
        return (
            Repeats(blocks=0) if missed_chain is None else self._record(among or stream).repeats(missed_chain, position)
        )

    def clock_offset(self, stream: StreamId) -> int | None:
        """Our clock less the publisher's, as its quickest message showed it."""
        return self._streams[stream].offset

    def coverage(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """Holes that touch an interval."""
        return self._record(stream).coverage(after_unix_nanos, until_unix_nanos)
