"""Who is a sibling of whom, and what is known of a block whose parent says less, or is gone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.ledger.batches import DIGESTER, Fields, decode, removed, stored
from tests.ledger.compaction.test_fold import folded, tell
from tests.ledger.test_sequencer import STREAM
from whymiss.ledger.query.children import CHILDREN_AT_ONCE
from whymiss.ledger.query.siblings import SIBLINGS_MAX
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Repeats

ONE, TWO = 1, 2
"""Two prompts' first blocks."""


def chain(blocks: Sequence[tuple[int, int]], parent: int | None = None, **more: object) -> Fields:
    """Blocks by key and by what they say."""
    keys = [key for key, _ in blocks]
    tokens = tuple(said for _, said in blocks for _ in range(2))
    return stored(keys, tokens, parent_block_hash=parent) | more


def told(*events: Fields) -> StreamRecord:
    one = StreamRecord(STREAM, DIGESTER, from_birth=True, begins_unix_nanos=1)
    for number, event in enumerate(events):
        one.apply(msgspec.structs.replace(decode(event), unix_nanos=number + 2), number)
    return one


def repeated(one: StreamRecord, keys: Sequence[int]) -> Repeats:
    missed_chain = one.missed_chain(keys)
    assert missed_chain is not None
    return one.repeats(missed_chain, one.end)


MINE = chain([(10, 50), (11, 60), (12, 61)], ONE)


@pytest.mark.parametrize(
    ("other", "blocks"),
    [
        (chain([(20, 51), (21, 60), (22, 61)], ONE), 2),
        (chain([(20, 51), (21, 99), (22, 61)], ONE), 1),
        (chain([(20, 50), (21, 60), (22, 61)], ONE), 0),
        (chain([(20, 51), (21, 60), (22, 61)], TWO), 0),
        (chain([(20, 51), (21, 52), (22, 60), (23, 61)], ONE), 0),
    ],
    ids=["changed first", "changed twice", "same tokens", "other parent", "moved"],
)
def test_a_sibling_repeats_what_is_behind_another_first_block_at_the_same_depth(other: Fields, blocks: int) -> None:
    one = told(chain([(ONE, 1)]), chain([(TWO, 2)]), MINE, other)
    assert repeated(one, [10, 11, 12]).blocks == blocks


def test_a_chain_in_many_pieces_leaves_room_to_compare_it_with_its_sibling() -> None:
    count = SIBLINGS_MAX + 10
    mine = [chain([(100 + depth, 500 + depth)], 99 + depth if depth else ONE) for depth in range(count)]
    sibling = chain([(1000, 1)] + [(1000 + depth, 500 + depth) for depth in range(1, count)], ONE)
    one = told(chain([(ONE, 1)]), *mine, sibling)
    assert repeated(one, [100 + depth for depth in range(count)]) == Repeats(blocks=count - 1, complete=True)


def test_under_extra_keys_that_are_published_no_more_nothing_is_known_of_them() -> None:
    one = told(chain([(ONE, 1)], extra_keys=[["salt"]]), chain([(10, 50)], ONE, extra_keys=[None]))
    batch = decode(chain([(20, 51)], ONE))
    events = [msgspec.structs.replace(event, described=False) for event in batch.events]
    one.apply(msgspec.structs.replace(batch, events=events, unix_nanos=9), 2)
    first, described, silent = (one.block(key) for key in (ONE, 10, 20))
    assert first is not None
    assert described is not None
    assert silent is not None
    assert first.extras is not None
    assert described.extras is not None
    assert silent.extras is None


def test_what_left_the_window_is_no_parent_any_more() -> None:
    one = folded(chain([(7, 1)]), removed(7))
    tell(one, chain([(10, 50)], 7))
    assert [store.start for store in one.stores_between(0, 1000)] == [None]
    kept = folded(chain([(7, 1)]))
    tell(kept, chain([(10, 50)], 7))
    assert [store.start for store in kept.stores_between(0, 1000)] == [1]


def test_what_is_stored_later_is_no_relative_yet() -> None:
    one = told(chain([(ONE, 1)]), MINE, chain([(20, 51), (21, 60), (22, 61)], ONE), chain([(30, 50)], ONE))
    missed_chain = one.missed_chain([10, 11, 12])
    assert missed_chain is not None
    assert [one.repeats(missed_chain, position).blocks for position in range(5)] == [0, 0, 0, 2, 2]
    assert [len(one.same_tokens(10, position)) for position in range(5)] == [0, 0, 0, 0, 1]
    assert [one.same_tokens_leading([10], position) for position in range(5)] == [0, 0, 0, 0, 1]


def test_extra_keys_say_the_same_of_a_chain_however_it_was_cut_into_events() -> None:
    keyed = [["adapter"], ["adapter"], ["adapter", "image"]]
    whole = told(chain([(1, 1), (2, 2), (3, 3)], extra_keys=keyed))
    cut = told(*(chain([(key, key)], key - 1 or None, extra_keys=[keyed[key - 1]]) for key in (1, 2, 3)))
    said = [[one.block(key) for key in (1, 2, 3)] for one in (whole, cut)]
    assert said[0] == said[1]
    assert [block is not None and block.extras is not None for block in said[0]] == [True, True, True]


def test_kinds_of_extra_keys_add_up_along_a_chain() -> None:
    one = told(chain([(1, 1), (2, 2), (3, 3)], extra_keys=[["salt"], [["an image", 3]], None]))
    kinds = [block.kinds for key in (1, 2, 3) if (block := one.block(key)) is not None]
    assert kinds == [("cache_salt",), ("cache_salt", "mm"), ("cache_salt", "mm")]


def test_of_many_children_none_is_overlooked() -> None:
    one = told(chain([(1, 1)]), *(chain([(key, key)], 1) for key in range(2, 2 + 2 * CHILDREN_AT_ONCE + 1)))
    everybody = list(range(2, 2 + 2 * CHILDREN_AT_ONCE + 1))
    assert list(one.children(1, one.end)) == everybody
    assert list(one.children(1, one.end, CHILDREN_AT_ONCE + 5)) == everybody[: CHILDREN_AT_ONCE + 5]
    assert list(one.children(1, one.end - 1)) == everybody[:-1]


def test_a_sibling_that_is_stored_again_later_had_repeated_as_much_before() -> None:
    sibling = [chain([(11, 7), (12, 2)]), chain([(13, 3)], 12)]
    one = told(*sibling, chain([(1, 1), (2, 2), (3, 3)]), chain([(11, 7), (12, 2)]))
    missed_chain = one.missed_chain([1, 2, 3])
    assert missed_chain is not None
    assert [one.repeats(missed_chain, position).blocks for position in range(one.end + 1)] == [0, 1, 2, 2, 2]
