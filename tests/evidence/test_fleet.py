"""Holders, tiers and losers of a block: what is counted, and what only looks like one."""

from __future__ import annotations

import pytest

from tests.evidence.told import (
    LOOKED,
    ME,
    OTHER,
    THIRD,
    Elsewhere,
    Event,
    Told,
    asked,
    became,
    elsewhere,
    held,
    hole,
    lives,
    numbered,
    reading,
)
from whymiss.evidence.requests.request_log import RequestLog
from whymiss.model import Block, Fact, GroupSpec, Reason, Removal, Residency, Store, StreamId, Tier, TierEvidence

CHAIN = (1, 2, 3)
STORAGE, MORE = StreamId("SHARED_STORAGE", 0), StreamId("more storage", 0)
EVICTED, AMBIGUOUS = Residency.EVICTED, Residency.AMBIGUOUS


def facts(
    record: Told,
    log: RequestLog | None = None,
    *,
    here: Residency = Residency.NEVER_SEEN,
    first: int = 0,
    decodes: tuple[bytes, ...] = (),
) -> Elsewhere:
    """What others have of a lookup that missed ``CHAIN`` here."""
    missed = reading(*CHAIN, first=first, decodes=decodes)
    return elsewhere(record, missed, log, unseen=here is Residency.NEVER_SEEN)


# --- holders ---------------------------------------------------------------------------------------------


def test_what_only_looks_like_a_holder_may_be_one_and_leaves_the_view_partial() -> None:
    said = facts(Told(others=[OTHER], events=held(1, by=OTHER), batches={OTHER: []})).fleet
    assert (said.holders, said.holder_gap, said.view_gap) == ((), Reason.EVIDENCE_LATE, Reason.EVIDENCE_LATE)


def test_a_doubt_about_a_worker_without_the_block_leaves_the_view_partial_and_makes_no_holder() -> None:
    said = facts(Told(others=[OTHER], events=became(EVICTED, 1, by=OTHER), batches={OTHER: []})).fleet
    assert (said.holders, said.holder_gap, said.view_gap) == ((), Reason.NONE, Reason.EVIDENCE_LATE)


def test_how_much_a_holder_holds_is_said_only_where_no_further_block_may_be_held() -> None:
    for state, blocks in ((AMBIGUOUS, None), (EVICTED, 2)):
        record = Told(others=[OTHER], events=[*held(1, 2, by=OTHER), *became(state, 3, by=OTHER)])
        assert [one.leading_blocks for one in facts(record).fleet.holders] == [blocks]
    holed = Told(others=[OTHER], events=held(1, 2, by=OTHER), holes={OTHER: hole(100, 200)})
    assert [one.leading_blocks for one in facts(holed).fleet.holders] == [None]
    assert facts(Told(others=[OTHER])).fleet.holders == (), "who never had it holds none"


def test_a_block_never_seen_before_one_that_was_does_not_end_what_a_holder_holds() -> None:
    record = Told(others=[OTHER], events=held(1, 3, by=OTHER))
    assert [one.leading_blocks for one in facts(record).fleet.holders] == [None]
    sparse = Told(others=[OTHER], events=held(1, 3, by=OTHER), specs=[GroupSpec(group=1, kind="mamba")])
    assert [one.leading_blocks for one in facts(sparse).fleet.holders] == [1]
    tier = Told(others=[OTHER], events=held(1, 3, by=OTHER, tier=Tier.HOST), below={OTHER: [Tier.HOST]})
    assert [one.leading_blocks for one in facts(tier).fleet.holders] == [1]


def test_a_block_never_seen_before_one_that_was_does_not_end_what_a_worker_lost() -> None:
    assert lost(*became(EVICTED, 1, 2, by=OTHER)) == (True, 2)
    assert lost(*became(EVICTED, 1, 3, by=OTHER)) == (True, None)


# --- losers ----------------------------------------------------------------------------------------------


def lost(*events: Event, others: list[StreamId] | None = None) -> tuple[bool, int | None]:
    said = facts(Told(others=others or [OTHER, THIRD], events=list(events), below={OTHER: [Tier.HOST]})).fleet
    return said.lost_elsewhere, said.lost_elsewhere_blocks


def test_a_tier_that_lost_a_block_is_no_worker_that_lost_it() -> None:
    gone = Event(OTHER, 600, 1, EVICTED, Tier.HOST, removal=Removal.REMOVED)
    assert lost(gone) == (False, None)
    assert lost(*became(EVICTED, 1, by=OTHER)) == (True, 1)


def test_how_much_was_lost_is_not_counted_where_another_holds_it() -> None:
    assert lost(*became(EVICTED, 1, by=OTHER), *held(1, by=THIRD)) == (True, None)


def test_what_was_lost_before_the_window_is_told_of_nowhere() -> None:
    assert lost(*became(EVICTED, 1, by=OTHER, at=-1)) == (False, None)
    assert lost(*became(EVICTED, 1, by=OTHER, at=0)) == (True, 1)
    assert asked(Told(), reading(1)).in_window(Fact(state=EVICTED)), "it is not told when"


def test_what_losers_had_is_said_only_where_no_one_may_have_had_more() -> None:
    sure, unsure = became(EVICTED, 1, by=OTHER), became(EVICTED, 1, 2, by=THIRD)
    assert lost(*sure, *unsure) == (True, 2)
    assert lost(*sure, *unsure, *became(AMBIGUOUS, 3, by=THIRD)) == (True, None)


# --- tiers that workers share ----------------------------------------------------------------------------


