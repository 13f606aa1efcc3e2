"""Batches since a position wait in the memtable, and no answer about that position depends on their flush."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import event, given
from hypothesis import strategies as st

from tests.ledger.agreement import run_compaction
from tests.ledger.batches import payload, stored
from tests.ledger.publisher import batches, keys_of
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import KvBatch
from whymiss.ledger.hashing import Digester
from whymiss.ledger.stream import StreamRecord
from whymiss.model import SECOND, Residency, StreamId, Tier

DIGESTER = Digester(bytes(32))
STREAM = StreamId("engine", 0)

Script = list[tuple[str, "KvBatch | int"]]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    script: Script = []
    commands = st.sampled_from(["batch"] * 6 + ["ask"] * 4 + ["restart", "upkeep"])
    for number, command in enumerate(draw(st.lists(commands, min_size=3, max_size=16))):
        script.append((command, draw(batches(number)) if command == "batch" else draw(st.integers(0, 100))))
    return script


def play(record: StreamRecord, command: str, argument: KvBatch | int, *, at_once: bool) -> None:
    if isinstance(argument, KvBatch):
        record.apply(argument)
    elif command == "restart":
        record.restart(record.confirmed_unix_nanos + 7)
    elif command == "upkeep":
        run_compaction(record, argument)
    if at_once:
        record.settle()


def answers(record: StreamRecord, keys: Sequence[int], position: int, asked: Sequence[StreamRecord]) -> list[object]:
    """All that is asked about a position of another's record, by what is known of the keys elsewhere."""
    (mine,) = asked
    missed_chain, content = mine.missed_chain(keys), mine.content(keys)
    blocks = [block for key in keys if (block := mine.block(key)) is not None]
    nanos = 1000 * SECOND + position * SECOND // 3
    return [
        *(list(record.as_of(keys, position, tier, None)) for tier in (Tier.DEVICE, *record.tiers())),
        [record.touched(key, position // 2, position) for key in keys],
        [list(record.children(parent, position)) for parent in (None, *keys)],
        [[equal.key for equal in record.like(block, position)] for block in blocks],
        0 if content is None else record.leading_like(content, position),
        0 if missed_chain is None else record.repeats(missed_chain, position),
        record.stores_between(nanos - SECOND, nanos),
        (record.block_size(), record.groups(), record.tiers(), record.position_at(nanos)),
        record.confirmed_position(nanos),
    ]


@given(scripts(), st.booleans())
def test_no_answer_depends_on_when_a_batch_is_laid_out(script: Script, from_birth: bool) -> None:
    lazy, eager, known = (StreamRecord(STREAM, DIGESTER, from_birth=from_birth, begins_unix_nanos=1) for _ in range(3))
    published = [argument for _, argument in script if isinstance(argument, KvBatch)]
    for batch in published:
        known.apply(batch)
    keys = keys_of(published)[:6]
    for command, argument in script:
        play(lazy, command, argument, at_once=False)
        play(eager, command, argument, at_once=True)
        if command == "ask" and isinstance(argument, int):
            position = eager.end * argument // 100
            expected = answers(eager, keys, position, [known])
            assert answers(lazy, keys, position, [known]) == expected
            event("some waits" if lazy.pending_since is not None else "none waits")


# --- what is news -------------------------------------------------------------------------------------------


def told(record: StreamRecord, event: object, seconds: int) -> None:
    record.apply(decode_batch(payload(event, ts=float(seconds)), DIGESTER))


def record_of_one_store() -> StreamRecord:
    record = StreamRecord(STREAM, DIGESTER, from_birth=True, begins_unix_nanos=0)
    told(record, stored([1], group_idx=0, kv_cache_spec_kind="full_attention"), 1)
    record.settle()
    return record


def test_what_is_asked_about_an_earlier_time_leaves_the_latest_waiting() -> None:
    record = record_of_one_store()
    told(record, stored([2], group_idx=0), 2)
    assert record.as_of([1], record.position_at(SECOND), Tier.DEVICE, None)[0].state is Residency.RESIDENT
    assert (record.block_size(), list(record.tiers())) == (2, [])
    assert record.pending_since is not None
    assert record.as_of([2], record.end, Tier.DEVICE, None)[0].state is Residency.RESIDENT
    assert record.pending_since is None


def test_a_tier_that_is_named_for_the_first_time_is_known_at_once() -> None:
    record = record_of_one_store()
    told(record, stored([1], medium="CPU", group_idx=0), 2)
    assert list(record.tiers()) == [Tier.HOST]
    told(record, stored([2], medium="CPU", group_idx=0), 3)
    assert list(record.tiers()) == [Tier.HOST]
    assert record.pending_since is not None


def test_blocks_of_another_size_are_known_at_once_and_change_no_size() -> None:
    record = record_of_one_store()
    told(record, stored([2], tokens=(1, 2, 3), block_size=3, group_idx=0), 2)
    assert (record.block_size(), record.other_sizes) == (2, True)


def test_token_ids_that_are_pairs_are_known_at_once() -> None:
    record = record_of_one_store()
    assert not record.pairs
    told(record, stored([2], tokens=[[1, 2], [2, 3]], group_idx=0), 2)
    assert record.pairs


def test_another_block_size_of_a_sparse_group_is_known_at_once() -> None:
    record = record_of_one_store()
    for seconds, tokens in ((2, (1, 2)), (3, (1, 2, 3))):
        size = len(tokens)
        sparse = stored([2], tokens, block_size=size, group_idx=1, kv_cache_spec_kind="sliding_window")
        told(record, sparse, seconds)
        assert [spec.block_size for spec in record.groups()] == [2, size]


def test_a_group_that_is_described_for_the_first_time_is_known_at_once() -> None:
    record = record_of_one_store()
    told(record, stored([2], group_idx=1, kv_cache_spec_kind="sliding_window"), 2)
    assert [spec.group for spec in record.groups()] == [0, 1]


def test_the_groups_of_a_new_life_are_known_at_once() -> None:
    record = record_of_one_store()
    record.restart(2 * SECOND)
    told(record, stored([2], group_idx=0, kv_cache_spec_kind="sliding_window"), 3)
    assert [spec.kind for spec in record.groups()] == ["sliding_window"]


def test_the_size_of_the_latest_dense_group_is_known_at_once() -> None:
    record = record_of_one_store()
    told(record, stored([2], tokens=(1, 2, 3), block_size=3, group_idx=1, kv_cache_spec_kind="full_attention"), 2)
    assert record.block_size() == 3
    told(record, stored([3], group_idx=0), 3)
    assert record.block_size() == 2


def test_a_placeholder_describes_no_group() -> None:
    record = record_of_one_store()
    told(record, stored([2], tokens=(), block_size=0, group_idx=2), 2)
    assert [spec.group for spec in record.groups()] == [0]
    assert record.pending_since is not None
