"""What stores say of a stream's cache groups, and when they say something new."""

from __future__ import annotations

from tests.ledger.batches import Fields, one, stored
from whymiss.ledger.cache_groups import CacheGroups
from whymiss.model import Tier

DENSE: Fields = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
SLIDING: Fields = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 128}


def learned(*events: Fields) -> CacheGroups:
    groups = CacheGroups()
    for event in events:
        groups.learn(one(event))
    return groups


def test_dense_groups_come_first_and_set_the_block_size() -> None:
    groups = learned(stored(block_size=4, token_ids=[1, 2, 3, 4]) | SLIDING, stored() | DENSE)
    assert [(spec.group, spec.dense, spec.block_size, spec.window) for spec in groups.listed()] == [
        (0, True, 2, None),
        (1, False, 4, 128),
    ]
    assert (groups.dense, groups.block_size) == (0, 2)


def test_learning_says_whether_the_group_is_dense() -> None:
    groups = CacheGroups()
    assert groups.learn(one(stored() | DENSE))
    assert not groups.learn(one(stored() | SLIDING))


def test_a_store_is_news_until_it_was_learned() -> None:
    groups = CacheGroups()
    for event in (stored() | DENSE, stored() | SLIDING, stored(medium="CPU") | DENSE):
        assert groups.is_news(one(event))
        groups.learn(one(event))
        assert not groups.is_news(one(event))
    assert groups.tiers == {Tier.HOST}
    assert groups.is_news(one(stored(block_size=1) | DENSE)), "blocks of another size"


def test_a_new_life_describes_its_groups_again_and_may_change_their_kind() -> None:
    groups = learned(stored() | DENSE)
    assert not groups.learn(one(stored(group_idx=1, kv_cache_spec_kind="mamba")))
    # A group keeps its kind for a life.
    assert groups.learn(one(stored(group_idx=0, kv_cache_spec_kind="mamba")))
    groups.forget_life()
    assert groups.is_news(one(stored() | DENSE))
    assert not groups.learn(one(stored(group_idx=0, kv_cache_spec_kind="mamba")))


def test_a_dense_group_keeps_the_size_of_its_first_store_from_a_root() -> None:
    groups = CacheGroups()
    assert groups.learn(one(stored([9], (1, 2, 3), parent_block_hash=8, block_size=3)))
    assert groups.learn(one(stored([1, 2], (1, 2, 3, 4), block_size=2)))
    assert not groups.other_sizes
    for parent in (None, 2):
        assert not groups.learn(one(stored([3], (1,), parent_block_hash=parent, block_size=1)))
    assert (groups.block_size, groups.other_sizes) == (2, True)
    groups.forget_life()
    assert groups.learn(one(stored([1], (1, 2, 3), block_size=3)))
    assert groups.block_size == 3


def test_pairs_are_noticed_until_a_new_life() -> None:
    plain, pairs = one(stored(tokens=(1, 2)) | DENSE), one(stored(tokens=[[1, 2], [2, 3]]) | DENSE)
    groups = CacheGroups()
    groups.learn(plain)
    assert not groups.pairs
    assert groups.is_news(pairs)
    groups.learn(pairs)
    assert groups.pairs
    assert not groups.is_news(pairs)
    assert not groups.is_news(plain)
    groups.forget_life()
    groups.learn(plain)
    assert not groups.pairs