def shared(*events: Event, **told: object) -> TierEvidence:
    below = {STORAGE: [Tier.REMOTE], MORE: [Tier.DISK]}
    return facts(Told(owners=[STORAGE, MORE], below=below, events=list(events), **told), here=EVICTED).tiers  # type: ignore[arg-type]


def test_what_shared_storage_holds_is_within_reach() -> None:
    said = shared(*held(1, 2, by=STORAGE, tier=Tier.REMOTE))
    assert (said.tiers_holding, said.tier_blocks, said.tier_gap) == ((Tier.REMOTE,), 2, Reason.NONE)
    assert shared().tiers_holding == ()


def test_storage_that_never_says_what_leaves_it_may_have_lost_what_it_got() -> None:
    said = shared(*held(1, by=STORAGE, tier=Tier.REMOTE), keeping=[Tier.REMOTE])
    assert (said.tiers_holding, said.tier_gap) == ((), Reason.AMBIGUOUS_COPIES)
    own = Told(below={ME: [Tier.HOST, Tier.DISK]}, events=[*held(1, tier=Tier.HOST), *held(1, tier=Tier.DISK)])
    own.keeping = [Tier.HOST]
    mine = facts(own, here=EVICTED).tiers
    assert (mine.tiers_holding, mine.tier_gap) == ((Tier.DISK,), Reason.AMBIGUOUS_COPIES)


def test_what_shared_storage_got_around_the_lookup_was_not_surely_there() -> None:
    said = shared(*held(1, by=STORAGE, tier=Tier.REMOTE, at=LOOKED + 5))
    assert (said.tiers_holding, said.tier_gap) == ((), Reason.CLOCK_SKEW)


def test_how_much_storage_holds_is_said_only_where_none_may_hold_more() -> None:
    both = [*held(1, by=STORAGE, tier=Tier.REMOTE), *held(1, 2, by=MORE, tier=Tier.DISK)]
    assert shared(*both).tier_blocks == 2
    assert shared(*both, holes={STORAGE: hole(100, 200)}).tier_blocks is None


def test_storage_that_has_been_idle_since_may_have_lost_what_it_held() -> None:
    assert shared(batches={MORE: []}).tier_gap is Reason.EVIDENCE_LATE


def test_what_this_worker_said_of_tiers_like_another_workers_may_be_in_a_hole() -> None:
    for below, holes, gap in (
        ({OTHER: [Tier.HOST]}, {ME: hole(100, 200)}, Reason.EVENTS_DROPPED),
        ({OTHER: [Tier.HOST]}, {}, Reason.NONE),
        ({}, {ME: hole(100, 200)}, Reason.NONE),
    ):
        assert facts(Told(others=[OTHER], below=below, holes=holes)).tiers.tier_gap is gap


# --- the same tokens under another key --------------------------------------------------------------------

MINE, EQUAL = Block(key=1, parent=None, depth=0, extras=7), Block(key=51, parent=None, depth=0, extras=7)


def alike(*equal: Block, first: int = 0, silent: bool = False) -> tuple[bool, Reason]:
    record = Told(
        others=[OTHER],
        blocks={(ME, 1): MINE},
        alike={OTHER: list(equal or [EQUAL])},
        events=held(51, by=OTHER),
        batches={OTHER: []} if silent else {},
    )
    said = facts(record, first=first).relations.identities
    return said.same_identity, said.identity_gap


def test_unlike_seeds_are_looked_for_wherever_the_miss_begins() -> None:
    assert alike() == (True, Reason.NONE)
    assert alike(first=1) == (True, Reason.NONE)


def test_an_equal_block_is_one_only_if_its_worker_surely_held_it() -> None:
    assert alike(silent=True) == (False, Reason.EVIDENCE_LATE)


@pytest.mark.parametrize(("extras", "gap"), [(8, Reason.NONE), (None, Reason.AMBIGUOUS_CHAIN)])
def test_other_or_unpublished_extra_keys_are_no_unlike_seeds(extras: int | None, gap: Reason) -> None:
    assert alike(Block(key=51, parent=None, depth=0, extras=extras)) == (False, gap)


@pytest.mark.parametrize("counts", [(1, 3, 2), (3, 1, 2), (2, 1, 3)])
def test_unlike_seeds_cost_what_the_best_of_several_workers_held(counts: tuple[int, int, int]) -> None:
    others = [OTHER, THIRD, StreamId("fourth", 0)]
    record = Told(
        others=others,
        blocks={(ME, 1): MINE},
        alike={other: [EQUAL] for other in others},
        leading=dict(zip(others, counts, strict=True)),
        events=[one for other in others for one in held(51, by=other)],
    )
    assert facts(record).relations.identities.identity_leading == 3


# --- who was computing it --------------------------------------------------------------------------------


def computing(by: StreamId, *keys: int, position: int = 1200, at: int = 1200, decodes: tuple[bytes, ...] = ()) -> bool:
    store = Store(keys=keys, start=0, parent=None, position=position, unix_nanos=at)
    record = Told(others=[OTHER], stores={by: [store]})
    return facts(record, lives((by, 900, 950, 1400)), decodes=decodes).relations.concurrent


@pytest.mark.parametrize("by", [ME, OTHER])
def test_a_request_that_was_prefilling_and_stored_the_block_later_was_computing_it(by: StreamId) -> None:
    assert computing(by, 1, 2)
    assert not computing(by, 41, 42), "another prompt"
    assert not computing(by, 1, 2, at=1500), "after its first token"
    assert not computing(by, 1, 2, decodes=(numbered(1),)), "its own other half"


def test_a_requests_own_store_is_no_other_request() -> None:
    assert not computing(ME, 1, 2, position=LOOKED)
    assert computing(OTHER, 1, 2, position=LOOKED), "positions of two streams have nothing in common"
