"""Evidence by what it shows: a base in which nothing like the block was ever seen, and what changes it."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from whymiss.attribution import Policy, decide
from whymiss.model import (
    SECOND,
    Cause,
    EqualTokens,
    Fact,
    FleetEvidence,
    Grade,
    Holder,
    Identities,
    IsolationEvidence,
    Likeness,
    LocalEvidence,
    LookupEvidence,
    Moment,
    OffloadOutcome,
    PromiseEvidence,
    Reason,
    Removal,
    Residency,
    RouteDecision,
    Siblings,
    StreamId,
    Tier,
    TierEvidence,
    Verdict,
)

Changes: TypeAlias = dict[str, Any]

NOW = 1_000_000 * SECOND
HERE, OTHER = StreamId("here", 0), StreamId("other", 0)
COMPLETE, DECLARED = Policy(), Policy(fleet_view_declared=True)


class Relations(msgspec.Struct, frozen=True, kw_only=True):
    """Implements ``model.RelationEvidence``."""

    equal_tokens: EqualTokens = EqualTokens()
    identities: Identities = Identities()
    siblings: Siblings = Siblings()
    concurrent: bool = False


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Implements ``model.Evidence``: sections that are given."""

    lookup: LookupEvidence
    local: LocalEvidence = LocalEvidence()
    tiers: TierEvidence = TierEvidence()
    fleet: FleetEvidence = FleetEvidence()
    relations: Relations = Relations()
    promises: PromiseEvidence = PromiseEvidence()
    isolation: IsolationEvidence = IsolationEvidence()
    template: Likeness | None = None


UNSEEN = Known(
    lookup=LookupEvidence(
        grade=Grade.DIRECT,
        stream=HERE,
        prompt_tokens=200,
        cached_tokens=64,
        block_size=16,
        match_unit=16,
        first=4,
        chain_known=True,
        lookup_seen=True,
    ),
    local=LocalEvidence(key=4, here=Fact(state=Residency.NEVER_SEEN), recoverable=0, window_seconds=3600.0),
)
"""12 blocks can match, 4 did, nothing is known of the fifth in an unbroken record: no recent match."""


def but(known: Known = UNSEEN, /, **changes: Any) -> Known:
    """The same with other fields, each in the section that has it: no two sections share a name."""
    changed = _with(known, changes)
    assert isinstance(changed, Known)
    return changed


def _with(section: Any, changes: Changes) -> Any:
    unknown = changes.keys() - _names(UNSEEN)
    assert not unknown, unknown
    own = {name: value for name, value in changes.items() if name in section.__struct_fields__}
    for name in section.__struct_fields__:
        inner = getattr(section, name)
        if name not in own and isinstance(inner, SECTIONS) and changes.keys() & _names(inner):
            own[name] = _with(inner, changes)
    return msgspec.structs.replace(section, **own) if own else section


def _names(section: msgspec.Struct) -> set[str]:
    inner = [getattr(section, name) for name in section.__struct_fields__]
    return {*section.__struct_fields__, *(name for one in inner if isinstance(one, SECTIONS) for name in _names(one))}


SECTIONS = (
    LookupEvidence,
    LocalEvidence,
    TierEvidence,
    FleetEvidence,
    Relations,
    EqualTokens,
    Identities,
    Siblings,
    PromiseEvidence,
    IsolationEvidence,
)


def at(seconds: float, width: float = 0.0) -> Moment:
    """A moment so many seconds before the lookup."""
    return Moment(
        earliest_unix_nanos=NOW - round((seconds + width) * SECOND),
        latest_unix_nanos=NOW - round((seconds - width) * SECOND),
    )


def resident(ahead: int = 8) -> Changes:
    return {"here": Fact(state=Residency.RESIDENT), "dense_ahead": ahead, "recoverable": ahead}


def lost(removal: Removal | None = Removal.REMOVED, seconds: float = 100.0) -> Changes:
    when = at(seconds)
    fact = Fact(state=Residency.EVICTED, removal=removal, at_unix_nanos=when.latest_unix_nanos)
    return {"here": fact, "recoverable": 8, "lost_at": when}


def promised(blocks: int | None = 12, seconds: float = 0.1, **more: Any) -> Changes:
    route = msgspec.structs.replace(RouteDecision(worker="here", predicted_blocks=blocks), **more)
    return {"route": route, "promised_at": at(seconds, 0.05)}


def tier(status: str | None, found: int | None = None, loaded: int | None = None) -> Changes:
    return {"offload": OffloadOutcome(status=status, found_blocks=found, loaded_blocks=loaded)}


HELD: Changes = {"holders": (Holder(stream=OTHER, tier=Tier.DEVICE, leading_blocks=5),)}

