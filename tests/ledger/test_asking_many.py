"""A whole chain is answered as each of its blocks is by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.batches import CLEARED, removed
from tests.ledger.test_guards_intake import SESSION, chain, said, told
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


@given(EVENTS)
def test_at_every_position_many_blocks_are_said_what_each_is(events: list[dict[str, object]]) -> None:
    record = told(*(said(10 * number + 10, event) for number, event in enumerate(events)))
    for position in range(record.end + 1):
        together = list(record.as_of(BLOCKS, position, Tier.DEVICE, None)[:])
        assert together == [record.as_of([one], position, Tier.DEVICE, None)[0] for one in BLOCKS]
