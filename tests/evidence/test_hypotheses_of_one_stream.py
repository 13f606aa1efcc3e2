"""Readings that must not be made, and those that must not be passed over: the engine's word, chains and ranks."""

from __future__ import annotations

from typing import Any

from tests.evidence.test_grouping import span
from tests.evidence.told import LATE, ME, Event, Told, hole
from whymiss.config import AttributionConfig
from whymiss.evidence.accounts import Accounts
from whymiss.evidence.hypotheses import Reader, Readings
from whymiss.model import SECOND, EngineRequest, Grade, Lookup, Reason, Request, Residency, Store, StreamId

RANK1 = StreamId("w", 1)
KEYS = (1, 2, 3, 4)


def at(seconds: float) -> int:
    return round(seconds * SECOND)


def store(first: int, *keys: int, when: float = 10.7, **more: Any) -> Store:
    told = {"parent": keys[0] - 1 or None, "position": 5, "start": first, **more}
    return Store(keys=keys, unix_nanos=at(when), **told)


# --- the engine's word -----------------------------------------------------------------------------------


def direct(record: Told, *streams: StreamId, gap: Reason = Reason.NONE, **said: Any) -> Readings:
    """A lookup at 10 s of an engine's request that ended at 12 s."""
    looked = Lookup(**{"cached_tokens": 32, "block_size": 16, **said})
    request = Request(
        engine=span(1, EngineRequest(prompt_tokens=65), start=9, end=12), lookup=span(2, looked, start=10, end=10)
    )
    return Reader(AttributionConfig(), record, Accounts(record, ())).read(request, streams, gap, None)


def test_without_a_block_size_there_is_no_first_missed_block() -> None:
    unsized = direct(Told(sizes={ME: None}), ME, block_size=None, expected_keys=KEYS)
    assert (unsized.grade, unsized.readings, unsized.gap) == (Grade.NONE, (), Reason.NO_EVENT_SOURCE)
    assert direct(Told(), block_size=None, gap=Reason.NO_WORKER).gap is Reason.NO_WORKER
    assert direct(Told(), ME, block_size=None, expected_keys=KEYS).readings[0].first == 2


def test_an_engine_may_name_the_first_missed_block_alone() -> None:
    (whole,), (alone,) = (
        direct(Told(), ME, **said).readings for said in ({"expected_keys": KEYS}, {"first_miss_key": 3})
    )
    assert (whole.chain, whole.last_hit_key, whole.chain_known) == ((3, 4), 2, True)
    assert (alone.chain, alone.last_hit_key, alone.chain_known) == ((3,), None, False)
    assert direct(Told(), ME, expected_keys=KEYS, cached_tokens=0).readings[0].last_hit_key is None


def test_a_lookup_stands_before_its_own_store_and_not_before_a_re_announcement() -> None:
    mine, again = store(2, 3, 4, when=11), store(2, 3, 4, when=11, reported=True)
    assert direct(Told(stores={ME: [mine]}), ME, expected_keys=KEYS).readings[0].position == 5
    assert direct(Told(stores={ME: [again]}), ME, expected_keys=KEYS).readings[0].position == at(10) + 1


def test_what_happens_to_the_block_before_the_next_batch_may_have_come_before_the_lookup() -> None:
    for when, undecided in ((9.0, False), (10.5, True), (11.5, False)):
        events = [Event(ME, at(when), 3, Residency.RESIDENT)]
        record = Told(events=events, batches={ME: [at(11)]})
        assert direct(record, ME, expected_keys=KEYS).readings[0].undecided is undecided, when
    assert direct(Told(batches={ME: []}), ME, expected_keys=KEYS).readings[0].undecided is True


def ranks(record: Told) -> list[int]:
    """The ranks of which one may have served the request."""
    found = direct(record, ME, RANK1, expected_keys=KEYS).readings
    return [one.stream.rank for one in found if one.stream is not None]


def test_of_several_ranks_the_one_that_stored_the_missed_block_is_meant() -> None:
    assert ranks(Told()) == [0, 1]
    mine, other = store(2, 3, 4, when=11), store(0, 41, 42, when=11)
    assert ranks(Told(stores={ME: [mine], RANK1: [other]})) == [0]
    assert ranks(Told(stores={ME: [other], RANK1: [mine]})) == [1]


