"""What the serving worker's record says of the missed blocks, where it is not clear or not whole."""

from __future__ import annotations

import pytest

from tests.evidence.told import ME, Event, Told, asked, became, held, hole, reading
from whymiss.evidence.sections.local import local_evidence
from whymiss.model import Grade, GroupSpec, LocalEvidence, Lookup, LookupEvidence, Reason, Residency

EVICTED, AMBIGUOUS, UNKNOWN = Residency.EVICTED, Residency.AMBIGUOUS, Residency.UNKNOWN
DENSE = GroupSpec(group=0, kind="full_attention", block_size=16)
MAMBA = GroupSpec(group=1, kind="mamba", block_size=16)


def facts(
    record: Told, *chain: int, present: bool | None = None, undecided: bool = False, blocks: int = 4, first: int = 0
) -> LocalEvidence:
    """The record of a lookup that missed a chain of a prompt of so many blocks and a token."""
    lookup = None if present is None else Lookup(present=present)
    missed = asked(record, reading(*chain, undecided=undecided, first=first), 16 * blocks + 1)
    return local_evidence(missed, LookupEvidence(grade=Grade.DIRECT), lookup, 0.0)


# --- the first missed block ------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [became(AMBIGUOUS, 1), became(UNKNOWN, 1)])
def test_the_engines_own_look_settles_what_the_record_leaves_unclear(events: list[Event]) -> None:
    said = facts(Told(events=events), 1, 2, 3, 4, present=True)
    assert said.here is not None
    assert (said.here.state, said.record_gap) == (Residency.RESIDENT, Reason.NONE)


def test_the_engines_own_look_settles_what_happened_around_the_lookup() -> None:
    said = facts(Told(events=held(1)), 1, 2, 3, 4, present=True, undecided=True)
    assert said.here is not None
    assert (said.here.state, said.record_gap) == (Residency.RESIDENT, Reason.NONE)
    assert facts(Told(events=held(1)), 1, 2, 3, 4, undecided=True).record_gap is Reason.EVIDENCE_LATE


@pytest.mark.parametrize(("present", "resident"), [(True, False), (False, True)])
def test_an_engine_and_events_that_contradict_each_other_leave_the_block_unclear(present: bool, resident: bool) -> None:
    events = held(1) if resident else [*held(1), *became(EVICTED, 1)]
    said = facts(Told(events=events, specs=[DENSE]), 1, 2, 3, 4, present=present)
    assert said.here is not None
    assert (said.here.state, said.record_gap) == (AMBIGUOUS, Reason.AMBIGUOUS_COPIES)
    assert facts(Told(events=events), 1, 2, 3, 4, present=not present).record_gap is Reason.NONE


def test_a_block_that_some_group_lacks_contradicts_no_record_of_the_dense_group() -> None:
    said = facts(Told(events=held(1), specs=[DENSE, MAMBA]), 1, 2, 3, 4, present=False)
    assert said.here is not None
    assert (said.here.state, said.record_gap) == (Residency.RESIDENT, Reason.NONE)
    # All groups have it, so the dense one does.
    assert facts(Told(specs=[DENSE, MAMBA]), 1, 2, 3, 4, present=True).record_gap is Reason.AMBIGUOUS_COPIES


def test_an_unclear_first_block_has_a_reason() -> None:
    assert facts(Told(events=became(AMBIGUOUS, 1)), 1, 2, 3, 4).record_gap is Reason.AMBIGUOUS_COPIES
    assert facts(Told(events=became(UNKNOWN, 1)), 1, 2, 3, 4).record_gap is Reason.HISTORY_EXPIRED
    holed = Told(events=became(UNKNOWN, 1), holes={ME: hole(700, 800)})
    assert facts(holed, 1, 2, 3, 4).record_gap is Reason.EVENTS_DROPPED


def test_an_eviction_needs_no_record_of_what_was_before_and_an_absence_does() -> None:
    holes = {ME: hole(100, 200)}
    gone = facts(Told(events=became(EVICTED, 1), holes=holes), 1, 2, 3, 4)
    assert gone.record_gap is Reason.NONE
    assert facts(Told(holes=holes), 1, 2, 3, 4).record_gap is Reason.EVENTS_DROPPED
    assert facts(Told(), 1, 2, 3, 4).record_gap is Reason.NONE


