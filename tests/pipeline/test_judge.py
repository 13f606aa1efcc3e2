"""How readings become one verdict: what may have been loaded, who counted, and what was let go early."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.evidence.test_grouping import span
from tests.evidence.told import ME, Event, Told, hole
from whymiss.config import parse
from whymiss.ledger.ledger import Ledger
from whymiss.model import (
    SECOND,
    Cause,
    EngineRequest,
    Evidenced,
    FleetView,
    GatewayUsage,
    Likeness,
    Lookup,
    OffloadOutcome,
    Prompt,
    Reason,
    Removal,
    Request,
    Residency,
    ResourceIdentity,
    Span,
    Store,
    StreamId,
    Verdict,
)
from whymiss.pipeline.judge import Judge

KEYS = (1, 2, 3, 4)
RANK1 = StreamId("w", 1)


class NoTemplates:
    def compare(self, prompt: Prompt) -> Likeness | None:
        assert prompt.model is None
        return None


def here(number: int, *says: Evidenced, **times: float) -> Span:
    return msgspec.structs.replace(span(number, *says, **times), resource=ResourceIdentity(worker="w"))  # type: ignore[arg-type]


def evicted(**told: Any) -> Told:
    """A record of the request's own chain, which had been here and was removed at 5 s."""
    gone = Event(ME, 5 * SECOND, 1, Residency.EVICTED, removal=Removal.REMOVED)
    chain = Store(keys=KEYS, start=0, parent=None, position=10 * SECOND, unix_nanos=10 * SECOND + 7 * SECOND // 10)
    return Told(events=[gone], stores={ME: [chain]}, **told)


def judged(
    record: FleetView | None = None,
    *,
    lookup: Lookup | None = None,
    offload: OffloadOutcome | None = None,
    usage: GatewayUsage | None = None,
    connectors: tuple[str, ...] = (),
    shed: bool = False,
    **said: Any,
) -> Verdict:
    """The verdict of a request that came at 10 s, was looked up until 10.5 s and had its first token at 11 s."""
    engine = EngineRequest(**{"prompt_tokens": 65, "first_token_seconds": 1.0, "prefill_seconds": 0.5, **said})
    request = Request(
        engine=here(1, engine, start=10, end=12),
        lookup=None if lookup is None else here(2, lookup, start=10.2, end=10.2),
        offloads=() if offload is None else (span(3, offload, start=10.3, end=10.4),),
        gateways=() if usage is None else (span(4, usage, start=9, end=13),),
    )
    judge = Judge(parse("{}", {}), evicted() if record is None else record, connectors, NoTemplates())
    return judge.verdict_of(request, shed=shed)


def answer(verdict: Verdict) -> tuple[Cause, Reason]:
    return verdict.cause, verdict.reason


EVICTED, UNCOUNTED = (Cause.EVICTED, Reason.CAPACITY), (Cause.UNKNOWN, Reason.NO_CACHED_TOKENS)

# --- what may have been loaded ---------------------------------------------------------------------------


def test_what_a_connector_or_a_prefill_half_may_have_loaded_is_called_no_miss() -> None:
    assert answer(judged()) == EVICTED
    assert answer(judged(connectors=("w",))) == UNCOUNTED
    assert answer(judged(connectors=("other",))) == EVICTED
    assert answer(judged(decode_only=True)) == UNCOUNTED


def test_the_engines_own_word_says_how_much_was_loaded() -> None:
    said = Lookup(cached_tokens=0, block_size=16, expected_keys=KEYS)
    assert answer(judged(connectors=("w",), lookup=said)) == UNCOUNTED
    told = msgspec.structs.replace(said, external_hit_tokens=0)
    assert answer(judged(connectors=("w",), lookup=told)) == EVICTED


@pytest.mark.parametrize(
    ("offload", "expected"),
    [
        (OffloadOutcome(status="none"), EVICTED),
        (OffloadOutcome(status="miss"), EVICTED),
        (OffloadOutcome(found_blocks=0, loaded_blocks=0), EVICTED),
        (OffloadOutcome(status="hit", found_blocks=4, loaded_blocks=4), UNCOUNTED),
        (OffloadOutcome(), UNCOUNTED),
    ],
)
def test_a_tier_that_gave_nothing_leaves_nothing_open(offload: OffloadOutcome, expected: tuple[Cause, Reason]) -> None:
    assert answer(judged(connectors=("w",), offload=offload)) == expected


def test_a_reported_count_includes_what_was_loaded() -> None:
    assert answer(judged(connectors=("w",), cached_tokens=0)) == EVICTED
    assert answer(judged(connectors=("w",), usage=GatewayUsage(cached_tokens=0))) == EVICTED


def test_where_nothing_was_computed_nothing_was_missed_whoever_delivered_it() -> None:
    assert answer(judged(Told(), connectors=("w",))) == (Cause.NONE, Reason.NONE)


# --- whose it is -----------------------------------------------------------------------------------------


def test_a_request_whose_chain_is_not_known_has_its_worker_and_its_rank_if_there_is_one() -> None:
    lost = {stream: hole(10 * SECOND, 11 * SECOND) for stream in (ME, RANK1)}
    alone, ranked = judged(Told(holes=lost)), judged(Told(holes=lost, others=[RANK1]))
    assert answer(alone) == answer(ranked) == (Cause.UNKNOWN, Reason.EVENTS_DROPPED)
    assert [(one.worker, one.rank) for one in (alone, ranked)] == [("w", 0), ("w", None)]


def test_what_was_let_go_early_lacks_what_was_still_to_come_unless_it_is_clear() -> None:
    lost = Told(holes={ME: hole(10 * SECOND, 11 * SECOND)})
    assert answer(judged(lost)) == (Cause.UNKNOWN, Reason.EVENTS_DROPPED)
    assert answer(judged(lost, shed=True)) == (Cause.UNKNOWN, Reason.PARTIAL_TRACE)
    assert answer(judged(shed=True)) == EVICTED


# --- who counted -----------------------------------------------------------------------------------------


def test_where_who_counts_gave_no_count_nothing_shows_that_there_was_a_miss() -> None:
    silent = Lookup(block_size=16, prompt_tokens=65)
    source = (Cause.UNKNOWN, Reason.NO_EVENT_SOURCE)
    assert answer(judged(Ledger(), lookup=silent)) == UNCOUNTED
    assert answer(judged(Ledger(), usage=GatewayUsage(prompt_tokens=65))) == UNCOUNTED
    assert answer(judged(Ledger(), usage=GatewayUsage(cached_tokens=0))) == source, "a reported zero is a miss"
    assert answer(judged(Ledger())) == source, "nobody counts"
    # With events the gap is theirs.
    lost = Told(holes={ME: hole(10 * SECOND, 11 * SECOND)})
    assert answer(judged(lost, lookup=silent)) == (Cause.UNKNOWN, Reason.EVENTS_DROPPED)
