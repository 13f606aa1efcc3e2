"""What the ledger knows, and what may be asked of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from .words import Reason, Removal, Residency, Tier


class StreamId(msgspec.Struct, frozen=True, order=True):
    """One publisher's record: a worker and its data-parallel rank."""

    worker: str
    rank: int


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of one block at one position."""

    state: Residency
    at_unix_nanos: int | None = None
    """Time of the operation that made it so, on the stream's clock."""
    removal: Removal | None = None
    """How an evicted block left; ``None`` where a clear or restart came when it may have been gone already."""
    ordinal: int | None = None
    """Ordinal of that operation's event in its stream."""


class ChainFacts(Sequence[Fact]):
    """Facts on the blocks of a chain, of which the leading ones can be counted without making them."""

    @abstractmethod
    def leading(self, states: Collection[Residency]) -> int:
        """How many of the first blocks are in one of these states."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one block as its first store described it.

    ``tokens`` is the keyed digest of the block's own token ids, ``prefix`` that of all tokens from
    block 0 to its end, ``extras`` that of the extra keys from block 0 to its end; all three are
    ``None`` where a store did not carry them. ``depth`` counts from 0.
    """

    key: int
    parent: int | None
    depth: int
    tokens: int | None = None
    prefix: int | None = None
    extras: int | None = None
    kinds: tuple[str, ...] = ()
    adapter: str | None = None
    """Name of the adapter that is among the block's own extra keys; ``None`` where there is none, or it is not known."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """One event that stored blocks of the dense group on the device, in chain order.

    ``start`` is the depth of ``keys[0]`` and ``None`` where its parent is not known. ``position``
    is where the lookup of the request that stored them stood: before the first event that the
    request caused, its own removals included (they precede its stores in the batch).
    """

    keys: tuple[int, ...]
    start: int | None
    parent: int | None
    position: int
    unix_nanos: int
    """The publisher's time of the batch."""
    reported: bool = False
    """All of it was resident already and the event carried a session: a re-announcement."""
    parent_tail_unix_nanos: int | None = None
    """When the parent was stored as the last block of an event, if it was: a tail that a running
    request may still be extending while it decodes."""


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one KV-cache group: ``kind`` is vLLM's ``kv_cache_spec_kind``."""

    group: int
    kind: str = ""
    block_size: int | None = None
    window: int | None = None
    """Sliding window in tokens."""

    @property
    def dense(self) -> bool:
        """Whether a hit needs every block from 0 on, and not only the last ones."""
        return self.kind in DENSE_KINDS


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """How many blocks of a chain another one repeats; not ``complete`` where there were too many to compare all."""

    blocks: int
    complete: bool = True


DENSE_KINDS = frozenset({"", "full_attention", "mla_attention", "sink_full_attention", "unknown"})


