"""What may be asked of all workers' records together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from .history import Block, Lookback, Positions, StreamId, StreamView
from .words import Tier


class Peer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another record than that of the worker that served a lookup, and where the lookup falls in it."""

    stream: StreamId
    record: StreamView
    at: Positions
    """Around the lookup, as wide as the clocks may be apart."""
    until: int
    """The latest time of the lookup on the other's clock, in Unix nanoseconds."""


class FleetView(Protocol):
    """What may be asked of all records together: which there are, and which of them a question must reach."""

    def streams(self) -> Sequence[StreamId]:
        """All workers' streams with a record, in order. The very same object as long as there is no other stream."""
        ...

    def stream(self, stream: StreamId) -> StreamView:
        """The record of one of them, or of a storage that workers share. Raises ``KeyError`` where there is none."""
        ...

    def peers(self, stream: StreamId, block_size: int) -> Sequence[StreamView]:
        """The other workers' records that serve the same model and hash family, in order.

        Only those whose blocks are as large, or of no size that is known yet.
        """
        ...

    def peers_that_may_know(
        self, stream: StreamId, block_size: int, key: int, around: Lookback, tolerance: int
    ) -> Sequence[StreamView]:
        """Those of the peers, in order, to which a block may have been something around a lookup of ``stream``.

        Of all others it is certain that they never named it, by records that are whole over the window and went on
        after the lookup without a reset: asked for themselves, they would say that it was never seen, and leave no doubt.
        ``tolerance`` is how far clocks may differ, in nanoseconds, beyond what the publishers' messages show.
        """
        ...

    def around(
        self, stream: StreamId, others: Sequence[StreamView], lookback: Lookback, tolerance: int
    ) -> Sequence[Peer]:
        """Other records with the place in them of a lookup of ``stream``, in the order in which they are given."""
        ...

    def like(self, peers: Sequence[Peer], block: Block) -> Sequence[tuple[Peer, Sequence[Block]]]:
        """Which of some peers surely had blocks as ``StreamView.like`` finds them by the lookup, and these."""
        ...

    def stored_like(self, stream: StreamId, block: Block, position: int) -> Sequence[Block]:
        """Blocks that a stream stored on its device before a position with the tokens of a block, held or not.

        Only those under other keys, the last stored ones first, and not all where there are very many.
        """
        ...

    def releases(self, stream: StreamId, tier: Tier) -> bool:
        """Whether a stream has published that a tier let go of something: else what it stored there may be gone."""
        ...

    def shared_storage(self, stream: StreamId, block_size: int) -> Sequence[StreamView]:
        """Records of what is no worker but storage that workers of the stream's model share, in order."""
        ...
