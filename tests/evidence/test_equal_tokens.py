"""Requests that are remembered, and blocks that look like another's."""

from __future__ import annotations

from whymiss.evidence.sections.relations import kinds_between, may_differ
from whymiss.model import Block

# --- blocks with the same tokens ---------------------------------------------------------------------


def block(extras: int | None = None, *kinds: str) -> Block:
    return Block(key=1, parent=None, depth=0, extras=extras, kinds=kinds)


def test_only_published_and_equal_extra_keys_are_the_same_identity() -> None:
    assert not may_differ(block(7, "cache_salt"), block(7, "cache_salt"))
    assert may_differ(block(7, "cache_salt"), block(8, "cache_salt"))
    assert may_differ(block(None), block(None)), "what is not published may differ"


def test_one_adapters_name_can_stand_for_two_adapters() -> None:
    assert may_differ(block(7, "lora"), block(7, "lora"))


def test_the_kinds_that_differ_are_named_or_else_all_whose_values_may() -> None:
    assert kinds_between(block(1, "lora", "cache_salt"), block(2, "lora")) == ("cache_salt",)
    assert kinds_between(block(1, "cache_salt"), block(2, "cache_salt")) == ("cache_salt",)
    assert kinds_between(block(1, "mm"), block(2, "lora")) == ("lora", "mm")