def test_only_an_eviction_has_an_age() -> None:
    assert facts(Told(events=became(EVICTED, 1, at=600)), 1, 2, 3, 4).eviction_age_nanos == 400
    assert facts(Told(events=held(1)), 1, 2, 3, 4).eviction_age_nanos is None


# --- what follows it ------------------------------------------------------------------------------------


def test_a_hole_behind_what_is_held_here_may_hide_more_of_it() -> None:
    for state, gap in ((AMBIGUOUS, Reason.AMBIGUOUS_COPIES), (UNKNOWN, Reason.EVENTS_DROPPED), (EVICTED, Reason.NONE)):
        said = facts(Told(events=[*held(1, 2), *became(state, 3)]), 1, 2, 3, 4)
        assert (said.dense_ahead, said.ahead_gap) == (2, gap)


def test_blocks_without_a_key_may_be_held_here_too() -> None:
    assert facts(Told(events=held(1, 2)), 1, 2).ahead_gap is Reason.NO_FIRST_MISS_KEY
    assert facts(Told(events=held(1)), 1, 2).ahead_gap is Reason.NONE
    assert facts(Told(events=held(1, 2)), 1, 2, blocks=2).ahead_gap is Reason.NONE


def test_what_an_eviction_cost_is_said_only_where_no_further_block_may_have_been_lost() -> None:
    gone = became(EVICTED, 1, 2)
    assert facts(Told(events=[*gone, *held(3)]), 1, 2, 3, 4).recoverable == 3
    assert facts(Told(events=[*gone, *became(AMBIGUOUS, 3)]), 1, 2, 3, 4).recoverable is None
    assert facts(Told(events=gone, holes={ME: hole(100, 200)}), 1, 2, 3, 4).recoverable is None
    assert facts(Told(events=gone), 1, 2).recoverable is None, "there are blocks whose keys are not known"
    assert facts(Told(events=gone), 1, 2, blocks=2).recoverable == 2


# --- sparse groups ---------------------------------------------------------------------------------------


def vetoed(record: Told, *, first: int = 0, unit: int | None = None) -> tuple[int | None, Reason]:
    missed = asked(record, reading(1, 2, 3, 4, first=first), 16 * (first + 4) + 1)
    said = local_evidence(missed, LookupEvidence(grade=Grade.DIRECT, match_unit=unit), None, 0.0)
    return said.sparse_boundary, said.sparse_gap


def sparse(*events: list[Event], spec: GroupSpec = MAMBA, dense: tuple[int, ...] = (1, 2), **told: object) -> Told:
    return Told(events=[*held(*dense), *[one for some in events for one in some]], specs=[DENSE, spec], **told)  # type: ignore[arg-type]


def test_a_state_that_was_lost_vetoes_the_boundary_that_the_dense_group_held() -> None:
    assert vetoed(sparse(became(EVICTED, 1, 2, group=1))) == (2, Reason.NONE)
    assert vetoed(sparse()) == (2, Reason.NONE)


def test_a_sparse_group_that_held_a_boundary_vetoed_none() -> None:
    assert vetoed(sparse(held(2, group=1))) == (None, Reason.NONE)
    assert vetoed(sparse(held(1, group=1))) == (None, Reason.NONE), "a shorter match was possible as well"


def test_where_no_whole_unit_lies_beyond_the_first_miss_there_is_nothing_to_veto() -> None:
    assert vetoed(sparse(), unit=64) == (None, Reason.NONE)
    assert vetoed(sparse(became(EVICTED, 1, 2, group=1), dense=())) == (None, Reason.NONE)


def test_without_a_dense_group_no_boundary_is_known() -> None:
    record = Told(events=held(1, 2), specs=[MAMBA])
    assert vetoed(record) == (None, Reason.NONE)


