"""Misses inside the expected prefix of a known-good template."""

from __future__ import annotations

from ...model import Likeness, LookupEvidence, Prompt, Templates
from ..missed import Missed


def compared(missed: Missed, asked: LookupEvidence, templates: Templates, model: str | None) -> Likeness | None:
    """How a first missed block that the worker never held compares; ``None`` where it cannot be compared."""
    prompt = _prompt(missed, asked, model)
    return None if prompt is None else templates.compare(prompt)


def _prompt(missed: Missed, asked: LookupEvidence, model: str | None) -> Prompt | None:
    record, block, chain = missed.record, missed.block, missed.chain
    if block is None or block.tokens is None or asked.block_size is None:  # guard: likeness-size, likeness-tokens
        return None
    parent = asked.last_hit_key if asked.last_hit_key is not None else block.parent  # guard: likeness-parent
    before = None if parent is None or not block.depth else record.block(parent)  # guard: likeness-first
    if block.depth and (before is None or before.prefix is None):  # guard: likeness-before, likeness-before-known
        return None

    def own_tokens(key: int) -> int | None:
        behind = record.block(key)
        return None if behind is None else behind.tokens

    return Prompt(
        stream=missed.stream,
        position=missed.reading.position,
        model=model,
        block_size=asked.block_size,
        above=None if before is None else before.prefix,
        block=block,
        tail=lambda count: [own_tokens(key) for key in chain[1 : 1 + count]],
        tail_known=asked.chain_known,
    )
