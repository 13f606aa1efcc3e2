"""Counts are conserved: what is recent, and what is older, is all there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.edge.status.snapshot import Count, NamedCount
from whymiss.edge.status.totals import GAUGES, PAST, SUMS, Sums, Totals, Window, sums_of
from whymiss.measures import OTHER, Dimensions, Measures
from whymiss.model import Cause, Grade, Owner, Reason, Verdict

REQUESTS, EVENTS = "prefix_cache.requests", "whymiss.ledger.events"
NAMES = st.sampled_from(["a", "b", "c"])
ADDED = st.lists(st.dictionaries(NAMES, st.integers(0, 5)), min_size=1, max_size=12)


def measures(series_max: int = 1000) -> Measures:
    return Measures(dimensions=["model"], values_max=9, series_max=series_max, start_unix_nanos=1)


def verdict(cause: Cause, owner: Owner) -> Verdict:
    return Verdict(cause=cause, owner=owner, reason=Reason.NONE, grade=Grade.NONE, lost_tokens=3)


@given(ADDED, st.integers(1, 5))
def test_the_recent_past_is_what_the_last_steps_added(added: list[dict[str, int]], steps_max: int) -> None:
    window, sums = Window(100.0, steps_max), dict.fromkeys("abc", 0.0)
    for number, more in enumerate(added, 1):
        sums = {name: value + more.get(name, 0) for name, value in sums.items()}
        window.note(100.0 + 15 * number, {(REQUESTS, name): value for name, value in sums.items()})
    now: Sums = {(REQUESTS, name): value + 1 for name, value in sums.items()}
    end = 100.0 + 15 * len(added) + 4
    totals = Totals(now, window.steps(end, now))
    kept = added[-steps_max:]
    assert totals.seconds == 15 * len(kept) + 4
    for name in "abc":
        recent = sum(more.get(name, 0) for more in kept) + 1
        assert totals.count(REQUESTS, name) == Count(sums[name] + 1, recent)


@given(ADDED)
def test_tallies_are_the_whole_count_taken_apart(added: list[dict[str, int]]) -> None:
    sums: Sums = {
        ("m", str(place), name): float(value) for place, more in enumerate(added) for name, value in more.items()
    }
    totals = Totals(sums, [(1.0, sums)])
    for by in (0, 1):
        tallies = totals.tallies("m", by=by)
        assert sum(one.count.total for one in tallies) == totals.count("m").total
        assert [one.count.total for one in tallies] == sorted((one.count.total for one in tallies), reverse=True)
        assert all(one.count.total for one in tallies)


def test_dimensions_are_summed_up_and_labels_are_kept() -> None:
    ours = measures()
    for model, cause in (("x", Cause.EVICTED), ("y", Cause.EVICTED), ("y", Cause.UNKNOWN)):
        ours.observe(verdict(cause, Owner.PLATFORM), Dimensions(model=model), first_token_seconds=None)
    ours.gauge("whymiss.ledger.lag", 0.5, source="s")
    sums = sums_of(ours)
    assert (sums[REQUESTS, "evicted"], sums[REQUESTS, "unknown"]) == (2, 1)
    assert sums["prefix_cache.lost_tokens", "evicted", "platform"] == 6
    assert sums["prefix_cache.misses", "evicted", "platform", ""] == 2
    assert sums_of(ours, GAUGES) == {("whymiss.ledger.lag", "s"): 0.5}


def test_what_came_after_the_last_series_is_counted_as_other() -> None:
    ours = measures(series_max=2)
    for source in "abc":
        ours.count(EVENTS, source=source)
    sums = sums_of(ours)
    assert (sums[EVENTS, "a"], sums[EVENTS, OTHER]) == (1, 2)


def test_the_past_of_sources_is_not_kept() -> None:
    assert EVENTS in SUMS
    assert EVENTS not in PAST
    assert {REQUESTS, "whymiss.ledger.discovery_failures", "whymiss.exporter.sent_spans"} <= set(PAST)


@pytest.mark.parametrize(
    ("labels", "by", "found"),
    [
        ((), 0, (NamedCount("grpc", Count(7, 0)), NamedCount("http", Count(4, 0)))),
        (("http",), 1, (NamedCount("logs", Count(3, 0)), NamedCount("traces", Count(1, 0)))),
        ((None, "traces"), 0, (NamedCount("grpc", Count(7, 0)), NamedCount("http", Count(1, 0)))),
        (("smtp",), 1, ()),
    ],
)
def test_series_are_chosen_by_the_labels_that_are_named(
    labels: tuple[str | None, ...], by: int, found: tuple[NamedCount, ...]
) -> None:
    sums = {("m", "grpc", "traces"): 7.0, ("m", "http", "traces"): 1.0, ("m", "http", "logs"): 3.0, ("n", "http"): 9.0}
    assert Totals(sums, []).tallies("m", *labels, by=by) == found
