"""The ledger as bytes: it comes back as it was, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.agreement import agree
from tests.ledger.publisher import batches, keys_of
from tests.ledger.test_naive_agreement import lives, play
from tests.ledger.test_sequencer import ASKING, REPLAYED, A, B, record_of, remove, state, store
from whymiss.errors import BadInput
from whymiss.ledger.checkpoint import dump, load
from whymiss.ledger.events import KvBatch
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Arrival, Delivery, Ledger
from whymiss.ledger.sequencer import Sequencer
from whymiss.model import SECOND, Residency, StreamId

STREAM = StreamId("engine", 0)
DIGESTER = Digester(bytes(32))


def written(ledger: Ledger, *, now: float = 0.0, unix_nanos: int = 0) -> bytes:
    return b"".join(dump(ledger, now=now, unix_nanos=unix_nanos))


def resumed(content: bytes, *, now: float = 0.0, unix_nanos: int = 0, digester: Digester = DIGESTER) -> Ledger:
    ledger = Ledger(digester=digester)
    load(content, ledger, now=now, unix_nanos=unix_nanos)
    return ledger


def two_engines() -> Ledger:
    ledger = Ledger(digester=DIGESTER)
    for stream in (STREAM, StreamId("other", 1)):
        ledger.accept(stream, 0, store(1, A, B))
        ledger.accept(stream, 1, remove(2, B))
    return ledger


@given(lives(), st.data())
def test_it_goes_on_as_if_nothing_had_happened(script: list[tuple[str, KvBatch | int]], data: st.DataObject) -> None:
    record, naive = play(script, from_birth=True)
    ledger = Ledger(digester=DIGESTER)
    ledger.resume(STREAM, Sequencer(record, 1000))
    record = record_of(resumed(written(ledger)))
    later = [data.draw(batches(100 + number)) for number in range(data.draw(st.integers(0, 2)))]
    for batch in later:
        record.apply(batch)
        naive.apply(batch)
    record.settle()
    agree(record, naive, keys_of([one for _, one in script if isinstance(one, KvBatch)] + later))


def test_the_time_that_it_was_away_costs_only_the_gap() -> None:
    ledger = resumed(written(two_engines()))
    assert ledger.streams() == [STREAM, StreamId("other", 1)]
    assert ledger.accept(STREAM, 1, remove(2, B), ASKING).arrival is Arrival.DUPLICATE
    assert ledger.accept(STREAM, 3, store(4, B), ASKING).arrival is Arrival.GAP
    ledger.accept(STREAM, 1, remove(2, B), REPLAYED)
    assert ledger.accept(STREAM, 2, remove(3, A), REPLAYED).filled
    assert (state(ledger, A), state(ledger, B)) == (Residency.EVICTED, Residency.RESIDENT)
    assert ledger.stream(STREAM).coverage(0, 5 * SECOND).holes == ()


def test_a_gap_that_is_never_filled_is_a_hole_after_it_too() -> None:
    ledger = resumed(written(two_engines()))
    ledger.accept(STREAM, 3, store(4, B))
    assert (state(ledger, A), state(ledger, B)) == (Residency.UNKNOWN, Residency.RESIDENT)


def test_a_publisher_that_restarted_meanwhile_is_found_out() -> None:
    ledger = resumed(written(two_engines()))
    ledger.accept(STREAM, 1, store(9, B), REPLAYED)
    assert state(ledger, A) is not Residency.RESIDENT


def test_history_grows_older_while_the_service_is_down() -> None:
    ledger = Ledger(digester=DIGESTER, window_seconds=1000.0)
    ledger.accept(STREAM, 0, store(1, A), Delivery(now=100.0))
    ledger.accept(STREAM, 1, remove(2, A), Delivery(now=100.0))
    content = written(ledger, now=200.0, unix_nanos=5000 * SECOND)
    anew = Ledger(digester=DIGESTER, window_seconds=1000.0)
    load(content, anew, now=7.0, unix_nanos=7000 * SECOND)
    anew.expire(8.0)
    assert state(anew, A) is Residency.NEVER_SEEN
    assert anew.stream(STREAM).coverage(0, 3 * SECOND).expired


def test_what_comes_after_the_first_piece_is_not_in_it() -> None:
    ledger = two_engines()
    pieces = dump(ledger, now=0.0, unix_nanos=0)
    content = next(pieces)
    content += next(pieces)
    ledger.accept(STREAM, 2, remove(3, A))
    ledger.settle()
    anew = resumed(content + b"".join(pieces))
    assert state(anew, A) is Residency.RESIDENT
    assert state(ledger, A) is Residency.EVICTED


@given(st.data())
def test_a_damaged_one_is_refused_whole_and_says_where(data: st.DataObject) -> None:
    content = bytearray(written(two_engines()))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    ledger = Ledger(digester=DIGESTER)
    with pytest.raises(BadInput) as caught:
        load(bytes(content), ledger, now=0.0, unix_nanos=0)
    assert caught.value.offset is not None
    assert caught.value.offset <= at
    assert ledger.streams() == []


@given(st.data())
def test_one_that_was_cut_short_is_refused(data: st.DataObject) -> None:
    content = written(two_engines())
    end = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(BadInput):
        resumed(content[:end])


def test_one_with_something_behind_its_end_is_refused() -> None:
    with pytest.raises(BadInput):
        resumed(written(two_engines()) + b"\0")


def test_chunks_cannot_change_places() -> None:
    pieces = list(dump(two_engines(), now=0.0, unix_nanos=0))
    pieces[3], pieces[4] = pieces[4], pieces[3]
    with pytest.raises(BadInput):
        resumed(b"".join(pieces))


def test_digests_of_another_key_are_refused() -> None:
    with pytest.raises(BadInput, match="another key"):
        resumed(written(two_engines()), digester=Digester(bytes(31) + b"1"))


def test_it_holds_no_key() -> None:
    key = bytes(range(7, 39))
    ledger = Ledger(digester=Digester(key))
    ledger.accept(STREAM, 0, store(1, A))
    assert key not in written(ledger)


def test_the_digests_of_the_blocks_of_references_come_back() -> None:
    digester = Digester(bytes(32))
    digester.translated["00ff"] = (1 << 64) - 1
    content = written(Ledger(digester=digester))
    anew = Digester(bytes(32))
    resumed(content, digester=anew)
    assert anew.translated == {"00ff": (1 << 64) - 1}
