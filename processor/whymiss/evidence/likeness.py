"""Misses inside the expected prefix of a known-good template."""

from __future__ import annotations

import msgspec

from ..model import Facts, LedgerView, Prompt, Residency, StreamId, Templates
from .reading import Reading
from .record import matchable_chain


class Comparer:
    """Compares first missed blocks that nobody had stored with known-good templates."""

    def __init__(self, ledger: LedgerView, templates: Templates) -> None:
        self._ledger = ledger
        self._templates = templates

    def add(self, facts: Facts, reading: Reading, model: str | None) -> Facts:
        """The facts with how the block compares, where it can be compared."""
        stream, never = facts.stream, facts.here is not None and facts.here.state is Residency.NEVER_SEEN
        # guard: likeness-never, likeness-gap, likeness-chain
        if stream is None or not never or facts.relatives_gap or not reading.chain:
            return facts
        prompt = self._prompt(facts, stream, reading, model)
        return facts if prompt is None else msgspec.structs.replace(facts, likeness=self._templates.compare(prompt))

    def _prompt(self, facts: Facts, stream: StreamId, reading: Reading, model: str | None) -> Prompt | None:
        chain, _ = matchable_chain(facts, reading)  # guard: likeness-matchable
        block = self._ledger.block(stream, chain[0])
        if block is None or block.tokens is None or facts.block_size is None:  # guard: likeness-size, likeness-tokens
            return None
        parent = facts.last_hit_key if facts.last_hit_key is not None else block.parent  # guard: likeness-parent
        # guard: likeness-first
        before = None if parent is None or not block.depth else self._ledger.block(stream, parent)
        if block.depth and (before is None or before.prefix is None):  # guard: likeness-before, likeness-before-known
            return None
        return Prompt(
            stream=stream,
            position=reading.position,
            model=model,
            block_size=facts.block_size,
            above=None if before is None else before.prefix,
            block=block,
            tail=lambda count: [self._own_tokens(stream, key) for key in chain[1 : 1 + count]],
            tail_known=facts.chain_known,
        )

    def _own_tokens(self, stream: StreamId, key: int) -> int | None:
        block = self._ledger.block(stream, key)
        return None if block is None else block.tokens