class Hole(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a stream's time that the record does not cover, and why."""

    after_unix_nanos: int
    until_unix_nanos: int
    reason: Reason


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How far a record can be trusted between two moments.

    ``begins_unix_nanos`` is where the unbroken record starts, ``from_birth`` whether it starts
    with the publisher's first event, ``confirmed_unix_nanos`` the time of the newest batch, and
    ``expired`` whether the record begins there because what came before was given up.
    """

    holes: tuple[Hole, ...]
    begins_unix_nanos: int
    from_birth: bool
    confirmed_unix_nanos: int
    expired: bool = False


class Lookback(msgspec.Struct, frozen=True):
    """A lookup as a record is asked about it, in Unix nanoseconds: its bounds, and since when the record must be whole."""

    since: int
    earliest: int
    latest: int


class LedgerView(Protocol):
    """What attribution may ask of the ledger.

    A *position* is the number of a stream's events that had happened: the state at position ``p``
    is that before event ordinal ``p``. Ordinals count events (not blocks) from 0 in the order in
    which the publisher numbered them.
    """

    def streams(self) -> Sequence[StreamId]:
        """All workers' streams with a record, in a stable order."""
        ...

    def view_of(self, stream: StreamId) -> Sequence[StreamId]:
        """The other streams that serve the same model and hash family."""
        ...

    def acquainted(self, stream: StreamId, key: int, around: Lookback, tolerance: int) -> Sequence[StreamId]:
        """Those of the view, in its order, to whom a block may have been something around a lookup of ``stream``.

        Of all others it is certain that they never named it, by records that are whole over the window and went on
        after the lookup without a reset: asked for themselves, they would say that it was never seen, and leave no doubt.
        ``tolerance`` is how far clocks may differ, in nanoseconds, beyond what the publishers' messages show.
        """
        ...

    def tier_owners(self, stream: StreamId) -> Sequence[StreamId]:
        """Streams that are no workers but storage that workers of the stream's model share."""
        ...

    def block_size(self, stream: StreamId) -> int | None:
        """Tokens a block of the stream's dense group, or ``None`` before the first store."""
        ...

    def match_unit(self, stream: StreamId) -> int | None:
        """Tokens a match unit: the least common multiple of the groups' block sizes."""
        ...

    def groups(self, stream: StreamId) -> Sequence[GroupSpec]:
        """The stream's KV-cache groups, the dense one first."""
        ...

    def position_at(self, stream: StreamId, unix_nanos: int) -> int:
        """The position after all batches that the stream published at or before a time."""
        ...

    def confirmed_position(self, stream: StreamId, unix_nanos: int) -> int | None:
        """The position after the first batch published later than a time; ``None`` while there is none.

        vLLM publishes a reset with its next step, so a record is only known to hold at a time
        once a later batch has arrived.
        """
        ...

    def published_before(self, stream: StreamId, unix_nanos: int) -> int | None:
        """When the stream published its last batch before a time; ``None`` where none is known that it did."""
        ...

    def as_of(
        self,
        stream: StreamId,
        keys: Sequence[int],
        position: int,
        *,
        tier: Tier = Tier.DEVICE,
        group: int | None = None,
    ) -> Sequence[Fact]:
        """For each key what the record says at a position; ``group`` None is the dense group."""
        ...

    def touched(self, stream: StreamId, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` stored, removed or cleared the key."""
        ...

    def tiers(self, stream: StreamId) -> Sequence[Tier]:
        """Tiers below the device for which the stream has published anything."""
        ...

    def stores_between(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``, in order."""
        ...

    def block(self, stream: StreamId, key: int) -> Block | None:
        """The identity of a block that the record has seen stored."""
        ...

    def children(
        self, stream: StreamId, parent: int | None, position: int, *, limit: int | None = None
    ) -> Sequence[int]:
        """Blocks first stored under a parent (``None``: roots) before a position; no more than ``limit``."""
        ...

    def same_tokens(self, stream: StreamId, key: int, position: int) -> Sequence[Block]:
        """Other blocks, resident at a position, whose tokens from block 0 to their end are the same."""
        ...

    def same_tokens_leading(self, stream: StreamId, keys: Sequence[int], position: int) -> int:
        """How many of the first blocks of a chain have another with the same tokens, as `same_tokens` finds them."""
        ...

    def tokens_known(self, stream: StreamId, keys: Sequence[int]) -> int:
        """How many of the first blocks of a chain have a known digest of their own tokens."""
        ...

    def like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        """Blocks of a stream, resident at a position, with the tokens of any stream's block from block 0 to its end.

        Only those under other keys: the digests of ``block`` are compared, and they are of one process.
        """
        ...

    def leading_like(self, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId) -> int:
        """How many of the first ``keys`` of a stream have a block of ``among`` as `like` finds it, with the same extra keys."""
        ...

    def reconverges(
        self, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId | None = None
    ) -> Repeats:
        """How many of ``keys[1:]`` have the own tokens of a sibling chain's block at the same depth.

        ``keys[0]`` is the first missed block; the keys are of ``stream``, the siblings and ``position`` of ``among``
        (the same stream where it is None). Only chains that were stored before ``position`` count. The result
        is the largest number over all chains that begin with a sibling.
        """
        ...

    def clock_offset(self, stream: StreamId) -> int | None:
        """Our clock less the publisher's, in nanoseconds, as far as its quickest message showed it.

        The way of that message is in it, so two streams are compared by their difference.
        """
        ...

    def coverage(self, stream: StreamId, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """The holes that touch an interval, and the bounds of the record around it."""
        ...
