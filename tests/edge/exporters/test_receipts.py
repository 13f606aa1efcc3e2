"""A request is over when the core holds nothing of it and every destination is done with it; not sooner, and once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whymiss.edge.exporters.receipts import Receipts
from whymiss.redaction import Redacted, Signal, untouched

DESTINATIONS = 2


def item(*tickets: int) -> Redacted:
    one = untouched(Signal.TRACES, b"body", 1)
    return type(one)(one.signal, one.body, one.items, tickets)


def never(ticket: int) -> bool:
    raise AssertionError(ticket)


def test_a_request_of_which_nothing_is_left_is_over_at_once() -> None:
    settled: list[int] = []
    Receipts(lambda _: False, settled.append, never).look([5])
    assert settled == [5]


def test_an_item_without_a_destination_is_over() -> None:
    settled: list[int] = []
    Receipts(lambda _: False, settled.append, never).queued(item(5), 0)
    assert settled == [5]


@given(st.lists(st.sets(st.integers(1, 4), min_size=1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_ticket_settles_with_the_last_that_is_owed_for_it(parts: list[set[int]], chance: object) -> None:
    settled: list[int] = []
    held = {ticket for part in parts for ticket in part}
    receipts = Receipts(held.__contains__, settled.append, never)
    items = [item(*sorted(part)) for part in parts]
    for one in items:
        receipts.queued(one, DESTINATIONS)
    owed = items * DESTINATIONS
    chance.shuffle(owed)  # type: ignore[attr-defined]
    half = len(owed) // 2
    receipts.ended(owed[:half])
    assert settled == []  # the core holds something of each
    held.clear()
    for at in range(half, len(owed)):
        receipts.ended(owed[at : at + 1])
        left = {ticket for one in owed[at + 1 :] for ticket in one.tickets}
        assert not left & set(settled)
    assert set(settled) | set() == {ticket for one in owed[half:] for ticket in one.tickets}
    assert len(settled) == len(set(settled))


def test_what_a_failed_release_lost_is_postponed_once_and_never_settled() -> None:
    settled: list[int] = []
    postponed: list[int] = []
    held = {1, 2, 3, 4}

    def postpone(ticket: int) -> bool:
        postponed.append(ticket)
        return ticket != 3

    receipts = Receipts(held.__contains__, settled.append, postpone)
    receipts.look(held)
    left = item(1)
    held -= {1}  # left as it should
    receipts.queued(left, 1)
    part = item(2)
    receipts.queued(part, 1)  # some of it left, and some is held
    held -= {2, 3}
    assert receipts.sweep() == [True, False]
    assert sorted(postponed) == [2, 3]
    receipts.ended([left, part])
    assert settled == [1]
    assert receipts.sweep() == []
    held.clear()
    receipts.look([4])
    assert settled == [1, 4]
