"""What is known of one lookup under one reading of its spans, in sections: what the table of causes decides from.

A section is established when something first asks for it, and says then what holds. What could not be established has
the reason in the ``..._gap`` beside it; an empty reason means that it holds, a negative statement included.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from .history import Fact, StreamId
from .spans import OffloadOutcome, RouteDecision
from .templates import Likeness
from .words import Grade, Reason, Tier


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Another place that held the first missed block at the lookup, and how much of the chain."""

    stream: StreamId
    tier: Tier = Tier.DEVICE
    leading_blocks: int | None = None
    """``None`` where the record of a later block is not certain."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When something happened, between two times (inclusive) on the engine's clock.

    What another host's clock says is widened by the tolerance between clocks.
    """

    earliest_unix_nanos: int
    latest_unix_nanos: int


class LookupEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where reuse ended, from the request's spans and its reading."""

    grade: Grade
    gap: Reason = Reason.NONE
    """Why no first missed block is known at all."""
    stream: StreamId | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    local_hit_tokens: int | None = None
    """Cached tokens that were in the engine's own cache, where the engine keeps them apart."""
    block_size: int | None = None
    match_unit: int | None = None
    first: int | None = None
    """Index of the first missed block."""
    last_hit_key: int | None = None
    chain_known: bool = False
    """Whether the keys of the whole expected chain are known, and not only the first."""
    lookup_seen: bool = False
    lookup_gap: Reason = Reason.NONE
    """Why it cannot be said that the request did not opt out of the cache."""
    keys_gap: Reason = Reason.NONE
    """Why a key elsewhere may be another prompt's: SGLang's hashes leave out what else tells prompts apart."""
    loads_gap: Reason = Reason.NONE
    """Why it cannot be said that what a connector was to load came."""
    disabled: bool = False
    speculative: bool = False
    sparse_lost_tokens: int | None = None


class LocalEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the serving worker's own record says of the missed blocks at the lookup."""

    key: int | None = None
    """Of the first missed block."""
    here: Fact | None = None
    """``None`` where the record was not asked, because the worker or the block is not known."""
    record_gap: Reason = Reason.NONE
    """Why a negative statement about the serving worker's record is not supported."""
    recoverable: int | None = None
    """Leading blocks from the first missed one on that were evicted or resident here."""
    dense_ahead: int = 0
    """Leading dense blocks from the first missed one on that were resident here."""
    ahead_gap: Reason = Reason.NONE
    """Why there may be more of them."""
    sparse_boundary: int | None = None
    """Blocks that the dense group held while a sparse group vetoed them, if that is what happened."""
    sparse_gap: Reason = Reason.NONE
    eviction_age_nanos: int | None = None
    lost_at: Moment | None = None
    """When the block left this worker, where it did."""
    window_seconds: float = 0.0


class TierEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What lower tiers within this worker's reach held of the missed blocks."""

    tiers_holding: tuple[Tier, ...] = ()
    tier_blocks: int | None = None
    """Leading blocks that the best of those tiers held."""
    tier_gap: Reason = Reason.NONE
    """Why it cannot be said that no other tier within reach held the block."""


class FleetEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the other workers held, or had held, of the missed blocks."""

    holders: tuple[Holder, ...] = ()
    holder_gap: Reason = Reason.NONE
    """Why a worker that looks like a holder cannot be called one."""
    view_gap: Reason = Reason.NONE
    """Why it cannot be said that no other worker held the block."""
    lost_elsewhere: bool = False
    lost_elsewhere_blocks: int | None = None
    """Leading blocks that the best of those workers had held; not counted where a holder or the worker's own record decides."""


class EqualTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks here with the tokens of the missed one, from block 0 on, under other keys."""

    differing_kinds: tuple[str, ...] | None = None
    """Extra-key kinds in which a resident one differs."""
    equal_leading: int | None = None
    """Leading blocks of the chain that have such a block."""
    equal_gap: Reason = Reason.NONE
    """Why the block cannot be compared with others of the same tokens or the same parent."""


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks elsewhere with the tokens and the extra keys of the missed one, under another key."""

    same_identity: bool = False
    """Another worker held one."""
    identity_leading: int | None = None
    """Leading blocks of the chain that the best such worker held so."""
    identity_gap: Reason = Reason.NONE
    """Why a block that another worker holds may or may not be one."""


class Siblings(msgspec.Struct, frozen=True, kw_only=True):
    """Other blocks under the parent of the missed one, on any worker of the view, and what follows them."""

    has_siblings: bool = False
    extends: bool = False
    """The block is not the first of its prompt, and its parent had no child."""
    reconverging: int = 0
    """Later blocks of the chain with the own tokens of a sibling chain's block at their depth."""
    tail_gap: Reason = Reason.NONE
    """Why later blocks of the chain may repeat a sibling's all the same."""
    siblings_gap: Reason = Reason.NONE
    """Why other workers may have had siblings, or chains of them, that are not counted."""


class RelationEvidence(Protocol):
    """How the missed block relates to other blocks; each part is established by itself: they cost unlike much."""

    @property
    def equal_tokens(self) -> EqualTokens:
        """The same tokens here under other keys."""
        ...

    @property
    def identities(self) -> Identities:
        """The same tokens and extra keys elsewhere under another key."""
        ...

    @property
    def siblings(self) -> Siblings:
        """The same parent, anywhere."""
        ...

    @property
    def concurrent(self) -> bool:
        """Whether another request was computing the block at the lookup."""
        ...


class PromiseEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What routers and tiers had promised of the serving worker."""

    route: RouteDecision | None = None
    promised_at: Moment | None = None
    """When the router decided; where its span is missing, when it can have."""
    route_gap: Reason = Reason.NONE
    """Why it cannot be said what the router had promised of this worker."""
    best_is_elsewhere: bool = True
    """Whether the router's best worker may be another one than the one that it picked."""
    offload: OffloadOutcome | None = None
    offload_gap: Reason = Reason.NONE
    """Why it cannot be said that no tier had promised the block."""


class IsolationEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the prompt's blocks from others' with the same tokens: kinds of extra keys, never values."""

    extra_key_kinds: tuple[str, ...] = ()
    """Of the first missed block, where the record knows it; else what the lookup says."""
    kept_apart_by: tuple[str, ...] | None = None
    """All extra-key kinds of the prompt from block 0 on that keep its blocks from other prompts' with the same tokens."""
    adapter: str | None = None


class Evidence(Protocol):
    """Everything that may be asked of one lookup under one reading. Attribution decides from this alone."""

    @property
    def lookup(self) -> LookupEvidence:
        """Where reuse ended."""
        ...

    @property
    def local(self) -> LocalEvidence:
        """The serving worker's record of the missed blocks."""
        ...

    @property
    def tiers(self) -> TierEvidence:
        """Lower tiers within reach."""
        ...

    @property
    def fleet(self) -> FleetEvidence:
        """Other workers."""
        ...

    @property
    def relations(self) -> RelationEvidence:
        """Blocks that are like the missed one."""
        ...

    @property
    def promises(self) -> PromiseEvidence:
        """What routers and tiers had said."""
        ...

    @property
    def isolation(self) -> IsolationEvidence:
        """Whose blocks they can be."""
        ...

    @property
    def template(self) -> Likeness | None:
        """How the block compares with a known-good template, where it can be compared with one."""
        ...
