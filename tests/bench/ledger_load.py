"""KV events as vLLM publishes them, and engines that publish them, for the benchmark of the ledger."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection

import msgspec
import numpy as np

BLOCK_TOKENS = 16
BLOCKS = 64
"""Blocks that one event stores."""

CHAIN_EVENTS = 4
"""Events that one prompt stores: 256 blocks."""

FORMS = ("integers", "digests")
"""vLLM's hashes on the wire: 64-bit integers, or all 32 bytes."""

MESSAGES_A_SEND = 256

NANOS = 1_000_000_000
BEGIN = 1_700_000_000 * NANOS

_encode = msgspec.msgpack.Encoder().encode


class Words:
    """Token ids, spread as text spreads them over a vocabulary of 151 thousand, and hashes of blocks."""

    def __init__(self, seed: int, form: str) -> None:
        self._chance = np.random.default_rng(seed)
        self._vocabulary = np.minimum(151_000, 20 * (1 + self._chance.pareto(0.4, 1 << 20))).astype(np.int64)
        self._form = form

    def tokens(self, blocks: int) -> list[int]:
        """The token ids of some blocks."""
        at = int(self._chance.integers(0, self._vocabulary.size - blocks * BLOCK_TOKENS))
        # A slice alone would come up again and be known.
        drawn = self._vocabulary[at : at + blocks * BLOCK_TOKENS].copy()
        drawn[::BLOCK_TOKENS] = self._chance.integers(0, 151_000, blocks)
        tokens: list[int] = drawn.tolist()
        return tokens

    def keys(self, blocks: int) -> list[int]:
        """The keys of some blocks: of their hashes the last eight bytes."""
        keys: list[int] = self._chance.integers(0, 1 << 64, blocks, np.uint64).tolist()
        return keys

    def hashes(self, keys: list[int]) -> list[int] | list[bytes]:
        """Their hashes as they are on the wire."""
        return keys if self._form == "integers" else [key.to_bytes(8, "big") * 4 for key in keys]

    def store(self, keys: list[int], tokens: list[int], parent: int | None, salt: str | None = None) -> msgspec.Raw:
        """vLLM 0.33's event of a store, encoded."""
        blocks = len(keys)
        extras: list[object] = [None] * blocks
        if salt is not None and parent is None:
            extras[0] = [salt]
        return msgspec.Raw(
            _encode(
                {
                    "type": "BlockStored",
                    "block_hashes": self.hashes(keys),
                    "parent_block_hash": None if parent is None else self.hashes([parent])[0],
                    "token_ids": tokens,
                    "block_size": BLOCK_TOKENS,
                    "lora_id": None,
                    "medium": "GPU",
                    "lora_name": None,
                    "extra_keys": extras,
                    "group_idx": 0,
                    "kv_cache_spec_kind": "full_attention",
                }
            )
        )

    def removals(self, keys: list[int]) -> list[msgspec.Raw]:
        """One event a block, as vLLM's block pool evicts them."""
        head = {"type": "BlockRemoved", "block_hashes": None, "medium": "GPU", "group_idx": 0}
        return [msgspec.Raw(_encode(head | {"block_hashes": [one]})) for one in self.hashes(keys)]


def payload(events: list[msgspec.Raw], unix_nanos: int) -> bytes:
    """A batch of events."""
    return _encode([unix_nanos / NANOS, events, 0])


# --- one stream of batches of one shape ----------------------------------------------------------------

SHAPES = {"1 x 64": (64, 1), "4 x 64": (64, 4), "1 x 1": (1, 1), "1 x 4": (4, 1)}
"""Batches that store: blocks an event, and events a batch."""

WITH_REMOVALS = "4 x (64 - 64)"
"""Batches as a full cache publishes them: 64 removals before each store of 64."""

GROWING = "16 x (1 - 1)"
"""Batches as an engine that decodes publishes them: 16 of its requests each fill a block, and for each one is evicted."""

