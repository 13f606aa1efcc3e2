"""What the account of a worker is given, and what the record answers it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.scene import STEP, Scene, prompt, stored, text
from whymiss.evidence.accounts import RecordResidence
from whymiss.ledger.events import KvBatch, Removed, Stored
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.ledger.stream import StreamRecord
from whymiss.model import SECOND, Cause, Hole, Reason, StreamId, Tier

ME = StreamId("w", 0)
WHAT = prompt(text(200))
LONGER = prompt(text(264))


def store(*keys: int, parent: int | None = None, session: bool = False) -> Stored:
    column = np.array(keys, np.uint64)
    return Stored(0, column, parent, 16, None, Tier.DEVICE, "gpu", session=session)


def removal(*keys: int) -> Removed:
    return Removed(np.array(keys, np.uint64), np.zeros(len(keys), np.int64), Tier.DEVICE, "gpu")


def record_of(*batches: Stored | Removed) -> StreamRecord:
    """One event a batch, a second apart; ordinals count from 0."""
    ledger = Ledger()
    for number, event in enumerate(batches):
        ledger.accept(ME, number, KvBatch(unix_nanos=(number + 1) * SECOND, events=[event], count=1), Delivery())
    return ledger.stream(ME)


def test_a_block_may_have_been_resident_between_its_store_and_its_removal() -> None:
    residence = RecordResidence(record_of(store(1, 2), removal(2), store(2, parent=1)))
    assert residence.maybe(2, 0, 3) == [(1, 1), (3, 3)]
    assert residence.maybe(1, 0, 3) == [(1, 3)]
    assert residence.maybe(9, 0, 3) == []
    assert [residence.surely(2, position) for position in range(4)] == [False, True, False, True]


def test_a_record_that_was_joined_late_rules_no_block_out() -> None:
    ledger = Ledger()
    ledger.accept(ME, 5, KvBatch(unix_nanos=SECOND, events=[store(1)], count=1), Delivery())
    record = ledger.stream(ME)
    residence = RecordResidence(record)
    assert not record.knows_all_held
    assert residence.maybe(9, 1, 2) == [(1, 2)]
    assert residence.maybe_at_depth(7, 1, 2) == (1, 2)


def test_no_chain_of_so_many_blocks_is_no_full_hit() -> None:
    residence = RecordResidence(record_of(store(1, 2), store(3, parent=2), removal(3)))
    assert residence.maybe_at_depth(1, 0, 3) == (1, 3)
    assert residence.maybe_at_depth(2, 0, 3) == (2, 2)
    assert residence.maybe_at_depth(3, 0, 3) is None


def test_more_blocks_of_a_depth_than_are_looked_at_are_not_listed() -> None:
    record = record_of(*(store(key) for key in range(1, 9)))
    assert record.keys_at_depth(0, 8, 8) is not None
    assert record.keys_at_depth(0, 8, 7) is None
    assert sorted(record.keys_at_depth(0, 3, 8) or ()) == [1, 2, 3]


def test_batches_say_where_events_were_lost_and_where_a_life_began() -> None:
    record = record_of(store(1), store(2))
    record.add_hole(Hole(after_unix_nanos=2 * SECOND, until_unix_nanos=3 * SECOND, reason=Reason.EVENTS_DROPPED))
    record.apply(KvBatch(unix_nanos=3 * SECOND, events=[store(3)], count=1), 2)
    record.restart(4 * SECOND)
    record.apply(KvBatch(unix_nanos=4 * SECOND, events=[store(4)], count=1), 0)
    said = [(batch.unix_nanos // SECOND, batch.lost_before, batch.restarted_before) for batch in record.batches_from(0)]
    assert said == [(1, False, False), (2, False, False), (3, True, False), (4, False, True)]
    assert [batch.unix_nanos // SECOND for batch in record.batches_from(1)] == [2, 3, 4]
    assert record.batches_from(record.end) == []


def test_stores_have_their_ordinals_and_say_whether_a_session_came_with_them() -> None:
    record = record_of(store(1), store(2, session=True))
    assert [(one.ordinal, one.session) for one in record.stores_in(0, 2)] == [(0, False), (1, True)]


# --- end to end ---------------------------------------------------------------------------------------


def test_a_prompt_longer_than_anything_that_was_stored_is_no_full_hit() -> None:
    scene = Scene("w")
    scene.serve("first", "w", 1.0, prompt(text(16, "other")))
    scene.engine("asked", "w", 5.0, 1040)
    scene["w"].stirs(9.0)
    assert scene.verdict("asked").cause is Cause.UNKNOWN


def test_two_requests_of_one_step_have_the_chains_that_continue_one_another() -> None:
    scene = Scene("w")
    scene.engine("short", "w", 5.0, 200)
    scene.engine("long", "w", 5.001, 264)
    scene["w"].batch(5.0 + STEP, stored(WHAT), stored(LONGER, 12))
    verdicts = scene.verdicts()
    assert (verdicts["short"].cached_tokens, verdicts["long"].cached_tokens) == (0, 192)
    assert verdicts["long"].cause is Cause.NEW_CONTENT


@pytest.mark.parametrize("known", [True, False])
def test_a_twin_whose_worker_is_not_known_may_own_the_only_chain(known: bool) -> None:
    scene = Scene("w", "v")
    scene.serve("warm", "w", 1.0, WHAT)
    scene.engine("one", "w", 5.0, 203)
    scene.engine("two", "w" if known else "", 5.001, 203)
    scene["w"].stored(5.0 + STEP, prompt(text(200, "new")))
    assert scene.verdict("one").cause is Cause.UNKNOWN


def test_a_prompt_of_pairs_has_one_less_than_tokens() -> None:
    scene = Scene("w")
    whole = prompt(text(32))
    pairs = [list(pair) for pair in zip(whole.tokens, whole.tokens[1:17], strict=False)]
    scene.engine("asked", "w", 5.0, 32)
    scene["w"].batch(5.0 + STEP, stored(whole, 0, 1, token_ids=pairs))
    assert scene.verdict("asked").cause is Cause.NO_RECENT_MATCH
