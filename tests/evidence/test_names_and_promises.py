"""Names that seem to mean a worker, promises that seem to be about it, and when they were made."""

from __future__ import annotations

import pytest

from tests.evidence.test_grouping import span
from tests.evidence.test_workers import ledger, request, workers
from tests.evidence.told import ME, OTHER, Told
from whymiss.config import WorkersConfig
from whymiss.evidence.requests.workers import KnownWorkers, Workers, _agrees
from whymiss.evidence.sections.local import lost_at
from whymiss.evidence.sections.promises import Promise, PromiseReader
from whymiss.model import (
    SECOND,
    EngineRequest,
    Moment,
    Reason,
    Removal,
    Request,
    RouteDecision,
    Span,
    StreamId,
)

# --- names -----------------------------------------------------------------------------------------------


def test_one_router_may_name_the_rank_that_another_leaves_out() -> None:
    known = ledger(("pod-2", 0), ("pod-2", 1))
    routed = request(RouteDecision(worker="pod-2"), RouteDecision(worker="pod-2-rank-1"))
    assert workers().resolve(routed, known).streams == (StreamId("pod-2", 1),)
    torn = request(RouteDecision(worker="pod-2-rank-0"), RouteDecision(worker="pod-2-rank-1"))
    assert workers().resolve(torn, known).gap is Reason.NO_WORKER


@pytest.mark.parametrize(("name", "worker"), [("engine", None), ("engine.ns", "engine.ns:8000")])
def test_a_bare_word_is_no_address(name: str, worker: str | None) -> None:
    assert KnownWorkers([StreamId("engine:8000", 0), StreamId("engine.ns:8000", 0)], {}).of_name(name) == worker


def test_a_source_that_nobody_declared_the_only_one_is_not() -> None:
    one = ledger(("any", 0))
    assert workers().resolve(request(), one).gap is Reason.NO_WORKER
    assert Workers(WorkersConfig(sole_source=True)).resolve(request(), one).worker == "any"


def test_an_entry_of_the_map_needs_all_that_it_asks_for_and_asks_for_something() -> None:
    said = {"a": "1", "b": "2"}
    assert _agrees({"a": "1", "b": "2"}, said)
    assert not _agrees({"a": "1", "b": "3"}, said)
    assert not _agrees({}, said)


# --- promises --------------------------------------------------------------------------------------------

TOLERANCE = SECOND // 20
READER = PromiseReader(Workers(WorkersConfig()), Told(others=[OTHER, StreamId("w", 1)]), TOLERANCE)
ENGINE = span(1, EngineRequest(), start=9.9, end=12.0)


def promise(*routes: Span) -> Promise:
    """What was promised to a request that was looked up at 10 s."""
    return READER.of(Request(engine=ENGINE, routes=routes), ME, 10 * SECOND, expected=False)


def between(earliest: float, latest: float) -> Moment:
    return Moment(
        earliest_unix_nanos=round(earliest * SECOND) - TOLERANCE, latest_unix_nanos=round(latest * SECOND) + TOLERANCE
    )


def test_a_decision_about_this_worker_comes_before_one_of_an_unknown_name() -> None:
    own = span(2, RouteDecision(worker="w", predicted_blocks=3), start=8, end=8.5)
    unclear = span(3, RouteDecision(worker="who", predicted_blocks=9), start=9, end=9.5)
    said = promise(own, unclear)
    assert said.route is not None
    assert (said.route.predicted_blocks, said.at, said.gap) == (3, between(8, 8.5), Reason.NONE)
    assert promise(unclear).gap is Reason.NO_WORKER


def test_a_decision_about_another_rank_promises_nothing_of_this_one() -> None:
    for told in (
        RouteDecision(worker="w", rank=1, predicted_blocks=3),
        RouteDecision(worker="other", predicted_blocks=3),
    ):
        said = promise(span(2, told, start=8, end=8.5))
        assert said.route is not None
        assert (said.route.predicted_blocks, said.at, said.gap) == (None, None, Reason.NONE)
    assert promise(span(2, RouteDecision(worker="w", rank=0, predicted_blocks=3), start=8, end=8.5)).at is not None


def test_a_decision_after_the_lookup_shows_that_the_clocks_are_wrong() -> None:
    said = promise(span(2, RouteDecision(worker="w", predicted_blocks=3), start=10.2, end=10.3))
    assert said.gap is Reason.CLOCK_SKEW
    assert said.at == Moment(earliest_unix_nanos=0, latest_unix_nanos=10 * SECOND + TOLERANCE)
    near = promise(span(2, RouteDecision(worker="w", predicted_blocks=3), start=10.05, end=10.3))
    assert near.gap is Reason.NONE


def test_the_best_worker_may_be_the_chosen_one() -> None:
    def elsewhere(best: str | None) -> bool:
        said = RouteDecision(worker="w", predicted_blocks=3, best_worker=best, best_blocks=3)
        return promise(span(2, said, start=8, end=8.5)).best_is_elsewhere

    assert [elsewhere(best) for best in ("w", "w-rank-1", "other", "who", None)] == [False, True, True, True, True]


def test_the_last_decision_that_names_a_worker_counts() -> None:
    named = span(2, RouteDecision(worker="w", pinned=True), start=8, end=8.5)
    silent = span(3, RouteDecision(), start=9, end=9.5)
    for routes in ((named, silent), (silent, named)):
        assert promise(*routes).route == RouteDecision(worker="w", pinned=True)


def test_a_reset_came_after_the_batch_before_it() -> None:
    record = Told(batches={ME: [300, 500, 600]}).stream(ME)

    def lost(published: int, removal: Removal | None = Removal.CLEARED) -> int:
        return lost_at(record, removal, published).earliest_unix_nanos

    assert (lost(600), lost(500), lost(300)) == (500, 300, 0)
    assert lost(600, Removal.RESTARTED) == 500
    assert lost(600, Removal.REMOVED) == 600
    assert lost(600, None) == 0, "it may have been gone before"
