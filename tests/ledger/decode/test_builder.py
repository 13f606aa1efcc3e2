"""A batch builder takes events in order, and is as before where one of them cannot be read."""

from __future__ import annotations

import msgspec
import pytest

from tests.ledger.batches import CLEARED, DIGESTER, Fields, own_of, plain, removed, stored
from whymiss.errors import BadInput
from whymiss.ledger.decode.builder import BatchBuilder
from whymiss.ledger.decode.schema import WireCleared, WireRemoved, WireStored
from whymiss.ledger.events import Cleared, Keys, KvBatch, Removed, Stored

WIRE: msgspec.msgpack.Decoder[WireStored | WireRemoved | WireCleared] = msgspec.msgpack.Decoder(
    WireStored | WireRemoved | WireCleared
)


def wire(event: Fields) -> WireStored | WireRemoved | WireCleared:
    return WIRE.decode(msgspec.msgpack.encode(event))


def built(builder: BatchBuilder, *events: Fields) -> KvBatch:
    for index, event in enumerate(events):
        builder.add(index, wire(event))
    return builder.batch(len(events), 1, 0)


def test_neighbouring_removals_of_one_medium_are_one_run_with_an_event_a_key() -> None:
    batch = built(BatchBuilder(DIGESTER, tokens=True), removed(1), removed(2, 3), removed(4, medium="CPU"), CLEARED)
    first, second, cleared = batch.events
    assert isinstance(first, Removed)
    assert isinstance(second, Removed)
    assert isinstance(cleared, Cleared)
    assert (first.keys.tolist(), first.at.tolist()) == ([1, 2, 3], [0, 1, 1])
    assert (second.keys.tolist(), second.at.tolist(), cleared.index) == ([4], [2], 3)


def test_tokens_of_all_stores_are_digested_unless_they_are_not_wanted() -> None:
    events = (stored([1, 2], (7, 8, 9, 10)), stored([3], (11, 12)))
    wanted, unwanted = (built(BatchBuilder(DIGESTER, tokens=tokens), *events) for tokens in (True, False))
    own = [event.own.tolist() for event in wanted.events if isinstance(event, Stored) and event.own is not None]
    assert own == [own_of([7, 8, 9, 10], 2), own_of([11, 12], 2)]
    assert [event.own for event in unwanted.events if isinstance(event, Stored)] == [None, None]


@pytest.mark.parametrize(
    "bad", [stored(group_idx=-1), stored(tokens=(1, "x")), stored([1.5]), removed(1.5), removed(1, group_idx=1 << 16)]
)
def test_an_event_that_cannot_be_read_leaves_no_trace(bad: Fields) -> None:
    builder, alone = BatchBuilder(DIGESTER, tokens=True), BatchBuilder(DIGESTER, tokens=True)
    good = (stored([1], (7, 8)), removed(2))
    builder.add(0, wire(good[0]))
    with pytest.raises((BadInput, msgspec.ValidationError)):
        builder.add(1, wire(bad))
    builder.add(1, wire(good[1]))
    assert plain(builder.batch(2, 1, 0)) == plain(built(alone, *good))


def test_a_witness_sees_the_tokens_and_the_digests_of_each_store() -> None:
    seen: list[tuple[list[int], int, list[int]]] = []

    def witness(tokens: Keys, size: int, digests: Keys) -> None:
        seen.append((tokens.tolist(), size, digests.tolist()))

    built(BatchBuilder(DIGESTER, tokens=True, witness=witness), stored([1, 2], (7, 8, 9, 10)), removed(1))
    assert seen == [([7, 8, 9, 10], 2, own_of([7, 8, 9, 10], 2))]
