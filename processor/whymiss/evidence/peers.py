"""The other workers' records around one lookup: what had surely happened there by then, and what may have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from ..model import (
    Block,
    Fact,
    FleetView,
    Lookback,
    MissedChain,
    Peer,
    Reason,
    Removal,
    Residency,
    StreamId,
    StreamView,
    Tier,
)
from .missed import Missed
from .requests.request_log import RequestLog


class Gap(msgspec.Struct, frozen=True):
    """A hole in the evidence, and in whose record: of several the first in the order of streams counts."""

    stream: StreamId
    reason: Reason


def first_gap(one: Gap | None, other: Gap | None) -> Gap | None:
    """The gap of two parts of a fleet together."""
    if one is None or other is None:
        return one or other
    return one if one.stream <= other.stream else other  # guard: gap-first


def reason_of(gap: Gap | None) -> Reason:
    """Why, or nothing."""
    return Reason.NONE if gap is None else gap.reason


class Peers:
    """The rest of the view of one lookup. ``tolerance`` is how far clocks may differ, in nanoseconds."""

    def __init__(self, fleet: FleetView, log: RequestLog, tolerance: int, missed: Missed) -> None:
        self.missed = missed
        self.log = log
        self._fleet = fleet
        self._tolerance = tolerance
        self._lookback = Lookback(missed.since, missed.reading.earliest, missed.reading.latest)
        self._all: Sequence[Peer] | None = None
        self._that_may_know: Sequence[Peer] | None = None

    @cached_property
    def tail(self) -> MissedChain | None:
        """What of the missed chain can be compared with siblings of its first block."""
        return self.missed.record.missed_chain(self.missed.reading.chain)

    def all(self) -> Sequence[Peer]:
        """The others whose blocks can be those of the serving worker."""
        if self._all is None:
            missed = self.missed
            self._all = self._around(self._fleet.peers(missed.stream, missed.reading.block_size))
        return self._all

    def that_may_know(self) -> Sequence[Peer]:
        """Those of the others to whom the first missed block may have been something around the lookup."""
        if self._that_may_know is None:
            missed = self.missed
            found = self._fleet.peers_that_may_know(
                missed.stream, missed.reading.block_size, missed.chain[0], self._lookback, self._tolerance
            )
            self._that_may_know = self._around(found)
        return self._that_may_know

    def storage(self) -> Sequence[Peer]:
        """Storage that workers share, whose blocks can be those of the serving worker."""
        return self._around(self._fleet.shared_storage(self.missed.stream, self.missed.reading.block_size))

    def like(self, some: Sequence[Peer], block: Block) -> Sequence[tuple[Peer, Sequence[Block]]]:
        """Which of some peers had blocks with the same tokens under other keys, and these."""
        return self._fleet.like(some, block)

    def _around(self, records: Sequence[StreamView]) -> Sequence[Peer]:
        return self._fleet.around(self.missed.stream, records, self._lookback, self._tolerance) if records else ()

    def releases(self, stream: StreamId, tier: Tier) -> bool:
        """Whether a record shows when a block leaves a tier: some emitters publish what a tier stores and no more."""
        return tier is Tier.DEVICE or self._fleet.releases(stream, tier)

    def stored_like(self, block: Block) -> Sequence[Block]:
        """What the serving worker had stored by the lookup with the tokens of a block under other keys, held or not."""
        return self._fleet.stored_like(self.missed.stream, block, self.missed.reading.position)

    def doubt(self, peer: Peer, tier: Tier, key: int, fact: Fact) -> Reason:
        """Why another worker's record does not show what it held of a block at the lookup."""
        if self._is_unclear(peer, tier, fact):
            return Reason.AMBIGUOUS_COPIES
        if fact.state is Residency.UNKNOWN:  # guard: doubt-unknown
            return Reason.FLEET_VIEW_PARTIAL
        if fact.state is Residency.NEVER_SEEN:
            if self.missed.history_gap(peer.record):  # guard: doubt-unseen
                return Reason.FLEET_VIEW_PARTIAL
        elif peer.record.coverage(fact.at_unix_nanos or 0, peer.until).holes:  # guard: doubt-hole-since
            return Reason.FLEET_VIEW_PARTIAL
        if tier is Tier.DEVICE and self._own_work(peer, key):  # guard: doubt-own-device
            return Reason.NONE
        at = peer.at
        if _changes(peer.record, tier, key, at.before, at.after):  # guard: doubt-within
            return Reason.CLOCK_SKEW
        if at.confirmed is None:
            return Reason.EVIDENCE_LATE  # guard: doubt-late
        # guard: doubt-next-step, doubt-later-work
        if _changes(peer.record, tier, key, at.after, at.confirmed) and not self.of_later_work(peer, tier, key):
            return Reason.CLOCK_SKEW
        return Reason.NONE

    def _is_unclear(self, peer: Peer, tier: Tier, fact: Fact) -> bool:
        """Whether a block may be in a tier or not, although all that was published of it is known."""
        kept = fact.state is Residency.RESIDENT and not self.releases(peer.stream, tier)
        return kept or fact.state is Residency.AMBIGUOUS  # guard: doubt-kept, doubt-ambiguous

    def _own_work(self, peer: Peer, key: int) -> bool:
        """Whether all that happened to a block around the lookup is that this request's decode half received it.

        That is after the lookup, whatever the clocks say.
        """
        decodes = self.missed.reading.decodes
        if not decodes or peer.at.confirmed is None:  # guard: own-pair, own-confirmed
            return False
        (now,) = peer.record.as_of((key,), peer.at.confirmed)
        # guard: own-resident
        if now.state is not Residency.RESIDENT or now.ordinal is None or now.at_unix_nanos is None:
            return False
        if peer.record.touched(key, peer.at.before, now.ordinal):  # guard: own-before
            return False
        lives = self.log.may_have_stored(peer.stream.worker, now.at_unix_nanos)
        # guard: own-somebody, own-only-one, own-decodes, own-later
        return bool(lives) and all(life.span_id in decodes or life.start > peer.until for life in lives)

    def of_later_work(self, peer: Peer, tier: Tier, key: int) -> bool:
        """Whether the last change of a block is the doing of requests that all arrived after the lookup."""
        assert peer.at.confirmed is not None, "checked by the caller"
        (now,) = peer.record.as_of((key,), peer.at.confirmed, tier=tier)
        if now.at_unix_nanos is None or now.state is Residency.UNKNOWN:  # guard: later-work-unknown
            return False
        if now.state is Residency.EVICTED and now.removal is not Removal.REMOVED:  # guard: later-work-clear
            return False
        began = self.log.prefills_began(peer.stream.worker, now.at_unix_nanos)
        return began is not None and began > peer.until  # guard: later-work-all, later-work-someone


def _changes(record: StreamView, tier: Tier, key: int, first: int, last: int) -> bool:
    if tier is Tier.DEVICE:
        return record.touched(key, first, last)
    begin, end = (record.as_of((key,), position, tier=tier)[0] for position in (first, last))
    return begin.ordinal != end.ordinal
