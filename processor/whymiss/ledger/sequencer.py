"""Sequencing: one publisher's batches in the order of their numbers, with gaps, replays, duplicates and restarts.

Each publisher numbers its batches from 0. A batch that skips numbers leaves a gap: it waits while the
publisher is asked to replay what is missing, and becomes a hole once the wait is over. A number that
falls back is a duplicate if its batch is known, and the publisher's restart otherwise.

A restarted publisher numbers from 0 again, so what it replays can fill a gap that its former life left. The
gap counts as filled only if a batch that was known before it is replayed too, with its time (ask from one
batch before the gap); a known number with another time is a restart.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ..model import Hole, Reason
from .events import KvBatch
from .stream import StreamRecord

WAITING_MAX = 10_000
"""Batches that wait behind a gap; as many as vLLM keeps for its replay."""


class Arrival(StrEnum):
    """What became of a batch."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    GAP = "gap"
    LATE_JOIN = "late_join"
    RESTARTED = "restarted"


class SequencedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The arrival of one batch; for a gap the first and last missing sequence numbers, inclusive."""

    arrival: Arrival
    missing_first: int | None = None
    missing_last: int | None = None
    operations: int = 0
    filled: bool = False
    """The batch was the last one missing from a gap."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch reached us.

    ``can_replay`` says that the caller can ask the publisher for what is missing: then batches after
    a gap wait. ``replayed`` marks a batch that came out of such a replay. ``now`` is in seconds on the clock of
    ``Ledger.expire``; ``received_unix_nanos`` stands in for the time of a batch that states none.
    """

    now: float = 0.0
    model: str | None = None
    can_replay: bool = False
    replayed: bool = False
    received_unix_nanos: int = 0


class Sequencer:
    """A publisher's place in its numbering, and its record."""

    def __init__(self, record: StreamRecord, first: int) -> None:
        self.record = record
        self.last = first - 1
        self.waiting: dict[int, KvBatch] = {}
        self.waiting_since: float | None = None
        self.heard = 0.0
        """When the newest batch came, in seconds on the caller's clock."""
        self._anchored = True
        """Whether what is replayed is known to continue what came before the gap."""
        self.incarnation: int | None = None
        """The publisher's name for its present life, where it states one."""

    def take(self, seq: int, batch: KvBatch, delivery: Delivery) -> SequencedBatch:
        """Take one batch."""
        self.heard = max(self.heard, delivery.now)
        if seq == self.last + 1 and not self.waiting and batch.incarnation is None:
            return SequencedBatch(arrival=Arrival.APPLIED, operations=self._apply(seq, batch, delivery.now))
        known, self.incarnation = self.incarnation, batch.incarnation or self.incarnation
        if known is not None and batch.incarnation not in {None, known}:
            return self._restart(seq, batch, delivery)  # guard: number-incarnation
        if seq <= self.last or seq in self.waiting:  # guard: number-repeated, number-waiting
            return self._repeated(seq, batch, delivery)
        if seq == self.last + 1:
            waited = bool(self.waiting)
            broken = waited and not self._anchored  # guard: number-unanchored
            self._anchored = True
            # guard: number-follow
            operations = self._apply(seq, batch, delivery.now, broken=broken) + self._follow(delivery.now)
            filled = waited and not self.waiting
            return SequencedBatch(arrival=Arrival.APPLIED, operations=operations, filled=filled)
        return self._gap(seq, batch, delivery)

    def join(self, seq: int, batch: KvBatch, delivery: Delivery) -> SequencedBatch:
        """Take the first batch of a publisher that is followed from here on only."""
        self.incarnation = batch.incarnation
        self.heard = delivery.now
        return SequencedBatch(arrival=Arrival.LATE_JOIN, operations=self._apply(seq, batch, delivery.now))

    def settle(self, now: float) -> int:
        """End the wait: what is still missing is a hole. Returns the block operations of what waited."""
        operations = 0
        while self.waiting:
            seq = min(self.waiting)
            batch = self.waiting.pop(seq)
            broken = seq > self.last + 1  # guard: settle-hole
            if broken and not len(self.record.history.time_index):
                # Nothing was ever applied: the record simply begins late.
                self.record.from_birth = False  # guard: settle-born
            operations += self._apply(seq, batch, now, broken=broken)
        self.waiting_since = None
        return operations

    def _gap(self, seq: int, batch: KvBatch, delivery: Delivery) -> SequencedBatch:
        missing = (self.last + 1, min([seq, *self.waiting]) - 1)
        first = not self.waiting
        self.waiting[seq] = batch
        if not delivery.can_replay:  # guard: gap-waits
            # A publisher that could be asked before may have left some waiting, of earlier or later numbers.
            operations = self.settle(delivery.now)  # guard: gap-no-replay, gap-asked-no-more
            return SequencedBatch(
                arrival=Arrival.GAP, missing_first=missing[0], missing_last=missing[1], operations=operations
            )
        if first:
            self.waiting_since = delivery.now
            self._anchored = self.last < 0  # guard: gap-anchored, gap-anchor-needed
            return SequencedBatch(arrival=Arrival.GAP, missing_first=missing[0], missing_last=missing[1])
        if len(self.waiting) > WAITING_MAX:  # guard: gap-flood
            self.settle(delivery.now)
        return SequencedBatch(arrival=Arrival.APPLIED)

    def _repeated(self, seq: int, batch: KvBatch, delivery: Delivery) -> SequencedBatch:
        if seq in self.waiting:
            if self.waiting[seq].unix_nanos == batch.unix_nanos or delivery.replayed:  # guard: repeat-waiting-time
                return SequencedBatch(arrival=Arrival.DUPLICATE)
            return self._restart(seq, batch, delivery)
        seen = self.record.history.time_index.time_of(seq)
        if seen == batch.unix_nanos:  # guard: repeat-same
            self._anchored = True  # guard: repeat-anchor
            return SequencedBatch(arrival=Arrival.DUPLICATE)
        if batch.unix_nanos <= self.record.confirmed_unix_nanos:  # guard: repeat-old
            return SequencedBatch(arrival=Arrival.DUPLICATE)
        return self._restart(seq, batch, delivery)

    def _restart(self, seq: int, batch: KvBatch, delivery: Delivery) -> SequencedBatch:
        # What waits behind a gap belongs to the life that the replay comes from; what comes live ends that life.
        waiting = self.waiting if delivery.replayed else {}  # guard: restart-waiting
        if not delivery.replayed:  # guard: restart-settle
            self.settle(delivery.now)
        self.record.restart(batch.unix_nanos)  # guard: restart-barrier
        self.last, self.waiting, self._anchored = -1, {}, True
        if seq == 0:  # guard: restart-first
            operations = self._apply(seq, batch, delivery.now)
            self.waiting = waiting  # guard: restart-after-wait
            operations += self._follow(delivery.now)
            return SequencedBatch(arrival=Arrival.RESTARTED, operations=operations)
        self.waiting = waiting
        outcome = self._gap(seq, batch, delivery)
        if self.waiting and self.waiting_since is None:
            self.waiting_since = delivery.now
        self._anchored = True
        return SequencedBatch(
            arrival=Arrival.RESTARTED, missing_first=0, missing_last=seq - 1, operations=outcome.operations
        )

    def _follow(self, now: float) -> int:
        operations = 0
        while (batch := self.waiting.pop(self.last + 1, None)) is not None:
            operations += self._apply(self.last + 1, batch, now)
        if not self.waiting:
            self.waiting_since = None
        return operations

    def _note_hole(self, batch: KvBatch) -> None:
        record = self.record
        after = record.confirmed_unix_nanos if len(record.history.time_index) else 0
        record.add_hole(Hole(after_unix_nanos=after, until_unix_nanos=batch.unix_nanos, reason=Reason.EVENTS_DROPPED))

    def _apply(self, seq: int, batch: KvBatch, now: float, *, broken: bool = False) -> int:
        self.last = seq
        # An event that could not be read, or that was lost, happened all the same, somewhere in this batch:
        # neither what came before it nor what comes after it can be counted on.
        torn = batch.bad_events > 0 or batch.lost_inside  # guard: break-bad, break-lost-inside
        if broken or torn or batch.lost:  # guard: break-lost, break-broken, break-torn
            self._note_hole(batch)
        operations = self.record.apply(batch, seq, now)
        if torn:  # guard: break-after-torn
            self.record.add_reset(batch.unix_nanos, None)
        return operations
