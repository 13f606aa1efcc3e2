"""What accounting says of one request."""

from __future__ import annotations

import enum

import msgspec

from ..model import StreamId
from .path import Path
from .stream import UNKNOWN
from .values import Key, RequestId


class Said(enum.StrEnum):
    """How far the covers agree."""

    AGREED = "agreed"
    """All covers agree on the count and on the first missed block."""
    COUNT = "count"
    """They agree on the count only."""
    AMBIGUOUS = "ambiguous"
    """Covers that all fit differ; `Outcome.results` holds what they say, `Outcome.covers` two of them."""
    OPEN = "open"
    """Nothing can be said, for `Outcome.why`."""


class Why(enum.StrEnum):
    """Why nothing can be said, or why it is ambiguous."""

    NONE = ""
    NO_STREAM = "no_stream"
    """No stream of it is known."""
    LATE = "late"
    """The record does not go on behind its prefill yet."""
    HOLE = "hole"
    """Events were lost in its stretch."""
    SHORT = "short"
    """The stretch begins after it, or holds stores of unknown depth."""
    NO_PATH = "no_path"
    """None of the stores can be its own, and it cannot be a full hit either."""
    NO_COVER = "no_cover"
    """No assignment explains every store of its component."""
    BOUNDED = "bounded"
    """More requests, paths or steps than are looked at."""
    INCOMPLETE = "incomplete"
    """One cover, but others if a request is unseen, and around it not all stores are explained."""
    UNCOUNTED = "uncounted"
    """How much was found cannot be said."""
    TWO_COVERS = "two_covers"


class Support(enum.StrEnum):
    """What an agreed outcome rests on."""

    NONE = ""
    OWN = "own"
    """It holds whoever else may have been there unseen."""
    ELIMINATION = "elimination"
    """It holds as all stores around it are explained by requests that were seen."""


class Share(msgspec.Struct, frozen=True):
    """What one request has in a cover: the blocks that it found (``None``: not known) and the ordinals of its stores."""

    request: RequestId
    stream: StreamId | None
    cached_blocks: int | None
    ordinals: tuple[int, ...]


class Completeness(msgspec.Struct, frozen=True, kw_only=True):
    """The stores around a request."""

    stores: int = 0
    """How many were looked at: in its life, and the last ones before it."""
    unexplained: tuple[int, ...] = ()
    """Ordinals of those in its life that no seen request explains."""
    before: int = 0
    unexplained_before: int = 0
    """Of the ``before`` last ones before it so many are not explained; each hole counts as one."""
    share_max: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether what rests on elimination may be said."""
        return not self.unexplained and self.unexplained_before <= self.before * self.share_max


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a request's reuse may have ended, with a cover in which it did."""

    stream: StreamId
    block_size: int
    cached_blocks: int
    first_key: Key | None = None
    """The first missed block; ``None`` where all that could match was found."""
    chain: tuple[Key, ...] = ()
    """The prompt's blocks from the first missed one on; empty for a full hit."""
    last_hit_key: Key | None = None
    early: int = 0
    late: int = 0
    """The lookup was between these positions of its stream, both inclusive."""
    position: int = 0
    """The lookup's own position: before the removals that it caused."""
    loaded_blocks: int = 0
    """So many of the first stored blocks were loaded by a connector, where the events show it; they follow the cached ones."""
    loaded_blocks_max: int = 0
    """So many may have been loaded, as a connector's loads look like the stores of a prefill."""
    exact: bool = True
    """``False``: the lookup may have found some tokens more, inside the next block (`Stream.other_sizes`)."""
    stored_unix_nanos: int | None = None
    """When its first block was stored, on the stream's clock."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the cached blocks."""
        return self.cached_blocks * self.block_size


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request's reuse ended."""

    request: RequestId
    said: Said
    why: Why = Why.NONE
    results: tuple[Result, ...] = ()
    """All results that some cover has: one for `AGREED`, those of one count for `COUNT`. What holds for each of them holds.

    Empty where nothing can be said, or where they are not all known (`Outcome.all_known`).
    """
    all_known: bool = True
    """``False``: it may also have been served elsewhere, or have found what cannot be counted."""
    support: Support = Support.NONE
    component: int = 0
    """Requests that share stores with it, itself included."""
    completeness: Completeness | None = None
    """Measured where an answer rests on it."""
    covers: tuple[tuple[Share, ...], ...] = ()
    """Two covers that both fit, as far as they differ: the explanation where the results differ."""

    @property
    def cached_tokens(self) -> int | None:
        """The count, where it is agreed."""
        return self.results[0].cached_tokens if self.said in {Said.AGREED, Said.COUNT} else None


def result_of(path: Path) -> tuple[int, int, Key | None]:
    """What a path says: its stream, the blocks found (`UNKNOWN`: none or not known), the first missed block."""
    if path.hit is None:
        return -1, UNKNOWN, None
    return path.stream, path.hit.blocks, path.hit.key
