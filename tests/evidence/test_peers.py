"""What another worker's record leaves open around a lookup."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evidence.told import (
    LOOKED,
    ME,
    OTHER,
    Event,
    Told,
    became,
    held,
    hole,
    lives,
    numbered,
    peers_of,
    reading,
)
from whymiss.evidence.requests.request_log import RequestLog
from whymiss.model import Hole, Reason, Removal, Residency, StreamId, Tier

TOLERANCE = 10
NOBODY = lives()
KEY = 1


def doubt(record: Told, log: RequestLog = NOBODY, decodes: tuple[bytes, ...] = (), tier: Tier = Tier.DEVICE) -> Reason:
    """Why it is not known what the other worker held at the lookup."""
    peers = peers_of(record, reading(KEY, decodes=decodes), log)
    (peer,) = [one for one in peers.all() if one.stream == OTHER]
    (fact,) = peer.record.as_of((KEY,), peer.at.before, tier=tier)
    return peers.doubt(peer, tier, KEY, fact)


def told(**more: Any) -> Told:
    return Told(**{"others": [OTHER], **more})


# --- states ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Residency.AMBIGUOUS, Reason.AMBIGUOUS_COPIES),
        (Residency.UNKNOWN, Reason.FLEET_VIEW_PARTIAL),
        (Residency.EVICTED, Reason.NONE),
        (Residency.RESIDENT, Reason.NONE),
    ],
)
def test_what_is_unclear_elsewhere_is_in_doubt(state: Residency, expected: Reason) -> None:
    assert doubt(told(events=became(state, KEY, by=OTHER))) is expected


@pytest.mark.parametrize(
    ("lost", "expected"), [(hole(600, 700), Reason.FLEET_VIEW_PARTIAL), (hole(100, 200), Reason.NONE)]
)
def test_a_hole_since_the_last_word_on_a_block_may_hide_another(lost: Hole, expected: Reason) -> None:
    assert doubt(told(events=held(KEY, by=OTHER, at=500), holes={OTHER: lost})) is expected


def test_a_hole_anywhere_in_the_window_may_hide_the_only_word_on_a_block() -> None:
    assert doubt(told(holes={OTHER: hole(100, 200)})) is Reason.FLEET_VIEW_PARTIAL
    assert doubt(told()) is Reason.NONE


# --- clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "sure"), [(989, True), (991, False), (1009, False), (1012, True)])
def test_a_change_inside_the_tolerance_is_undecided_whoever_came_meanwhile(at: int, sure: bool) -> None:
    # Who came right behind the lookup may have been before it on this worker's clock.
    meanwhile = lives((OTHER, 1011 if at > 1010 else 1004, at - 1, at + 100))
    record = told(events=held(KEY, by=OTHER, at=at), batches={OTHER: [1012]})
    assert (doubt(record, meanwhile) is Reason.NONE) is sure


def test_clocks_that_show_to_be_apart_are_compared_with_more_tolerance() -> None:
    moved = held(KEY, by=OTHER, at=LOOKED - 50)
    assert doubt(told(events=moved, offsets={ME: 7, OTHER: 9})) is Reason.NONE
    assert doubt(told(events=moved, offsets={ME: 7, OTHER: 107})) is Reason.CLOCK_SKEW
    assert doubt(told(events=moved, offsets={ME: 107, OTHER: 7})) is Reason.CLOCK_SKEW


# --- the next batch --------------------------------------------------------------------------------------

NEXT = 1500


def next_says(*events: Event, came: int | None = None) -> Reason:
    """The doubt where the next batch of a worker changes the block, for requests that came at a time."""
    recent = NOBODY if came is None else lives((OTHER, came, came + 10, NEXT + 100))
    return doubt(told(events=[*held(KEY, by=OTHER), *events], batches={OTHER: [NEXT]}), recent)


def test_the_next_step_of_another_worker_may_have_begun_before_the_lookup() -> None:
    again = held(KEY, by=OTHER, at=NEXT)
    assert next_says(*again, came=1400) is Reason.NONE, "all requests of that step came later"
    assert next_says(*again, came=900) is Reason.CLOCK_SKEW
    assert next_says(*again) is Reason.CLOCK_SKEW, "nobody is known to have asked for that work"


@pytest.mark.parametrize("removal", [Removal.CLEARED, Removal.RESTARTED])
def test_a_reset_is_no_requests_doing(removal: Removal) -> None:
    reset = Event(OTHER, NEXT, KEY, Residency.EVICTED, removal=removal)
    assert next_says(reset, came=1400) is Reason.CLOCK_SKEW
    removed = Event(OTHER, NEXT, KEY, Residency.EVICTED, removal=Removal.REMOVED)
    assert next_says(removed, came=1400) is Reason.NONE


def test_a_hole_is_no_requests_doing() -> None:
    assert next_says(Event(OTHER, NEXT, KEY, Residency.UNKNOWN), came=1400) is Reason.CLOCK_SKEW


def test_a_worker_that_has_been_silent_since_is_late() -> None:
    assert doubt(told(events=held(KEY, by=OTHER), batches={OTHER: []})) is Reason.EVIDENCE_LATE


# --- the request's own decode half ------------------------------------------------------------------------

DECODER = (OTHER, 900, 950, 1200)
"""The other worker's part in the request, which was looked up at 1000."""


