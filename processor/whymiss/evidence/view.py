"""The other workers' records, placed around a lookup: what had surely happened there by then, and what may have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Fact, LedgerView, Lookback, Reason, Removal, Residency, StreamId, Tier
from .reading import Reading
from .recent import RecentRequests
from .record import OwnRecord


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of another stream around a lookup."""

    stream: StreamId
    before: int
    """What is before it had happened at the lookup."""
    after: int
    """What is not before it was published after the lookup."""
    confirmed: int | None
    """The position after the first batch that was; ``None`` while there is none.

    A record is confirmed by a later batch: the last one may be lost, and a reset is published with the next
    step. That batch tells of a step that may have begun before the lookup.
    """
    until: int
    """The latest time of the lookup on the other's clock."""


class View:
    """Looks at the rest of the view. ``tolerance`` is how far clocks may differ, in nanoseconds."""

    def __init__(self, ledger: LedgerView, record: OwnRecord, recent: RecentRequests, tolerance: int) -> None:
        self._ledger = ledger
        self._record = record
        self._recent = recent
        self._tolerance = tolerance
        self._sights: tuple[Reading | None, dict[StreamId, Sight]] = None, {}
        """Those of the last lookup: in a large fleet they cost more than what is asked with them."""

    def others(self, stream: StreamId, reading: Reading) -> Sequence[StreamId]:
        """The other streams whose blocks can be those of this one."""
        return self._fitting(self._ledger.view_of(stream), reading)

    def acquainted(self, stream: StreamId, reading: Reading, key: int) -> Sequence[StreamId]:
        """Those of the others to whom a block may have been something around the lookup."""
        around = Lookback(self._record.since(reading), reading.earliest, reading.latest)
        return self._fitting(self._ledger.acquainted(stream, key, around, self._tolerance), reading)

    def _fitting(self, streams: Sequence[StreamId], reading: Reading) -> Sequence[StreamId]:
        # guard: view-block-size
        return [other for other in streams if self._ledger.block_size(other) in {None, reading.block_size}]

    def shared(self, stream: StreamId, reading: Reading) -> Sequence[StreamId]:
        """Storage that workers share, whose blocks can be those of this stream."""
        return self._fitting(self._ledger.tier_owners(stream), reading)  # guard: view-shared-size

    def of(self, stream: StreamId, other: StreamId, reading: Reading) -> Sight:
        """Where a lookup of one stream stands in another. Of one reading they are found once: no record grows meanwhile."""
        if self._sights[0] is not reading:  # guard: view-sights
            self._sights = reading, {}
        known = self._sights[1].get(other)
        if known is None:
            known = self._sights[1][other] = self._sight(stream, other, reading)
        return known

    def _sight(self, stream: StreamId, other: StreamId, reading: Reading) -> Sight:
        tolerance = self._between(stream, other)
        until = reading.latest + tolerance  # guard: view-until
        # guard: view-before
        return Sight(
            stream=other,
            before=self._ledger.position_at(other, reading.earliest - tolerance),
            after=self._ledger.position_at(other, until),
            confirmed=self._ledger.confirmed_position(other, until),
            until=until,
        )

    def _between(self, stream: StreamId, other: StreamId) -> int:
        """How far two workers' clocks may be apart: the tolerance, and what their messages show beyond it.

        A host whose clock is wrong by more than the tolerance would otherwise place its events on the
        wrong side of the lookup.
        """
        mine, theirs = self._ledger.clock_offset(stream), self._ledger.clock_offset(other)
        shown = 0 if mine is None or theirs is None else abs(mine - theirs)
        return self._tolerance + shown  # guard: view-clocks

    def doubt(self, sight: Sight, tier: Tier, key: int, fact: Fact, reading: Reading) -> Reason:
        """Why another worker's record does not show what it held of a block at the lookup."""
        other = sight.stream
        if fact.state is Residency.AMBIGUOUS:  # guard: doubt-ambiguous
            return Reason.AMBIGUOUS_COPIES
        if fact.state is Residency.UNKNOWN:  # guard: doubt-unknown
            return Reason.FLEET_VIEW_PARTIAL
        if fact.state is Residency.NEVER_SEEN:
            if self._record.history_gap(other, reading):  # guard: doubt-unseen
                return Reason.FLEET_VIEW_PARTIAL
        elif self._ledger.coverage(other, fact.at_unix_nanos or 0, sight.until).holes:  # guard: doubt-hole-since
            return Reason.FLEET_VIEW_PARTIAL
        if tier is Tier.DEVICE and self._own_work(sight, key, reading):  # guard: doubt-own-device
            return Reason.NONE
        if self._changes(other, tier, key, sight.before, sight.after):  # guard: doubt-within
            return Reason.CLOCK_SKEW
        if sight.confirmed is None:
            return Reason.EVIDENCE_LATE  # guard: doubt-late
        # guard: doubt-next-step, doubt-later-work
        if self._changes(other, tier, key, sight.after, sight.confirmed) and not self.of_later_work(sight, tier, key):
            return Reason.CLOCK_SKEW
        return Reason.NONE

    def _own_work(self, sight: Sight, key: int, reading: Reading) -> bool:
        """Whether all that happened to a block around the lookup is that this request's decode half received it.

        That is after the lookup, whatever the clocks say.
        """
        if not reading.decodes or sight.confirmed is None:  # guard: own-pair, own-confirmed
            return False
        (now,) = self._ledger.as_of(sight.stream, (key,), sight.confirmed)
        # guard: own-resident
        if now.state is not Residency.RESIDENT or now.ordinal is None or now.at_unix_nanos is None:
            return False
        if self._ledger.touched(sight.stream, key, sight.before, now.ordinal):  # guard: own-before
            return False
        lives = self._recent.may_have_stored(sight.stream.worker, now.at_unix_nanos)
        # guard: own-somebody, own-only-one, own-decodes, own-later
        return bool(lives) and all(life.span_id in reading.decodes or life.start > sight.until for life in lives)

    def of_later_work(self, sight: Sight, tier: Tier, key: int) -> bool:
        """Whether the last change of a block is the doing of requests that all arrived after the lookup."""
        assert sight.confirmed is not None, "checked by the caller"
        (now,) = self._ledger.as_of(sight.stream, (key,), sight.confirmed, tier=tier)
        if now.at_unix_nanos is None or now.state is Residency.UNKNOWN:  # guard: later-work-unknown
            return False
        if now.state is Residency.EVICTED and now.removal is not Removal.REMOVED:  # guard: later-work-clear
            return False
        began = self._recent.prefills_began(sight.stream.worker, now.at_unix_nanos)
        return began is not None and began > sight.until  # guard: later-work-all, later-work-someone

    def _changes(self, other: StreamId, tier: Tier, key: int, first: int, last: int) -> bool:
        if tier is Tier.DEVICE:
            return self._ledger.touched(other, key, first, last)
        begin, end = (self._ledger.as_of(other, (key,), position, tier=tier)[0] for position in (first, last))
        return begin.ordinal != end.ordinal
