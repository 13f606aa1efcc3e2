"""Nothing is lost, nothing is guessed, and nothing grows past its cap."""

from __future__ import annotations

from collections import Counter
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.config import MeasuresConfig
from whymiss.measures import (
    DIMENSIONS,
    FIRST_TOKEN_BOUNDS,
    INSTRUMENTS,
    MEANINGS,
    OTHER,
    OVERFLOW,
    VALUE_CHARS_MAX,
    Dimensions,
    Exemplar,
    Kind,
    Measures,
    Point,
)
from whymiss.model import Cause, Owner, Reason, Verdict

START = 1_000
CLASS_METRICS = {
    "requests": ("cause",),
    "misses": ("cause", "owner", "reason"),
    "queried_tokens": (),
    "hit_tokens": (),
    "recomputed_tokens": ("cause", "owner"),
    "lost_tokens": ("cause", "owner"),
    "sparse_lost_tokens": (),
    "time_to_first_token": ("cause",),
    "unknown": ("reason",),
}
EVICTED = Verdict(
    cause=Cause.EVICTED,
    owner=Owner.PLATFORM,
    reason=Reason.CAPACITY,
    prompt_tokens=2048,
    cached_tokens=640,
    recomputed_tokens=1408,
    lost_tokens=1392,
    sparse_lost_tokens=0,
)
HIT = Verdict(cause=Cause.NONE, owner=Owner.NONE, prompt_tokens=64, cached_tokens=48, recomputed_tokens=16)


def measures(*dimensions: str, values_max: int = 100, series_max: int = 2000) -> Measures:
    return Measures(dimensions=dimensions, values_max=values_max, series_max=series_max, start_unix_nanos=START)


def exemplar(number: int) -> Exemplar:
    return Exemplar(trace_id=f"{number:032x}", span_id=f"{number:016x}", unix_nanos=number)


def points(seen: Measures, name: str, reader: str | None = None) -> dict[tuple[tuple[str, str], ...], Point]:
    return {
        point.labels: point
        for metric in seen.snapshot(reader)
        if metric.instrument.name == name
        for point in metric.points
    }


def sums(seen: Measures, name: str) -> dict[tuple[str, ...], float]:
    shown = points(seen, name)
    by_values = {tuple(value for _, value in labels): point.value for labels, point in shown.items()}
    assert len(by_values) == len(shown), "label names are needed to tell the series apart"
    return by_values


def total(seen: Measures, name: str) -> float:
    return sum(point.value for point in points(seen, name).values())


# --- What is declared -------------------------------------------------------------------------------


def test_class_metrics_are_those_that_users_see() -> None:
    declared = {one.name.removeprefix("prefix_cache."): one.labels for one in INSTRUMENTS if one.dimensional}
    assert declared == CLASS_METRICS


def test_every_instrument_is_described_once_and_carries_no_dimension_by_itself() -> None:
    assert max(Counter(one.name for one in INSTRUMENTS).values()) == 1
    for one in INSTRUMENTS:
        assert one.description.endswith(".")
        assert one.unit in {"s", "By"} or (one.unit[0], one.unit[-1]) == ("{", "}")
        assert bool(one.bounds) == (one.kind is Kind.HISTOGRAM)
        assert not set(one.labels) & set(DIMENSIONS)
        assert one.name.startswith("prefix_cache." if one.dimensional else "whymiss.")


def test_each_dimension_has_its_meaning_and_its_field() -> None:
    assert tuple(name.replace(".", "_") for name in MEANINGS) == Dimensions.__struct_fields__
    assert all(meaning.endswith(".") for meaning in MEANINGS.values())


def test_config_offers_exactly_the_dimensions_that_exist() -> None:
    assert MeasuresConfig().dimensions == DIMENSIONS


def test_bounds_rise() -> None:
    assert list(FIRST_TOKEN_BOUNDS) == sorted(set(FIRST_TOKEN_BOUNDS))


# --- What a verdict adds ----------------------------------------------------------------------------


def test_miss_is_counted_by_cause_owner_and_reason_with_its_cost() -> None:
    seen = measures()
    seen.observe(EVICTED, Dimensions(), first_token_seconds=None)
    assert sums(seen, "prefix_cache.requests") == {("evicted",): 1}
    assert sums(seen, "prefix_cache.misses") == {("evicted", "platform", "capacity"): 1}
    assert sums(seen, "prefix_cache.queried_tokens") == {(): 2048}
    assert sums(seen, "prefix_cache.hit_tokens") == {(): 640}
    assert sums(seen, "prefix_cache.recomputed_tokens") == {("evicted", "platform"): 1408}
    assert sums(seen, "prefix_cache.lost_tokens") == {("evicted", "platform"): 1392}
    assert sums(seen, "prefix_cache.sparse_lost_tokens") == {(): 0}
    assert sums(seen, "prefix_cache.unknown") == {}