SHOWS: dict[tuple[Cause, Reason], Changes] = {
    (Cause.NONE, Reason.NONE): {"first": 12, "cached_tokens": 192, "here": None},
    (Cause.CACHE_DISABLED, Reason.NONE): {"disabled": True},
    (Cause.BELOW_MATCH_UNIT, Reason.NONE): {"match_unit": 784},
    (Cause.SPARSE_RETENTION, Reason.NONE): {"sparse_lost_tokens": 64},
    (Cause.SPECULATIVE_REPLAY, Reason.NONE): {"speculative": True, **resident(1)},
    (Cause.TRANSFER_TIMEOUT, Reason.NONE): tier("timeout", 8, 2),
    (Cause.TRANSFER_FAILED, Reason.NONE): tier("failed", 8, 2),
    (Cause.STALE_INDEX, Reason.NONE): {**lost(), **promised()},
    (Cause.LOOKUP_FAILURE, Reason.NONE): resident(),
    (Cause.TIER_UNREACHABLE, Reason.NONE): {"tiers_holding": (Tier.HOST,), "tier_blocks": 3, **tier("none")},
    (Cause.ROUTING_MISS, Reason.NONE): HELD,
    (Cause.ROUTING_MISS, Reason.HOLDER_KNOWN): {**HELD, **promised(0, best_blocks=9, best_worker="other")},
    (Cause.ROUTING_MISS, Reason.HOLDER_UNKNOWN): {**HELD, **promised(0, best_blocks=0)},
    (Cause.ROUTING_MISS, Reason.PINNED): {**HELD, **promised(0, best_blocks=9, pinned=True)},
    (Cause.EVICTED, Reason.CAPACITY): lost(),
    (Cause.EVICTED, Reason.CLEARED): lost(Removal.CLEARED),
    (Cause.EVICTED, Reason.RESTARTED): lost(Removal.RESTARTED),
    (Cause.EVICTED, Reason.AFTER_ROUTE): {**lost(seconds=1.0), **promised(seconds=2.0)},
    (Cause.EVICTED_ELSEWHERE, Reason.NONE): {"lost_elsewhere": True, "lost_elsewhere_blocks": 6},
    (Cause.EXTRA_KEY_MISMATCH, Reason.NONE): {"differing_kinds": ("cache_salt",), "equal_leading": 8},
    (Cause.IDENTITY_MISMATCH, Reason.NONE): {"same_identity": True, "first": 0, "identity_leading": 8},
    (Cause.TOKEN_DIVERGENCE, Reason.NONE): {"has_siblings": True, "reconverging": 6},
    (Cause.NEW_CONTENT, Reason.NONE): {"extends": True},
    (Cause.NO_RECENT_MATCH, Reason.FIRST_SEEN): {},
    (Cause.NO_RECENT_MATCH, Reason.BRANCH): {"has_siblings": True},
    (Cause.NO_RECENT_MATCH, Reason.CONCURRENT_PREFILL): {"concurrent": True},
    (Cause.UNKNOWN, Reason.EVENTS_DROPPED): {"record_gap": Reason.EVENTS_DROPPED},
    (Cause.UNKNOWN, Reason.HISTORY_EXPIRED): {"equal_gap": Reason.HISTORY_EXPIRED},
    (Cause.UNKNOWN, Reason.HISTORY_SHORT): {"record_gap": Reason.HISTORY_SHORT},
    (Cause.UNKNOWN, Reason.NO_EVENT_SOURCE): {"gap": Reason.NO_EVENT_SOURCE},
    (Cause.UNKNOWN, Reason.FLEET_VIEW_PARTIAL): {"view_gap": Reason.FLEET_VIEW_PARTIAL},
    (Cause.UNKNOWN, Reason.NO_WORKER): {"here": None, "record_gap": Reason.NO_WORKER},
    (Cause.UNKNOWN, Reason.NO_FIRST_MISS_KEY): {"here": None},
    (Cause.UNKNOWN, Reason.AMBIGUOUS_CHAIN): {"gap": Reason.AMBIGUOUS_CHAIN},
    (Cause.UNKNOWN, Reason.AMBIGUOUS_COPIES): {
        "here": Fact(state=Residency.AMBIGUOUS),
        "record_gap": Reason.AMBIGUOUS_COPIES,
    },
    (Cause.UNKNOWN, Reason.CLOCK_SKEW): {**lost(seconds=1.1), **promised(seconds=0.1)},
    (Cause.UNKNOWN, Reason.EVIDENCE_LATE): {"holder_gap": Reason.EVIDENCE_LATE},
    (Cause.UNKNOWN, Reason.LOOKUP_UNSEEN): {**resident(), "lookup_seen": False},
    (Cause.UNKNOWN, Reason.PARTIAL_TRACE): {"offload_gap": Reason.PARTIAL_TRACE},
    (Cause.UNKNOWN, Reason.NO_CACHED_TOKENS): {"gap": Reason.NO_CACHED_TOKENS, "first": None, "cached_tokens": None},
}
"""For each cause and reason a difference from ``UNSEEN`` that shows it."""


def judged(known: Known, policy: Policy = COMPLETE) -> Verdict:
    return decide(known, policy)
