"""Prompts with a known identity: which tokens, and under which extra keys.

A block has three identities. ``own`` is of its own tokens, ``plain`` of all tokens from 0 to its end,
``key`` for those, the extra keys and the hash seed: what an engine publishes. Two prompts share a block when the
keys are equal; what injected salts, adapters and edits, and unlike seeds, do to that is known exactly.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.fleet.traces import Ask, Trace

VOCABULARY = 100_000
FREE_TOKENS = 200_000
"""No trace has token ids from here on: injected edits take them."""


class Extras(NamedTuple):
    """What is hashed beside the tokens."""

    salt: str | None = None
    lora: str | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names that the input contract has for what is set."""
        return tuple(name for name, value in (("cache_salt", self.salt), ("lora", self.lora)) if value is not None)


@dataclass(frozen=True)
class Injection:
    """Shares of requests (0 to 1) that get a salt, an adapter, or one changed token."""

    salted: float = 0.0
    tenants: int = 2
    """How many different salts there are."""
    adapted: float = 0.0
    adapters: int = 2
    edited: float = 0.0
    edit_within: float = 0.5
    """The changed token is in this leading part of the prompt."""


class Prompt(NamedTuple):
    """One request as a worker sees it."""

    number: int
    at: float
    length: int
    output: int
    session: int
    own: tuple[int, ...]
    plain: tuple[int, ...]
    keys: tuple[int, ...]
    extras: Extras
    edited_block: int | None = None
    hash_seed: int = 0
    """Of the process that gave the keys."""

    def parent(self, index: int) -> int | None:
        """The key before a block."""
        return self.keys[index - 1] if index else None


class Identity:
    """Gives out the numbers of token blocks, and finds their tokens again."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._owns: dict[tuple[int, ...], int] = {}
        self._tokens: dict[int, tuple[int, ...]] = {}
        self._plains: dict[tuple[int, int], int] = {}
        self._keys: dict[tuple[int, Extras, int], int] = {}

    def own_of(self, tokens: tuple[int, ...]) -> int:
        """The number of a block's tokens; negative, so that it is no number of a trace."""
        own = self._owns.setdefault(tokens, -1 - len(self._owns))
        self._tokens[own] = tokens
        return own

    def tokens(self, own: int) -> tuple[int, ...]:
        """The tokens of a block: real ones, or for a block of a hash trace ones made from its number."""
        known = self._tokens.get(own)
        if known is not None:
            return known
        start = own * 7919 % VOCABULARY
        return (own % VOCABULARY, own // VOCABULARY, *range(start, start + self.block_size - 2))

    def prompt(
        self, ask: Ask, number: int, own: tuple[int, ...], length: int, extras: Extras, edited: int | None
    ) -> Prompt:
        """The prompt of these blocks."""
        plains: list[int] = []
        keys: list[int] = []
        parent = -1
        for block in own:
            parent = self._plains.setdefault((parent, block), len(self._plains))
            plains.append(parent)
            keys.append(self._key(parent, extras, 0))
        return Prompt(
            number, ask.at, length, ask.output_length, ask.session, own, tuple(plains), tuple(keys), extras, edited
        )

    def continued(self, prompt: Prompt, count: int) -> Prompt:
        """The prompt with this many blocks of an answer that nobody else gets."""
        first = FREE_TOKENS + VOCABULARY + prompt.number * 1_000
        answer = [self.own_of((first + index,) * self.block_size) for index in range(count)]
        ask = Ask(prompt.at, prompt.length, prompt.output, (), prompt.session)
        whole = self.prompt(ask, prompt.number, (*prompt.own, *answer), prompt.length, prompt.extras, None)
        return self.hashed(whole, prompt.hash_seed)

    def hashed(self, prompt: Prompt, seed: int) -> Prompt:
        """The prompt under the keys of a process with this hash seed."""
        if seed == prompt.hash_seed:
            return prompt
        keys = tuple(self._key(plain, prompt.extras, seed) for plain in prompt.plain)
        return prompt._replace(keys=keys, hash_seed=seed)

    def _key(self, plain: int, extras: Extras, seed: int) -> int:
        name = (plain, extras, seed)
        key = self._keys.get(name)
        if key is None:
            hashed = repr((plain, extras)).encode()
            digest = hashlib.blake2b(hashed, digest_size=8, key=seed.to_bytes(8, "big") if seed else b"").digest()
            key = self._keys[name] = int.from_bytes(digest, "big")
        return key


def prompts(trace: Trace, identity: Identity, injection: Injection, seed: int) -> Iterator[Prompt]:
    """The requests of a trace with salts, adapters and edits put in.

    A block of a hash trace becomes one engine block of ``identity.block_size`` tokens, and its incomplete
    last block stays incomplete.
    """
    chance = random.Random(seed)
    for number, ask in enumerate(trace.asks):
        extras = _extras(injection, chance)
        edit = chance.random() < injection.edited
        if ask.tokens:
            own, edited = _token_blocks(ask, identity, injection, chance if edit else None, number)
            yield identity.prompt(ask, number, own, ask.input_length, extras, edited)
            continue
        full, rest = divmod(ask.input_length, trace.block_tokens)
        size = identity.block_size
        tail = min(size - 1, max(1, rest * size // trace.block_tokens)) if rest else 0
        own, edited = ask.blocks[:full], None
        if edit and own:
            edited = int(chance.random() * injection.edit_within * len(own))
            changed = (*identity.tokens(own[edited])[:-1], FREE_TOKENS + number)
            own = (*own[:edited], identity.own_of(changed), *own[edited + 1 :])
        yield identity.prompt(ask, number, own, full * size + tail, extras, edited)


def _extras(injection: Injection, chance: random.Random) -> Extras:
    salt = f"tenant-{chance.randrange(injection.tenants)}" if chance.random() < injection.salted else None
    lora = f"adapter-{chance.randrange(injection.adapters)}" if chance.random() < injection.adapted else None
    return Extras(salt, lora)


def _token_blocks(
    ask: Ask, identity: Identity, injection: Injection, edit: random.Random | None, number: int
) -> tuple[tuple[int, ...], int | None]:
    tokens, size, edited = ask.tokens, identity.block_size, None
    if edit is not None:
        place = int(edit.random() * injection.edit_within * len(tokens))
        tokens = (*tokens[:place], FREE_TOKENS + number, *tokens[place + 1 :])
        edited = place // size
    blocks = range(0, len(tokens) - size + 1, size)
    return tuple(identity.own_of(tokens[begin : begin + size]) for begin in blocks), edited
