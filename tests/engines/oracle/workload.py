"""Seeded random requests: conversations, shared prefixes, edits, identical prompts, equal lengths, salts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

VOCABULARY = range(3, 131)
"""Few, so that a recording stays small: a byte or two a token. Blocks of sixteen differ all the same."""


@dataclass(frozen=True)
class Mix:
    """What a workload is made of. Lengths are in tokens, times in seconds, shares between 0 and 1."""

    requests: int = 200
    rate: float = 25.0
    """New conversations a second."""
    prompt: tuple[int, int] = (40, 900)
    turn: tuple[int, int] = (10, 160)
    answer: tuple[int, int] = (1, 24)
    turns: float = 0.6
    """Chance that an answer is followed by another turn."""
    think: float = 0.35
    """Mean time until it is."""
    shared: float = 0.5
    """Chance that a conversation begins with one of the shared beginnings."""
    beginnings: int = 6
    beginning: tuple[int, int] = (30, 420)
    edit: float = 0.06
    again: float = 0.10
    branch: float = 0.08
    together: float = 0.02
    """Chance that a request is sent twice at once. Of two in one step nothing published says which one missed."""
    salt: float = 0.08
    lengths: tuple[int, ...] = ()
    """Where given, every prompt has one of these lengths."""
    longest: int = 2600


@dataclass
class Draft:
    """A request as it is sent: ``at`` in seconds since the start of the run."""

    at: float
    tokens: list[int]
    answer: int
    salt: str | None = None
    what: str = ""
    conversation: list[int] | None = None


@dataclass
class Workload:
    """Draws requests; what follows an answer is drawn when the answer is there."""

    mix: Mix
    rng: random.Random
    past: list[list[int]] = field(default_factory=list)
    drawn: int = 0

    def __post_init__(self) -> None:
        self._beginnings = [self._tokens(self.rng.randint(*self.mix.beginning)) for _ in range(self.mix.beginnings)]

    def opening(self) -> list[Draft]:
        """First requests of all conversations, in order of time."""
        drafts: list[Draft] = []
        at = 0.0
        share = 1.0 / (1.0 + self.mix.turns / (1.0 - min(self.mix.turns, 0.8)) * 0.7)
        while len(drafts) < max(1, int(self.mix.requests * share)):
            at += self.rng.expovariate(self.mix.rate)
            drafts += self._sent(at, self._first())
        return drafts

    def following(self, at: float, draft: Draft, answer: list[int]) -> list[Draft]:
        """What is sent after an answer came at ``at``."""
        if self.drawn >= self.mix.requests or self.rng.random() > self.mix.turns:
            return []
        tokens = [*draft.tokens, *answer, *self._tokens(self.rng.randint(*self.mix.turn))]
        what = "turn"
        if self.rng.random() < self.mix.edit:
            tokens, what = self._edited(tokens), "turn-edit"
        if len(tokens) > self.mix.longest:
            return []
        return self._sent(at + self.rng.expovariate(1 / self.mix.think), (what, tokens, draft.salt))

    def _first(self) -> tuple[str, list[int], str | None]:
        rng, mix = self.rng, self.mix
        salt = rng.choice(("a", "b")) if rng.random() < mix.salt else None
        kind = rng.random()
        if self.past and kind < mix.again:
            return "again", list(rng.choice(self.past[-40:])), salt
        if self.past and kind < mix.again + mix.edit:
            return "edit", self._edited(list(rng.choice(self.past[-40:]))), salt
        if self.past and kind < mix.again + mix.edit + mix.branch:
            base = rng.choice(self.past[-40:])
            return "branch", [*base[: rng.randint(1, len(base))], *self._tokens(rng.randint(*mix.turn))], salt
        if rng.random() < mix.shared:
            beginning = rng.choice(self._beginnings)
            return "shared", [*beginning, *self._tokens(rng.randint(*mix.prompt))], salt
        return "new", self._tokens(rng.randint(*mix.prompt)), salt

    def _sent(self, at: float, drawn: tuple[str, list[int], str | None]) -> list[Draft]:
        what, tokens, salt = drawn
        if self.mix.lengths:
            tokens = self._cut(tokens)
        self.past.append(tokens)
        sent = [Draft(at, tokens, self.rng.randint(*self.mix.answer), salt, what)]
        if self.rng.random() < self.mix.together:
            sent.append(
                Draft(at + self.rng.uniform(0, 0.02), tokens, self.rng.randint(*self.mix.answer), salt, "together")
            )
        self.drawn += len(sent)
        return sent

    def _cut(self, tokens: list[int]) -> list[int]:
        longer = [length for length in self.mix.lengths if length >= len(tokens)] or [max(self.mix.lengths)]
        tokens = tokens[: longer[0]]
        return [*tokens, *self._tokens(longer[0] - len(tokens))]

    def _edited(self, tokens: list[int]) -> list[int]:
        place = self.rng.randrange(len(tokens))
        tokens = list(tokens)
        other = tokens[place] - VOCABULARY[0] + self.rng.randint(1, len(VOCABULARY) - 1)
        tokens[place] = VOCABULARY[other % len(VOCABULARY)]
        return tokens

    def _tokens(self, count: int) -> list[int]:
        return [self.rng.choice(VOCABULARY) for _ in range(count)]
