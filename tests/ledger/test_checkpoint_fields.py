"""What a checkpoint brings back, field by field, and which ones are not read."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from tests.ledger.test_retention import many
from tests.ledger.test_sequencer import STREAM, A, B, record_of, resumed, store
from whymiss.errors import BadInput
from whymiss.ledger.checkpoint import BYTE_ORDER, VERSION, dump, load
from whymiss.ledger.compaction.merge import level_of
from whymiss.ledger.events import KvBatch
from whymiss.ledger.ledger import Arrival, Delivery, Ledger, StreamHealth
from whymiss.model import SECOND, StreamId


def pieces(ledger: Ledger) -> list[bytes]:
    return list(dump(ledger, now=0.0, unix_nanos=0))


def chunk(content: bytes, number: int) -> bytes:
    mac = hashlib.blake2b(content, digest_size=16, salt=number.to_bytes(8, "big")).digest()
    return len(content).to_bytes(4, "big") + mac + content


def changed(ledger: Ledger, which: int, place: int, value: object) -> bytes:
    """A checkpoint with another value in one of its chunks; the first piece is no chunk."""
    said = pieces(ledger)
    number = which % len(said)
    content: list[Any] = msgspec.msgpack.decode(said[number][20:])
    content[place] = value
    said[number] = chunk(msgspec.msgpack.encode(content), number - 1)
    return b"".join(said)


def known() -> Ledger:
    ledger = Ledger()
    ledger.accept(STREAM, 0, store(1, A))
    return ledger


def anew(content: bytes) -> Ledger:
    ledger = Ledger()
    load(content, ledger, now=0.0, unix_nanos=0)
    return ledger


def test_what_was_large_is_not_merged_with_what_comes_in_anew() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, many(0, 4096))
    (segment,) = record_of(anew(b"".join(pieces(ledger)))).history.segments
    assert segment.level == level_of(segment) > 0


# --- which ones are not read ------------------------------------------------------------------------


def test_what_another_version_or_another_machine_wrote_is_not_read() -> None:
    assert anew(changed(known(), 1, 0, VERSION)).streams() == [STREAM]
    with pytest.raises(BadInput, match="of version"):
        anew(changed(known(), 1, 0, VERSION + 1))
    other = "big" if BYTE_ORDER == "little" else "little"
    with pytest.raises(BadInput, match=f"{other}-endian"):
        anew(changed(known(), 1, 1, other))


@pytest.mark.parametrize("count", [0, 2])
def test_a_number_of_streams_that_is_not_that_of_the_streams_is_refused(count: int) -> None:
    assert anew(changed(known(), -1, 0, 1)).streams() == [STREAM]
    with pytest.raises(BadInput, match="number of streams"):
        anew(changed(known(), -1, 0, count))


def test_one_that_was_cut_inside_a_chunk_is_said_to_end_early() -> None:
    content = b"".join(pieces(known()))
    with pytest.raises(BadInput, match="ends early"):
        anew(content[:-1])


# --- what comes back --------------------------------------------------------------------------------


def test_who_was_joined_late_has_no_record_from_birth() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 3, store(1, A))
    for one in (ledger, resumed(ledger)):
        assert not one.stream(STREAM).coverage(0, SECOND).from_birth
    assert resumed(known()).stream(STREAM).coverage(0, SECOND).from_birth


def test_whose_blocks_they_are() -> None:
    ledger = Ledger()
    one, same, other = (StreamId(name, 0) for name in ("a", "b", "c"))
    for stream, model in ((one, "m"), (same, "m"), (other, "n")):
        ledger.accept(stream, 0, store(1, A), Delivery(model=model))
    assert [peer.stream for peer in resumed(ledger).peers(one, 16)] == [same]


def in_life(number: int, at: int, key: int) -> KvBatch:
    return msgspec.structs.replace(store(at, key), incarnation=number)


def test_which_life_it_was() -> None:
    ledger = Ledger()
    ledger.accept(STREAM, 0, in_life(1, 1, A))
    assert resumed(ledger).accept(STREAM, 1, in_life(1, 2, B)).arrival is Arrival.APPLIED
    assert resumed(ledger).accept(STREAM, 1, in_life(2, 2, B)).arrival is Arrival.RESTARTED


def test_where_the_present_life_begins() -> None:
    ledger = Ledger()
    for seq, life in enumerate((1, 1, 2)):
        ledger.accept(STREAM, seq, in_life(life, 1 + seq, A + seq))
    for one in (ledger, resumed(ledger)):
        time_index = record_of(one).history.time_index
        assert [time_index.time_of(seq) for seq in range(3)] == [None, None, 3 * SECOND]


def test_what_kind_and_size_this_life_s_groups_have() -> None:
    event = store(2, B).events[0]
    later = msgspec.structs.replace(event, block_size=32, kind="sliding_window")
    ledger = resumed(known())
    assert not ledger.stream(STREAM).other_sizes
    ledger.accept(STREAM, 1, KvBatch(unix_nanos=2 * SECOND, events=[later], count=1))
    assert [(spec.kind, spec.block_size) for spec in ledger.stream(STREAM).groups()] == [("", 16)]
    assert resumed(ledger).stream(STREAM).other_sizes


def test_whether_token_ids_are_pairs() -> None:
    event = msgspec.structs.replace(store(2, B).events[0], pairs=True)
    ledger = known()
    ledger.accept(STREAM, 1, KvBatch(unix_nanos=2 * SECOND, events=[event], count=1))
    assert not known().stream(STREAM).pairs
    assert resumed(ledger).stream(STREAM).pairs


@pytest.mark.parametrize(("silent", "health"), [(59.0, StreamHealth.WHOLE), (60.0, StreamHealth.SILENT)])
def test_how_long_a_publisher_has_been_silent(silent: float, health: StreamHealth) -> None:
    content = b"".join(dump(known(), now=silent, unix_nanos=0))
    assert anew(content).health(0.0) == {STREAM: health}


@pytest.mark.parametrize(("away", "silent"), [(-100, 59.0), (0, 59.0), (50, 9.0)])
def test_the_time_that_it_was_away_counts_and_a_clock_that_was_set_back_does_not(away: int, silent: float) -> None:
    ledger = Ledger()
    load(b"".join(dump(known(), now=0.0, unix_nanos=1000 * SECOND)), ledger, now=0.0, unix_nanos=(1000 + away) * SECOND)
    assert [ledger.health(silent + more)[STREAM] for more in (0.0, 1.0)] == [StreamHealth.WHOLE, StreamHealth.SILENT]
