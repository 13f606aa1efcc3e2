"""Known-good templates, as a miss may be compared with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from .history import Block, StreamId


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """How the first missed block compares with the known-good templates that its prompt begins like."""

    name: str
    """Of the template."""
    version: str
    """Of the template."""
    differs: bool
    """Whether its tokens are other ones than the template's."""
    again: int | None = None
    """How many later blocks have the template's tokens at their index again; ``None`` where that is not known."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a prompt around its first missed block."""

    stream: StreamId
    position: int
    """Where the lookup stood among the stream's events."""
    model: str | None
    block_size: int
    above: int | None
    """Digest of all tokens above the block; ``None`` for block 0."""
    block: Block
    tail: Callable[[int], Sequence[int | None]]
    """Digests of the own tokens of so many of the blocks behind it, or of all where there are fewer; ``None`` for one
    that is not known."""
    tail_known: bool
    """Whether the blocks behind it are all that could be matched."""


class Templates(Protocol):
    """What attribution may ask of the known-good templates."""

    def compare(self, prompt: Prompt) -> Likeness | None:
        """Compare a prompt; ``None`` where it is not known to begin like any of them, or ends inside none."""
        ...
