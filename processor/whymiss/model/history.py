"""What the ledger knows, and what may be asked of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
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
    ordinal: int = 0
    """Number of the event in its stream."""
    session: bool = False
    """A session id came along: leading blocks that were resident already may only be announced again."""


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

    def gap_since(self, unix_nanos: int) -> Reason:
        """Why the record is not whole from a time to the end of the interval; nothing where it is."""
        if self.holes:  # guard: history-hole
            return self.holes[0].reason
        if not self.from_birth and self.begins_unix_nanos > unix_nanos:  # guard: history-birth
            # guard: history-short
            return Reason.HISTORY_EXPIRED if self.expired else Reason.HISTORY_SHORT
        return Reason.NONE


class PublishedBatch(msgspec.Struct, frozen=True, gc=False):
    """One message of a publisher, by its events: ordinals ``[first, after)``."""

    unix_nanos: int
    """The publisher's time of it; never before that of the batch in front of it."""
    first: int
    after: int
    lost_before: bool = False
    """Events were lost between it and the batch in front of it."""
    restarted_before: bool = False
    """It is the first of a new life of the publisher."""


class Positions(msgspec.Struct, frozen=True, gc=False):
    """A stretch of time in a stream's order of events."""

    before: int
    """What is before it had happened when the stretch began."""
    after: int
    """What is not before it was published after the stretch."""
    confirmed: int | None
    """The position after the first batch that was; ``None`` while there is none.

    A record is confirmed by a later batch: the last one may be lost, and a reset is published with the next
    step. That batch tells of a step that may have begun before the end of the stretch.
    """


class ChainContent(msgspec.Struct, frozen=True):
    """What the first blocks of a chain are, whatever their keys: comparable with any stream of the process.

    Only the history that gave it knows what is in it.
    """


class MissedChain(msgspec.Struct, frozen=True):
    """What of a chain can be compared with siblings of its first block, on any stream of the process.

    Only the history that gave it knows what is in it.
    """


class Lookback(msgspec.Struct, frozen=True):
    """A lookup as a record is asked about it, in Unix nanoseconds: its bounds, and since when the record must be whole."""

    since: int
    earliest: int
    latest: int

    def on_other_clocks(self, mine: int | None, theirs: Iterable[int | None], tolerance: int) -> Sequence[Lookback]:
        """The same lookup on other workers' clocks, given what messages show of the clocks (``clock_offset``).

        Clocks may be apart by the tolerance, and beyond it by what their messages show: a host whose clock is wrong by
        more than the tolerance would otherwise place its events on the wrong side of the lookup.
        """
        found = []
        for offset in theirs:
            # guard: view-clocks, peer-clocks
            apart = tolerance + (0 if mine is None or offset is None else abs(mine - offset))
            # guard: view-before, view-until, peer-clock-before, peer-clock-after
            there = Lookback(self.since, self.earliest - apart, self.latest + apart)
            found.append(there)
        return found