def test_hit_is_a_request_and_no_miss() -> None:
    seen = measures()
    seen.observe(HIT, Dimensions(), first_token_seconds=None)
    assert sums(seen, "prefix_cache.requests") == {("none",): 1}
    assert sums(seen, "prefix_cache.misses") == {}


def test_unknown_is_counted_by_the_hole_in_the_evidence() -> None:
    seen = measures()
    verdict = Verdict(cause=Cause.UNKNOWN, owner=Owner.OBSERVABILITY, reason=Reason.EVENTS_DROPPED)
    seen.observe(verdict, Dimensions(), first_token_seconds=None)
    assert sums(seen, "prefix_cache.unknown") == {("events_dropped",): 1}
    assert sums(seen, "prefix_cache.misses") == {("unknown", "observability", "events_dropped"): 1}


def test_engine_without_cached_tokens_has_not_missed() -> None:
    seen = measures()
    verdict = Verdict(
        cause=Cause.UNKNOWN, owner=Owner.OBSERVABILITY, reason=Reason.NO_CACHED_TOKENS, prompt_tokens=2048
    )
    seen.observe(verdict, Dimensions(), first_token_seconds=None)
    assert sums(seen, "prefix_cache.unknown") == {("no_cached_tokens",): 1}
    assert sums(seen, "prefix_cache.misses") == {}
    assert sums(seen, "prefix_cache.queried_tokens") == {}


@pytest.mark.parametrize(
    "metric", ["queried_tokens", "hit_tokens", "recomputed_tokens", "lost_tokens", "sparse_lost_tokens"]
)
def test_absent_tokens_are_not_zero(metric: str) -> None:
    seen = measures()
    seen.observe(Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM), Dimensions(), first_token_seconds=None)
    assert sums(seen, f"prefix_cache.{metric}") == {}


def test_weight_is_how_many_lookups_one_stands_for() -> None:
    seen = measures()
    seen.observe(EVICTED, Dimensions(), first_token_seconds=2.0, weight=2.5)
    assert total(seen, "prefix_cache.misses") == 2.5
    assert total(seen, "prefix_cache.lost_tokens") == 1392 * 2.5
    (point,) = points(seen, "prefix_cache.time_to_first_token").values()
    assert (point.value, sum(point.counts)) == (5.0, 2.5)


@pytest.mark.parametrize("weight", [0.0, -1.0, inf, nan])
def test_weight_that_counts_nothing_is_our_mistake(weight: float) -> None:
    with pytest.raises(AssertionError):
        measures().observe(HIT, Dimensions(), first_token_seconds=None, weight=weight)


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.001, 0), (0.0011, 1), (160.0, 19), (161.0, 20)])
def test_bucket_ends_at_its_bound(seconds: float, bucket: int) -> None:
    seen = measures()
    seen.observe(HIT, Dimensions(), first_token_seconds=seconds)
    (point,) = points(seen, "prefix_cache.time_to_first_token").values()
    assert len(point.counts) == len(FIRST_TOKEN_BOUNDS) + 1
    assert [index for index, count in enumerate(point.counts) if count] == [bucket]


@pytest.mark.parametrize("seconds", [None, -0.1, inf, nan])
def test_time_that_cannot_be_is_left_out(seconds: float | None) -> None:
    seen = measures()
    seen.observe(HIT, Dimensions(), first_token_seconds=seconds)
    assert points(seen, "prefix_cache.time_to_first_token") == {}


# --- Dimensions and caps ----------------------------------------------------------------------------


def test_dimension_is_shown_only_when_switched_on_and_known() -> None:
    seen = measures("model", "sampling.method")
    seen.observe(HIT, Dimensions(model="m", route="r", sampling_method="counted"), first_token_seconds=None)
    seen.observe(HIT, Dimensions(model=""), first_token_seconds=None)
    assert set(points(seen, "prefix_cache.requests")) == {
        (("cause", "none"), ("model", "m"), ("sampling.method", "counted")),
        (("cause", "none"),),
    }


