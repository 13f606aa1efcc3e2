"""Which misses are compared with known-good templates, and with what of their prompts."""

from __future__ import annotations

from typing import Any

from tests.evidence.told import LOOKED, ME, Told, asked, reading
from whymiss.evidence.sections.template import compared
from whymiss.model import Block, Grade, Likeness, LookupEvidence, Prompt

FOUND = Likeness(name="t", version="v1", differs=True)


class Asked:
    """Templates that remember the prompts that they are asked to compare."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def compare(self, prompt: Prompt) -> Likeness | None:
        self.prompts.append(prompt)
        return FOUND


def block(key: int, depth: int, *, tokens: int | None = None, prefix: int | None = None) -> Block:
    return Block(key=key, parent=key - 1 if depth else None, depth=depth, tokens=tokens, prefix=prefix)


# Blocks 1 to 4 of a prompt; 99 is the parent that the engine says was hit last.
BLOCKS = {(ME, key): block(key, depth, tokens=10 + key, prefix=20 + key) for depth, key in enumerate((1, 2, 3, 4))} | {
    (ME, 99): block(99, 0, tokens=109, prefix=119)
}


def prompted(*chain: int, record: Told | None = None, prompt_tokens: int = 65, **changes: Any) -> Prompt | None:
    """What is asked of a template for a lookup that missed a chain; ``None`` where nothing is."""
    templates = Asked()
    missed = asked(record or Told(blocks=BLOCKS), reading(*chain), prompt_tokens)
    lookup = LookupEvidence(**{"grade": Grade.DIRECT, "block_size": 16, "chain_known": True, **changes})
    said = compared(missed, lookup, templates, "m")
    assert said == (FOUND if templates.prompts else None)
    return templates.prompts[0] if templates.prompts else None


def test_a_first_block_that_nobody_had_stored_is_prompted() -> None:
    prompt = prompted(1, 2, 3)
    assert prompt is not None
    assert (prompt.block.key, prompt.above, prompt.model, prompt.position) == (1, None, "m", LOOKED)
    assert (prompt.block_size, prompt.tail_known) == (16, True)
    assert [list(prompt.tail(count)) for count in (0, 1, 9)] == [[], [12], [12, 13]]


def test_without_a_key_or_its_tokens_there_is_nothing_to_compare() -> None:
    assert prompted(1, 2, 3, block_size=None) is None
    assert prompted(1, record=Told()) is None
    assert prompted(1, record=Told(blocks={(ME, 1): block(1, 0)})) is None


def test_what_is_above_a_block_is_what_was_hit_last_or_else_its_parent() -> None:
    by_parent, by_hit = prompted(3, 4), prompted(3, 4, last_hit_key=99)
    assert by_parent is not None
    assert by_hit is not None
    assert (by_parent.above, by_hit.above) == (22, 119)
    # At the beginning there is nothing above, whatever an engine says.
    first = prompted(1, 2, last_hit_key=99)
    assert first is not None
    assert first.above is None


def test_a_later_block_under_a_parent_that_is_not_known_is_not_prompted() -> None:
    orphan = {key: one for key, one in BLOCKS.items() if key != (ME, 2)}
    assert prompted(3, 4, record=Told(blocks=orphan)) is None
    assert prompted(3, 4, record=Told(blocks={**BLOCKS, (ME, 2): block(2, 1, tokens=12)})) is None


def test_of_a_tail_the_unknown_tokens_are_told_apart_and_the_last_block_is_left_out() -> None:
    known = {key: one for key, one in BLOCKS.items() if key != (ME, 2)}
    prompt = prompted(1, 2, 3, 4, record=Told(blocks=known), prompt_tokens=64)
    assert prompt is not None
    assert list(prompt.tail(9)) == [None, 13]