RUNNING, PROMPT_BLOCKS, ANSWER_BLOCKS = 64, 8, 64
"""Requests that run at once, and the blocks of each: when it ends another one begins, and its blocks leave, the last first."""


@dataclass
class Running:
    """A request: its blocks, and how many its answer is to have yet."""

    keys: list[int]
    left: int


def growing(form: str, blocks: int) -> list[bytes]:
    """Batches that store so many blocks of answers, and the prompts to them."""
    words = Words(7, form)

    def begun(left: int, batch: list[msgspec.Raw]) -> Running:
        keys = words.keys(PROMPT_BLOCKS)
        batch.append(words.store(keys, words.tokens(PROMPT_BLOCKS), None))
        return Running(keys, left)

    found: list[bytes] = []
    leaving: list[int] = []
    batch: list[msgspec.Raw] = []
    running = deque(begun(1 + number * ANSWER_BLOCKS // RUNNING, batch) for number in range(RUNNING))
    while len(found) * 16 < blocks:
        for _ in range(16):
            request = running.popleft()
            if not request.left:
                leaving.extend(request.keys)
                request = begun(ANSWER_BLOCKS, batch)
            (key,) = words.keys(1)
            if leaving:
                batch.extend(words.removals([leaving.pop()]))
            batch.append(words.store([key], words.tokens(1), request.keys[-1]))
            request.keys.append(key)
            request.left -= 1
            running.append(request)
        found.append(payload(batch, BEGIN + len(found) * 1_000_000))
        batch = []
    return found


def batches(shape: str, form: str, blocks: int) -> list[bytes]:
    """Batches that store so many blocks in prompts of 256, each from its root on."""
    if shape == GROWING:
        return growing(form, blocks)
    words = Words(7, form)
    an_event, events = SHAPES.get(shape, (BLOCKS, 4))
    found: list[bytes] = []
    parent: int | None = None
    depth = stored = 0
    held: deque[list[int]] = deque()
    leaving: list[list[int]] = []
    while stored < blocks:
        batch: list[msgspec.Raw] = []
        for _ in range(events):
            keys = words.keys(an_event)
            if shape == WITH_REMOVALS:
                held.append(keys)
                if len(held) > 8 * CHAIN_EVENTS and not leaving:
                    # A prompt leaves from its end on.
                    leaving = [held.popleft()[::-1] for _ in range(CHAIN_EVENTS)]
                if leaving:
                    batch.extend(words.removals(leaving.pop()))
            batch.append(words.store(keys, words.tokens(an_event), parent))
            depth += an_event
            parent, depth = (None, 0) if depth >= CHAIN_EVENTS * BLOCKS else (keys[-1], depth)
            stored += an_event
        found.append(payload(batch, BEGIN + len(found) * 1_000_000))
    return found


# --- a fleet over hours --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """A prompt's chain: its keys, and its events as they are on the wire."""

    keys: list[int]
    parent: int | None
    events: list[msgspec.Raw]


@dataclass
class Engine:
    """One publisher with a full cache, evicting whole prompts, the oldest first and from their ends on."""

    number: int
    seq: int = 0
    held: deque[Prompt] = field(default_factory=deque)
    resident: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Message:
    """One batch that an engine published."""

    engine: int
    seq: int
    unix_nanos: int
    content: bytes
    operations: int
    prompt: Prompt | None
    """What is asked about later; ``None`` where nothing is."""


class Fleet:
    """Engines that serve prompts out of a pool that changes: half of what they store was stored before.

    Some prompts continue a common system prompt, so that they have siblings; some repeat another's
    tokens under another salt.
    """

    def __init__(self, engines: int, prompts_held: int, form: str, step_nanos: int) -> None:
        self._words = Words(11, form)
        self._chance = random.Random(13)
        self.engines = [Engine(number) for number in range(engines)]
        self._held = prompts_held
        self._pool: list[Prompt] = []
        self._pool_size = max(2, engines // 4) * prompts_held
        self._step = step_nanos
        self._now = BEGIN
        self._system = self._made(None)
        self._tokens: list[int] = []
        for engine in self.engines:
            engine.held.append(self._system)

    def _made(self, parent: int | None, *, salted: bool = False) -> Prompt:
        words = self._words
        keys = words.keys(BLOCKS * CHAIN_EVENTS)
        if not salted:
            self._tokens = words.tokens(len(keys))
        events = []
        above = parent
        for begin in range(0, len(keys), BLOCKS):
            end = begin + BLOCKS
            tokens = self._tokens[begin * BLOCK_TOKENS : end * BLOCK_TOKENS]
            events.append(words.store(keys[begin:end], tokens, above, f"salt {keys[0]}" if salted else None))
            above = keys[end - 1]
        return Prompt(keys, parent, events)

    def _next(self, engine: Engine) -> Prompt:
        draw = self._chance.random()
        if self._pool and draw < 0.5:
            found = self._chance.choice(self._pool)
            if found.keys[0] not in engine.resident:
                return found
        draw = self._chance.random()
        if draw < 0.05 and self._pool:
            made = self._made(None, salted=True)
        else:
            made = self._made(self._system.keys[-1] if draw < 0.5 else None)
        if len(self._pool) < self._pool_size:
            self._pool.append(made)
        else:
            self._pool[self._chance.randrange(self._pool_size)] = made
        return made

    def messages(self) -> Iterator[Message]:
        """One batch after the other, without end: the removals and the one store of a step."""
        for engine in self.engines:
            for event in self._system.events:
                yield self._message(engine, [event], BLOCKS, self._system)
        while True:
            for engine in self.engines:
                prompt = self._next(engine)
                evicted: list[int] = []
                if len(engine.held) > self._held:
                    # Of all prompts the system prompt is used most, so it stays.
                    engine.held.rotate(-1)
                    old = engine.held.popleft()
                    engine.held.rotate(1)
                    engine.resident.discard(old.keys[0])
                    evicted = old.keys[::-1]
                engine.held.append(prompt)
                engine.resident.add(prompt.keys[0])
                for index, event in enumerate(prompt.events):
                    removed = evicted[index * BLOCKS : (index + 1) * BLOCKS]
                    events = [*self._words.removals(removed), event]
                    yield self._message(engine, events, BLOCKS + len(removed), prompt)

    def _message(self, engine: Engine, events: list[msgspec.Raw], operations: int, prompt: Prompt) -> Message:
        self._now += self._step
        content = payload(events, self._now)
        message = Message(engine.number, engine.seq, self._now, content, operations, prompt)
        engine.seq += 1
        return message


@dataclass(frozen=True)
class Published:
    """What a fleet publishes: engines, prompts that each holds, nanoseconds between batches, operations, and lookups."""

    engines: int
    held: int
    step_nanos: int
    operations: int
    lookups: int

    def messages(self) -> Iterator[Message]:
        """The batches, made in a process of their own: what a fleet remembers is no burden of the ledger's."""
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        publisher = context.Process(target=self._send, args=(theirs,), daemon=True)
        publisher.start()
        theirs.close()
        while messages := ours.recv():
            yield from messages
        publisher.join()

    def _send(self, connection: Connection) -> None:
        chance, sent, some = random.Random(5), 0, list[Message]()
        for message in Fleet(self.engines, self.held, "digests", self.step_nanos).messages():
            asked = chance.random() < self.lookups * message.operations / self.operations
            prompt = message.prompt
            assert prompt is not None, "a fleet's message is a prompt's"
            some.append(replace(message, prompt=replace(prompt, events=[]) if asked else None))
            sent += message.operations
            if len(some) == MESSAGES_A_SEND:
                connection.send(some)
                some = []
            if sent >= self.operations:
                break
        connection.send(some)
        connection.send([])
