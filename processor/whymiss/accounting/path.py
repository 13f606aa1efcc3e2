"""One way in which a request can have stored, and what it says of the request's lookup."""

from __future__ import annotations

import msgspec

from .values import NEVER, Key


class Hit(msgspec.Struct, frozen=True):
    """What a lookup found: so many blocks, between two positions. `UNKNOWN` blocks: that cannot be said."""

    blocks: int
    key: Key | None
    """The first missed block; ``None`` where nothing that could match was missed, or it is not known."""
    early: int
    late: int
    position: int
    """Where the lookup was, as far as it can be said: a position in between."""


class Path(msgspec.Struct, frozen=True, eq=False):
    """The stores that one request can have made.

    A path begins with the chunks of a prefill (a contiguous chain that ends exactly at the prompt's last full block, one
    store a batch), goes on with the blocks that decoding fills, and may hold a stretch twice where the request was
    preempted. The depth of its first store is where reuse ended. A path without prefill stores is a full hit.
    """

    stream: int
    """Index among the account's streams; -1: on none of them."""
    stores: tuple[int, ...]
    """Numbers, ascending."""
    hit: Hit | None
    """``None`` where it was served elsewhere."""
    chain: tuple[Key, ...] = ()
    """The prompt's blocks from the first missed one on."""
    above: Key | None = None
    """The last block that was hit, where it is known."""
    low: int = 0
    """What the path itself says of the scheduled time, on the engine's clock."""
    high: int = NEVER
    idle: int = -1
    """A batch that holds its first two rounds."""
    loaded: int = 0
    """Blocks of its first store that a connector loaded, where a second store of the same batch shows it."""
    preempted: bool = False
    """It holds a stretch twice, or what was found before a preemption is not what was stored."""