class StreamView(Protocol):
    """What may be asked of one publisher's record.

    A *position* is the number of the stream's events that had happened: the state at position ``p`` is that before
    event ordinal ``p``. Ordinals count events (not blocks) from 0 in the order in which the publisher numbered them.
    """

    @property
    def stream(self) -> StreamId:
        """Whose record it is."""
        ...

    def block_size(self) -> int | None:
        """Tokens a block of the stream's dense group, or ``None`` before the first store."""
        ...

    @property
    def pairs(self) -> bool:
        """Whether blocks are made of pairs of a token and the next one (EAGLE): a prompt has one less than tokens."""
        ...

    def match_unit(self) -> int | None:
        """Tokens a match unit: the least common multiple of the groups' block sizes."""
        ...

    def groups(self) -> Sequence[GroupSpec]:
        """The stream's KV-cache groups, the dense one first."""
        ...

    def tiers(self) -> Sequence[Tier]:
        """Tiers below the device for which the stream has published anything."""
        ...

    def position_at(self, unix_nanos: int) -> int:
        """The position after all batches that the stream published at or before a time."""
        ...

    def confirmed_position(self, unix_nanos: int) -> int | None:
        """The position after the first batch published later than a time; ``None`` while there is none.

        vLLM publishes a reset with its next step, so a record is only known to hold at a time
        once a later batch has arrived.
        """
        ...

    def published_before(self, unix_nanos: int) -> int | None:
        """When the stream published its last batch before a time; ``None`` where none is known that it did."""
        ...

    def as_of(
        self, keys: Sequence[int], position: int, *, tier: Tier = Tier.DEVICE, group: int | None = None
    ) -> Sequence[Fact]:
        """For each key what the record says at a position; ``group`` None is the dense group."""
        ...

    def touched(self, key: int, first: int, last: int) -> bool:
        """Whether an event in ``[first, last)`` stored, removed or cleared the key on the device."""
        ...

    def stores_between(self, after_unix_nanos: int, until_unix_nanos: int) -> Sequence[Store]:
        """Dense device stores published in ``(after, until]``, in order."""
        ...

    @property
    def end(self) -> int:
        """The position after everything that was published."""
        ...

    def batches_from(self, position: int) -> Sequence[PublishedBatch]:
        """The batches of which no event is before a position, in order; of those that are kept."""
        ...

    def stores_in(self, first: int, last: int) -> Sequence[Store]:
        """Dense device stores with ordinals in ``[first, last)``, in order; without the times of their parents' stores."""
        ...

    def changes(self, key: int, first: int, last: int) -> Sequence[int]:
        """Ordinals in ``[first, last)``, ascending, of what stored or removed a block on the device, or changed all."""
        ...

    @property
    def other_sizes(self) -> bool:
        """Whether the dense group stored blocks of another size than its own: ends of prompts, which are no chains."""
        ...

    @property
    def knows_all_held(self) -> bool:
        """Whether every block that is resident was seen stored: followed from birth, and nothing was lost since."""
        ...

    def keys_at_depth(self, depth: int, before: int, limit: int) -> Sequence[int] | None:
        """Blocks that were stored at a depth before a position; ``None`` where they are more than ``limit``."""
        ...

    def block(self, key: int) -> Block | None:
        """The identity of a block that the record has seen stored."""
        ...

    def children(self, parent: int | None, position: int, *, limit: int | None = None) -> Sequence[int]:
        """Blocks first stored under a parent (``None``: roots) before a position; no more than ``limit``."""
        ...

    def same_tokens(self, key: int, position: int) -> Sequence[Block]:
        """Other blocks, resident at a position, whose tokens from block 0 to their end are the same."""
        ...

    def same_tokens_leading(self, keys: Sequence[int], position: int) -> int:
        """How many of the first blocks of a chain have another with the same tokens, as `same_tokens` finds them."""
        ...

    def tokens_known(self, keys: Sequence[int]) -> int:
        """How many of the first blocks of a chain have a known digest of their own tokens."""
        ...

    def like(self, block: Block, position: int) -> Sequence[Block]:
        """Blocks, resident at a position, with the tokens of any stream's block from block 0 to its end.

        Only those under other keys: the digests of ``block`` are compared, and they are of one process.
        """
        ...

    def content(self, keys: Sequence[int]) -> ChainContent | None:
        """What the first blocks of a chain of this stream are; ``None`` where no tokens of them are known."""
        ...

    def leading_like(self, content: ChainContent, position: int) -> int:
        """How many of the first blocks of any stream's chain have a block here as `like` finds it, with the same extra keys."""
        ...

    def missed_chain(self, keys: Sequence[int]) -> MissedChain | None:
        """What of a chain of this stream can be compared with siblings of ``keys[0]``; ``None`` where nothing can."""
        ...

    def repeats(self, missed_chain: MissedChain, position: int) -> Repeats:
        """How many blocks of any stream's tail have the own tokens of a sibling chain's block here, at the same depth.

        Only chains that were stored before ``position`` count. The result is the largest number over all chains that
        begin with a sibling.
        """
        ...

    def coverage(self, after_unix_nanos: int, until_unix_nanos: int) -> Coverage:
        """The holes that touch an interval, and the bounds of the record around it."""
        ...
