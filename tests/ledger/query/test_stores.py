"""The events that stored chains come back as they were published."""

from __future__ import annotations

import pytest

from tests.ledger.batches import removed, stored
from tests.ledger.memtable.test_segment_builder import A, B, C, D, chain, said, told
from whymiss.ledger.query.stores import stores


def test_a_store_says_its_keys_its_parent_its_lookup_and_when_its_parent_was_stored_last() -> None:
    record = told(said(10, chain([A, B])), said(20, removed(99), chain([C], B)))
    record.settle()
    first, second = stores(record.history, 0, record.end)
    assert (first.keys, first.start, first.parent, first.position, first.unix_nanos) == ((A, B), 0, None, 0, 10)
    assert (second.keys, second.start, second.parent, second.position, second.unix_nanos) == ((C,), 2, B, 1, 20)
    assert (first.parent_tail_unix_nanos, second.parent_tail_unix_nanos) == (None, 10)
    assert not first.reported
    assert not second.reported


@pytest.mark.parametrize(("first", "last", "expected"), [(0, 1, [A]), (1, 2, [B]), (0, 2, [A, B]), (2, 2, [])])
def test_only_stores_between_two_ordinals_are_listed(first: int, last: int, expected: list[int]) -> None:
    record = told(said(10, chain([A])), said(20, chain([B])))
    record.settle()
    assert [one.keys[0] for one in stores(record.history, first, last)] == expected


def test_a_store_whose_parent_is_not_known_has_no_depth() -> None:
    record = told(said(10, chain([D], 12345)))
    record.settle()
    (one,) = stores(record.history, 0, record.end)
    assert (one.start, one.parent) == (None, 12345)


def test_what_extra_keys_cut_into_pieces_is_one_store_again() -> None:
    salted = stored([A, B], (1, 1, 2, 2), extra_keys=[["salt"], None], group_idx=0)
    record = told(said(10, salted))
    record.settle()
    assert [one.keys for one in stores(record.history, 0, record.end)] == [(A, B)]
    assert [len(part.chains.first) for part in record.history.segments] == [2]
