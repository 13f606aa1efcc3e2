"""What one part of a fleet says and what another one says give what the whole says."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Protocol, Self, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from tests.evidence.told import LOOKED, ME, Event, Told, hole, lives, peers_of, reading
from whymiss.evidence.peers import Gap
from whymiss.evidence.requests.request_log import RequestLog
from whymiss.evidence.sections.fleet import Holdings, holdings
from whymiss.evidence.sections.relations import (
    FoundIdentities,
    FoundSiblings,
    found_identities,
    is_computed,
    own_siblings,
    siblings_among,
)
from whymiss.evidence.sections.tiers import shared_tiers
from whymiss.model import Block, Holder, Peer, Reason, Removal, Repeats, Residency, Store, StreamId, Tier

CHAIN = (1, 2, 3)
EQUAL, SIBLING, PARENT = 51, 61, 99
OTHERS = [StreamId(name, 0) for name in ("a", "b", "x", "y")]
"""Two of them before the serving worker in the order of streams, and two behind it."""


class Merges(Protocol):
    def merged(self, other: Self) -> Self: ...


Part = TypeVar("Part", bound=Merges)
Drawn = TypeVar("Drawn")


def events() -> st.SearchStrategy[list[Event]]:
    one = st.builds(
        Event,
        st.sampled_from(OTHERS),
        st.sampled_from([300, 500, LOOKED - 5, LOOKED + 5, 1500]),
        st.sampled_from([*CHAIN, EQUAL]),
        st.sampled_from([Residency.RESIDENT, Residency.RESIDENT, Residency.EVICTED, Residency.AMBIGUOUS]),
        st.sampled_from([Tier.DEVICE, Tier.DEVICE, Tier.HOST]),
    )
    return st.lists(one, max_size=14).map(
        lambda found: sorted([with_removal(event) for event in found], key=lambda event: event.at)
    )


def with_removal(event: Event) -> Event:
    removal = Removal.REMOVED if event.state is Residency.EVICTED else None
    return Event(event.stream, event.at, event.key, event.state, event.tier, removal=removal)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Told, RequestLog, int]:
    """A fleet around one lookup, who was in its prefill, and the index of the first missed block."""

    def some(of: st.SearchStrategy[Drawn]) -> dict[StreamId, Drawn]:
        return draw(st.dictionaries(st.sampled_from(OTHERS), of, max_size=4))

    first = draw(st.sampled_from([0, 1]))
    extras = st.sampled_from([7, 7, 8, None])
    equal = st.lists(extras.map(lambda one: Block(key=EQUAL, parent=None, depth=0, extras=one)), max_size=2)
    under = st.lists(st.tuples(st.sampled_from([400, LOOKED + 5, 1500]), st.sampled_from([1, SIBLING])), max_size=2)
    repeats = st.builds(Repeats, blocks=st.integers(0, 2), complete=st.booleans())
    repeated = st.lists(st.tuples(st.sampled_from([400, LOOKED + 5, 1500]), repeats), max_size=2)
    stored = st.sampled_from([CHAIN, (41,)]).map(
        lambda keys: [Store(keys=keys, start=0, parent=None, position=1200, unix_nanos=1200)]
    )
    own = draw(st.sampled_from([[], [(400, SIBLING)]]))
    told = Told(
        others=OTHERS,
        owners=OTHERS,
        events=draw(events()),
        below=some(st.just([Tier.HOST])),
        holes=some(st.sampled_from([hole(100, 200), hole(600, 700)])),
        batches=some(st.sampled_from([[], [1500]])),
        blocks={(ME, 1): Block(key=1, parent=PARENT, depth=first, tokens=5, prefix=5, extras=draw(extras))},
        alike=some(equal),
        leading=some(st.integers(1, 3)),
        under={ME: own, **some(under.map(sorted))},
        repeated=some(repeated.map(lambda found: sorted(found, key=lambda one: one[0]))),
        stores=some(stored),
    )
    came = draw(st.lists(st.tuples(st.sampled_from(OTHERS), st.sampled_from([900, 1400])), max_size=3))
    return told, lives(*((stream, at, at + 50, at + 400) for stream, at in came)), first


def split_agrees(found: list[Peer], cut: int, ask: Callable[[list[Peer]], Part]) -> None:
    """The whole, and any two parts of it in any order; parts are divided by the bits of a number."""
    parts = [[peer for at, peer in enumerate(found) if cut >> at & 1 == side] for side in (0, 1)]
    whole, (one, other) = ask(found), (ask(part) for part in parts)
    assert one.merged(other) == whole
    assert other.merged(one) == whole
    assert reduce(lambda left, right: left.merged(right), [ask([peer]) for peer in found]) == whole


CUTS = st.integers(0, 15)


@given(fleets(), CUTS, st.booleans())
def test_what_parts_of_a_fleet_hold_and_lost_is_what_the_whole_holds_and_lost(
    fleet: tuple[Told, RequestLog, int], cut: int, unseen: bool
) -> None:
    told, log, first = fleet
    peers = peers_of(told, reading(*CHAIN, first=first), log)
    split_agrees(list(peers.that_may_know()), cut, lambda part: holdings(peers, part, unseen=unseen))


@given(fleets(), CUTS)
def test_storage_that_is_asked_in_parts_holds_what_it_holds(fleet: tuple[Told, RequestLog, int], cut: int) -> None:
    told, log, first = fleet
    peers = peers_of(told, reading(*CHAIN, first=first), log)
    split_agrees(list(peers.storage()), cut, lambda part: shared_tiers(peers, part))


@given(fleets(), CUTS)
def test_identities_of_parts_are_those_of_the_whole(fleet: tuple[Told, RequestLog, int], cut: int) -> None:
    told, log, first = fleet
    peers = peers_of(told, reading(*CHAIN, first=first), log)
    split_agrees(list(peers.all()), cut, lambda part: found_identities(peers, part))


@given(fleets(), CUTS)
def test_siblings_of_parts_are_those_of_the_whole(fleet: tuple[Told, RequestLog, int], cut: int) -> None:
    told, log, first = fleet
    peers = peers_of(told, reading(*CHAIN, first=first), log)
    split_agrees(list(peers.all()), cut, lambda part: siblings_among(peers, part))
    # With the serving worker's own the order does not matter either.
    own, whole = own_siblings(peers), siblings_among(peers, peers.all())
    known = own.merged(siblings_among(peers, peers.all(), known=own.known))
    assert own.merged(whole) == whole.merged(own) == known


@given(fleets(), CUTS)
def test_a_block_is_computed_by_the_whole_where_it_is_by_a_part(fleet: tuple[Told, RequestLog, int], cut: int) -> None:
    told, log, first = fleet
    peers = peers_of(told, reading(*CHAIN, first=first), log)
    records = [peer.record for peer in peers.all()]
    parts = [[record for at, record in enumerate(records) if cut >> at & 1 == side] for side in (0, 1)]
    assert any(is_computed(peers, part) for part in parts) is is_computed(peers, records)


def of_two(one: Holdings, other: Holdings) -> Holdings:
    assert one.merged(other) == other.merged(one)
    return one.merged(other)


LOST, HELD = Holdings(lost=True, lost_blocks=2), Holdings(holders=(Holder(stream=OTHERS[0], leading_blocks=1),))


def test_what_one_part_lost_is_not_counted_where_another_part_holds_it() -> None:
    assert of_two(LOST, HELD) == Holdings(holders=HELD.holders, lost=True)


def test_of_what_two_parts_lost_the_most_counts_where_both_are_sure() -> None:
    assert of_two(LOST, Holdings(lost=True, lost_blocks=3)).lost_blocks == 3
    assert of_two(LOST, Holdings(lost=True)).lost_blocks is None
    assert of_two(LOST, Holdings()).lost_blocks == 2


def test_a_sibling_in_one_part_settles_who_may_have_had_one_in_another() -> None:
    late = FoundSiblings(late=Gap(OTHERS[1], Reason.EVIDENCE_LATE))
    assert late.gap is Reason.EVIDENCE_LATE
    assert late.merged(FoundSiblings(known=True)).gap is FoundSiblings(known=True).merged(late).gap is Reason.NONE
    earlier = FoundSiblings(unsure=Gap(OTHERS[0], Reason.CLOCK_SKEW))
    assert late.merged(earlier).gap is earlier.merged(late).gap is Reason.CLOCK_SKEW, (
        "the first in the order of streams"
    )


def test_an_unclear_identity_in_one_part_leaves_that_of_another_open() -> None:
    unclear = FoundIdentities(gap=Gap(OTHERS[1], Reason.AMBIGUOUS_CHAIN))
    held = FoundIdentities(leading=3)
    assert unclear.merged(held) == held.merged(unclear) == unclear
    assert held.merged(FoundIdentities(leading=1)) == held
