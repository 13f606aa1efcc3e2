"""What spans alone say of a request, and what its tiers' records settle of what they do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.evidence.test_grouping import span
from tests.evidence.told import LOOKED, ME, OTHER, Event, Told, held, hole, lives, reading
from whymiss.config import parse
from whymiss.evidence.established import EstablishedEvidence, Remembered, Sources
from whymiss.evidence.hypotheses import Reading, Readings
from whymiss.evidence.requests.companions import Companions, kinds_of
from whymiss.evidence.requests.report import RequestReport
from whymiss.evidence.requests.workers import Workers
from whymiss.evidence.sections.relations import NoRelations
from whymiss.model import (
    Block,
    EngineRequest,
    GatewayUsage,
    Grade,
    Likeness,
    Lookup,
    OffloadOutcome,
    Prompt,
    Reason,
    Removal,
    Request,
    Residency,
    RouteDecision,
    Tier,
)

CONFIG = parse(f"{{ledger: {{window_seconds: {LOOKED / 1e9}}}}}", {})
TIER_SPAN = span(7, OffloadOutcome(status="miss"))
REQUEST = Request(engine=span(1, EngineRequest(prompt_tokens=65)))


class NoTemplates:
    def compare(self, prompt: Prompt) -> Likeness | None:
        assert prompt.stream == ME
        return None


def established(
    record: Told, asked: Reading, *, reports: bool = False, request: Request = REQUEST
) -> EstablishedEvidence:
    """The evidence of a request, in a place where tiers report or do not."""
    companions = Companions(1 << 60)
    if reports:
        companions.note(TIER_SPAN, None)
    sources = Sources(CONFIG, record, Workers(CONFIG.workers), Remembered(lives(), companions), NoTemplates())
    return sources.of_reading(RequestReport.of(request), asked, Readings(grade=Grade.DERIVED), "w")


def test_a_derived_chain_begins_where_the_local_hit_ended() -> None:
    assert established(Told(), reading(1, 2, 3, first=1)).lookup.local_hit_tokens == 16


def test_without_a_stream_there_is_no_record_and_nothing_of_it_is_said() -> None:
    nowhere = established(
        Told(), Reading(stream=None, cached_tokens=0, block_size=16, first=0, earliest=0, latest=0)
    ).local
    assert (nowhere.here, nowhere.record_gap) == (None, Reason.NO_WORKER)
    keyless = established(Told(), reading()).local
    assert (keyless.here, keyless.record_gap) == (None, Reason.NO_FIRST_MISS_KEY)


LEFT = [*held(1, tier=Tier.HOST), Event(ME, 600, 1, Residency.EVICTED, Tier.HOST, removal=Removal.REMOVED)]
"""The first block was in the tier and is no more."""


@pytest.mark.parametrize(
    ("told", "gap"),
    [
        ({"below": {ME: [Tier.HOST]}, "events": LEFT}, Reason.NONE),
        ({"below": {ME: [Tier.HOST]}}, Reason.PARTIAL_TRACE),
        ({}, Reason.PARTIAL_TRACE),
        ({"below": {ME: [Tier.HOST]}, "holes": {ME: hole(100, 200)}}, Reason.PARTIAL_TRACE),
        ({"below": {ME: [Tier.HOST]}, "events": held(1, tier=Tier.HOST)}, Reason.PARTIAL_TRACE),
    ],
    ids=["it let it go", "it never named it", "it publishes nothing", "its record has a hole", "it held the block"],
)
def test_a_lost_report_of_a_tier_matters_unless_its_record_shows_that_it_let_the_block_go(
    told: dict[str, Any], gap: Reason
) -> None:
    assert established(Told(**told), reading(1, 2, 3), reports=True).promises.offload_gap is gap
    assert established(Told(**told), reading(1, 2, 3)).promises.offload_gap is Reason.NONE


@pytest.mark.parametrize(("first", "unit"), [(0, 32), (2, 32), (1, 16), (3, 16)])
def test_a_hit_that_is_no_multiple_of_the_groups_unit_shows_finer_steps(first: int, unit: int) -> None:
    assert established(Told(unit=32), reading(1, 2, 3, first=first)).lookup.match_unit == unit


def test_gateways_that_disagree_on_a_prompt_tell_no_length() -> None:
    def told(*counts: int | None) -> int | None:
        spans = tuple(span(9, GatewayUsage(prompt_tokens=count)) for count in counts)
        return RequestReport.of(Request(lookup=span(2, Lookup()), gateways=spans)).prompt_tokens

    assert [told(64), told(64, None, 64), told(64, 65), told()] == [64, 64, None, None]


def local_hit(lookup: Lookup | None) -> int | None:
    request = REQUEST if lookup is None else Request(lookup=span(2, lookup))
    return RequestReport.of(request).local_hit_tokens


def test_what_a_tier_delivered_is_no_local_hit() -> None:
    assert local_hit(Lookup(cached_tokens=192, external_hit_tokens=64)) == 128
    assert local_hit(Lookup(cached_tokens=192, external_hit_tokens=64, local_hit_tokens=100)) == 100
    assert local_hit(Lookup(cached_tokens=192)) is None
    assert local_hit(Lookup(external_hit_tokens=64)) is None
    assert local_hit(None) is None


def test_what_was_to_come_from_a_prefill_half_lets_no_tier_be_expected() -> None:
    assert list(kinds_of(TIER_SPAN)) == ["offload"]
    assert list(kinds_of(span(7, OffloadOutcome(status="miss", tier="prefill_worker")))) == []
    assert list(kinds_of(span(7, RouteDecision(worker="w")))) == []


@pytest.mark.parametrize(
    ("events", "told", "compared"),
    [
        ([], {}, True),
        (held(1), {}, False),
        ([], {"blocks": {}}, False),
    ],
    ids=["an unseen block", "one that is held", "one whose tokens are not known"],
)
def test_only_an_unseen_block_whose_tokens_are_known_is_compared_with_a_template(
    events: list[Event], told: dict[str, Any], compared: bool
) -> None:
    asked: list[Prompt] = []

    class Templates:
        def compare(self, prompt: Prompt) -> Likeness | None:
            asked.append(prompt)
            return Likeness(name="t", version="v", differs=True)

    block = Block(key=1, parent=None, depth=0, tokens=5, prefix=5)
    record = Told(**{"events": events, "blocks": {(ME, 1): block}, **told})
    sources = Sources(CONFIG, record, Workers(CONFIG.workers), Remembered(lives(), Companions(1)), Templates())
    evidence = sources.of_reading(RequestReport.of(REQUEST), reading(1, 2, 3), Readings(grade=Grade.DERIVED), "w")
    assert asked == [], "nothing has asked for the section"
    assert (evidence.template is not None, len(asked)) == (compared, int(compared))


def test_a_section_is_established_once_and_when_it_is_asked_for() -> None:
    evidence = established(Told(events=held(1)), reading(1, 2, 3))
    assert "local" not in vars(evidence)
    assert evidence.local is evidence.local
    assert {"local"} == {"local", "tiers", "fleet", "relations", "promises", "isolation", "template"} & set(
        vars(evidence)
    )


def test_what_was_seen_here_is_compared_with_nothing() -> None:
    record = Told(events=held(1), others=[OTHER], under={ME: [(500, 1), (500, 51)]})
    assert established(record, reading(1, 2, 3)).relations == NoRelations()


def test_a_request_had_a_tier_where_one_reports_on_it_or_was_to_report() -> None:
    mine = Block(key=1, parent=None, depth=0, tokens=5, prefix=5, extras=7)
    salted = msgspec.structs.replace(mine, key=61, extras=8, kinds=("cache_salt",))
    record = Told(blocks={(ME, 1): mine}, left=[salted])
    reported = msgspec.structs.replace(REQUEST, offloads=(TIER_SPAN,))
    unsure = (established(record, reading(1, 2, 3), reports=True), established(record, reading(1), request=reported))
    assert {one.relations.equal_tokens.equal_gap for one in unsure} == {Reason.AMBIGUOUS_COPIES}
    assert established(record, reading(1, 2, 3)).relations.equal_tokens.equal_gap is Reason.NONE
