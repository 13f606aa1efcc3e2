"""A whole chain is answered as each of its blocks is by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import CLEARED, DIGESTER, removed
from tests.ledger.memtable.test_segment_builder import SESSION, chain, said
from tests.ledger.test_sequencer import STREAM
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Tier

BLOCKS = list(range(100, 106))

EVENTS = st.lists(
    st.one_of(
        st.sets(st.sampled_from(BLOCKS), min_size=1, max_size=3).map(lambda some: chain(sorted(some))),
        st.sets(st.sampled_from(BLOCKS), min_size=1, max_size=3).map(lambda some: chain(sorted(some), None, SESSION)),
        st.sampled_from(BLOCKS).map(removed),
        st.just(CLEARED),
    ),
    min_size=1,
    max_size=12,
)


@given(EVENTS, st.sets(st.integers(0, 11)), st.booleans())
def test_at_every_position_many_blocks_are_said_what_each_is(
    events: list[dict[str, object]], settled: set[int], from_birth: bool
) -> None:
    record = StreamRecord(STREAM, DIGESTER, from_birth=from_birth, begins_unix_nanos=1)
    for number, event in enumerate(events):
        record.apply(said(10 * number + 10, event), number)
        if number in settled:
            record.settle()
    for position in range(record.end + 1):
        together = list(record.as_of(BLOCKS, position, Tier.DEVICE, None)[:])
        assert together == [record.as_of([one], position, Tier.DEVICE, None)[0] for one in BLOCKS]
