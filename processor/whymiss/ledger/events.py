"""The write batch: KV-cache events as the store takes them, block keys as arrays, token ids and extra keys as digests.

One batch holds the events of one engine step. ``index`` and ``at`` number a batch's events from 0 in
the order of the wire, bad and unknown ones included, so that an ordinal in a publisher's stream is
the batch's first ordinal plus one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ..model import Tier

Keys: TypeAlias = npt.NDArray[np.uint64]
"""Block keys or digests, one a block."""

ExtraKey: TypeAlias = tuple[str, int]
"""The kind of an extra key (``lora``, ``mm``, ``cache_salt``, ``prompt_embeds``) and its keyed digest."""


# The structs hold no containers that could refer back to them: the collector need not track them.
class Stored(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Blocks that became resident, in the order of their chain."""

    index: int
    keys: Keys
    parent: int | None
    """Key of the block before the first one; ``None`` for a root and where the emitter does not know."""
    block_size: int
    """Tokens a block; 0 in a placeholder."""
    own: Keys | None
    """Digest of each block's own token ids, aligned with ``keys``; ``None`` where there is none to align."""
    tier: Tier
    medium: str
    """The emitter's name of the medium in lower case: part of the identity where ``tier`` is OTHER."""
    group: int = 0
    kind: str = ""
    """vLLM's ``kv_cache_spec_kind``."""
    sliding_window: int | None = None
    """Tokens."""
    lora_name: str | None = None
    extras: list[tuple[ExtraKey, ...]] | None = None
    """Each block's extra keys, aligned with ``keys``; ``None`` where no block has any."""
    described: bool = False
    """False where the emitter may have hashed extra keys that it does not publish: then the absence
    of an extra key proves nothing."""
    sparse: bool = False
    """The token ids span other blocks than ``keys`` names, so the keys are not known to be consecutive
    and ``parent`` is the parent of the span (masked blocks of sliding-window and Mamba groups)."""
    session: bool = False
    """A session id came along: the event may re-announce blocks that are resident already."""
    placeholder: bool = False
    """Names blocks and nothing else: sets no block size and starts no chain (offload connectors)."""
    remote: bool = False
    ownership: str | None = None
    pairs: bool = False
    """Its token ids are pairs of a token and the next one (EAGLE): a prompt has one less than tokens."""


class Removed(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Blocks that left one medium: a run of neighbouring removals, one physical copy a key.

    vLLM writes one event a block, so runs are joined; ``at[i]`` is the event that removed ``keys[i]``.
    """

    keys: Keys
    at: npt.NDArray[np.int64]
    tier: Tier
    medium: str
    group: int | None = None
    remote: bool = False
    ownership: str | None = None


class Singles(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Neighbouring events of one block each: stores that continue a block and are alike in all else, and removals.

    Means what ``expanded`` says one by one.
    """

    first: Stored
    """The first store. What it says beside its block, its parent and its number holds for all."""
    keys: Keys
    at: Sequence[int]
    """The event that each key is of."""
    parents: Sequence[int | None]
    """Key of the block that each store continues; ``None`` where the event is a removal."""
    own: Keys | None
    """Digest of each stored block's own token ids, one a store."""

    def expanded(self) -> Iterator[Stored | Removed]:
        """The events, one after the other."""
        first, stored = self.first, 0
        for row, (at, parent) in enumerate(zip(self.at, self.parents, strict=True)):
            keys = self.keys[row : row + 1]
            if parent is None:
                place = (first.tier, first.medium, first.group, first.remote, first.ownership)
                yield Removed(keys, np.array([at], np.int64), *place)
                continue
            own = None if self.own is None else self.own[stored : stored + 1]
            stored += 1
            yield msgspec.structs.replace(first, index=at, keys=keys, parent=parent, own=own)


class Cleared(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """Everything in one tier of one publisher left at once."""

    index: int
    tier: Tier = Tier.DEVICE


Event: TypeAlias = Stored | Removed | Singles | Cleared


class KvBatch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one message of a publisher says."""

    unix_nanos: int
    """The publisher's wall clock when it flushed; 0 where the emitter states no time (LMCache)."""
    events: list[Event]
    rank: int | None = None
    """Data-parallel rank, where the batch states one."""
    count: int = 0
    """Events on the wire. ``events`` can be shorter: runs of removals are joined."""
    bad_events: int = 0
    """Events that could not be read. Each loses itself and nothing else, and leaves a hole."""
    unknown_events: int = 0
    """Well-formed events of a type that is not known. They may have stored or removed blocks."""
    lost: bool = False
    """The publisher itself says that events before this batch were lost (LMCache)."""
    lost_inside: bool = False
    """It says so of events between those of this batch."""
    incarnation: int | None = None
    """The publisher's life, where it states one: another number is a restart (LMCache)."""
    cursor: int | None = None
    """Number of the last record that this batch covers, where stated (LMCache)."""
