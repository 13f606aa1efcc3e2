"""Blocks that are like the missed one: the same tokens under other keys, the same parent, the same tail."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Block, Facts, LedgerView, Reason, StreamId
from .reading import Reading


class Relatives:
    """Compares the first missed block with what the serving worker's record knows."""

    def __init__(self, ledger: LedgerView) -> None:
        self._ledger = ledger

    def add(self, facts: Facts, stream: StreamId, reading: Reading, chain: Sequence[int]) -> Facts:
        """The facts with what is known of blocks like the first of ``chain``."""
        key = chain[0]
        block = self._ledger.block(stream, key)
        if block is None or block.prefix is None:
            return msgspec.structs.replace(facts, relatives_gap=self._strange(stream, reading, block))
        parent = reading.last_hit_key if reading.last_hit_key is not None else block.parent
        if reading.first and (parent is None or self._ledger.block(stream, parent) is None):
            # Its parent was hit, so it had been stored; before the record began.
            return msgspec.structs.replace(facts, relatives_gap=Reason.HISTORY_EXPIRED)
        # Two are enough to tell whether there is another than the block itself.
        under = self._ledger.children(stream, parent if reading.first else None, reading.position, limit=2)
        siblings = [other for other in under if other != key]
        twins = self._ledger.same_tokens(stream, key, reading.position)
        different = [_kinds_between(block, twin) for twin in twins if _differ(block, twin)]
        reconverging = self._ledger.reconverges(stream, reading.chain, reading.position) if siblings else 0
        return msgspec.structs.replace(
            facts,
            siblings=bool(siblings),
            extends=bool(reading.first) and not siblings,
            differing_kinds=min(different, key=lambda kinds: (len(kinds), kinds)) if different else None,
            # One process gives one key to one identity: what differs here was not published.
            relatives_gap=Reason.AMBIGUOUS_CHAIN if twins and not different else Reason.NONE,
            same_tokens_leading=(self._ledger.same_tokens_leading(stream, chain, reading.position) if twins else None),
            reconverging=reconverging,
            tail_gap=self._tail_gap(stream, facts, reading) if siblings else Reason.NONE,
        )

    def _strange(self, stream: StreamId, reading: Reading, block: Block | None) -> Reason:
        """Why a block has no tokens to compare.

        What was missed is computed and stored. Where no store of it is known, that is still on its way, or
        the key is of a family that this stream does not speak.
        """
        if block is None and self._ledger.confirmed_position(stream, reading.latest) is None:
            return Reason.EVIDENCE_LATE
        return Reason.NO_FIRST_MISS_KEY

    def _tail_gap(self, stream: StreamId, facts: Facts, reading: Reading) -> Reason:
        """Why blocks behind the first may repeat a sibling's although none is known to."""
        if not facts.chain_known:
            return Reason.NO_FIRST_MISS_KEY
        tail = reading.chain[1:]
        known = self._ledger.tokens_known(stream, tail)
        return (
            Reason.NONE
            if known == len(tail)
            else self._strange(stream, reading, self._ledger.block(stream, tail[known]))
        )


def _differ(block: Block, twin: Block) -> bool:
    """Whether two blocks with the same tokens in one process differ in extra keys.

    They do unless both published the same ones; an adapter's path is hashed but only its name is
    published, so one name can stand for two adapters.
    """
    return block.extras is None or block.extras != twin.extras or "lora" in block.kinds


def _kinds_between(block: Block, twin: Block) -> tuple[str, ...]:
    """Kinds that differ; where both carry the same kinds, their values do."""
    kinds = set(block.kinds) ^ set(twin.kinds)
    return tuple(sorted(kinds or set(block.kinds)))
