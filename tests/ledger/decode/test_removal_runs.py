from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.ledger.batches import CLEARED, decode, plain, removed, stored
from whymiss.ledger.decode.removal_runs import RemovalRun, split_removal_runs
from whymiss.ledger.decode.schema import Shape, WireRemoved, read_event
from whymiss.ledger.events import Removed

FIRST = 2**40


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def parts(events: Sequence[object]) -> list[tuple[bool, int, int]]:
    """(is a run, first index, length) of what the events are cut into."""

    def read(encoded: Raw) -> object:
        return read_event(encoded)

    split = split_removal_runs([Raw(msgspec.msgpack.encode(event)) for event in events], read)
    return [
        (True, part.index, part.count) if isinstance(part, RemovalRun) else (False, part.index, len(part.events))
        for part in split
    ]


@pytest.mark.parametrize("form", [lambda number: FIRST + number, lambda number: -FIRST - number, digest])
def test_neighbours_that_differ_in_their_key_only_are_one_run(form: object) -> None:
    assert callable(form)
    events = [removed(form(number), group_idx=0) for number in range(20)]
    assert parts(events) == [(True, 0, 20)]
    (run,) = decode(*events).events
    assert isinstance(run, Removed)
    assert run.at.tolist() == list(range(20))
    expected = [decode(event).events[0] for event in events]
    assert run.keys.tolist() == [event.keys[0] for event in expected if isinstance(event, Removed)]


def test_a_run_ends_where_anything_but_the_key_differs() -> None:
    one_group = [removed(FIRST + number, group_idx=0) for number in range(6)]
    other_group = [removed(FIRST + number, group_idx=1) for number in range(6)]
    assert parts(one_group + other_group) == [(True, 0, 6), (True, 6, 6)]
    batch = decode(*one_group, *other_group, *one_group)
    assert [event.group for event in batch.events if isinstance(event, Removed)] == [0, 1, 0]
    assert len(plain(batch)) == 18


def test_removals_of_alternating_groups_are_no_runs() -> None:
    events = [removed(FIRST + number, group_idx=number % 2) for number in range(12)]
    assert not any(is_run for is_run, _, _ in parts(events))
    assert [event.group for event in decode(*events).events if isinstance(event, Removed)] == [0, 1] * 6


def test_keys_of_several_forms_do_not_mix() -> None:
    long = removed(FIRST, medium="G" * 28)
    short = removed(digest(FIRST), medium="GPU")
    assert len(msgspec.msgpack.encode(long)) == len(msgspec.msgpack.encode(short))
    batch = decode(*[long] * 5, *[short] * 5, *[long] * 5)
    assert [row[2] for row in plain(batch)] == [FIRST] * 15
    assert [event.keys.size for event in batch.events if isinstance(event, Removed)] == [5, 5, 5]


def test_a_key_that_is_twice_in_an_event_is_read_alone() -> None:
    hashes = msgspec.msgpack.encode([FIRST])
    events = [removed(FIRST, comment=hashes) for _ in range(8)]
    assert not any(is_run for is_run, _, _ in parts(events))
    assert len(plain(decode(*events))) == 8


def test_events_that_only_mention_removals_are_no_runs() -> None:
    events: list[object] = [{"type": "Comment", "on": "BlockRemoved", "number": 5} for _ in range(8)]
    assert parts(events) == [(False, 0, 8)]
    assert decode(*events).unknown_events == 8
    broken = [removed(FIRST, medium=5)] * 8
    assert parts(broken) == [(False, 0, 8)]
    assert decode(*broken).bad_events == 8


def test_a_run_of_bad_removals_is_that_many_bad_events() -> None:
    events = [removed(FIRST + number, group_idx=1 << 20) for number in range(9)]
    batch = decode(stored(), *events, CLEARED)
    assert (batch.bad_events, batch.count, len(batch.events)) == (9, 11, 2)


def test_positions_are_runs_too() -> None:
    events: list[object] = [["BlockRemoved", [FIRST + number], "GPU", 0] for number in range(9)]
    assert parts(events) == [(True, 0, 9)]
    assert plain(decode(*events)) == plain(decode(*[removed(FIRST + number, group_idx=0) for number in range(9)]))


def test_read_tells_removals_from_stores() -> None:
    assert isinstance(read_event(msgspec.msgpack.encode(removed(1))), WireRemoved)
    assert isinstance(read_event(msgspec.msgpack.encode(stored())), Shape)


a_key = st.integers(0, 2**64 - 1) | st.integers(0, 2**200).map(digest) | st.integers(-9, 9)
removals = st.builds(
    removed, a_key, medium=st.sampled_from(["GPU", "CPU", None]), group_idx=st.sampled_from([0, 1, None])
)
runs = st.builds(
    lambda event, keys: [event | {"block_hashes": [key]} for key in keys], removals, st.lists(a_key, max_size=12)
)
others = st.sampled_from([[stored()], [CLEARED], [removed(1, 2, 3)], [{"type": "New"}], [5], [removed()]])


@given(st.lists(runs | others, max_size=8))
def test_runs_say_what_their_events_say(groups: list[list[dict[str, object]]]) -> None:
    events = [event for group in groups for event in group]
    batch = decode(*events)
    rows = [(row[0], index, *row[2:]) for index, event in enumerate(events) for row in plain(decode(event))]
    assert plain(batch) == rows
    for one, other in zip(batch.events, batch.events[1:], strict=False):
        if isinstance(one, Removed) and isinstance(other, Removed):
            assert (one.medium, one.group) != (other.medium, other.group)
