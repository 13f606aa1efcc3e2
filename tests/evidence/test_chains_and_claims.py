"""Stores that look like a request's own chain, and blocks that look like another's."""

from __future__ import annotations

import pytest

from tests.evidence.test_request_log import SUBJECT, at, noted
from whymiss.config import AttributionConfig
from whymiss.evidence.hypotheses import Reader, _continues
from whymiss.evidence.requests.request_log import RequestLog
from whymiss.evidence.sections.relations import kinds_between, may_differ
from whymiss.ledger.ledger import Ledger
from whymiss.model import Block, Store

READER = Reader(AttributionConfig(), Ledger(), RequestLog(1))
BLOCKS = 4


def store(first: int, *keys: int, parent: int | None = None, when: int = 100, reported: bool = False) -> Store:
    return Store(keys=keys, start=first, parent=parent, position=1, unix_nanos=when, reported=reported)


def chains(*stores: Store, latest: int = 50) -> tuple[list[tuple[Store, ...]], list[tuple[Store, ...]]]:
    return READER._chains(stores, BLOCKS, latest)


WHOLE = store(0, 1, 2, 3, 4)
HALF, REST = store(0, 1, 2), store(2, 3, 4, parent=2)


def test_a_chain_ends_at_the_last_full_block_of_the_prompt() -> None:
    assert chains(WHOLE) == ([(WHOLE,)], [])
    assert chains(HALF) == ([], [])
    assert chains(store(0, 1, 2, 3, 4, 5)) == ([], [])


def test_a_chunk_continues_the_chunk_before_it_and_is_no_chain_of_its_own() -> None:
    assert chains(HALF, REST) == ([(HALF, REST)], [])


@pytest.mark.parametrize("other", [store(2, 3, 4, parent=9), store(3, 3, parent=2)])
def test_a_chunk_under_another_block_or_at_another_depth_continues_nothing(other: Store) -> None:
    assert (HALF, other) not in chains(HALF, other)[0]


def test_what_follows_the_last_full_block_was_decoded() -> None:
    decoded = store(4, 5, parent=4)
    assert chains(WHOLE, decoded) == ([(WHOLE,)], [])


def test_a_re_announcement_is_nobodys_chain() -> None:
    assert chains(store(0, 1, 2, 3, 4, reported=True)) == ([], [])
    assert chains(HALF, store(2, 3, 4, parent=2, reported=True)) == ([], [])


@pytest.mark.parametrize(("when", "certain"), [(51, True), (50, False), (49, False)])
def test_a_chain_is_surely_of_a_lookup_only_if_it_comes_after_its_latest_moment(when: int, certain: bool) -> None:
    chain = store(0, 1, 2, 3, 4, when=when)
    assert chains(chain) == (([(chain,)], []) if certain else ([], [(chain,)]))


def test_only_the_very_same_stores_are_the_tail_of_a_chain() -> None:
    assert _continues((HALF, REST), (REST,))
    assert not _continues((HALF, REST), (HALF,))
    assert not _continues((REST,), (REST,))


def test_two_requests_that_store_the_same_tail_are_two_chains() -> None:
    other = store(2, 3, 4, parent=2)
    again = store(2, 13, 14, parent=2)
    assert len(chains(HALF, other, again)[0]) == 2


# --- requests that are remembered --------------------------------------------------------------------


def test_a_claim_needs_a_prefill_that_surely_spans_the_moment() -> None:
    recent = noted((5.0, 1.0, 64, 1))

    def claims(seconds: float, blocks: int = 4) -> int:
        return recent.claimants(SUBJECT, "w", 16, blocks, at(seconds))

    assert [claims(4.9), claims(5.5), claims(6.0), claims(6.5)] == [0, 1, 1, 0]
    assert claims(5.5, blocks=3) == 0


def test_requests_are_found_whatever_the_order_of_their_arrival() -> None:
    lives = [(5.0, 1.0, 64, 1), (1.0, 1.0, 64, 1), (3.0, 1.0, 64, 1)]
    for told in (lives, lives[::-1], sorted(lives)):
        recent = noted(*told)
        assert [recent.claimants(SUBJECT, "w", 16, 4, at(when)) for when in (1.5, 2.5, 3.5, 5.5)] == [1, 0, 1, 1]


# --- blocks with the same tokens ---------------------------------------------------------------------


def block(extras: int | None = None, *kinds: str) -> Block:
    return Block(key=1, parent=None, depth=0, extras=extras, kinds=kinds)


def test_only_published_and_equal_extra_keys_are_the_same_identity() -> None:
    assert not may_differ(block(7, "cache_salt"), block(7, "cache_salt"))
    assert may_differ(block(7, "cache_salt"), block(8, "cache_salt"))
    assert may_differ(block(None), block(None)), "what is not published may differ"


def test_one_adapters_name_can_stand_for_two_adapters() -> None:
    assert may_differ(block(7, "lora"), block(7, "lora"))


def test_the_kinds_that_differ_are_named_or_else_all_whose_values_may() -> None:
    assert kinds_between(block(1, "lora", "cache_salt"), block(2, "lora")) == ("cache_salt",)
    assert kinds_between(block(1, "cache_salt"), block(2, "cache_salt")) == ("cache_salt",)
    assert kinds_between(block(1, "mm"), block(2, "lora")) == ("lora", "mm")
