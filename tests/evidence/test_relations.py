"""Blocks like the missed one: what may be said of them where some record is late, unclear or too long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evidence.told import LOOKED, ME, OTHER, Event, Told, elsewhere, held, lives, peers_of, reading
from whymiss.evidence.requests.request_log import RequestLog
from whymiss.evidence.sections.relations import _LATE_MAX, Relations
from whymiss.model import Block, Reason, Removal, Repeats, Residency, Tier

PARENT, CHAIN = 99, (1, 2, 3)
SIBLING = 51


def block(key: int, extras: int | None = 7, *kinds: str, prefix: int | None = 5) -> Block:
    return Block(key=key, parent=PARENT, depth=1, tokens=5, prefix=prefix, extras=extras, kinds=kinds)


KNOWN = {(ME, key): block(key) for key in (*CHAIN, PARENT)}


def relations(
    record: Told, log: RequestLog | None = None, *, first: int = 1, known: bool = True, **more: Any
) -> Relations:
    """How a lookup that missed ``CHAIN`` under a parent that it hit (block 0 has none) relates to others."""
    for name, value in {"blocks": KNOWN, **more}.items():
        setattr(record, name, value)
    return elsewhere(record, reading(*CHAIN, first=first, known=known), log, known=known).relations


# --- what cannot be compared -----------------------------------------------------------------------------


def test_a_store_that_is_still_on_its_way_is_late_and_one_that_never_comes_is_of_another_family() -> None:
    assert relations(Told(), blocks={}).equal_tokens.equal_gap is Reason.NO_FIRST_MISS_KEY
    assert relations(Told(batches={ME: []}), blocks={}).equal_tokens.equal_gap is Reason.EVIDENCE_LATE
    untold = {**KNOWN, (ME, 1): block(1, prefix=None)}
    assert relations(Told(batches={ME: []}), blocks=untold).equal_tokens.equal_gap is Reason.NO_FIRST_MISS_KEY


def test_a_parent_that_was_hit_and_is_not_known_was_stored_before_the_record() -> None:
    orphan = {key: one for key, one in KNOWN.items() if key != (ME, PARENT)}
    assert relations(Told(), blocks=orphan).equal_tokens.equal_gap is Reason.HISTORY_EXPIRED
    assert relations(Told(), blocks=orphan, first=0).equal_tokens.equal_gap is Reason.NONE


def test_one_process_gives_one_key_to_one_identity() -> None:
    same = relations(Told(equal=[block(61)])).equal_tokens
    other = relations(Told(equal=[block(61), block(62, 8, "cache_salt")])).equal_tokens
    assert (same.differing_kinds, same.equal_gap) == (None, Reason.AMBIGUOUS_CHAIN)
    assert (other.differing_kinds, other.equal_gap) == (("cache_salt",), Reason.NONE)
    assert relations(Told()).equal_tokens.equal_gap is Reason.NONE


SALTED = block(61, 8, "cache_salt")


def below(*events: Event, tiers: tuple[Tier, ...] = (Tier.HOST,), **told: Any) -> tuple[tuple[str, ...] | None, Reason]:
    """What tiers make of a block with the tokens of the missed one that the device had under another salt."""
    record = Told(**{"left": [SALTED], "below": {ME: list(tiers)}, "events": list(events), **told})
    said = relations(record).equal_tokens
    return said.differing_kinds, said.equal_gap


def left_tier(tier: Tier = Tier.HOST) -> Event:
    return Event(ME, 600, 61, Residency.EVICTED, tier, removal=Removal.REMOVED)


def test_the_same_tokens_under_another_salt_may_be_in_a_tier() -> None:
    assert below(*held(61, tier=Tier.HOST)) == (("cache_salt",), Reason.NONE)
    assert below(*held(61, tier=Tier.HOST), keeping=[Tier.HOST]) == (None, Reason.AMBIGUOUS_COPIES)
    assert below(left_tier()) == (None, Reason.NONE)
    assert below(*held(61, tier=Tier.HOST), left=[block(61)]) == (None, Reason.NONE), "one identity has one key"


def test_a_tier_that_never_named_them_may_hold_them_under_a_key_of_its_own() -> None:
    assert below() == (None, Reason.AMBIGUOUS_COPIES)
    assert below(left_tier(), tiers=(Tier.HOST, Tier.DISK)) == (None, Reason.AMBIGUOUS_COPIES)
    assert below(tiers=()) == (None, Reason.NONE), "there is no tier"


def test_a_tier_that_only_spans_tell_of_may_hold_them_too() -> None:
    record = Told(left=[SALTED], blocks=KNOWN)
    peers = peers_of(record, reading(*CHAIN, first=1))
    for tiered, gap in ((True, Reason.AMBIGUOUS_COPIES), (False, Reason.NONE)):
        assert Relations(peers, chain_known=True, tiered=tiered).equal_tokens.equal_gap is gap


# --- siblings --------------------------------------------------------------------------------------------


def siblings(
    *under: tuple[int, int], log: RequestLog | None = None, first: int = 1, **told: Any
) -> tuple[bool, bool, Reason]:
    """Whether there is one, whether the block extends what was stored, and the gap; blocks of another worker."""
    said = relations(Told(others=[OTHER], under={OTHER: list(under)}), log, first=first, **told).siblings
    return said.has_siblings, said.extends, said.siblings_gap


def test_a_block_is_no_sibling_of_its_own() -> None:
    own = {ME: [(500, 1)]}
    assert relations(Told(under=own)).siblings.has_siblings is False
    assert relations(Told(under={ME: [(500, 1), (501, SIBLING)]})).siblings.has_siblings is True
    assert siblings((500, 1)) == (False, True, Reason.NONE)


def test_a_sibling_counts_wherever_it_surely_was_by_the_lookup() -> None:
    assert siblings((500, SIBLING)) == (True, False, Reason.NONE)
    assert siblings((LOOKED + 5, SIBLING)) == (False, True, Reason.CLOCK_SKEW)
    assert siblings() == (False, True, Reason.NONE)


def test_where_another_worker_has_been_silent_a_sibling_may_be_late() -> None:
    assert siblings(batches={OTHER: []}) == (False, True, Reason.EVIDENCE_LATE)
    assert siblings((500, SIBLING), batches={OTHER: []}) == (True, False, Reason.NONE), "there is one anyway"


def test_the_missed_block_itself_may_come_to_another_worker_at_any_time() -> None:
    assert siblings((LOOKED + 5, 1)) == (False, True, Reason.NONE)


def test_at_block_0_no_sibling_is_looked_for() -> None:
    assert siblings((LOOKED + 5, SIBLING), first=0) == (False, False, Reason.NONE)


def later(count: int) -> tuple[bool, bool, Reason]:
    """The next batch of another worker brings siblings that a request stored which came after the lookup."""
    keys = range(SIBLING, SIBLING + count)
    events: list[Event] = held(*keys, by=OTHER, at=1500)
    under = [(1500, key) for key in keys]
    return siblings(*under, log=lives((OTHER, 1400, 1410, 1600)), events=events, batches={OTHER: [1500]})


def test_siblings_of_later_requests_are_none_of_this_one() -> None:
    assert later(2) == (False, True, Reason.NONE)


def test_beside_siblings_of_later_requests_the_missed_block_itself_is_no_doubt() -> None:
    events = held(SIBLING, by=OTHER, at=1500)
    later = lives((OTHER, 1400, 1410, 1600))
    said = siblings((LOOKED + 5, 1), (1500, SIBLING), log=later, events=events, batches={OTHER: [1500]})
    assert said == (False, True, Reason.NONE)


def test_a_sibling_around_the_lookup_on_a_worker_that_has_been_silent_since_is_late() -> None:
    assert siblings((LOOKED + 5, SIBLING), batches={OTHER: []}) == (False, True, Reason.EVIDENCE_LATE)


def test_so_many_siblings_in_one_step_are_not_told_apart() -> None:
    assert later(_LATE_MAX - 1)[2] is Reason.NONE
    assert later(_LATE_MAX)[2] is Reason.CLOCK_SKEW


# --- tails -----------------------------------------------------------------------------------------------


def tails(
    *repeated: tuple[int, Repeats], own: Repeats | None = None, first: int = 0, **told: Any
) -> tuple[int, Reason, Reason]:
    """How much repeats a sibling's tail, and both gaps; what other workers' siblings repeated from when on."""
    mine = {} if own is None else {ME: [(500, own)]}
    under = {ME: [(500, SIBLING)], OTHER: [(at, SIBLING) for at, _ in repeated]}
    record = Told(others=[OTHER], under=under, repeated={OTHER: list(repeated), **mine})
    said = relations(record, first=first, **told).siblings
    return said.reconverging, said.siblings_gap, said.tail_gap


def test_what_a_tail_repeats_is_the_most_that_any_sibling_surely_had() -> None:
    assert tails((500, Repeats(blocks=2)), own=Repeats(blocks=1)) == (2, Reason.NONE, Reason.NONE)
    assert tails((500, Repeats(blocks=1)), own=Repeats(blocks=2)) == (2, Reason.NONE, Reason.NONE)


@pytest.mark.parametrize("at", [LOOKED + 5, 1500])
def test_what_a_sibling_repeats_by_the_next_batch_may_have_come_before(at: int) -> None:
    assert tails((at, Repeats(blocks=2)), batches={OTHER: [1500]}) == (0, Reason.CLOCK_SKEW, Reason.NONE)


def test_a_worker_without_a_sibling_repeats_nothing() -> None:
    record = Told(others=[OTHER], under={ME: [(500, SIBLING)]}, repeated={OTHER: [(500, Repeats(blocks=2))]})
    assert relations(record).siblings.reconverging == 0


def test_an_unconfirmed_record_is_asked_up_to_the_lookup() -> None:
    assert tails((LOOKED + 5, Repeats(blocks=2)), batches={OTHER: []})[1] is Reason.CLOCK_SKEW
    assert tails((1500, Repeats(blocks=2)), batches={OTHER: []})[:2] == (0, Reason.NONE)


def test_chains_that_were_too_many_to_compare_may_repeat_more() -> None:
    cut = Repeats(blocks=0, complete=False)
    assert tails(own=cut)[2] is Reason.AMBIGUOUS_CHAIN
    assert tails((500, cut))[2] is Reason.AMBIGUOUS_CHAIN
    assert tails()[2] is Reason.NONE


def test_a_tail_without_tokens_or_keys_may_repeat_a_siblings() -> None:
    assert tails(with_tokens=1)[2] is Reason.NO_FIRST_MISS_KEY
    assert tails(known=False)[2] is Reason.NO_FIRST_MISS_KEY
    short = {key: one for key, one in KNOWN.items() if key != (ME, 3)}
    assert tails(with_tokens=1, blocks=short, batches={ME: []})[2] is Reason.EVIDENCE_LATE


def test_where_there_is_no_sibling_no_tail_is_asked_for() -> None:
    assert relations(Told(with_tokens=0)).siblings.tail_gap is Reason.NONE
