"""Known-good templates, compared with prompts of which only digests are known.

A reference holds digests of its blocks' tokens under the operator's key, the ledger digests of the same tokens under
a key of its own. Which stands for which is learned when a block of a reference is stored: the tokens are there for
a moment then. A prompt that leaves a template at a block was begun with the blocks in front of it, so those are
known as soon as the record has seen them stored; until then a reference says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from ..ledger.decode.builder import Witness
from ..ledger.events import Keys
from ..ledger.hashing import Digester
from ..model import Likeness, Prompt, StreamId
from ..reference import Reference, own_digest

Scope: TypeAlias = Literal["begun", "model"]
"""Which prompts are held to a reference of their model."""


class LearnedTemplates:
    """Templates as the ledger would digest them, as far as that is known."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._references: Mapping[Reference, Mapping[StreamId, int]] = {}
        self._key = b""
        self._scope: Scope = "begun"
        self._wanted: dict[int, set[str]] = {}
        self._sought: dict[int, int] = {}
        self.learned = digester.translated

    def adopt(self, references: Sequence[Reference], key: bytes, ends: Mapping[StreamId, int], scope: Scope) -> None:
        """Compare with these from now on; ``ends`` is how many events each stream has had.

        One that stays is known for as long as it was.
        """
        known_since = self._references if key == self._key else {}
        self._references = {one: known_since.get(one, ends) for one in references}
        self._key, self._scope = key, scope
        self._wanted, self._sought = {}, {}
        for one in references:
            self._wanted.setdefault(one.block_size, set()).update(one.own)
            self._sought[one.block_size] = max(len(one.own), self._sought.get(one.block_size, 0))
        known = set().union(*self._wanted.values())
        for digest in self.learned.keys() - known:
            del self.learned[digest]

    @property
    def witness(self) -> Witness | None:
        """Who wants to see the tokens of stores; nobody, once there is nothing left to learn."""
        return self._see if any(digests - self.learned.keys() for digests in self._wanted.values()) else None

    def _see(self, tokens: Keys, block_size: int, own: Keys) -> None:
        """Learn from one store: it goes on only where its first block is a template's, to keep others cheap."""
        wanted = self._wanted.get(block_size)
        if wanted is None:
            return
        if own_digest(_packed(tokens[:block_size]), self._key) not in wanted:
            return
        for at, digest in enumerate(own[: self._sought[block_size]].tolist()):
            name = own_digest(_packed(tokens[block_size * at : block_size * (at + 1)]), self._key)
            if name in wanted:
                self.learned[name] = digest

    def compare(self, prompt: Prompt) -> Likeness | None:
        """Compare a prompt; where one template has its tokens, those of others do not matter."""
        found = [one for reference in self._references if (one := self._like(reference, prompt)) is not None]
        return min(found, key=lambda one: (one.differs, -(one.again or 0)), default=None)

    def _like(self, reference: Reference, prompt: Prompt) -> Likeness | None:
        block = prompt.block
        if not self._is_held(reference, prompt) or block.tokens is None:
            return None
        expected = self.learned.get(reference.own[block.depth])
        # A block that is stored after the reference was taken up is known to be another one where it was not learned.
        if expected is None and (
            not block.depth or prompt.position < self._references[reference].get(prompt.stream, 0)
        ):
            return None
        if expected == block.tokens:
            return Likeness(name=reference.name, version=reference.version, differs=False)
        again = self._again(reference, prompt)
        return Likeness(name=reference.name, version=reference.version, differs=True, again=again)

    def _is_held(self, reference: Reference, prompt: Prompt) -> bool:
        """Whether a prompt, as far as its first missed block, is known to be one of a reference's."""
        depth = prompt.block.depth
        if reference.block_size != prompt.block_size or depth >= len(reference.own):
            return False
        if not depth:
            return self._scope == "model" and reference.model in {None, prompt.model}
        if prompt.model is not None and reference.model not in {None, prompt.model}:
            return False
        above = [self.learned.get(digest) for digest in reference.own[:depth]]
        known = [own for own in above if own is not None]
        if len(known) < depth:
            return False
        return int(self._digester.prefix_digests(np.array(known, np.uint64), 0, 0)[-1]) == prompt.above

    def _again(self, reference: Reference, prompt: Prompt) -> int | None:
        expected = [self.learned.get(digest) for digest in reference.own[prompt.block.depth + 1 :]]
        found = prompt.tail(len(expected))
        pairs = list(zip(expected, found, strict=False))
        if not prompt.tail_known or any(one is None or other is None for one, other in pairs):
            return None
        return sum(one == other for one, other in pairs)


def _packed(tokens: Keys) -> bytes:
    return tokens.astype("<u4").tobytes()
