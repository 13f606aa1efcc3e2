"""Batches of a made-up publisher: blocks in a small tree of prompts, so that the same ones come up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from hypothesis import strategies as st

from whymiss.ledger.events import Cleared, Event, ExtraKey, KvBatch, Removed, Singles, Stored
from whymiss.model import SECOND, Tier

SALTS: dict[int, tuple[ExtraKey, ...]] = {0: (), 1: (("cache_salt", 71),), 2: (("lora", 72),)}
MM: tuple[ExtraKey, ...] = (("mm", 73),)


@dataclass(frozen=True)
class Prompt:
    """Token choices by depth, a salt, and whether its last block carries an image."""

    tokens: tuple[int, ...]
    salt: int = 0

    def extras(self, depth: int) -> tuple[ExtraKey, ...]:
        own = SALTS[self.salt] if self.salt == 2 or depth == 0 else ()
        return own + (MM if self.tokens[depth] == 2 else ())

    def key(self, depth: int) -> int:
        path = (self.tokens[: depth + 1], self.salt)
        # Wide and stable, so that the columns are sorted as real hashes are.
        return (hash(path) * 0x9E3779B97F4A7C15) % (1 << 64)

    def own(self, depth: int) -> int:
        return 1000 + self.tokens[depth]


prompts = st.builds(
    Prompt, st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), st.sampled_from([0, 0, 0, 1, 2])
)
GROUPS = (("full_attention", 0), ("sliding_window", 1))


@st.composite
def stored(draw: st.DrawFn, index: int) -> Stored:
    prompt = draw(prompts)
    begin = draw(st.integers(0, len(prompt.tokens) - 1)) if draw(st.booleans()) else 0
    depths = range(begin, draw(st.integers(begin + 1, len(prompt.tokens))))
    kind, group = draw(st.sampled_from([GROUPS[0], GROUPS[0], GROUPS[0], GROUPS[1]]))
    tier = draw(st.sampled_from([Tier.DEVICE] * 6 + [Tier.HOST, Tier.DISK]))
    extras = [prompt.extras(depth) for depth in depths]
    return Stored(
        index=index,
        keys=np.array([prompt.key(depth) for depth in depths], np.uint64),
        parent=None if begin == 0 else prompt.key(begin - 1),
        block_size=16,
        own=np.array([prompt.own(depth) for depth in depths], np.uint64),
        tier=tier,
        medium=tier.value,
        group=group,
        kind=kind,
        extras=extras if any(extras) else None,
        described=True,
        sparse=draw(st.integers(0, 19)) == 0,
        placeholder=draw(st.integers(0, 19)) == 0,
        session=draw(st.booleans()),
    )


@st.composite
def removed(draw: st.DrawFn, index: int) -> Removed:
    count = draw(st.integers(1, 4))
    keys = []
    for _ in range(count):
        prompt = draw(prompts)
        keys.append(prompt.key(draw(st.integers(0, len(prompt.tokens) - 1))))
    return Removed(
        keys=np.array(keys, np.uint64),
        at=np.arange(index, index + count),
        tier=draw(st.sampled_from([Tier.DEVICE] * 5 + [Tier.HOST])),
        medium="gpu",
        group=draw(st.sampled_from([0, 0, 1, None])),
    )


grown = st.builds(
    lambda above, last, salt: Prompt((*above, last), salt),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(0, 1),
    st.sampled_from([0, 0, 1]),
)
"""Prompts whose last block continues another one and has no extra keys."""


@st.composite
def singles(draw: st.DrawFn, index: int) -> Singles:
    """What running requests store, a block each, and what leaves for it."""
    kind, group = draw(st.sampled_from([GROUPS[0]] * 5 + [GROUPS[1]]))
    tier = draw(st.sampled_from([Tier.DEVICE] * 6 + [Tier.HOST]))
    some = st.lists(st.booleans(), max_size=3)
    stores = [*draw(some), True, *draw(some)]
    blocks = [draw(grown) for _ in stores]
    ends = [len(prompt.tokens) - 1 for prompt in blocks]
    keys = np.array([prompt.key(end) for prompt, end in zip(blocks, ends, strict=True)], np.uint64)
    above = [prompt.key(end - 1) for prompt, end in zip(blocks, ends, strict=True)]
    parents = [parent if one else None for parent, one in zip(above, stores, strict=True)]
    told = zip(blocks, ends, stores, strict=True)
    own = np.array([prompt.own(end) for prompt, end, one in told if one], np.uint64)
    # Between them may be events of a type that is not known.
    at = [index + step for step in accumulate(draw(st.sampled_from([1, 1, 1, 2])) for _ in stores)]
    row = stores.index(True)
    first = Stored(
        index=at[row],
        keys=keys[row : row + 1],
        parent=parents[row],
        block_size=16,
        own=own[:1],
        tier=tier,
        medium=tier.value,
        group=group,
        kind=kind,
        described=True,
    )
    return Singles(first, keys, at, parents, own)


@st.composite
def batches(draw: st.DrawFn, number: int) -> KvBatch:
    events: list[Event] = []
    index = 0
    for kind in draw(st.lists(st.sampled_from("sssssrrrrdc"), max_size=6)):
        if kind == "d":
            gathered = draw(singles(index))
            events.append(gathered)
            index = gathered.at[-1] + 1
        elif kind == "s":
            events.append(draw(stored(index)))
            index += 1
        elif kind == "r":
            run = draw(removed(index))
            events.append(run)
            index += run.keys.size
        elif draw(st.integers(0, 2)) == 0:
            events.append(Cleared(index=index, tier=draw(st.sampled_from([Tier.DEVICE, Tier.HOST]))))
            index += 1
    return KvBatch(
        unix_nanos=(1000 + number) * SECOND,
        events=events,
        count=index,
        bad_events=int(draw(st.integers(0, 24)) == 0),
        lost=(lost := draw(st.integers(0, 24))) < 2,
        lost_inside=lost == 0,
    )


def keys_of(events: Sequence[KvBatch]) -> list[int]:
    """All keys that the batches name, and one that they do not."""
    keys = {
        key: None
        for batch in events
        for event in batch.events
        if not isinstance(event, Cleared)
        for key in event.keys.tolist()
    }
    return [*keys, 12345]
