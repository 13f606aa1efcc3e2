"""What lower tiers within the serving worker's reach held of the missed blocks: its own, and storage that workers share."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model import Peer, Reason, Residency, Tier, TierEvidence
from ..missed import HELD, Missed, certain, gap_after
from ..peers import Gap, Peers, first_gap, reason_of


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What storage that workers share holds. ``blocks`` is of the best that holds any, ``None`` where that is not known."""

    holding: frozenset[Tier] = frozenset()
    blocks: int | None = None
    gap: Gap | None = None

    def merged(self, other: Storage) -> Storage:
        """What two parts hold together."""
        return Storage(
            holding=self.holding | other.holding,
            blocks=_most(self, other),
            gap=first_gap(self.gap, other.gap),
        )


def _most(one: Storage, other: Storage) -> int | None:
    if not one.holding or not other.holding:
        return one.blocks if one.holding else other.blocks
    # guard: tiers-certain
    return None if one.blocks is None or other.blocks is None else max(one.blocks, other.blocks)


def tier_evidence(peers: Peers) -> TierEvidence:
    """What the worker's own tiers held, which are those that it publishes of, and then what workers share."""
    missed = peers.missed
    own, own_gap = own_tiers(peers)
    both = own.merged(shared_tiers(peers, peers.storage()))
    gap = own_gap or reason_of(both.gap)
    if not gap and not missed.record.tiers():
        history_gap = missed.history_gap(missed.record)
        if history_gap and any(peer.record.tiers() for peer in peers.all()):  # guard: tiers-of-others
            # Others have tiers; what this worker said of its own may be in the hole.
            gap = history_gap  # guard: tiers-unnamed
    return TierEvidence(tiers_holding=tuple(sorted(both.holding)), tier_blocks=both.blocks, tier_gap=gap)


def own_tiers(peers: Peers) -> tuple[Storage, Reason]:
    """What the worker's own tiers held, and why one may have held the block all the same."""
    missed, found, gap = peers.missed, Storage(), Reason.NONE
    tiers = missed.record.tiers()
    history_gap = missed.history_gap(missed.record) if tiers else Reason.NONE
    for tier in tiers:
        states = missed.record.as_of(missed.chain, missed.reading.position, tier=tier)
        if states[0].state is Residency.RESIDENT:
            if not peers.releases(missed.stream, tier):  # guard: tiers-kept
                gap = gap or Reason.AMBIGUOUS_COPIES
                continue
            found = found.merged(Storage(holding=frozenset({tier}), blocks=certain(states, HELD, history_gap)))
        gap = gap or gap_after(states, 0, history_gap)  # guard: tiers-gap
    return found, gap


def surely_left(missed: Missed) -> bool:
    """Whether one of the worker's own tiers says that it let the first missed block go.

    That it never named the block says nothing: a tier may name its blocks in a hash family of its own.
    """
    record, position = missed.record, missed.reading.position
    states = [record.as_of(missed.chain[:1], position, tier=tier)[0].state for tier in record.tiers()]
    return Residency.EVICTED in states  # guard: tiers-left


def shared_tiers(peers: Peers, owners: Iterable[Peer]) -> Storage:
    """What some of the storage that workers share held; of several parts the answers merge."""
    missed, found = peers.missed, Storage()
    for owner in owners:
        for tier in owner.record.tiers():
            states = owner.record.as_of(missed.chain, owner.at.before, tier=tier)  # guard: shared-before
            doubt = peers.doubt(owner, tier, missed.chain[0], states[0])  # guard: shared-doubt
            # guard: shared-resident, shared-kept
            held = states[0].state is Residency.RESIDENT and peers.releases(owner.stream, tier)
            blocks = certain(states, HELD, missed.history_gap(owner.record)) if held else None  # guard: shared-count
            found = found.merged(
                Storage(
                    holding=frozenset({tier}) if held else frozenset(),
                    blocks=blocks,
                    gap=Gap(owner.stream, doubt) if doubt else None,
                )
            )
    return found
