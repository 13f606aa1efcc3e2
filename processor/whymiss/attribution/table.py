"""The ordered table of causes: from evidence to one verdict.

The order answers one question: whose single change would have made the first missed block a hit? The
nearest fix comes first. That nothing was missed precedes what the engine itself decided, what a tier
or an index promised and did not keep, a lookup that failed on a block that was there, a tier that
was not asked, another worker that held the block (before its eviction here: a fleet that still holds it lost
nothing to capacity), its eviction here and everywhere, the same tokens under another identity, changed tokens, and only
then content that nobody had stored. It is the order of work as well: a section of the evidence is established when
the first row asks for it.

A row answers ``None`` (not this), ``Yes`` or ``Unsure``. The first answer that is not ``None`` ends the
search: a row that cannot be decided stops all rows behind it, because a farther fix must not be named
while a nearer one may be true.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..model import Cause, Evidence, Owner
from . import rows


class Row(msgspec.Struct, frozen=True):
    """One line of the table; ``when`` is its sentence in the documentation."""

    cause: Cause
    owner: Owner
    when: str
    decide: Callable[[Evidence, rows.Policy], rows.Yes | rows.Unsure | None]
    local: bool = False
    """A cause that only a miss in the engine's own cache has.

    What a connector loads is stored like what was computed, so on an engine with one such a cause stands only if
    something says how much was loaded.
    """
    needs_block: bool = False
    """Without a first missed block this row and all behind it say nothing: what spans alone prove comes before."""


TABLE: tuple[Row, ...] = (
    Row(Cause.NONE, Owner.NONE, "Nothing was missed: every matchable block was reused.", rows.none),
    Row(
        Cause.CACHE_DISABLED,
        Owner.ENGINE,
        "The engine or the request opted out of prefix caching.",
        rows.cache_disabled,
    ),
    Row(
        Cause.BELOW_MATCH_UNIT,
        Owner.ENGINE,
        "The prompt, or the shared part behind the last hit, is shorter than one match unit.",
        rows.below_match_unit,
    ),
    Row(
        Cause.SPARSE_RETENTION,
        Owner.ENGINE,
        "The full-attention group held the boundary and a sparse group (Mamba, sliding window) did not.",
        rows.sparse_retention,
        local=True,
    ),
    Row(
        Cause.SPECULATIVE_REPLAY,
        Owner.ENGINE,
        "The engine dropped its last matched block for the draft model.",
        rows.speculative_replay,
        local=True,
    ),
    Row(
        Cause.TRANSFER_TIMEOUT,
        Owner.PLATFORM,
        "A tier promised the block and the load timed out.",
        rows.transfer_timeout,
    ),
    Row(
        Cause.TRANSFER_FAILED,
        Owner.PLATFORM,
        "A tier promised the block and the load failed or delivered less.",
        rows.transfer_failed,
    ),
    Row(
        Cause.STALE_INDEX,
        Owner.PLATFORM,
        "A router or tier promised the block and the holder did not have it when it promised.",
        rows.stale_index,
        local=True,
    ),
    Row(
        Cause.LOOKUP_FAILURE,
        Owner.ENGINE,
        "The block was resident on the selected worker, and a lookup that took place missed it.",
        rows.lookup_failure,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.TIER_UNREACHABLE,
        Owner.PLATFORM,
        "A tier below this worker held the block and no lookup there was tried or completed.",
        rows.tier_unreachable,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.ROUTING_MISS,
        Owner.ROUTING,
        "Another worker held the block at the lookup.",
        rows.routing_miss,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.EVICTED,
        Owner.PLATFORM,
        "This worker had held the block and lost it before the lookup.",
        rows.evicted,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.EVICTED_ELSEWHERE,
        Owner.PLATFORM,
        "Only other workers had ever held the block, and all of them lost it before the lookup.",
        rows.evicted_elsewhere,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.EXTRA_KEY_MISMATCH,
        Owner.SECURITY,
        "The same tokens were resident under other extra keys (salt, adapter, image). Can be correct isolation.",
        rows.extra_key_mismatch,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.IDENTITY_MISMATCH,
        Owner.PLATFORM,
        "The same tokens and extra keys were resident under another key: hash seeds or algorithms differ.",
        rows.identity_mismatch,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.TOKEN_DIVERGENCE,
        Owner.APPLICATION,
        "The block's tokens are not a known-good template's, or changed and later blocks are the same again.",
        rows.token_divergence,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.NEW_CONTENT,
        Owner.NONE,
        "The block extends what was stored: a new turn. Not a defect.",
        rows.new_content,
        local=True,
        needs_block=True,
    ),
    Row(
        Cause.NO_RECENT_MATCH,
        Owner.APPLICATION,
        "Nothing like the block was stored within the retention window, and the record is unbroken.",
        rows.no_recent_match,
        local=True,
        needs_block=True,
    ),
)
"""First match wins. ``unknown`` is what is left when a row is unsure or nothing is known to decide on."""

_ROWS = {row.cause: row for row in TABLE}


def is_local(cause: Cause) -> bool:
    """Whether only a miss in the engine's own cache has this cause."""
    row = _ROWS.get(cause)
    return row is not None and row.local  # guard: local-mark