def test_a_sparse_group_whose_copies_are_unclear_leaves_the_veto_open() -> None:
    assert vetoed(sparse(became(AMBIGUOUS, 1, 2, group=1))) == (None, Reason.AMBIGUOUS_COPIES)
    assert vetoed(sparse(became(UNKNOWN, 1, 2, group=1))) == (None, Reason.AMBIGUOUS_COPIES)


def test_a_state_that_was_never_seen_vetoes_only_in_a_whole_record() -> None:
    end = became(EVICTED, 3)
    assert vetoed(sparse(end)) == (2, Reason.NONE)
    assert vetoed(sparse(end, holes={ME: hole(100, 200)})) == (None, Reason.EVENTS_DROPPED)


def test_a_window_needs_all_of_its_blocks() -> None:
    window = GroupSpec(group=1, kind="sliding_window", block_size=16, window=33)
    assert vetoed(sparse(held(2, group=1), became(EVICTED, 1, group=1), spec=window)) == (2, Reason.NONE)
    assert vetoed(sparse(held(1, 2, group=1), spec=window)) == (None, Reason.NONE)


def test_a_boundary_is_named_only_if_the_dense_group_surely_ends_there() -> None:
    lost = became(EVICTED, 1, 2, 3, group=1)
    assert vetoed(sparse(lost, became(AMBIGUOUS, 3))) == (None, Reason.AMBIGUOUS_COPIES)
    assert vetoed(sparse(lost, became(EVICTED, 3))) == (2, Reason.NONE)
    # Nothing was vetoed: what may be held beyond it does not matter.
    assert vetoed(sparse(held(1, 2, group=1), became(AMBIGUOUS, 3))) == (None, Reason.NONE)


# --- a block that was never seen between others that were ------------------------------------------------


@pytest.mark.parametrize("later", [held(4), [*held(4), *became(EVICTED, 4)]])
def test_a_block_never_seen_before_one_that_was_ends_no_chain(later: list[Event]) -> None:
    said = facts(Told(events=[*held(1, 2), *later]), 1, 2, 3, 4)
    assert said.here is not None
    assert (said.here.state, said.record_gap) == (Residency.RESIDENT, Reason.NONE)
    assert (said.dense_ahead, said.ahead_gap, said.recoverable) == (2, Reason.AMBIGUOUS_CHAIN, None)


def test_a_block_never_seen_ends_a_chain_where_no_later_one_was() -> None:
    said = facts(Told(events=held(1, 2)), 1, 2, 3, 4)
    assert (said.dense_ahead, said.ahead_gap, said.recoverable) == (2, Reason.NONE, 2)


def test_an_evicted_block_ends_what_is_held_whatever_follows() -> None:
    said = facts(Told(events=[*held(1, 2, 3, 4), *became(EVICTED, 2)]), 1, 2, 3, 4)
    assert (said.dense_ahead, said.ahead_gap, said.recoverable) == (1, Reason.NONE, 4)


@pytest.mark.parametrize("later", [held(2), [*held(2), *became(EVICTED, 2)]])
def test_a_first_missed_block_never_seen_before_one_that_was_proves_nothing(later: list[Event]) -> None:
    said = facts(Told(events=later), 1, 2, 3, 4)
    assert said.here is not None
    assert (said.here.state, said.record_gap) == (Residency.NEVER_SEEN, Reason.AMBIGUOUS_CHAIN)
    assert facts(Told(events=later), 1).record_gap is Reason.NONE


def test_a_hole_explains_a_block_that_was_never_seen_first() -> None:
    said = facts(Told(events=held(2), holes={ME: hole(100, 200)}), 1, 2, 3, 4)
    assert said.record_gap is Reason.EVENTS_DROPPED


def test_a_sparse_group_may_hold_a_block_without_its_parent() -> None:
    said = facts(Told(events=[*held(1, 2, 4)], specs=[MAMBA]), 1, 2, 3, 4)
    assert (said.dense_ahead, said.ahead_gap, said.recoverable) == (2, Reason.NONE, 2)
    assert facts(Told(events=held(2), specs=[MAMBA]), 1, 2, 3, 4).record_gap is Reason.NONE
