"""A chain under the keys of another hash seed: all of it at once says what its blocks say one by one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.ledger.batches import apart
from tests.ledger.publisher import batches, keys_of
from whymiss.ledger.events import Event, KvBatch, Removed, Stored
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.model import SECOND, StreamId, Tier

ME, OTHER = StreamId("me", 0), StreamId("other", 0)
SEED = np.uint64(0x5DEECE66D1234567)


def reseeded(batch: KvBatch) -> KvBatch:
    """What a worker of another hash seed would have published."""

    def renamed(one: Event) -> Event:
        if isinstance(one, Stored):
            parent = None if one.parent is None else one.parent ^ int(SEED)
            return msgspec.structs.replace(one, keys=one.keys ^ SEED, parent=parent)
        return msgspec.structs.replace(one, keys=one.keys ^ SEED) if isinstance(one, Removed) else one

    return msgspec.structs.replace(batch, events=[renamed(one) for one in apart(batch.events)])


def one_by_one(ledger: Ledger, chain: Sequence[int], position: int) -> int:
    for count, key in enumerate(chain):
        block = ledger.stream(ME).block(key)
        equal_tokens = () if block is None else ledger.stream(OTHER).like(block, position)
        if block is None or all(equal.extras != block.extras for equal in equal_tokens):
            return count
    return len(chain)


def chains_of(ledger: Ledger, keys: Sequence[int]) -> list[list[int]]:
    """A way down from each block that has a place."""
    blocks = {key: block for key in keys if (block := ledger.stream(ME).block(key)) is not None}
    found = []
    for key in keys:
        chain = [key]
        while (onward := [other for other, block in blocks.items() if block.parent == chain[-1]]) and len(chain) < 8:
            chain.append(onward[0])
        found.append(chain)
    return found


@given(st.lists(st.integers(0, 2), max_size=8).flatmap(lambda sides: st.tuples(*map(side, enumerate(sides)))))
def test_a_chain_under_other_keys_is_as_long_as_its_blocks_say_one_by_one(told: Sequence[tuple[int, KvBatch]]) -> None:
    ledger = Ledger(digester=Digester(bytes(32)))
    numbers = {ME: 0, OTHER: 0}
    for sides, batch in told:
        for stream, said in ((ME, batch), (OTHER, reseeded(batch))):
            if sides in ({0, 2} if stream == ME else {1, 2}):
                ledger.accept(stream, numbers[stream], said, Delivery())
                numbers[stream] += 1
    if not numbers[ME] or not numbers[OTHER]:
        return
    end = ledger.stream(OTHER).position_at(1 << 62)
    for chain in chains_of(ledger, keys_of([batch for _, batch in told])):
        for position in {end, end // 2}:
            expected = one_by_one(ledger, chain, position)
            event(f"{min(expected, 2)} or more blocks alike")
            assert leading_like(ledger, ME, chain, position, among=OTHER) == expected


def side(numbered: tuple[int, int]) -> st.SearchStrategy[tuple[int, KvBatch]]:
    number, sides = numbered
    return st.tuples(st.just(sides), batches(number))


def leading_like(ledger: Ledger, stream: StreamId, keys: Sequence[int], position: int, *, among: StreamId) -> int:
    content = ledger.stream(stream).content(keys)
    return 0 if content is None else ledger.stream(among).leading_like(content, position)


def store(keys: Sequence[int], parent: int | None = None, *, described: bool = True) -> KvBatch:
    own = np.array([1000 + key % 1000 for key in keys], np.uint64)
    blocks = np.array(keys, np.uint64)
    one = Stored(0, blocks, parent, 16, own, Tier.DEVICE, "gpu", kind="full_attention", described=described)
    return KvBatch(unix_nanos=SECOND, events=[one], count=1)


FIRST, SECOND_ONE = 0x9E3779B97F4A7000, 0x7F4A7C15F39CC001


def test_a_chain_that_grew_is_compared_as_it_is_now() -> None:
    ledger = Ledger(digester=Digester(bytes(32)))
    both = reseeded(store([FIRST, SECOND_ONE]))
    ledger.accept(ME, 0, store([FIRST]), Delivery())
    ledger.accept(OTHER, 0, both, Delivery())
    assert leading_like(ledger, ME, [FIRST, SECOND_ONE], 1, among=OTHER) == 1
    ledger.accept(ME, 1, store([SECOND_ONE], FIRST), Delivery())
    assert leading_like(ledger, ME, [FIRST, SECOND_ONE], 1, among=OTHER) == 2


def test_extra_keys_that_are_not_published_are_not_none() -> None:
    for mine, theirs, expected in ((True, True, 1), (False, False, 1), (True, False, 0), (False, True, 0)):
        ledger = Ledger(digester=Digester(bytes(32)))
        ledger.accept(ME, 0, store([FIRST], described=mine), Delivery())
        ledger.accept(OTHER, 0, reseeded(store([FIRST], described=theirs)), Delivery())
        assert leading_like(ledger, ME, [FIRST], 1, among=OTHER) == expected, (mine, theirs)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ([5, 6, 7], [5, 6, 7], 3),
        ([5, 6, 7], [5, 6, 8], 2),
        ([5, 6, 7], [5, 6], 2),
        ([5, 6], [5, 6, 7], 2),
    ],
    ids=["the same", "other tokens at the end", "shorter", "longer"],
)
def test_a_chain_that_was_stored_in_one_is_as_long_as_its_tokens_are_the_same(
    mine: list[int], theirs: list[int], expected: int
) -> None:
    ledger = Ledger(digester=Digester(bytes(32)))
    ledger.accept(ME, 0, store([FIRST + one for one in mine]), Delivery())
    ledger.accept(OTHER, 0, reseeded(store([FIRST + one for one in theirs])), Delivery())
    assert leading_like(ledger, ME, [FIRST + one for one in mine], 1, among=OTHER) == expected


def test_a_chain_that_was_stored_in_one_is_as_long_as_it_is_held() -> None:
    ledger = Ledger(digester=Digester(bytes(32)))
    chain = [FIRST, FIRST + 1, FIRST + 2]
    ledger.accept(ME, 0, store(chain), Delivery())
    ledger.accept(OTHER, 0, reseeded(store(chain)), Delivery())
    gone = np.array([chain[1]], np.uint64) ^ SEED
    left = Removed(gone, np.array([0]), Tier.DEVICE, "gpu", 0)
    ledger.accept(OTHER, 1, KvBatch(unix_nanos=2 * SECOND, events=[left], count=1), Delivery())
    assert [leading_like(ledger, ME, chain, position, among=OTHER) for position in (1, 2)] == [3, 1]


def test_no_block_is_another_of_itself_behind_a_block_that_is() -> None:
    ledger = Ledger(digester=Digester(bytes(32)))
    batch = store([FIRST, SECOND_ONE])
    ledger.accept(ME, 0, batch, Delivery())
    (one,) = reseeded(batch).events
    assert isinstance(one, Stored)
    kept = np.array([one.keys[0], SECOND_ONE], np.uint64)
    theirs = msgspec.structs.replace(batch, events=[msgspec.structs.replace(one, keys=kept)])
    ledger.accept(OTHER, 0, theirs, Delivery())
    assert leading_like(ledger, ME, [FIRST, SECOND_ONE], 1, among=OTHER) == 1
