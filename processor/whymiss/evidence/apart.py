"""What keeps a prompt's blocks from those of others with the same tokens: kinds of extra keys, and an adapter's name.

A salt has a kind and never a value. Images and embeddings are content and keep nobody apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model import Block, Facts, LedgerView, Lookup, StreamId
from .reading import Reading

CONTENT = frozenset({"mm", "prompt_embeds"})


def said_apart(lookup: Lookup | None) -> tuple[str, ...] | None:
    """The kinds that a lookup names, if it names all of its prompt's."""
    if lookup is None or lookup.extra_key_kinds is None or lookup.kinds_of_block:
        return None
    return _isolating(lookup.extra_key_kinds)


def recorded_apart(facts: Facts, ledger: LedgerView, stream: StreamId, reading: Reading) -> Facts:
    """The facts with what the record has of the prompt: its first missed block, else the last one that was hit.

    Who a block belongs to does not change, so this may be asked whenever it was stored.
    """
    wanted = (*reading.chain[:1], *([] if reading.last_hit_key is None else [reading.last_hit_key]))
    found = [block for key in wanted if (block := ledger.block(stream, key)) is not None]
    return msgspec.structs.replace(
        facts,
        kept_apart_by=next((one for block in found if (one := _of(block)) is not None), facts.kept_apart_by),
        adapter=next((block.adapter for block in found if block.adapter is not None), None),
    )


def _of(block: Block) -> tuple[str, ...] | None:
    """The kinds of a block from block 0 on; ``None`` where a store on the way to it did not publish its extra keys."""
    return None if block.extras is None else _isolating(block.kinds)


def _isolating(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(kinds) - CONTENT))
