"""What Prometheus reads is what was counted, under names that its users expect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.utils import floatToGoString

from whymiss.edge.telemetry.prometheus import PORTION_CHARS, Exposition, Format, name_of
from whymiss.measures import (
    DIMENSIONS,
    INSTRUMENTS,
    Dimensions,
    Exemplar,
    Instrument,
    Kind,
    Measures,
    MetricSnapshot,
    Point,
)
from whymiss.model import Cause, Owner, Reason, Verdict

RESOURCE = {"service.name": "whymiss", "service.instance.id": "one"}
MISS = Verdict(
    cause=Cause.ROUTING_MISS, owner=Owner.ROUTING, reason=Reason.HOLDER_KNOWN, recomputed_tokens=96, lost_tokens=64
)
SPAN = Exemplar(trace_id="1" * 32, span_id="2" * 16, unix_nanos=1_700_000_000_250_000_000)


BEGUN_NANOS = 1_700_000_000_500_000_000


def measures(series_max: int = 2000) -> Measures:
    return Measures(dimensions=("model",), values_max=100, series_max=series_max, start_unix_nanos=BEGUN_NANOS)


def render(snapshot: Iterable[MetricSnapshot], form: Format) -> bytes:
    return b"".join(Exposition(RESOURCE).portions(snapshot, form))


def parsed(body: bytes, form: Format) -> dict[str, Metric]:
    """What prometheus_client, which wrote none of it, makes of a text."""
    text_only = parser.text_string_to_metric_families
    parse = openmetrics.text_string_to_metric_families if form is Format.OPENMETRICS else text_only
    return {metric.name: metric for metric in parse(body.decode())}


def read(seen: Measures, form: Format = Format.TEXT) -> dict[str, Metric]:
    return parsed(render(seen.snapshot(), form), form)


def value(metric: Metric, name: str, **labels: str) -> float:
    (found,) = [sample.value for sample in metric.samples if (sample.name, sample.labels) == (name, labels)]
    return float(found)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("prefix_cache.misses", "prefix_cache_misses"),
        ("prefix_cache.hit_tokens", "prefix_cache_hit_tokens"),
        ("prefix_cache.time_to_first_token", "prefix_cache_time_to_first_token_seconds"),
        ("whymiss.ledger.lag", "whymiss_ledger_lag_seconds"),
        ("whymiss.process.memory", "whymiss_process_memory_bytes"),
    ],
)
def test_name_is_translated_with_its_unit(name: str, shown: str) -> None:
    (instrument,) = [one for one in INSTRUMENTS if one.name == name]
    assert name_of(instrument) == shown


def test_no_two_instruments_share_a_translated_name() -> None:
    assert len({name_of(one) for one in INSTRUMENTS}) == len(INSTRUMENTS)


@pytest.mark.parametrize("form", Format)
def test_both_formats_parse_and_say_the_same(form: Format) -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=0.3, exemplar=SPAN)
    seen.gauge("whymiss.exporter.queue_size", 4, exporter="tempo")
    seen.count("whymiss.stage.failures", stage="redact", error_type="ValueError")
    metrics = read(seen, form)
    assert (
        value(
            metrics["prefix_cache_misses"],
            "prefix_cache_misses_total",
            cause="routing_miss",
            owner="routing",
            reason="holder_known",
            model="m",
        )
        == 1
    )
    timed = metrics["prefix_cache_time_to_first_token_seconds"]
    by_bound = {sample.labels["le"]: sample.value for sample in timed.samples if sample.name.endswith("_bucket")}
    assert (by_bound["0.25"], by_bound["0.5"], by_bound["+Inf"]) == (0, 1, 1)
    assert value(timed, f"{timed.name}_count", cause="routing_miss", model="m") == 1
    assert value(timed, f"{timed.name}_sum", cause="routing_miss", model="m") == 0.3
    assert value(metrics["whymiss_exporter_queue_size"], "whymiss_exporter_queue_size", exporter="tempo") == 4
    failures = metrics["whymiss_stage_failures"]
    assert value(failures, "whymiss_stage_failures_total", stage="redact", error_type="ValueError") == 1
    assert "service_instance_id" in next(
        s.labels for m in metrics.values() for s in m.samples if s.name == "target_info"
    )


def test_exemplar_is_in_the_bucket_of_its_value_and_in_openmetrics_only() -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(), first_token_seconds=0.3, exemplar=SPAN)
    timed = read(seen, Format.OPENMETRICS)["prefix_cache_time_to_first_token_seconds"]
    ((bound, exemplar),) = [(sample.labels["le"], sample.exemplar) for sample in timed.samples if sample.exemplar]
    assert bound == "0.5"
    assert exemplar.labels == {"trace_id": SPAN.trace_id, "span_id": SPAN.span_id}
    assert exemplar.value == 0.3
    assert exemplar.timestamp is not None
    assert float(str(exemplar.timestamp)) == pytest.approx(SPAN.unix_nanos / 1e9, abs=0.001)
    assert b"trace_id" not in render(seen.snapshot(), Format.TEXT)


def test_each_count_says_when_it_began_where_the_format_can() -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=0.3)
    seen.gauge("whymiss.exporter.queue_size", 4, exporter="tempo")
    metrics = read(seen, Format.OPENMETRICS)
    timed = metrics["prefix_cache_time_to_first_token_seconds"]
    assert value(timed, f"{timed.name}_created", cause="routing_miss", model="m") == BEGUN_NANOS / 1e9
    counted = [one for one in metrics.values() if one.type == "counter"]
    assert counted
    for metric in counted:
        totals = [sample.labels for sample in metric.samples if sample.name.endswith("_total")]
        assert [sample.labels for sample in metric.samples if sample.name.endswith("_created")] == totals
    assert len(metrics["whymiss_exporter_queue_size"].samples) == 1
    assert b"_created" not in render(seen.snapshot(), Format.TEXT)


def test_labels_survive_whatever_they_hold() -> None:
    seen = measures()
    model = 'a"b\\c\nd{e="f"} 1'
    seen.observe(MISS, Dimensions(model=model), first_token_seconds=None)
    for form in Format:
        sample = read(seen, form)["prefix_cache_requests"].samples[0]
        assert sample.labels["model"] == model


def test_overflow_is_a_label_that_prometheus_takes() -> None:
    seen = measures(series_max=1)
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=1.0)
    (sample,) = read(seen)["prefix_cache_requests"].samples
    assert sample.labels == {"otel_metric_overflow": "true"}


@given(weights=st.lists(st.floats(1, 1000), min_size=1, max_size=20))
def test_weighted_buckets_are_whole_and_rise_to_the_count(weights: list[float]) -> None:
    seen = measures()
    for number, weight in enumerate(weights):
        seen.observe(MISS, Dimensions(), first_token_seconds=number / 3, weight=weight)
    timed = read(seen, Format.OPENMETRICS)["prefix_cache_time_to_first_token_seconds"]
    totals = [sample.value for sample in timed.samples if sample.name.endswith("_bucket")]
    assert totals == sorted(totals)
    assert all(total == int(total) for total in totals)
    assert totals[-1] == value(timed, f"{timed.name}_count", cause="routing_miss")


# --- Everything that can be counted -----------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SPANS = st.builds(
    Exemplar,
    trace_id=st.integers(1, 2**128 - 1).map("{:032x}".format),
    span_id=st.integers(1, 2**64 - 1).map("{:016x}".format),
    unix_nanos=st.integers(0, 2**62),
)


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[MetricSnapshot, ...]:
    chosen = draw(st.lists(st.sampled_from(INSTRUMENTS), unique=True, max_size=6))
    return tuple(
        MetricSnapshot(instrument=one, start_unix_nanos=draw(st.integers(0, 2**61)), points=draw(points_of(one)))
        for one in chosen
    )


def points_of(one: Instrument) -> st.SearchStrategy[tuple[Point, ...]]:
    names = one.labels + (DIMENSIONS if one.dimensional else ())
    valued = st.tuples(*(st.none() | TEXTS for _ in names))
    labels = valued.map(lambda values: tuple((n, v) for n, v in zip(names, values, strict=True) if v))
    seen = st.lists(st.tuples(st.floats(0, 1e6), SPANS), max_size=1).map(tuple)
    buckets = len(one.bounds) + 1 if one.kind is Kind.HISTOGRAM else 0
    counts = st.lists(st.floats(0, 1e9), min_size=buckets, max_size=buckets).map(tuple)
    values = st.floats(allow_nan=False) if one.kind is Kind.GAUGE else st.floats(0, 1e18)
    exemplars = st.just(()) if one.kind is Kind.GAUGE else seen
    point = st.builds(Point, labels=labels, value=values, counts=counts, exemplars=exemplars)
    return st.lists(point, min_size=1, max_size=3, unique_by=lambda point: point.labels).map(tuple)


def expected(metric: MetricSnapshot) -> Iterator[tuple[str, dict[str, str], float]]:
    """The samples of a metric, as its definition has them."""
    name = name_of(metric.instrument)
    for point in metric.points:
        labels = {label.replace(".", "_"): value for label, value in point.labels}
        if metric.instrument.kind is Kind.HISTOGRAM:
            totals = list(accumulate(round(count) for count in point.counts))
            for bound, total in zip((*metric.instrument.bounds, inf), totals, strict=True):
                yield f"{name}_bucket", labels | {"le": floatToGoString(bound)}, total  # type: ignore[no-untyped-call]
            yield f"{name}_count", labels, totals[-1]
            yield f"{name}_sum", labels, point.value
        else:
            yield name + ("_total" if metric.instrument.kind is Kind.SUM else ""), labels, point.value


@given(snapshot=snapshots())
def test_both_formats_hold_exactly_the_samples_of_the_snapshot(snapshot: tuple[MetricSnapshot, ...]) -> None:
    wanted = {name_of(metric.instrument): [*expected(metric)] for metric in snapshot}
    exposition = Exposition(RESOURCE)
    for form in (*Format, *Format):
        found = parsed(b"".join(exposition.portions(snapshot, form)), form)
        assert found.keys() - {"target", "target_info"} == wanted.keys()
        for name, samples in wanted.items():
            held = [(s.name, s.labels, s.value) for s in found[name].samples if not s.name.endswith("_created")]
            assert held == samples
            assert found[name].documentation


@given(snapshot=snapshots())
def test_each_exemplar_and_each_beginning_is_in_openmetrics(snapshot: tuple[MetricSnapshot, ...]) -> None:
    found = parsed(render(snapshot, Format.OPENMETRICS), Format.OPENMETRICS)
    for metric in snapshot:
        samples = found[name_of(metric.instrument)].samples
        held = [(sample.exemplar.labels, sample.exemplar.value) for sample in samples if sample.exemplar]
        assert held == [
            ({"trace_id": seen.trace_id, "span_id": seen.span_id}, value)
            for point in metric.points
            for value, seen in point.exemplars
        ]
        begun = [sample.value for sample in samples if sample.name.endswith("_created")]
        counted = 0 if metric.instrument.kind is Kind.GAUGE else len(metric.points)
        assert begun == [metric.start_unix_nanos / 1e9] * counted


@pytest.mark.parametrize(
    ("value", "shown"),
    [(inf, "+Inf"), (-inf, "-Inf"), (nan, "NaN"), (3.0, "3"), (0.1, "0.1"), (2.0**53, "9007199254740992.0")],
)
def test_number_is_written_as_both_formats_spell_it(value: float, shown: str) -> None:
    seen = measures()
    seen.gauge("whymiss.join.open_spans", value)
    for form in Format:
        assert f"whymiss_join_open_spans {shown}\n".encode() in render(seen.snapshot(), form)


def test_half_a_surrogate_pair_costs_a_question_mark_and_not_the_answer() -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(model="m\ud800"), first_token_seconds=None)
    assert read(seen)["prefix_cache_requests"].samples[0].labels["model"] == "m?"


def test_full_set_of_series_comes_in_portions_of_the_promised_size() -> None:
    seen = measures()
    for number in range(100):
        seen.observe(MISS, Dimensions(model=f"{number:03}" * 60), first_token_seconds=1.0)
    portions = [*Exposition(RESOURCE).portions(seen.snapshot(), Format.OPENMETRICS)]
    assert len(portions) > 3
    assert all(PORTION_CHARS <= len(portion) < PORTION_CHARS + 20_000 for portion in portions[:-1])
    assert portions[-1].endswith(b"# EOF\n")
