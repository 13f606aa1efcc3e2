"""When a promise was made, as far as a router's spans show it."""

from __future__ import annotations

import msgspec

from tests.timeline import span_of
from whymiss.config import WorkersConfig
from whymiss.evidence.requests.workers import Workers
from whymiss.evidence.sections.promises import PromiseReader
from whymiss.ledger.ledger import Ledger
from whymiss.model import (
    SECOND,
    EngineRequest,
    Evidenced,
    Moment,
    Request,
    Role,
    RouteDecision,
    Span,
    StreamId,
)

STREAM = StreamId("w", 0)
TOLERANCE = SECOND // 20


def span(number: int, start: float, end: float, said: Evidenced, role: Role = Role.ROUTER) -> Span:
    return msgspec.structs.replace(span_of(role, 1, number, start=start, end=end), says=(said,))


def promised(*routes: Span) -> Moment | None:
    """When the promise to a request that was looked up at 10 s was made."""
    request = Request(engine=span(1, 9.9, 12.0, EngineRequest(), Role.ENGINE), routes=routes)
    reader = PromiseReader(Workers(WorkersConfig()), Ledger(), TOLERANCE)
    return reader.of(request, STREAM, 10 * SECOND, expected=False).at


def between(earliest: float, latest: float) -> Moment:
    return Moment(
        earliest_unix_nanos=round(earliest * SECOND) - TOLERANCE, latest_unix_nanos=round(latest * SECOND) + TOLERANCE
    )


def test_a_decision_falls_inside_its_span() -> None:
    assert promised(span(2, 9.0, 9.5, RouteDecision(predicted_blocks=3))) == between(9.0, 9.5)


def test_a_span_that_begins_with_the_choice_made_bounds_it_from_above_only() -> None:
    choice = span(2, 9.0, 12.0, RouteDecision(predicted_blocks=3, made_before=True))
    assert promised(choice) == Moment(earliest_unix_nanos=0, latest_unix_nanos=9 * SECOND + TOLERANCE)


def test_the_frontends_span_bounds_such_a_choice_from_below() -> None:
    choice = span(2, 9.0, 12.0, RouteDecision(predicted_blocks=3, made_before=True))
    frontend = span(3, 8.5, 12.5, RouteDecision(worker="w"))
    assert promised(choice, frontend) == between(8.5, 9.0)


def under(parent: int, one: Span) -> Span:
    return msgspec.structs.replace(one, parent_span_id=parent.to_bytes(8, "big"))


def test_a_span_of_the_choice_itself_says_when_it_was_made() -> None:
    sent = under(7, span(2, 9.0, 12.0, RouteDecision(predicted_blocks=3, made_before=True)))
    frontend = under(1, span(3, 8.5, 12.5, RouteDecision(worker="w")))
    chosen = under(7, span(4, 8.75, 8.875, RouteDecision(choice=True)))
    assert promised(sent, frontend, chosen) == between(8.75, 8.875)
    earlier = under(7, span(5, 8.625, 8.6875, RouteDecision(choice=True)))
    assert promised(sent, frontend, chosen, earlier) == between(8.75, 8.875)


def test_a_choice_of_another_call_or_a_later_one_says_nothing_of_it() -> None:
    sent = under(7, span(2, 9.0, 12.0, RouteDecision(predicted_blocks=3, made_before=True)))
    frontend = under(1, span(3, 8.5, 12.5, RouteDecision(worker="w")))
    others = under(8, span(4, 8.75, 8.875, RouteDecision(choice=True)))
    later = under(7, span(5, 8.875, 9.125, RouteDecision(choice=True)))
    plain = under(7, span(6, 8.75, 8.875, RouteDecision(worker="w")))
    assert promised(sent, frontend, others, later, plain) == between(8.5, 9.0)
