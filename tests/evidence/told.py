"""A record that knows what a test tells it, for claims about a single answer of a ledger.

Times and positions are small numbers: an event at time 7 has the ordinal 7, and the position after it is 8.
"""

# ruff: noqa: ARG002 (what a protocol asks with, a test need not look at)
from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.evidence.test_grouping import span
from whymiss.evidence.reading import Reading
from whymiss.evidence.recent import RecentRequests
from whymiss.model import (
    SECOND,
    Block,
    Coverage,
    EngineRequest,
    Fact,
    GroupSpec,
    Hole,
    Lookback,
    Reason,
    Removal,
    Repeats,
    Residency,
    Store,
    StreamId,
    Tier,
)

ME, OTHER, THIRD = StreamId("w", 0), StreamId("other", 0), StreamId("third", 0)
LOOKED = 1000
"""When the request of a test looked up its blocks."""

LATE = 1 << 60
"""Long after all that happens in a test."""


class Event(msgspec.Struct, frozen=True):
    """What became of a block of a stream at a time."""

    stream: StreamId
    at: int
    key: int
    state: Residency
    tier: Tier = Tier.DEVICE
    group: int | None = None
    removal: Removal | None = None


class Told(msgspec.Struct, kw_only=True):
    """Implements ``model.LedgerView``. What is not told is whole, from birth, confirmed later, and empty."""

    events: list[Event] = []
    holes: dict[StreamId, Hole] = {}
    begins: dict[StreamId, int] = {}
    """Where a record begins that does not begin with its publisher's birth."""
    expired: bool = False
    """Whether what was before it was given up."""
    batches: dict[StreamId, list[int]] = {}
    """Times of batches after the lookup; by default one, long after it."""
    sizes: dict[StreamId, int | None] = {}
    specs: list[GroupSpec] = []
    others: list[StreamId] = []
    owners: list[StreamId] = []
    """Storage that workers share."""
    below: dict[StreamId, list[Tier]] = {}
    stores: dict[StreamId, list[Store]] = {}
    blocks: dict[tuple[StreamId, int], Block] = {}
    under: dict[StreamId, list[tuple[int, int]]] = {}
    """Blocks under the parent of the missed one by (time, key)."""
    twins: list[Block] = []
    alike: dict[StreamId, list[Block]] = {}
    leading: dict[StreamId, int] = {}
    """How much of the chain a stream held under other keys; by default one block."""
    repeated: dict[StreamId, list[tuple[int, Repeats]]] = {}
    """How much of the chain a stream's siblings repeated from a time on."""
    offsets: dict[StreamId, int] = {}
    with_tokens: int | None = None
    """Leading blocks of a tail whose tokens are known; by default all."""
    unit: int | None = None

    def streams(self) -> Sequence[StreamId]:
        return [ME, *self.others]

    def view_of(self, stream: StreamId) -> Sequence[StreamId]:
        return [one for one in self.streams() if one != stream]

    def acquainted(self, stream: StreamId, key: int, around: Lookback, tolerance: int) -> Sequence[StreamId]:
        return self.view_of(stream)

    def tier_owners(self, stream: StreamId) -> Sequence[StreamId]:
        return self.owners

    def block_size(self, stream: StreamId) -> int | None:
        return self.sizes.get(stream, 16)

    def match_unit(self, stream: StreamId) -> int | None:
        return self.unit

    def groups(self, stream: StreamId) -> Sequence[GroupSpec]:
        return self.specs

    def position_at(self, stream: StreamId, unix_nanos: int) -> int:
        return unix_nanos + 1

    def confirmed_position(self, stream: StreamId, unix_nanos: int) -> int | None:
        later = [at for at in self.batches.get(stream, [LATE]) if at > unix_nanos]
        return later[0] + 1 if later else None

    def published_before(self, stream: StreamId, unix_nanos: int) -> int | None:
        return max((at for at in self.batches.get(stream, []) if at < unix_nanos), default=None)

    def as_of(
        self,
        stream: StreamId,
        keys: Sequence[int],
        position: int,
        *,
        tier: Tier = Tier.DEVICE,
        group: int | None = None,
    ) -> Sequence[Fact]:
        return [self._fact((stream, key, tier, group), position) for key in keys]

    def _fact(self, which: tuple[StreamId, int, Tier, int | None], position: int) -> Fact:
        last = Fact(state=Residency.NEVER_SEEN)
        for one in self.events:
            if (one.stream, one.key, one.tier, one.group) == which and one.at < position:
                last = Fact(state=one.state, at_unix_nanos=one.at, removal=one.removal, ordinal=one.at)
        return last

    def touched(self, stream: StreamId, key: int, first: int, last: int) -> bool:
        which = (stream, key, Tier.DEVICE, None)
        found = [one.at for one in self.events if (one.stream, one.key, one.tier, one.group) == which]
        return any(first <= at < last for at in found)

    def tiers(self, stream: StreamId) -> Sequence[Tier]:
        return self.below.get(stream, [])

    def stores_between(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        return [one for one in self.stores.get(stream, []) if after_unix_nanos < one.unix_nanos <= until_unix_nanos]

    def block(self, stream: StreamId, key: int) -> Block | None:
        return self.blocks.get((stream, key))

    def children(
        self, stream: StreamId, parent: int | None, position: int, *, limit: int | None = None
    ) -> Sequence[int]:
        return [key for at, key in self.under.get(stream, []) if at < position][:limit]

    def same_tokens(self, stream: StreamId, key: int, position: int) -> Sequence[Block]:
        return self.twins

    def same_tokens_leading(self, stream: StreamId, keys: Sequence[int], position: int) -> int:
        return len(self.twins)

    def tokens_known(self, stream: StreamId, keys: Sequence[int]) -> int:
        return len(keys) if self.with_tokens is None else self.with_tokens

    def like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        return self.alike.get(stream, [])

    def leading_like(self, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId) -> int:
        return self.leading.get(among, 1)

    def reconverges(
        self, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId | None = None
    ) -> Repeats:
        said = [one for at, one in self.repeated.get(among or stream, []) if at < position]
        return said[-1] if said else Repeats(blocks=0)

    def clock_offset(self, stream: StreamId) -> int | None:
        return self.offsets.get(stream)

    def coverage(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        hole = self.holes.get(stream)
        touches = hole and hole.after_unix_nanos < until_unix_nanos and hole.until_unix_nanos > after_unix_nanos
        return Coverage(
            holes=(hole,) if hole and touches else (),
            begins_unix_nanos=self.begins.get(stream, 0),
            from_birth=stream not in self.begins,
            confirmed_unix_nanos=max(self.batches.get(stream, [LATE]), default=0),
            expired=self.expired,
        )


def hole(after: int, until: int) -> Hole:
    return Hole(after_unix_nanos=after, until_unix_nanos=until, reason=Reason.EVENTS_DROPPED)


def held(
    *keys: int, by: StreamId = ME, at: int = 500, tier: Tier = Tier.DEVICE, group: int | None = None
) -> list[Event]:
    return [Event(by, at, key, Residency.RESIDENT, tier, group) for key in keys]


def became(state: Residency, *keys: int, by: StreamId = ME, at: int = 600, group: int | None = None) -> list[Event]:
    removal = Removal.REMOVED if state is Residency.EVICTED else None
    return [Event(by, at, key, state, group=group, removal=removal) for key in keys]


def lives(*told: tuple[StreamId, int, int, int]) -> RecentRequests:
    """Requests by their stream, arrival, the latest moment of their lookup and their first token; numbered from 1."""
    recent = RecentRequests(LOOKED * SECOND)
    for number, (stream, start, latest, first_token) in enumerate(told, 1):
        said = EngineRequest(
            prompt_tokens=64,
            first_token_seconds=(first_token - start) / SECOND,
            prefill_seconds=(first_token - latest) / SECOND,
        )
        recent.note(stream.worker, span(number, said, start=start / SECOND, end=first_token / SECOND), said)
    return recent


def numbered(number: int) -> bytes:
    """The span id of a request of ``lives``."""
    return number.to_bytes(8, "big")


def reading(
    *chain: int, first: int = 0, undecided: bool = False, known: bool = True, decodes: tuple[bytes, ...] = ()
) -> Reading:
    """A lookup that missed the blocks of a chain from ``first`` on."""
    return Reading(
        stream=ME,
        cached_tokens=16 * first,
        block_size=16,
        first=first,
        chain=chain,
        last_hit_key=99 if first else None,
        chain_known=known,
        position=LOOKED,
        undecided=undecided,
        earliest=LOOKED,
        latest=LOOKED,
        decodes=decodes,
    )
