"""Whatever a publisher says, in whatever pieces: the columns answer what the dictionary of lists answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.agreement import agree, drop, expire, run_compaction
from tests.ledger.naive import NaiveRecord
from tests.ledger.publisher import batches, keys_of
from whymiss.ledger.events import KvBatch
from whymiss.ledger.hashing import Digester
from whymiss.ledger.stream import StreamRecord
from whymiss.model import Hole, Reason, StreamId

DIGESTER = Digester(bytes(32))
STREAM = StreamId("engine", 0)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[str, KvBatch | int]]:
    script: list[tuple[str, KvBatch | int]] = []
    commands = st.sampled_from(["batch"] * 12 + ["settle", "settle", "hole", "restart", "upkeep", "expire", "drop"])
    for number, command in enumerate(draw(st.lists(commands, max_size=30))):
        argument = draw(batches(number)) if command == "batch" else draw(st.integers(0, 4))
        script.append((command, argument))
    return script


def play(script: Sequence[tuple[str, KvBatch | int]], *, from_birth: bool) -> tuple[StreamRecord, NaiveRecord]:
    record = StreamRecord(STREAM, DIGESTER, from_birth=from_birth, begins_unix_nanos=1)
    naive = NaiveRecord(from_birth=from_birth, begins_unix_nanos=1)
    for command, argument in script:
        if isinstance(argument, KvBatch):
            record.apply(argument)
            naive.apply(argument)
        elif command == "settle":
            record.settle()
        elif command == "hole":
            for one, at in ((record, record.confirmed_unix_nanos), (naive, naive.confirmed)):
                one.add_hole(Hole(after_unix_nanos=at, until_unix_nanos=at + 5, reason=Reason.EVENTS_DROPPED))
        elif command == "restart":
            record.restart(record.confirmed_unix_nanos + 7)
            naive.restart(naive.confirmed + 7)
        elif command == "upkeep":
            record.settle()
            run_compaction(record, 10 * argument)
        elif command == "drop":
            drop(record, naive)
        else:
            record.settle()
            expire(record, naive, argument)
    record.settle()
    return record, naive


@given(lives(), st.booleans())
def test_every_answer_is_that_of_the_dictionary(script: list[tuple[str, KvBatch | int]], from_birth: bool) -> None:
    record, naive = play(script, from_birth=from_birth)
    agree(record, naive, keys_of([argument for _, argument in script if isinstance(argument, KvBatch)]))


@pytest.mark.deep
@given(lives(), st.booleans())
def test_every_answer_is_that_of_the_dictionary_a_thousand_times(
    script: list[tuple[str, KvBatch | int]], from_birth: bool
) -> None:
    record, naive = play(script, from_birth=from_birth)
    agree(record, naive, keys_of([argument for _, argument in script if isinstance(argument, KvBatch)]))
