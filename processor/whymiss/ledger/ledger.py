"""All streams of a fleet as one store: numbered batches in, answers about any stream at a position out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..model import SECOND, Block, Lookback, Peer, Positions, StreamId, StreamView, Tier
from .decode.message import owns_tier
from .events import KvBatch
from .hashing import Digester
from .ports import EVER, Condition, StreamHealth
from .query.same_tokens import stored_like
from .query.siblings import Siblings
from .retention import Retention
from .sequencer import Arrival, Delivery, SequencedBatch, Sequencer
from .stream import StreamRecord

__all__ = ["Arrival", "Delivery", "Ledger", "SequencedBatch", "StreamHealth"]

LIVE = Delivery()

# Keys nothing that is secret: it only spreads the digests of blocks, which have a key of their own.
_SPREADING = b"whymiss: prefix digests of a ledger without a digester"


class Ledger:
    """The fleet's history. Implements ``model.FleetView``, and ``ports.History`` for who writes it and looks after it.

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
        self._ordered: list[StreamRecord] = []
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
            record = sequencer.record
            # guard: fleet-offset-quickest
            record.clock_offset = offset if record.clock_offset is None else min(record.clock_offset, offset)
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

    def conditions(self, now: float) -> Mapping[StreamId, Condition]:
        """What there is to say of each record at a time on the clock of ``accept``."""
        return {
            stream: Condition(
                health=self._health(known, now),
                heard=known.heard,
                model=known.record.model,
                coverage=known.record.coverage(0, EVER),
            )
            for stream, known in self._streams.items()
        }

    def ends(self) -> Mapping[StreamId, int]:
        """The position after everything that was taken, of each stream."""
        return {stream: known.record.end for stream, known in self._streams.items()}

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

    # --- reading (model.FleetView) ----------------------------------------------------------------

    def streams(self) -> Sequence[StreamId]:
        """All workers' streams with a record; the same object until there is another one."""
        if len(self._sorted) + len(self._owners) != len(self._streams):
            self._owners = sorted(stream for stream in self._streams if owns_tier(stream.worker))
            self._sorted = sorted(self._streams.keys() - set(self._owners))
            self._ordered = [self._streams[stream].record for stream in self._sorted]
        return self._sorted

    def stream(self, stream: StreamId) -> StreamRecord:
        """The record of one stream."""
        return self._streams[stream].record

    def peers(self, stream: StreamId, block_size: int) -> Sequence[StreamRecord]:
        """The other workers' records of the same model, of blocks as large or of no known size."""
        self.streams()
        return self._alike(stream, block_size, self._ordered)

    def peers_that_may_know(
        self, stream: StreamId, block_size: int, key: int, around: Lookback, tolerance: int
    ) -> Sequence[StreamRecord]:
        """The peers that cannot be left out when a verdict asks about a block."""
        others = self.peers(stream, block_size)
        there = self._on_clocks_of(stream, others, around, tolerance)
        return [other for other, lookup in zip(others, there, strict=True) if not other.surely_never_named(key, lookup)]

    def _on_clocks_of(
        self, stream: StreamId, others: Sequence[StreamRecord], around: Lookback, tolerance: int
    ) -> Sequence[Lookback]:
        mine = self._streams[stream].record.clock_offset
        return around.on_other_clocks(mine, [other.clock_offset for other in others], tolerance)

    def around(
        self, stream: StreamId, others: Sequence[StreamView], lookback: Lookback, tolerance: int
    ) -> Sequence[Peer]:
        """Other records with the place of a lookup in them."""
        records = [self._streams[other.stream].record for other in others]
        there = self._on_clocks_of(stream, records, lookback, tolerance)
        return [
            Peer(
                stream=record.stream,
                record=record,
                at=Positions(*record.history.time_index.around(lookup.earliest, lookup.latest)),
                until=lookup.latest,
            )
            for record, lookup in zip(records, there, strict=True)
        ]

    def like(self, peers: Sequence[Peer], block: Block) -> Sequence[tuple[Peer, Sequence[Block]]]:
        """Which peers had blocks with the tokens of another stream's under other keys by the lookup, and these."""
        found = [(peer, peer.record.like(block, peer.at.before)) for peer in peers]
        return [(peer, blocks) for peer, blocks in found if blocks]

    def stored_like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        """Blocks that a stream stored with the tokens of a block under other keys, held or not, the last ones first."""
        record = self._streams[stream].record
        record.settle()
        block_of = Siblings(record.history, record.memtable.chain_tails).block_of
        return [block_of(*place) for place in stored_like(record.history, block, position).values()]

    def releases(self, stream: StreamId, tier: Tier) -> bool:
        """Whether a stream has published that a tier let go of something."""
        record = self._streams[stream].record
        record.settle()
        return tier in record.cache_groups.releasing

    def shared_storage(self, stream: StreamId, block_size: int) -> Sequence[StreamRecord]:
        """Records of storage that workers of the stream's model share."""
        self.streams()
        return self._alike(stream, block_size, [self._streams[owner].record for owner in self._owners])

    def _alike(self, stream: StreamId, block_size: int, records: Sequence[StreamRecord]) -> Sequence[StreamRecord]:
        mine, found = self._streams[stream].record, []
        for other in records:
            # guard: fleet-view-self, fleet-view-model, fleet-view-unnamed
            if other is mine or (mine.model is not None and other.model not in {mine.model, None}):
                continue
            if other.news:  # guard: fleet-view-news
                other.settle()
            if other.cache_groups.block_size in {None, block_size}:  # guard: view-block-size
                found.append(other)
        return found
