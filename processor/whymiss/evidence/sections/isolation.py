"""What keeps a prompt's blocks from those of others with the same tokens: kinds of extra keys, and an adapter's name.

A salt has a kind and never a value. Images and embeddings are content and keep nobody apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model import Block, IsolationEvidence, Lookup, StreamView

CONTENT = frozenset({"mm", "prompt_embeds"})


def told_isolation(lookup: Lookup | None) -> IsolationEvidence:
    """What the request's own lookup says."""
    if lookup is None:
        return IsolationEvidence()
    whole = lookup.extra_key_kinds is not None and not lookup.kinds_of_block
    kinds = lookup.extra_key_kinds or ()
    return IsolationEvidence(extra_key_kinds=kinds, kept_apart_by=_isolating(kinds) if whole else None)


def recorded_isolation(
    told: IsolationEvidence, record: StreamView, first: Block | None, last_hit_key: int | None
) -> IsolationEvidence:
    """What the record has of the prompt beside that: its first missed block, else the last one that was hit.

    Who a block belongs to does not change, so this may be asked whenever it was stored.
    """
    hit = None if last_hit_key is None else record.block(last_hit_key)
    kept, adapter = told.kept_apart_by, None
    for block in (hit, first):
        if block is not None:
            # None where a store on the way to it did not publish its extra keys.
            kept = kept if block.extras is None else _isolating(block.kinds)
            adapter = adapter if block.adapter is None else block.adapter
    kinds = told.extra_key_kinds if first is None else first.kinds
    return IsolationEvidence(extra_key_kinds=kinds, kept_apart_by=kept, adapter=adapter)


def _isolating(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(kinds) - CONTENT))
