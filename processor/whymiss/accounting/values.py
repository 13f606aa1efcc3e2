"""What accounting is given, and its limits: batches of stores, requests with their bounds, habits of an engine.

Ordinals number the events of a stream from 0 in the publisher's order. A *position* is an ordinal too: the state at
position ``p`` is the state before event ``p``. Times are Unix nanoseconds, of the clock that the field names.
"""

from __future__ import annotations

from typing import NewType

import msgspec

from ..model import StreamId

Key = int
"""A block's key: 64 bits, equal where the ledger's keys are equal."""

RequestId = NewType("RequestId", bytes)
"""Names one request among all; the span id where there is a span."""

NEVER = 1 << 63
"""Later than every time and every position."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """One event that stored blocks of the dense group on the device, in chain order.

    ``start`` is the depth of ``keys[0]``, counted from 0; ``None`` where its parent is not known.
    """

    keys: tuple[Key, ...]
    parent: Key | None
    start: int | None
    block_size: int
    """Tokens a block, of this store."""
    ordinal: int
    """Number of the event."""
    position: int
    """Where the lookup behind it was: before the run of removals that leads up to the store."""
    session: bool = False
    """A session id came along: leading blocks that are resident already are re-announced, and not stored."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a publisher: what an engine did in one step. Batches without stores are wanted as well."""

    unix_nanos: int
    """The publisher's time of it."""
    first: int
    """Ordinal of its first event."""
    after: int
    """Ordinal behind its last event."""
    stores: tuple[Store, ...] = ()


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream's engine stores, as far as it is declared or learned."""

    pairs: bool = False
    """Keys are made of pairs of tokens (SGLang with EAGLE): P tokens have P - 1 of them."""
    replays_last: bool = False
    """The last matched block is dropped and stored again (vLLM with EAGLE or MTP): every hit is one block shorter."""
    connector: bool = False
    """Blocks may be loaded: the loaded part and the computed part are two stores of one batch."""
    deferred: bool = False
    """A tree cache (SGLang): a chunk is stored once it was computed and where it is not there yet, an answer at its end."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One engine request as far as it is known. Times are of the clock of whoever measured them.

    ``low`` and ``high`` bound the *scheduled time*, ``first`` is the first token, ``end`` the end of the request (an upper
    bound where it is not known exactly; never later than when the request was told).
    """

    id: RequestId
    streams: tuple[StreamId, ...]
    """Where it may have been served: one stream, several ranks, or all workers."""
    prompt_tokens: int
    completion_tokens: int | None
    low: int
    high: int
    first: int
    end: int
    prefill_nanos: int | None = None
    """From the scheduled time to the first token, by the engine's own clock."""
    elsewhere: bool = False
    """It may have been served by none of these streams."""
    preempted: bool | None = None
    """Whether it was preempted; ``None``: not told."""
    told_tokens: int | None = None
    """Cached tokens by who counts what this engine admitted for this request."""
    skipped: bool = False
    """Its lookup was skipped by request: it read no cached block."""
    unseen: int = 0
    """Siblings of it (n > 1) that have been told of and not been seen."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is searched before a question is left open, and what counts as complete."""

    tolerance_nanos: int = 5_000_000
    """Between the clock of the spans and the clock of the events."""
    rounding_nanos: int = 100_000
    """Between times of one clock that were written in different units."""
    round_tokens_min: int = 512
    """No engine is run with fewer tokens a round (vLLM's ``max_num_batched_tokens``)."""
    requests_max: int = 64
    """Requests of one component."""
    paths_max: int = 400
    """Paths of one request in one stream."""
    steps_max: int = 20_000
    """Steps of the search for one cover, and of the walk along one request's stores."""
    elimination: bool = True
    """Whether anything is said that holds only where no request was unseen."""
    quiet_stores: int = 64
    """The last stores before a request that are looked at for completeness,"""
    quiet_nanos: int = 600_000_000_000
    """if they are no older than this: who was seen before says nothing of who is seen now;"""
    unexplained_share_max: float = 0.04
    """and the share of them that may be without an explanation."""