def received(*events: Event, others: tuple[tuple[StreamId, int, int, int], ...] = (), half: bool = True) -> Reason:
    """The doubt about a worker that decodes for the request."""
    recent = lives(DECODER, *others)
    return doubt(told(events=list(events), batches={OTHER: [1005, NEXT]}), recent, (numbered(1 if half else 9),))


def test_what_a_decode_half_receives_is_no_doubt_about_the_lookup() -> None:
    assert received(*held(KEY, by=OTHER, at=1005)) is Reason.NONE
    assert received(*held(KEY, by=OTHER, at=1005), half=False) is Reason.CLOCK_SKEW


def test_without_a_pair_nothing_is_received() -> None:
    queued = lives((OTHER, 1400, 1600, 1700))
    record = told(events=[*held(KEY, by=OTHER), *held(KEY, by=OTHER, at=NEXT)], batches={OTHER: [NEXT]})
    assert doubt(record, queued) is Reason.CLOCK_SKEW, "the request that came by then may have been looked up later"


def test_a_decode_half_removes_nothing_of_its_own() -> None:
    gone = Event(OTHER, 1005, KEY, Residency.EVICTED, removal=Removal.REMOVED)
    assert received(*held(KEY, by=OTHER), gone) is Reason.CLOCK_SKEW


def test_what_happened_before_the_store_of_a_decode_half_may_have_come_after_the_lookup() -> None:
    gone = Event(OTHER, 995, KEY, Residency.EVICTED, removal=Removal.REMOVED)
    assert received(*held(KEY, by=OTHER), gone, *held(KEY, by=OTHER, at=1005)) is Reason.CLOCK_SKEW


def test_another_request_that_was_there_may_have_stored_the_block() -> None:
    stored = held(KEY, by=OTHER, at=1005)
    assert received(*stored, others=((OTHER, 990, 995, 1100),)) is Reason.CLOCK_SKEW
    assert received(*stored, others=((OTHER, 1300, 1310, 1400),)) is Reason.NONE


def test_requests_that_came_after_the_lookup_are_no_rivals_of_the_decode_half() -> None:
    record = told(events=held(KEY, by=OTHER, at=NEXT), batches={OTHER: [NEXT]})
    slow, later, earlier = (OTHER, 900, 950, 1600), (OTHER, 1400, 1410, 1600), (OTHER, 980, 990, 1600)
    assert doubt(record, lives(slow, later), (numbered(1),)) is Reason.NONE
    assert doubt(record, lives(slow, earlier), (numbered(1),)) is Reason.CLOCK_SKEW


def test_a_store_of_nobody_is_not_a_decode_halfs() -> None:
    record = told(events=held(KEY, by=OTHER, at=1005))
    assert doubt(record, NOBODY, (numbered(1),)) is Reason.CLOCK_SKEW


def test_a_decode_half_receives_on_the_device() -> None:
    lost = Event(OTHER, 1004, KEY, Residency.EVICTED, Tier.HOST, removal=Removal.REMOVED)
    record = told(events=[*held(KEY, by=OTHER, tier=Tier.HOST), lost, *held(KEY, by=OTHER, at=1005)])
    assert doubt(record, lives(DECODER), (numbered(1),), Tier.HOST) is Reason.CLOCK_SKEW


def test_a_decode_half_that_has_not_spoken_since_is_late() -> None:
    record = told(events=held(KEY, by=OTHER), batches={OTHER: []})
    assert doubt(record, lives(DECODER), (numbered(1),)) is Reason.EVIDENCE_LATE


# --- whatever happened -----------------------------------------------------------------------------------

HAPPENED = st.lists(
    st.builds(
        Event,
        st.just(OTHER),
        st.integers(0, 2 * LOOKED),
        st.just(KEY),
        st.sampled_from([Residency.RESIDENT, Residency.EVICTED]),
    ),
    max_size=6,
).map(lambda events: sorted(events, key=lambda event: event.at))
CAME = st.lists(st.integers(0, 2 * LOOKED), max_size=3).map(
    lambda times: lives(*((OTHER, at, at + 5, at + 50) for at in times))
)


@given(HAPPENED, CAME, st.booleans())
def test_whatever_happened_nothing_is_certain_behind_a_hole_or_without_a_later_batch(
    events: list[Event], recent: RequestLog, half: bool
) -> None:
    decodes = (numbered(1),) if half else ()
    assert doubt(told(events=events, holes={OTHER: hole(0, LOOKED)}), recent, decodes) is not Reason.NONE
    assert doubt(told(events=events, batches={OTHER: []}), recent, decodes) is not Reason.NONE


@given(HAPPENED, CAME)
def test_whatever_happened_only_a_pair_explains_a_change_inside_the_tolerance(
    events: list[Event], recent: RequestLog
) -> None:
    near = [event for event in events if abs(event.at - LOOKED) < TOLERANCE]
    said = doubt(told(events=events, batches={OTHER: [2 * LOOKED + 1]}), recent)
    assert not near or said is Reason.CLOCK_SKEW