def test_value_past_the_cap_is_shown_as_other() -> None:
    seen = measures("model", values_max=2)
    for model in ("a", "b", "c", "d", "a"):
        seen.observe(HIT, Dimensions(model=model), first_token_seconds=None)
    assert sums(seen, "prefix_cache.hit_tokens") == {("a",): 96, ("b",): 48, (OTHER,): 96}


def test_long_value_is_never_shown() -> None:
    seen = measures("route")
    seen.observe(HIT, Dimensions(route="x" * (VALUE_CHARS_MAX + 1)), first_token_seconds=None)
    assert sums(seen, "prefix_cache.hit_tokens") == {(OTHER,): 48}


def test_last_series_takes_what_came_too_late() -> None:
    seen = measures("model", series_max=2)
    for model in "abca":
        seen.observe(HIT, Dimensions(model=model), first_token_seconds=None)
    assert points(seen, "prefix_cache.hit_tokens").keys() == {(("model", "a"),), ((OVERFLOW, "true"),)}
    assert sums(seen, "prefix_cache.hit_tokens") == {("a",): 96, ("true",): 96}


def test_totals_are_by_a_metrics_own_labels_and_what_came_too_late_is_other() -> None:
    seen = measures("model", series_max=3)
    for model in ("a", "b", "c"):
        seen.observe(EVICTED, Dimensions(model=model), first_token_seconds=None)
    assert seen.totals("prefix_cache.requests") == {(str(EVICTED.cause),): 2, (OTHER,): 1}
    assert seen.totals("prefix_cache.unknown") == {}
    seen.gauge("whymiss.ledger.lag", 0.5, source="s")
    assert seen.totals("whymiss.ledger.lag") == {("s",): 0.5}


def test_dimension_that_does_not_exist_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        measures("tenant")


VERDICTS = st.builds(
    Verdict,
    cause=st.sampled_from(Cause),
    owner=st.sampled_from(Owner),
    reason=st.sampled_from(Reason),
    prompt_tokens=st.none() | st.integers(0, 9_000),
    cached_tokens=st.none() | st.integers(0, 9_000),
    recomputed_tokens=st.none() | st.integers(0, 9_000),
    lost_tokens=st.none() | st.integers(0, 9_000),
)
OBSERVED = st.lists(
    st.tuples(
        VERDICTS,
        st.builds(Dimensions, model=st.none() | st.text(max_size=3), route=st.none() | st.sampled_from("abcdefgh")),
        st.none() | st.floats(0, 200),
        st.sampled_from([1.0, 2.0, 16.0]),
    ),
    max_size=15,
)


@given(observed=OBSERVED, values_max=st.integers(0, 4), series_max=st.integers(1, 6))
def test_caps_hold_and_sums_are_conserved(
    observed: list[tuple[Verdict, Dimensions, float | None, float]], values_max: int, series_max: int
) -> None:
    seen = measures("model", "route", values_max=values_max, series_max=series_max)
    for number, (verdict, dimensions, seconds, weight) in enumerate(observed):
        seen.observe(verdict, dimensions, first_token_seconds=seconds, weight=weight, exemplar=exemplar(number))
    assert total(seen, "prefix_cache.requests") == sum(weight for *_, weight in observed)
    assert total(seen, "prefix_cache.recomputed_tokens") == sum(
        (verdict.recomputed_tokens or 0) * weight for verdict, _, _, weight in observed
    )
    timed = points(seen, "prefix_cache.time_to_first_token").values()
    assert sum(sum(point.counts) for point in timed) == sum(
        weight for *_, seconds, weight in observed if seconds is not None
    )
    for metric in seen.snapshot():
        totals = seen.totals(metric.instrument.name)
        assert sum(totals.values()) == pytest.approx(sum(point.value for point in metric.points))
        assert all(len(labels) == len(metric.instrument.labels) for labels in totals)
        assert len(metric.points) <= series_max
        assert len({point.labels for point in metric.points}) == len(metric.points)
        for name in ("model", "route"):
            shown = {value for point in metric.points for label, value in point.labels if label == name}
            assert len(shown - {OTHER}) <= values_max
        assert all(len(point.exemplars) <= max(1, len(point.counts)) for point in metric.points)


# --- Exemplars --------------------------------------------------------------------------------------


def test_exemplar_comes_with_its_value_and_the_newest_of_a_bucket_stays() -> None:
    seen = measures()
    for number, seconds in ((1, 0.3), (2, 0.4), (3, 30.0)):
        seen.observe(EVICTED, Dimensions(), first_token_seconds=seconds, exemplar=exemplar(number))
    (timed,) = points(seen, "prefix_cache.time_to_first_token").values()
    assert timed.exemplars == ((0.4, exemplar(2)), (30.0, exemplar(3)))
    (lost,) = points(seen, "prefix_cache.lost_tokens").values()
    assert lost.exemplars == ((1392, exemplar(3)),)