def test_a_later_request_that_stores_the_block_shows_no_rank() -> None:
    later = store(2, 3, 4, when=13, position=at(10) + 1)
    events = [Event(ME, at(13), 3, Residency.RESIDENT)]
    assert ranks(Told(stores={ME: [later]}, events=events, batches={ME: [at(13)]})) == [0, 1]


# --- the events' word ------------------------------------------------------------------------------------


def derived(
    record: Told, *streams: StreamId, prompt: int | None = 65, cached: int | None = None, size: int | None = None
) -> Readings:
    """A request that came at 10 s, was looked up until 10.5 s and had its first token at 11 s."""
    said = EngineRequest(prompt_tokens=prompt, first_token_seconds=1.0, prefill_seconds=0.5)
    request = Request(engine=span(1, said, start=10, end=12))
    reader = Reader(AttributionConfig(block_size=size), record, Accounts(record, ()))
    return reader.read(request, streams or (ME,), Reason.NONE, cached)


WHOLE = Told(stores={ME: [store(0, *KEYS)]})


def test_without_streams_the_reason_is_why_there_are_none() -> None:
    request = Request(engine=span(1, EngineRequest(prompt_tokens=65), start=10, end=12))
    reader = Reader(AttributionConfig(block_size=16), Told(), Accounts(Told(), ()))
    found = reader.read(request, (), Reason.NO_WORKER, None)
    assert (found.grade, found.gap, found.block_size) == (Grade.NONE, Reason.NO_WORKER, 16)


def test_without_the_lengths_of_prompt_and_block_no_chain_can_be_told() -> None:
    assert derived(WHOLE).grade is Grade.DERIVED
    assert derived(WHOLE, prompt=None).gap is Reason.NO_FIRST_MISS_KEY
    assert derived(Told(stores=WHOLE.stores, sizes={ME: None})).gap is Reason.NO_EVENT_SOURCE


def test_ranks_with_unlike_block_sizes_have_none() -> None:
    assert derived(Told(sizes={RANK1: 32}), ME, RANK1).gap is Reason.NO_EVENT_SOURCE
    assert derived(Told(sizes={RANK1: 16}), ME, RANK1).block_size == 16


def test_a_short_prompt_stores_nothing_that_would_name_its_rank() -> None:
    assert [one.stream for one in derived(Told(), prompt=9).readings] == [ME]
    assert [one.stream for one in derived(Told(), ME, RANK1, prompt=9).readings] == [None]


def test_a_full_hit_may_be_of_any_rank() -> None:
    assert [one.stream for one in derived(Told()).readings] == [ME]
    assert [one.stream for one in derived(Told(), ME, RANK1).readings] == [ME, RANK1]


def test_beside_the_only_chain_that_fits_a_rank_may_be_idle_but_not_holed() -> None:
    idle = Told(stores=WHOLE.stores, batches={RANK1: [at(9)]})
    assert [one.stream for one in derived(idle, ME, RANK1).readings] == [ME]
    holed = Told(stores=WHOLE.stores, holes={RANK1: hole(at(10.2), at(10.4))})
    assert derived(holed, ME, RANK1).gap is Reason.EVENTS_DROPPED


def test_a_record_that_begins_in_the_prefill_may_lack_the_own_chain() -> None:
    begins = {ME: at(10.2)}
    assert derived(Told(stores=WHOLE.stores, begins=begins)).gap is Reason.HISTORY_SHORT
    assert derived(Told(stores=WHOLE.stores, begins=begins, expired=True)).gap is Reason.HISTORY_EXPIRED
    assert derived(Told(stores=WHOLE.stores, begins={ME: at(9)}, batches={ME: [at(9), LATE]})).gap is Reason.NONE


def test_a_store_whose_depth_is_not_known_may_be_the_own_chain() -> None:
    placeless = store(0, 41, 42, start=None)
    assert derived(Told(stores={ME: [placeless]})).gap is Reason.HISTORY_SHORT
