"""Blocks that are like the missed one: the same tokens under other keys, the same parent, the same tail."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Block, Facts, LedgerView, Reason, Repeats, StreamId, Tier
from .reading import Reading
from .view import Sight, View

_NO_REPEATS = Repeats(blocks=0)

_LATE_MAX = 16
"""Siblings that are looked at one by one; more of them in one step are not told apart."""


class Relatives:
    """Compares the first missed block with what the records know.

    Twins are looked for where the request was served. Siblings count wherever they are: a block that another
    worker saw a sibling of is a branch, wherever it was missed.
    """

    def __init__(self, ledger: LedgerView, view: View) -> None:
        self._ledger = ledger
        self._view = view

    def add_twins(self, facts: Facts, stream: StreamId, reading: Reading, chain: Sequence[int]) -> Facts:
        """The facts with what is known of blocks with the tokens of the first of ``chain``, and of the block itself."""
        key = chain[0]
        block = self._ledger.block(stream, key)
        if block is None or block.prefix is None:
            # guard: relatives-tokens
            return msgspec.structs.replace(facts, relatives_gap=self._strange(stream, reading, block))
        parent = _parent(block, reading)
        if reading.first and (parent is None or self._ledger.block(stream, parent) is None):
            # Its parent was hit, so it had been stored; before the record began.
            return msgspec.structs.replace(facts, relatives_gap=Reason.HISTORY_EXPIRED)  # guard: relatives-parent
        twins = self._ledger.same_tokens(stream, key, reading.position)
        different = [_kinds_between(block, twin) for twin in twins if _differ(block, twin)]
        # guard: relatives-same
        return msgspec.structs.replace(
            facts,
            differing_kinds=min(different, key=lambda kinds: (len(kinds), kinds)) if different else None,
            # One process gives one key to one identity: what differs here was not published.
            relatives_gap=Reason.AMBIGUOUS_CHAIN if twins and not different else Reason.NONE,
            same_tokens_leading=self._ledger.same_tokens_leading(stream, chain, reading.position) if twins else None,
        )

    def add_siblings(self, facts: Facts, stream: StreamId, reading: Reading) -> Facts:
        """The facts with what the whole view shows of blocks under the same parent, and of what follows them.

        Every record of the view is read for it, so it is for what ``decided_by_holders`` leaves open.
        """
        block = self._ledger.block(stream, reading.chain[0])
        parent = _parent(block, reading) if reading.first else None
        sights = [self._view.of(stream, other, reading) for other in self._view.others(stream, reading)]
        own = self._has_sibling(stream, reading.position, parent, reading)
        # guard: relatives-view, siblings-by-then
        known = own or any(self._has_sibling(sight.stream, sight.before, parent, reading) for sight in sights)
        mine = self._ledger.reconverges(stream, reading.chain, reading.position) if own else _NO_REPEATS
        counts, gap = [mine.blocks], Reason.NONE
        tail_gap = Reason.NONE if mine.complete else Reason.AMBIGUOUS_CHAIN  # guard: relatives-own-complete
        for sight in sights:
            if reading.first and not known:  # guard: siblings-block-0, siblings-known
                gap = gap or self._sibling_gap(sight, parent, reading)  # guard: relatives-sibling-gap
            sure, possible = self._reconverging(sight, stream, parent, reading)
            counts.append(sure)
            if sure != possible.blocks:  # guard: relatives-maybe
                gap = gap or Reason.CLOCK_SKEW
            if not possible.complete:  # guard: relatives-complete
                tail_gap = Reason.AMBIGUOUS_CHAIN
        # guard: relatives-extends, relatives-block-0, relatives-tail
        return msgspec.structs.replace(
            facts,
            siblings=known,
            extends=bool(reading.first) and not known,
            reconverging=max(counts),
            tail_gap=tail_gap or (self._tail_gap(stream, facts, reading) if known else Reason.NONE),
            siblings_gap=gap,
        )

    def _reconverging(
        self, sight: Sight, stream: StreamId, parent: int | None, reading: Reading
    ) -> tuple[int, Repeats]:
        """How much of the chain another worker's siblings surely repeated by the lookup, and may have repeated.

        A record that grows repeats no less, so one without any at its end had none before.
        """
        # guard: siblings-unconfirmed, siblings-next-batch
        end = sight.after if sight.confirmed is None else sight.confirmed
        # Asked first because it costs a fraction: without a sibling there is no chain to compare.
        if not self._has_sibling(sight.stream, end, parent, reading):
            return 0, _NO_REPEATS
        possible = self._ledger.reconverges(stream, reading.chain, end, among=sight.stream)
        if not possible.blocks:
            return 0, possible
        # guard: siblings-surely
        return self._ledger.reconverges(stream, reading.chain, sight.before, among=sight.stream).blocks, possible

    def _has_sibling(self, stream: StreamId, position: int, parent: int | None, reading: Reading) -> bool:
        # Two are enough to tell whether there is another than the block itself.
        under = self._ledger.children(stream, parent, position, limit=2)
        return any(other != reading.chain[0] for other in under)  # guard: relatives-self

    def _sibling_gap(self, sight: Sight, parent: int | None, reading: Reading) -> Reason:
        """Why another worker may have had a sibling that had not surely come by the lookup.

        Holes in its record are the view's.
        """
        if sight.confirmed is None:
            return Reason.EVIDENCE_LATE  # guard: relatives-late
        late = self._ledger.children(sight.stream, parent, sight.confirmed, limit=_LATE_MAX)
        others = [key for key in late if key != reading.chain[0]]  # guard: siblings-itself
        # guard: siblings-many, siblings-later-work
        later = len(late) < _LATE_MAX and all(self._view.of_later_work(sight, Tier.DEVICE, key) for key in others)
        return Reason.NONE if later else Reason.CLOCK_SKEW  # guard: relatives-later

    def _strange(self, stream: StreamId, reading: Reading, block: Block | None) -> Reason:
        """Why a block has no tokens to compare.

        What was missed is computed and stored. Where no store of it is known, that is still on its way, or
        the key is of a family that this stream does not speak.
        """
        if block is None and self._ledger.confirmed_position(stream, reading.latest) is None:
            return Reason.EVIDENCE_LATE  # guard: strange-late
        return Reason.NO_FIRST_MISS_KEY

    def _tail_gap(self, stream: StreamId, facts: Facts, reading: Reading) -> Reason:
        """Why blocks behind the first may repeat a sibling's although none is known to."""
        if not facts.chain_known:  # guard: tail-chain
            return Reason.NO_FIRST_MISS_KEY
        tail = reading.chain[1:]
        known = self._ledger.tokens_known(stream, tail)
        return (
            Reason.NONE
            if known == len(tail)
            else self._strange(stream, reading, self._ledger.block(stream, tail[known]))
        )


def decided_by_holders(facts: Facts) -> bool:
    """Whether a row of the table before those about siblings answers: who else holds or held the block, or its twins."""
    held = bool(facts.holders or facts.holder_gap or facts.lost_elsewhere or facts.record_gap)
    alike = facts.differing_kinds is not None or bool(facts.relatives_gap)
    return held or alike or facts.same_identity


def _parent(block: Block | None, reading: Reading) -> int | None:
    if reading.last_hit_key is not None:
        return reading.last_hit_key
    return None if block is None else block.parent


def _differ(block: Block, twin: Block) -> bool:
    """Whether two blocks with the same tokens in one process differ in extra keys.

    They do unless both published the same ones; an adapter's path is hashed but only its name is
    published, so one name can stand for two adapters.
    """
    # guard: differ-extras, differ-lora
    return block.extras is None or block.extras != twin.extras or "lora" in block.kinds


def _kinds_between(block: Block, twin: Block) -> tuple[str, ...]:
    """Kinds that differ; where both carry the same kinds, their values do."""
    kinds = set(block.kinds) ^ set(twin.kinds)
    return tuple(sorted(kinds or set(block.kinds)))  # guard: kinds-values