def test_lookup_that_is_not_sampled_leaves_no_exemplar() -> None:
    seen = measures()
    seen.observe(EVICTED, Dimensions(), first_token_seconds=1.0)
    assert all(not point.exemplars for metric in seen.snapshot() for point in metric.points)


def test_named_reader_is_given_an_exemplar_once_and_others_every_time() -> None:
    seen = measures()
    seen.observe(EVICTED, Dimensions(), first_token_seconds=None, exemplar=exemplar(1))

    def of_misses(reader: str | None) -> tuple[tuple[float, Exemplar], ...]:
        (point,) = points(seen, "prefix_cache.misses", reader).values()
        return point.exemplars

    assert of_misses("otlp") == ((1.0, exemplar(1)),)
    assert of_misses("otlp") == ()
    assert of_misses("another") == ((1.0, exemplar(1)),)
    assert of_misses(None) == of_misses(None) == ((1.0, exemplar(1)),)
    seen.observe(EVICTED, Dimensions(), first_token_seconds=None, exemplar=exemplar(2))
    assert of_misses("otlp") == ((1.0, exemplar(2)),)


def test_one_metric_at_a_time_is_what_a_snapshot_is_but_each_as_late_as_it_is_asked_for() -> None:
    seen = measures()
    seen.observe(EVICTED, Dimensions(), first_token_seconds=1.0, exemplar=exemplar(1))
    assert tuple(seen.in_turn()) == seen.snapshot()
    shown = seen.in_turn()
    first = next(shown)
    seen.observe(EVICTED, Dimensions(), first_token_seconds=1.0)
    assert (first.instrument.name, first.points[0].value) == ("prefix_cache.requests", 1)
    later = {metric.instrument.name: metric for metric in shown}
    assert later["prefix_cache.misses"].points[0].value == 2


# --- The service's own ------------------------------------------------------------------------------


def test_count_adds_and_gauge_replaces() -> None:
    seen = measures()
    seen.count("whymiss.spans.claimed", 3, dialect="vllm")
    seen.count("whymiss.spans.claimed", dialect="vllm")
    seen.count("whymiss.exporter.failed_spans", exporter="tempo", error_type="unavailable")
    seen.gauge("whymiss.join.open_spans", 7)
    seen.gauge("whymiss.join.open_spans", 5)
    assert sums(seen, "whymiss.spans.claimed") == {("vllm",): 4}
    assert points(seen, "whymiss.exporter.failed_spans").keys() == {
        (("exporter", "tempo"), ("error.type", "unavailable"))
    }
    assert sums(seen, "whymiss.join.open_spans") == {(): 5}


def test_sum_without_labels_starts_at_zero_and_a_gauge_does_not() -> None:
    seen = measures(series_max=1)
    assert sums(seen, "whymiss.spans.late") == {(): 0}
    assert sums(seen, "whymiss.join.open_spans") == {}
    seen.count("whymiss.spans.late")
    seen.gauge("whymiss.join.open_spans", 2)
    assert sums(seen, "whymiss.spans.late") == {(): 1}
    assert sums(seen, "whymiss.join.open_spans") == {(): 2}


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("whymiss.spans.lost", {}),
        ("prefix_cache.misses", {}),
        ("whymiss.join.open_spans", {}),
        ("whymiss.spans.claimed", {}),
        ("whymiss.spans.claimed", {"dialect": "vllm", "tenant": "acme"}),
    ],
)
def test_undeclared_count_is_our_mistake(name: str, labels: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        measures().count(name, 1, **labels)


def test_sum_never_falls_and_is_never_set() -> None:
    with pytest.raises(AssertionError):
        measures().count("whymiss.spans.late", -1)
    with pytest.raises(AssertionError):
        measures().gauge("whymiss.spans.late", 1)


def test_snapshot_stays_as_it_was() -> None:
    seen = measures()
    seen.observe(EVICTED, Dimensions(), first_token_seconds=1.0)
    before = seen.snapshot()
    copied = tuple(before)
    seen.observe(EVICTED, Dimensions(), first_token_seconds=1.0)
    assert before == copied
    assert before != seen.snapshot()
    assert {metric.start_unix_nanos for metric in before} == {START}
