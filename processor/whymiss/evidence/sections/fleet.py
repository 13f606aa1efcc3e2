"""What the other workers held, or had held, of the missed blocks at the moment of the lookup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...model import Fact, FleetEvidence, Holder, Peer, Reason, Residency, StreamId, Tier
from ..missed import HELD, HELD_OR_LOST, certain, is_dense
from ..peers import Gap, Peers, first_gap, reason_of


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """What some workers held and had held."""

    holders: tuple[Holder, ...] = ()
    """The one with most blocks first, of equal ones in the order of streams."""
    holder_gap: Gap | None = None
    view_gap: Gap | None = None
    lost: bool = False
    lost_blocks: int | None = None
    """Of the best that lost the block; ``None`` where that is not known, and where a holder decides."""

    def merged(self, other: Holdings) -> Holdings:
        """What two parts of a fleet held together."""
        holders = self.holders + other.holders
        return Holdings(  # guard: holdings-merged-cost
            holders=tuple(sorted(holders, key=_most_first)) if self.holders and other.holders else holders,
            holder_gap=first_gap(self.holder_gap, other.holder_gap),
            view_gap=first_gap(self.view_gap, other.view_gap),
            lost=self.lost or other.lost,
            lost_blocks=None if holders else _most(self, other),
        )

    def evidence(self) -> FleetEvidence:
        """What is said of the whole view."""
        return FleetEvidence(
            holders=self.holders,
            holder_gap=reason_of(self.holder_gap),
            view_gap=reason_of(self.view_gap),
            lost_elsewhere=self.lost,
            lost_elsewhere_blocks=self.lost_blocks,
        )


def _most_first(holder: Holder) -> tuple[int, StreamId]:
    return -(holder.leading_blocks or 0), holder.stream


def _most(one: Holdings, other: Holdings) -> int | None:
    if not one.lost or not other.lost:
        return one.lost_blocks if one.lost else other.lost_blocks
    # guard: holdings-merged-certain
    return None if one.lost_blocks is None or other.lost_blocks is None else max(one.lost_blocks, other.lost_blocks)


def holdings(peers: Peers, some: Iterable[Peer], *, unseen: bool) -> Holdings:
    """What some of the peers held. ``unseen`` says that the serving worker never held the block.

    How much of the chain others lost matters only where it never did, and where nobody holds it there.
    """
    missed = peers.missed
    key = missed.chain[0]
    holders: list[Holder] = []
    lost: list[tuple[Sequence[Fact], Reason, bool]] = []
    holder_gap: Gap | None = None
    view_gap: Gap | None = None
    for peer in some:
        record = peer.record
        for tier in (Tier.DEVICE, *record.tiers()):
            states = record.as_of(missed.chain, peer.at.before, tier=tier)
            first = states[0]
            doubt = peers.doubt(peer, tier, key, first)
            if doubt:  # guard: holders-doubt
                view_gap = view_gap or Gap(peer.stream, doubt)  # guard: holders-view-doubt
                if first.state is Residency.RESIDENT and holder_gap is None:
                    holder_gap = Gap(peer.stream, doubt)  # guard: holders-doubt-holder
            elif first.state is Residency.RESIDENT:  # guard: holders-resident
                # A tier may hold a block without its parent.
                dense = tier is Tier.DEVICE and is_dense(record)
                count = certain(states, HELD, missed.history_gap(record), dense=dense)
                holders.append(Holder(stream=peer.stream, tier=tier, leading_blocks=count))
            # guard: elsewhere-device, elsewhere-window
            if tier is Tier.DEVICE and first.state is Residency.EVICTED and missed.in_window(first):
                lost.append((states, missed.history_gap(record), is_dense(record)))
    # guard: elsewhere-lost-matters
    matters = unseen and not holders
    counts = [certain(states, HELD_OR_LOST, gap, dense=dense) for states, gap, dense in lost] if matters else []
    known = [count for count in counts if count is not None]
    return Holdings(  # guard: elsewhere-cost
        holders=tuple(sorted(holders, key=_most_first)),
        holder_gap=holder_gap,
        view_gap=view_gap,
        lost=bool(lost),
        lost_blocks=max(known) if known and len(known) == len(lost) else None,
    )
