"""A record that knows what a test tells it, for claims about a single answer of a ledger.

Times and positions are small numbers: an event at time 7 has the ordinal 7, and the position after it is 8.
"""

# ruff: noqa: ARG002 (what a protocol asks with, a test need not look at)
from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.evidence.test_grouping import span
from whymiss.config import parse
from whymiss.evidence.hypotheses import Reading
from whymiss.evidence.missed import Missed
from whymiss.evidence.peers import Peers
from whymiss.evidence.requests.request_log import RequestLog
from whymiss.evidence.sections.fleet import holdings
from whymiss.evidence.sections.relations import Relations
from whymiss.evidence.sections.tiers import tier_evidence
from whymiss.model import (
    SECOND,
    Block,
    ChainContent,
    Coverage,
    EngineRequest,
    Fact,
    FleetEvidence,
    GroupSpec,
    Hole,
    Lookback,
    MissedChain,
    Peer,
    Positions,
    PublishedBatch,
    Reason,
    Removal,
    Repeats,
    Residency,
    Store,
    StreamId,
    StreamView,
    Tier,
    TierEvidence,
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
    """Implements ``model.FleetView``. What is not told is whole, from birth, confirmed later, and empty."""

    events: list[Event] = []
    holes: dict[StreamId, Hole] = {}
    begins: dict[StreamId, int] = {}
    """Where a record begins that does not begin with its publisher's birth."""
    expired: bool = False
    """Whether what was before it was given up."""
    batches: dict[StreamId, list[int]] = {}
    """Times of batches after the lookup; by default one, long after it."""
    sizes: dict[StreamId, int | None] = {}
    paired: list[StreamId] = []
    """Streams whose token ids are pairs."""
    specs: list[GroupSpec] = []
    others: list[StreamId] = []
    owners: list[StreamId] = []
    """Storage that workers share."""
    below: dict[StreamId, list[Tier]] = {}
    stores: dict[StreamId, list[Store]] = {}
    blocks: dict[tuple[StreamId, int], Block] = {}
    under: dict[StreamId, list[tuple[int, int]]] = {}
    """Blocks under the parent of the missed one by (time, key)."""
    equal: list[Block] = []
    left: list[Block] = []
    """Stored once with the tokens of the missed block."""
    keeping: list[Tier] = []
    """Tiers of which no removal was ever published."""
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

    def stream(self, stream: StreamId) -> ToldStream:
        return ToldStream(told=self, stream=stream)

    def peers(self, stream: StreamId, block_size: int) -> Sequence[ToldStream]:
        return self._fitting([one for one in self.streams() if one != stream], block_size)

    def peers_that_may_know(
        self, stream: StreamId, block_size: int, key: int, around: Lookback, tolerance: int
    ) -> Sequence[ToldStream]:
        return self.peers(stream, block_size)

    def shared_storage(self, stream: StreamId, block_size: int) -> Sequence[ToldStream]:
        return self._fitting(self.owners, block_size)

    def around(
        self, stream: StreamId, others: Sequence[StreamView], lookback: Lookback, tolerance: int
    ) -> Sequence[Peer]:
        offsets = [self.offsets.get(other.stream) for other in others]
        there = lookback.on_other_clocks(self.offsets.get(stream), offsets, tolerance)
        return [
            Peer(
                stream=other.stream,
                record=other,
                at=Positions(
                    other.position_at(lookup.earliest),
                    other.position_at(lookup.latest),
                    other.confirmed_position(lookup.latest),
                ),
                until=lookup.latest,
            )
            for other, lookup in zip(others, there, strict=True)
        ]

    def like(self, peers: Sequence[Peer], block: Block) -> Sequence[tuple[Peer, Sequence[Block]]]:
        found = [(peer, peer.record.like(block, peer.at.before)) for peer in peers]
        return [(peer, blocks) for peer, blocks in found if blocks]

    def stored_like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        return self.left

    def releases(self, stream: StreamId, tier: Tier) -> bool:
        return tier not in self.keeping

    def _fitting(self, streams: Sequence[StreamId], block_size: int) -> Sequence[ToldStream]:
        return [self.stream(one) for one in streams if self.sizes.get(one, 16) in {None, block_size}]


class ToldContent(ChainContent, frozen=True):
    """The content of any chain."""


class ToldTail(MissedChain, frozen=True):
    """The tail of any chain."""


class ToldStream(msgspec.Struct, frozen=True, kw_only=True):
    """Implements ``model.StreamView``: what is told of one stream."""

    told: Told
    stream: StreamId

    def block_size(self) -> int | None:
        return self.told.sizes.get(self.stream, 16)

    @property
    def pairs(self) -> bool:
        return self.stream in self.told.paired

    def match_unit(self) -> int | None:
        return self.told.unit

    def groups(self) -> Sequence[GroupSpec]:
        return self.told.specs

    def position_at(self, unix_nanos: int) -> int:
        return unix_nanos + 1

    def confirmed_position(self, unix_nanos: int) -> int | None:
        later = [at for at in self.told.batches.get(self.stream, [LATE]) if at > unix_nanos]
        return later[0] + 1 if later else None

    def published_before(self, unix_nanos: int) -> int | None:
        return max((at for at in self.told.batches.get(self.stream, []) if at < unix_nanos), default=None)

    def as_of(
        self,
        keys: Sequence[int],
        position: int,
        *,
        tier: Tier = Tier.DEVICE,
        group: int | None = None,
    ) -> Sequence[Fact]:
        return [self._fact((self.stream, key, tier, group), position) for key in keys]

    def _fact(self, which: tuple[StreamId, int, Tier, int | None], position: int) -> Fact:
        last = Fact(state=Residency.NEVER_SEEN)
        for one in self.told.events:
            if (one.stream, one.key, one.tier, one.group) == which and one.at < position:
                last = Fact(state=one.state, at_unix_nanos=one.at, removal=one.removal, ordinal=one.at)
        return last

    def touched(self, key: int, first: int, last: int) -> bool:
        which = (self.stream, key, Tier.DEVICE, None)
        found = [one.at for one in self.told.events if (one.stream, one.key, one.tier, one.group) == which]
        return any(first <= at < last for at in found)

    def tiers(self) -> Sequence[Tier]:
        return self.told.below.get(self.stream, [])

    def stores_between(self, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        return [
            one
            for one in self.told.stores.get(self.stream, [])
            if after_unix_nanos < one.unix_nanos <= until_unix_nanos
        ]

    @property
    def end(self) -> int:
        return max([*self._times(), -1]) + 1

    def _times(self) -> list[int]:
        stores = [one.unix_nanos for one in self.told.stores.get(self.stream, [])]
        return sorted({*stores, *self.told.batches.get(self.stream, [LATE])})

    def batches_from(self, position: int) -> Sequence[PublishedBatch]:
        return [PublishedBatch(at, at, at + 1) for at in self._times() if at >= position]

    def stores_in(self, first: int, last: int) -> Sequence[Store]:
        told = self.told.stores.get(self.stream, [])
        return [msgspec.structs.replace(one, ordinal=one.unix_nanos) for one in told if first <= one.unix_nanos < last]

    def changes(self, key: int, first: int, last: int) -> Sequence[int]:
        which = (self.stream, key, Tier.DEVICE, None)
        found = {one.at for one in self.told.events if (one.stream, one.key, one.tier, one.group) == which}
        return sorted(at for at in found if first <= at < last)

    @property
    def other_sizes(self) -> bool:
        return False

    @property
    def knows_all_held(self) -> bool:
        return self.stream not in self.told.begins and self.stream not in self.told.holes

    def keys_at_depth(self, depth: int, before: int, limit: int) -> Sequence[int] | None:
        return None

    def block(self, key: int) -> Block | None:
        return self.told.blocks.get((self.stream, key))

    def children(self, parent: int | None, position: int, *, limit: int | None = None) -> Sequence[int]:
        return [key for at, key in self.told.under.get(self.stream, []) if at < position][:limit]

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        return self.told.equal

    def same_tokens_leading(self, keys: Sequence[int], position: int) -> int:
        return len(self.told.equal)

    def tokens_known(self, keys: Sequence[int]) -> int:
        return len(keys) if self.told.with_tokens is None else self.told.with_tokens

    def like(self, block: Block, position: int) -> Sequence[Block]:
        return self.told.alike.get(self.stream, [])

    def content(self, keys: Sequence[int]) -> ChainContent | None:
        return ToldContent()

    def leading_like(self, content: ChainContent, position: int) -> int:
        return self.told.leading.get(self.stream, 1)

    def missed_chain(self, keys: Sequence[int]) -> MissedChain | None:
        return ToldTail()

    def repeats(self, missed_chain: MissedChain, position: int) -> Repeats:
        said = [one for at, one in self.told.repeated.get(self.stream, []) if at < position]
        return said[-1] if said else Repeats(blocks=0)

    def coverage(self, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        hole = self.told.holes.get(self.stream)
        touches = hole and hole.after_unix_nanos < until_unix_nanos and hole.until_unix_nanos > after_unix_nanos
        return Coverage(
            holes=(hole,) if hole and touches else (),
            begins_unix_nanos=self.told.begins.get(self.stream, 0),
            from_birth=self.stream not in self.told.begins,
            confirmed_unix_nanos=max(self.told.batches.get(self.stream, [LATE]), default=0),
            expired=self.told.expired,
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


def lives(*told: tuple[StreamId, int, int, int]) -> RequestLog:
    """Requests by their stream, arrival, the latest moment of their lookup and their first token; numbered from 1."""
    recent = RequestLog(LOOKED * SECOND)
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


CONFIG = parse(
    f"{{ledger: {{window_seconds: {LOOKED / SECOND}}}, attribution: {{clock_tolerance_seconds: {10 / SECOND}}}}}", {}
)
"""A window as long as all that happens in a test, and clocks that may be 10 nanoseconds apart."""


def asked(told: Told, about: Reading, prompt_tokens: int | None = None) -> Missed:
    """A reading as the sections ask about it."""
    return Missed.of(about, told.stream(ME), prompt_tokens, LOOKED)


def peers_of(told: Told, about: Reading, log: RequestLog | None = None) -> Peers:
    """The rest of the view around the lookup of a reading, with clocks that may be 10 nanoseconds apart."""
    return Peers(told, log or lives(), 10, asked(told, about))


class Elsewhere(msgspec.Struct, frozen=True):
    """What is found beyond the serving worker's own record."""

    fleet: FleetEvidence
    tiers: TierEvidence
    relations: Relations


def elsewhere(
    told: Told, about: Reading, log: RequestLog | None = None, *, unseen: bool = True, known: bool = True
) -> Elsewhere:
    """Those sections for a lookup whose first missed block the serving worker never held, or once did."""
    peers = peers_of(told, about, log)
    return Elsewhere(
        fleet=holdings(peers, peers.that_may_know(), unseen=unseen).evidence(),
        tiers=tier_evidence(peers),
        relations=Relations(peers, chain_known=known),
    )
