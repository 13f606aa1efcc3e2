"""What Prometheus reads is what was counted, under names that its users expect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from whymiss.edge.prometheus import family, render
from whymiss.measures import INSTRUMENTS, Dimensions, Exemplar, Measures
from whymiss.model import Cause, Owner, Reason, Verdict

RESOURCE = {"service.name": "whymiss", "service.instance.id": "one"}
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
MISS = Verdict(
    cause=Cause.ROUTING_MISS, owner=Owner.ROUTING, reason=Reason.HOLDER_KNOWN, recomputed_tokens=96, lost_tokens=64
)
SPAN = Exemplar(trace_id="1" * 32, span_id="2" * 16, unix_nanos=1_700_000_000_250_000_000)


BEGUN_NANOS = 1_700_000_000_500_000_000


def measures(series_max: int = 2000) -> Measures:
    return Measures(dimensions=("model",), values_max=100, series_max=series_max, start_unix_nanos=BEGUN_NANOS)


def read(seen: Measures, accept: str = "") -> dict[str, Metric]:
    body, _ = render(seen.snapshot(), RESOURCE, accept)
    parse = openmetrics.text_string_to_metric_families if accept else parser.text_string_to_metric_families
    return {metric.name: metric for metric in parse(body.decode())}


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
    assert family(instrument).name == shown


def test_no_two_instruments_share_a_translated_name() -> None:
    assert len({family(one).name for one in INSTRUMENTS}) == len(INSTRUMENTS)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_both_formats_parse_and_say_the_same(accept: str) -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=0.3, exemplar=SPAN)
    seen.gauge("whymiss.exporter.queue_size", 4, exporter="tempo")
    seen.count("whymiss.stage.failures", stage="redact", error_type="ValueError")
    metrics = read(seen, accept)
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
    timed = read(seen, OPENMETRICS)["prefix_cache_time_to_first_token_seconds"]
    ((bound, exemplar),) = [(sample.labels["le"], sample.exemplar) for sample in timed.samples if sample.exemplar]
    assert bound == "0.5"
    assert exemplar.labels == {"trace_id": SPAN.trace_id, "span_id": SPAN.span_id}
    assert exemplar.value == 0.3
    assert exemplar.timestamp is not None
    assert float(str(exemplar.timestamp)) == pytest.approx(SPAN.unix_nanos / 1e9, abs=0.001)
    assert b"trace_id" not in render(seen.snapshot(), RESOURCE, "")[0]


def test_names_are_the_same_whatever_escaping_is_asked_for() -> None:
    for scheme in ("allow-utf-8", "underscores", "dots", "values"):
        metrics = read(measures(), f"application/openmetrics-text;version=1.0.0;escaping={scheme};q=0.5")
        named = {sample.name for sample in metrics["whymiss_spans_late"].samples}
        assert named == {"whymiss_spans_late_total", "whymiss_spans_late_created"}


def test_each_count_says_when_it_began_where_the_format_can() -> None:
    seen = measures()
    seen.observe(MISS, Dimensions(model="m"), first_token_seconds=0.3)
    seen.gauge("whymiss.exporter.queue_size", 4, exporter="tempo")
    metrics = read(seen, OPENMETRICS)
    timed = metrics["prefix_cache_time_to_first_token_seconds"]
    assert value(timed, f"{timed.name}_created", cause="routing_miss", model="m") == BEGUN_NANOS / 1e9
    counted = [one for one in metrics.values() if one.type == "counter"]
    assert counted
    for metric in counted:
        totals = [sample.labels for sample in metric.samples if sample.name.endswith("_total")]
        assert [sample.labels for sample in metric.samples if sample.name.endswith("_created")] == totals
    assert len(metrics["whymiss_exporter_queue_size"].samples) == 1
    assert b"_created" not in render(seen.snapshot(), RESOURCE, "")[0]


def test_labels_survive_whatever_they_hold() -> None:
    seen = measures()
    model = 'a"b\\c\nd{e="f"} 1'
    seen.observe(MISS, Dimensions(model=model), first_token_seconds=None)
    for accept in ("", OPENMETRICS):
        sample = read(seen, accept)["prefix_cache_requests"].samples[0]
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
    timed = read(seen, OPENMETRICS)["prefix_cache_time_to_first_token_seconds"]
    totals = [sample.value for sample in timed.samples if sample.name.endswith("_bucket")]
    assert totals == sorted(totals)
    assert all(total == int(total) for total in totals)
    assert totals[-1] == value(timed, f"{timed.name}_count", cause="routing_miss")
