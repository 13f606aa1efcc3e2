"""What spans alone say of a request, and what its tiers' records settle of what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evidence.test_grouping import span
from tests.evidence.told import LOOKED, ME, Told, held, hole, lives, reading
from whymiss.config import parse
from whymiss.evidence.companions import Companions, kinds_of
from whymiss.evidence.facts import FactFinder, _local_hit, _prompt_tokens
from whymiss.evidence.reading import Reading, Readings
from whymiss.evidence.workers import Workers
from whymiss.model import (
    EngineRequest,
    Facts,
    GatewayUsage,
    Grade,
    Lookup,
    OffloadOutcome,
    Reason,
    Request,
    RouteDecision,
    Tier,
)

CONFIG = parse(f"{{ledger: {{window_seconds: {LOOKED / 1e9}}}}}", {})
TIER_SPAN = span(7, OffloadOutcome(status="miss"))
REQUEST = Request(engine=span(1, EngineRequest(prompt_tokens=65)))


def facts(record: Told, asked: Reading, *, reports: bool = False) -> Facts:
    """The facts of a request, in a place where tiers report or do not."""
    companions = Companions(1 << 60)
    if reports:
        companions.note(TIER_SPAN, None)
    finder = FactFinder(CONFIG, record, Workers(CONFIG.workers), lives(), companions)
    return finder.of(REQUEST, asked, Readings(grade=Grade.DERIVED), "w")


def test_a_derived_chain_begins_where_the_local_hit_ended() -> None:
    assert facts(Told(), reading(1, 2, 3, first=1)).local_hit_tokens == 16


def test_without_a_stream_there_is_no_record_and_nothing_of_it_is_said() -> None:
    nowhere = facts(Told(), Reading(stream=None, cached_tokens=0, block_size=16, first=0, earliest=0, latest=0))
    assert (nowhere.here, nowhere.record_gap) == (None, Reason.NO_WORKER)
    keyless = facts(Told(), reading())
    assert (keyless.here, keyless.record_gap) == (None, Reason.NO_FIRST_MISS_KEY)


@pytest.mark.parametrize(
    ("told", "gap"),
    [
        ({"below": {ME: [Tier.HOST]}}, Reason.NONE),
        ({}, Reason.PARTIAL_TRACE),
        ({"below": {ME: [Tier.HOST]}, "holes": {ME: hole(100, 200)}}, Reason.PARTIAL_TRACE),
        ({"below": {ME: [Tier.HOST]}, "events": held(1, tier=Tier.HOST)}, Reason.PARTIAL_TRACE),
    ],
    ids=["it held nothing", "it publishes nothing", "its record has a hole", "it held the block"],
)
def test_a_lost_report_of_a_tier_matters_unless_its_record_shows_that_it_held_nothing(
    told: dict[str, Any], gap: Reason
) -> None:
    assert facts(Told(**told), reading(1, 2, 3), reports=True).offload_gap is gap
    assert facts(Told(**told), reading(1, 2, 3)).offload_gap is Reason.NONE


@pytest.mark.parametrize(("first", "unit"), [(0, 32), (2, 32), (1, 16), (3, 16)])
def test_a_hit_that_is_no_multiple_of_the_groups_unit_shows_finer_steps(first: int, unit: int) -> None:
    assert facts(Told(unit=32), reading(1, 2, 3, first=first)).match_unit == unit


def test_gateways_that_disagree_on_a_prompt_tell_no_length() -> None:
    def told(*counts: int | None) -> int | None:
        return _prompt_tokens(None, None, [span(9, GatewayUsage(prompt_tokens=count)) for count in counts])

    assert [told(64), told(64, None, 64), told(64, 65), told()] == [64, 64, None, None]


def test_what_a_tier_delivered_is_no_local_hit() -> None:
    assert _local_hit(Lookup(cached_tokens=192, external_hit_tokens=64)) == 128
    assert _local_hit(Lookup(cached_tokens=192, external_hit_tokens=64, local_hit_tokens=100)) == 100
    assert _local_hit(Lookup(cached_tokens=192)) is None
    assert _local_hit(Lookup(external_hit_tokens=64)) is None
    assert _local_hit(None) is None


def test_what_was_to_come_from_a_prefill_half_lets_no_tier_be_expected() -> None:
    assert list(kinds_of(TIER_SPAN)) == ["offload"]
    assert list(kinds_of(span(7, OffloadOutcome(status="miss", tier="prefill_worker")))) == []
    assert list(kinds_of(span(7, RouteDecision(worker="w")))) == []
