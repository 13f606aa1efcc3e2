"""All records of a fleet: sequence numbers in, answers about any worker out.

Each publisher numbers its batches from 0. A batch that skips numbers leaves a gap: it waits while the
publisher is asked to replay what is missing, and becomes a hole once the wait is over. A number that
falls back is a duplicate if its batch is known, and the publisher's restart otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import lcm

import msgspec

from ..model import Block, Coverage, Fact, GroupSpec, Hole, Reason, Store, StreamId, Tier
from .events import KvBatch
from .record import StreamRecord

REMEMBERED_BATCHES = 20_000
"""Sequence numbers remembered to tell a duplicate from a restart (twice vLLM's replay buffer)."""


class Arrival(StrEnum):
    """What became of a batch."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    GAP = "gap"
    LATE_JOIN = "late_join"
    RESTARTED = "restarted"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The arrival of one batch; for a gap the first and last missing sequence numbers, inclusive."""

    arrival: Arrival
    missing_first: int | None = None
    missing_last: int | None = None
    operations: int = 0


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch reached us.

    ``can_replay`` says that the caller can ask the publisher for what is missing: then batches after
    a gap wait. ``replayed`` marks a batch that came out of such a replay.
    """

    now: float = 0.0
    received_unix_nanos: int = 0
    """When it arrived by our own clock; 0 where that is not known."""
    model: str | None = None
    can_replay: bool = False
    replayed: bool = False


LIVE = Delivery()


class _Stream:
    """One publisher's place in its sequence, and its record."""

    def __init__(self, record: StreamRecord, seq: int) -> None:
        self.record = record
        self.last = seq - 1
        self.nanos_of: dict[int, int] = {}
        self.waiting: dict[int, KvBatch] = {}
        self.waiting_since: float | None = None
        self.newest_nanos = 0
        self.offset: int | None = None


class Ledger:
    """The fleet's history. Implements ``model.LedgerView``.

    Args:
        replay_wait_seconds: how long batches after a gap wait for the replay of what is missing.
    """

    def __init__(self, *, replay_wait_seconds: float = 2.0) -> None:
        self._streams: dict[StreamId, _Stream] = {}
        self._replay_wait_seconds = replay_wait_seconds

    # --- writing ------------------------------------------------------------------------------

    def accept(self, stream: StreamId, seq: int, batch: KvBatch, delivery: Delivery = LIVE) -> Accepted:
        """Take one batch of a publisher."""
        accepted = self._accept(stream, seq, batch, delivery)
        if delivery.received_unix_nanos and batch.unix_nanos:
            known = self._streams[stream]
            offset = delivery.received_unix_nanos - batch.unix_nanos
            known.offset = offset if known.offset is None else min(known.offset, offset)
        return accepted

    def _accept(self, stream: StreamId, seq: int, batch: KvBatch, delivery: Delivery) -> Accepted:
        can_replay = delivery.can_replay
        known = self._streams.get(stream)
        if known is None:
            record = StreamRecord(stream, from_birth=seq == 0 or can_replay, begins_unix_nanos=batch.unix_nanos)
            record.model = delivery.model
            known = self._streams[stream] = _Stream(record, 0 if can_replay else seq)
            if seq > 0 and not can_replay:
                self._apply(known, seq, batch)
                return Accepted(arrival=Arrival.LATE_JOIN, operations=len(batch.events))
        if seq <= known.last or seq in known.waiting:
            return self._repeated(known, seq, batch, delivery)
        if seq == known.last + 1:
            operations = self._apply(known, seq, batch)
            operations += self._follow(known)
            return Accepted(arrival=Arrival.APPLIED, operations=operations)
        return self._gap(known, seq, batch, delivery)

    def _gap(self, known: _Stream, seq: int, batch: KvBatch, delivery: Delivery) -> Accepted:
        missing = (known.last + 1, min([seq, *known.waiting]) - 1)
        if delivery.can_replay:
            known.waiting[seq] = batch
            if known.waiting_since is None:
                known.waiting_since = delivery.now
                return Accepted(arrival=Arrival.GAP, missing_first=missing[0], missing_last=missing[1])
            return Accepted(arrival=Arrival.APPLIED)
        self._break(known, batch)
        operations = self._apply(known, seq, batch)
        return Accepted(arrival=Arrival.GAP, missing_first=missing[0], missing_last=missing[1], operations=operations)

    def _repeated(self, known: _Stream, seq: int, batch: KvBatch, delivery: Delivery) -> Accepted:
        seen = known.nanos_of.get(seq)
        waiting = known.waiting.get(seq)
        same = seen == batch.unix_nanos or (waiting is not None and waiting.unix_nanos == batch.unix_nanos)
        if same or delivery.replayed or batch.unix_nanos <= known.record.confirmed_unix_nanos:
            return Accepted(arrival=Arrival.DUPLICATE)
        self._settle(known)
        known.record.restart(batch.unix_nanos)
        known.nanos_of.clear()
        known.last = -1
        if seq > 0:
            outcome = self._gap(known, seq, batch, delivery)
            return Accepted(
                arrival=Arrival.RESTARTED,
                missing_first=outcome.missing_first,
                missing_last=outcome.missing_last,
                operations=outcome.operations,
            )
        return Accepted(arrival=Arrival.RESTARTED, operations=self._apply(known, seq, batch))

    def expire(self, now: float) -> int:
        """End the waits that are over: what is still missing becomes a hole. Returns how many."""
        ended = 0
        for known in self._streams.values():
            since = known.waiting_since
            if since is not None and now - since >= self._replay_wait_seconds:
                self._settle(known)
                ended += 1
        return ended

    def settle(self) -> int:
        """End all waits at once (replay ended, shutdown). Returns how many there were."""
        ended = 0
        for known in self._streams.values():
            if known.waiting:
                self._settle(known)
                ended += 1
        return ended

    @property
    def next_deadline(self) -> float | None:
        """When ``expire`` next has work."""
        since = [known.waiting_since for known in self._streams.values() if known.waiting_since is not None]
        return min(since) + self._replay_wait_seconds if since else None

    def _settle(self, known: _Stream) -> None:
        while known.waiting:
            seq = min(known.waiting)
            batch = known.waiting.pop(seq)
            if seq > known.last + 1:
                self._break(known, batch)
            self._apply(known, seq, batch)
        known.waiting_since = None

    def _follow(self, known: _Stream) -> int:
        operations = 0
        while (batch := known.waiting.pop(known.last + 1, None)) is not None:
            operations += self._apply(known, known.last + 1, batch)
        if not known.waiting:
            known.waiting_since = None
        return operations

    def _break(self, known: _Stream, batch: KvBatch) -> None:
        if known.last < 0 and not known.record.confirmed_unix_nanos < batch.unix_nanos:
            # Nothing was ever applied: the record simply begins late.
            known.record.from_birth = False
        after = known.record.confirmed_unix_nanos if known.last >= 0 else 0
        known.record.break_at(
            Hole(after_unix_nanos=after, until_unix_nanos=batch.unix_nanos, reason=Reason.EVENTS_DROPPED)
        )

    def _apply(self, known: _Stream, seq: int, batch: KvBatch) -> int:
        known.last = seq
        known.nanos_of[seq] = batch.unix_nanos
        if len(known.nanos_of) > REMEMBERED_BATCHES:
            del known.nanos_of[next(iter(known.nanos_of))]
        if batch.bad_events:
            # An event that could not be read happened all the same, somewhere in this batch.
            self._break(known, batch)
        return known.record.apply(batch)

    # --- reading (model.LedgerView) --------------------------------------------------------------

    def streams(self) -> Sequence[StreamId]:
        """All streams with a record."""
        return sorted(self._streams)

    def view_of(self, stream: StreamId) -> Sequence[StreamId]:
        """The other streams of the same model whose blocks have the same size."""
        mine = self._record(stream)
        return [
            other
            for other in self.streams()
            if other != stream
            and (self._record(other).model == mine.model or None in {self._record(other).model, mine.model})
        ]

    def _record(self, stream: StreamId) -> StreamRecord:
        return self._streams[stream].record

    def block_size(self, stream: StreamId) -> int | None:
        """Tokens a block of the dense group."""
        return self._record(stream).block_size()

    def match_unit(self, stream: StreamId) -> int | None:
        """The least common multiple of the groups' block sizes."""
        sizes = [spec.block_size for spec in self.groups(stream) if spec.block_size]
        return lcm(*sizes) if sizes else None

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

    def as_of(
        self,
        stream: StreamId,
        keys: Sequence[int],
        position: int,
        *,
        tier: Tier = Tier.DEVICE,
        group: int | None = None,
    ) -> Sequence[Fact]:
        """What the record says of each key at a position."""
        return self._record(stream).as_of(keys, position, tier, group)

    def touched(self, stream: StreamId, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` concerned the key."""
        return self._record(stream).touched(key, first, last)

    def stores_between(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``."""
        return self._record(stream).stores_between(after_unix_nanos, until_unix_nanos)

    def block(self, stream: StreamId, key: int) -> Block | None:
        """The identity of a block."""
        return self._record(stream).block(key)

    def children(self, stream: StreamId, parent: int | None, position: int) -> Sequence[int]:
        """Blocks first stored under a parent before a position."""
        return self._record(stream).children(parent, position)

    def same_tokens(self, stream: StreamId, key: int, position: int) -> Sequence[Block]:
        """Resident blocks with the same tokens under other keys."""
        return self._record(stream).same_tokens(key, position)

    def like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        """Resident blocks with the tokens of another stream's block under other keys."""
        return self._record(stream).like(block, position)

    def reconverges(self, stream: StreamId, keys: Sequence[int], position: int) -> int:
        """Blocks after the first that a sibling chain repeats."""
        return self._record(stream).reconverges(keys, position)

    def clock_offset(self, stream: StreamId) -> int | None:
        """Our clock less the publisher's, as its quickest message showed it."""
        return self._streams[stream].offset

    def coverage(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """Holes that touch an interval."""
        return self._record(stream).coverage(after_unix_nanos, until_unix_nanos)
