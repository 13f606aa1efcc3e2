"""What other workers and lower tiers held of the missed blocks at the moment of the lookup."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Fact, Facts, Holder, LedgerView, Reason, Residency, StreamId, Tier
from .reading import Reading
from .recent import RecentRequests
from .record import HELD, HELD_OR_LOST, OwnRecord, gap_after, leading, skipped
from .view import View


class Elsewhere:
    """Reads the records of the rest of the view."""

    def __init__(self, ledger: LedgerView, record: OwnRecord, recent: RecentRequests, view: View) -> None:
        self._ledger = ledger
        self._record = record
        self._recent = recent
        self._view = view

    def add(self, facts: Facts, stream: StreamId, reading: Reading, chain: Sequence[int]) -> Facts:
        """The facts with holders, tiers and workers that lost the block."""
        facts = self._tiers(facts, stream, reading, chain)
        return self._workers(facts, stream, reading, chain)

    # --- tiers ------------------------------------------------------------------------------------

    def _tiers(self, facts: Facts, stream: StreamId, reading: Reading, chain: Sequence[int]) -> Facts:
        """Tiers that this worker publishes of, which are those that it can reach, and what workers share."""
        own = self._ledger.tiers(stream)
        history_gap = self._record.history_gap(stream, reading)
        holding: list[Tier] = []
        counts: list[int | None] = []
        gap = Reason.NONE
        for tier in own:
            states = self._ledger.as_of(stream, chain, reading.position, tier=tier)
            if states[0].state is Residency.RESIDENT:
                holding.append(tier)
                counts.append(_certain(states, HELD, history_gap))
            gap = gap or gap_after(states, 0, history_gap)  # guard: tiers-gap
        for owner in self._view.shared(stream, reading):
            sight = self._view.of(stream, owner, reading)
            for tier in self._ledger.tiers(owner):
                states = self._ledger.as_of(owner, chain, sight.before, tier=tier)  # guard: shared-before
                gap = gap or self._view.doubt(sight, tier, chain[0], states[0], reading)  # guard: shared-doubt
                if states[0].state is Residency.RESIDENT:  # guard: shared-resident
                    holding.append(tier)
                    # guard: shared-count
                    counts.append(_certain(states, HELD, self._record.history_gap(owner, reading)))
        # guard: tiers-of-others
        if not own and history_gap and any(map(self._ledger.tiers, self._view.others(stream, reading))):
            # Others have tiers; what this worker said of its own may be in the hole.
            gap = gap or history_gap  # guard: tiers-unnamed
        known = [count for count in counts if count is not None]
        # guard: tiers-certain
        return msgspec.structs.replace(
            facts,
            tiers_holding=tuple(holding),
            tier_blocks=max(known) if counts and len(known) == len(counts) else None,
            tier_gap=gap,
        )

    # --- other workers ------------------------------------------------------------------------------

    def _workers(self, facts: Facts, stream: StreamId, reading: Reading, chain: Sequence[int]) -> Facts:
        view = self._view.acquainted(stream, reading, chain[0])
        holders: list[Holder] = []
        lost: list[tuple[Sequence[Fact], Reason, bool]] = []
        holder_gap = view_gap = Reason.NONE
        for other in view:
            sight = self._view.of(stream, other, reading)
            history_gap = self._record.history_gap(other, reading)
            for tier in (Tier.DEVICE, *self._ledger.tiers(other)):
                states = self._ledger.as_of(other, chain, sight.before, tier=tier)
                doubt = self._view.doubt(sight, tier, chain[0], states[0], reading)
                if states[0].state is not Residency.RESIDENT:  # guard: holders-resident
                    view_gap = view_gap or doubt  # guard: holders-view-doubt
                elif doubt:  # guard: holders-doubt
                    holder_gap = holder_gap or doubt  # guard: holders-doubt-holder
                    view_gap = view_gap or doubt  # guard: holders-doubt-view
                else:
                    count = _certain(states, HELD, history_gap, dense=self._is_dense(other, tier))
                    holders.append(Holder(stream=other, tier=tier, leading_blocks=count))
                # guard: elsewhere-window
                evicted = states[0].state is Residency.EVICTED and self._record.in_window(states[0], reading)
                if evicted and tier is Tier.DEVICE:  # guard: elsewhere-device
                    lost.append((states, history_gap, self._is_dense(other, tier)))
        # How much of the chain others lost matters only where nobody ever held it here and nobody holds it there.
        # guard: elsewhere-lost-matters
        matters = not holders and facts.here is not None and facts.here.state is Residency.NEVER_SEEN
        counts = [_certain(states, HELD_OR_LOST, gap, dense=dense) for states, gap, dense in lost] if matters else []
        known = [count for count in counts if count is not None]
        # guard: elsewhere-cost
        return msgspec.structs.replace(
            facts,
            holders=tuple(sorted(holders, key=lambda holder: (-(holder.leading_blocks or 0), holder.stream))),
            holder_gap=holder_gap,
            view_gap=view_gap,
            lost_elsewhere=bool(lost),
            lost_elsewhere_blocks=max(known) if known and len(known) == len(lost) else None,
            concurrent=self._computing((stream, *view), chain[0], reading),
        )

    def _is_dense(self, stream: StreamId, tier: Tier) -> bool:
        # A tier may hold a block without its parent.
        return tier is Tier.DEVICE and self._record.is_dense(stream)

    def add_identities(self, facts: Facts, stream: StreamId, reading: Reading, chain: Sequence[int]) -> Facts:
        """Whether another worker held the same tokens and extra keys under another key: unlike hash seeds.

        What was hit before was hit under the worker's own keys, so that says nothing of the other's seed.
        """
        block = self._ledger.block(stream, chain[0])
        if block is None:
            return facts
        best: int | None = None
        for other in self._view.others(stream, reading):
            sight = self._view.of(stream, other, reading)
            for twin in self._ledger.like(other, block, sight.before):
                if block.extras is not None and twin.extras is not None and twin.extras != block.extras:
                    continue  # guard: identity-extras
                # An adapter is hashed by its path, which is not published.
                unclear = block.extras is None or twin.extras is None or "lora" in block.kinds  # guard: identity-lora
                fact = self._ledger.as_of(other, (twin.key,), sight.before)[0]
                gap = self._view.doubt(sight, Tier.DEVICE, twin.key, fact, reading)
                if unclear or gap:  # guard: identity-unclear, identity-doubt
                    return msgspec.structs.replace(facts, relatives_gap=gap or Reason.AMBIGUOUS_CHAIN)
                if best != len(chain):  # guard: identity-longest
                    # guard: identity-best
                    best = max(best or 0, self._ledger.leading_like(stream, chain, sight.before, among=other))
                break
        return facts if best is None else msgspec.structs.replace(facts, same_identity=True, same_tokens_leading=best)

    def _computing(self, streams: Sequence[StreamId], key: int, reading: Reading) -> bool:
        """Whether a request that was in its prefill at the lookup stored the block after it."""
        for other in streams:
            own = reading.position if other == reading.stream else None  # guard: computing-own-stream
            # guard: computing-decodes
            for until in self._recent.prefilling(other.worker, reading.latest, reading.decodes):
                stores = self._ledger.stores_between(other, reading.latest, until)
                # guard: computing-own, computing-key
                if any(key in store.keys and store.position != own for store in stores):
                    return True
        return False


def _certain(
    states: Sequence[Fact], wanted: frozenset[Residency], history_gap: Reason, *, dense: bool = False
) -> int | None:
    """How many leading facts are of the wanted states; ``None`` where one behind them may be too."""
    count = leading(states, wanted)
    # guard: certain-gap, skipped-elsewhere
    return None if gap_after(states, count, history_gap) or (dense and skipped(states, count)) else count
