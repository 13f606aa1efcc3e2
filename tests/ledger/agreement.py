"""Whether the columns and the dictionary of lists give the same answers, on every question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.ledger.naive import NaiveRecord
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Block, Tier


def run_compaction(record: StreamRecord, steps: int) -> None:
    while steps and (work := record.history.next_compaction(1e9)) is not None:
        for replaced in work.steps:
            steps -= 1
            if replaced and work.expires:
                record.expired()


def expire(record: StreamRecord, naive: NaiveRecord, count: int) -> None:
    for segment in record.history.segments[:count]:
        segment.due = True
    run_compaction(record, 100)
    if record.history.edge > naive.edge:
        naive.expire(record.history.edge)


def drop(record: StreamRecord, naive: NaiveRecord) -> None:
    record.settle()
    if record.history.segments:
        record.history.drop_oldest()
        record.expired()
        naive.lose(record.history.edge)


def same_shape(one: Block | None, other: Block | None) -> bool:
    """Whether two blocks are the same but for the values of their digests."""
    if one is None or other is None:
        return one is other

    def shape(block: Block) -> tuple[object, ...]:
        return (
            *(block.key, block.parent, block.depth, block.tokens, block.kinds),
            *(block.prefix is None, block.extras is None),
        )

    return shape(one) == shape(other)


def agree(record: StreamRecord, naive: NaiveRecord, keys: Sequence[int]) -> None:
    assert record.end == naive.end
    assert record.history.edge == naive.edge
    assert list(record.groups()) == list(naive.groups())
    assert record.block_size() == naive.size
    assert set(record.tiers()) == naive.below
    positions = sorted(
        {naive.edge, naive.end, *range(naive.edge, naive.end + 1, max(3, (naive.end - naive.edge) // 5))}
    )
    for position in (*positions, naive.edge - 1):
        for tier, group in ((Tier.DEVICE, None), (Tier.DEVICE, 1), (Tier.HOST, 0), (Tier.DISK, 1)):
            assert record.as_of(keys, position, tier, group) == naive.as_of(keys, position, tier, group)
    for position in positions:
        for key in (None, *keys):
            assert record.children(key, position) == naive.children(key, position)
    agree_on_time(record, naive)
    agree_on_identity(record, naive, keys, positions)


def agree_on_time(record: StreamRecord, naive: NaiveRecord) -> None:
    begin = naive.edge_nanos or 0
    times = sorted({begin, 2**62, *(nanos + delta for nanos, _, _ in naive.batches for delta in (-1, 0))})
    times = [at for at in times if at >= begin]
    times = times[:: max(1, len(times) // 8)]
    for index, at in enumerate(times):
        assert record.position_at(at) == naive.position_at(at)
        assert record.confirmed_position(at) == naive.confirmed_position(at)
        before, theirs = record.published_before(at), naive.published_before(at)
        # Of what left the window nothing is known.
        assert before == theirs or (theirs is not None and theirs < begin and before is None)
        for until in times[index:]:
            assert record.stores_between(at, until) == naive.stores_between(at, until)
            assert record.coverage(at, until) == naive.coverage(at, until)


def agree_on_identity(record: StreamRecord, naive: NaiveRecord, keys: Sequence[int], positions: Sequence[int]) -> None:
    prefixes: dict[tuple[int, int], set[int]] = defaultdict(set)
    extras: dict[tuple[int, int], set[int]] = defaultdict(set)
    for key in keys:
        mine, theirs = record.block(key), naive.block(key)
        assert same_shape(mine, theirs)
        if mine is not None and theirs is not None:
            if theirs.prefix is not None and mine.prefix is not None:
                prefixes[theirs.depth, theirs.prefix].add(mine.prefix)
            if theirs.extras is not None and mine.extras is not None:
                extras[theirs.depth, theirs.extras].add(mine.extras)
    for numbers in (prefixes, extras):
        assert all(len(values) == 1 for values in numbers.values())
        by_depth = [(depth, next(iter(values))) for (depth, _), values in numbers.items()]
        assert len(set(by_depth)) == len(by_depth)
    everybody = naive.placed()
    for key in keys:
        chain = [key]
        while (onward := [other for other, block in everybody.items() if block.parent == chain[-1]]) and len(chain) < 8:
            chain.append(onward[0])
        for position in positions[-2:]:
            assert [equal.key for equal in record.same_tokens(key, position)] == [
                equal.key for equal in naive.same_tokens(key, position)
            ]
            leading = [bool(naive.same_tokens(one, position)) for one in chain]
            assert record.same_tokens_leading(chain, position) == [*leading, False].index(False)
            missed_chain = record.missed_chain(chain)
            repeated = 0 if missed_chain is None else record.repeats(missed_chain, position).blocks
            assert repeated == naive.reconverges(chain, position)
            for first in positions[:2]:
                assert record.touched(key, first, position) == naive.touched(key, first, position)
