"""What the files in deploy/ and collector-config/ promise, as far as Python alone can tell.

The programs that read them have their say in tests/backends/test_configurations.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from whymiss import __version__
from whymiss.config import Config, parse
from whymiss.edge.telemetry.prometheus import name_of
from whymiss.measures import DIMENSIONS, INSTRUMENTS, Kind
from whymiss.model import Cause, Owner, Reason

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "deploy/prometheus/rules.yaml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
OURS = [*sorted((ROOT / "collector-config/whymiss").glob("*.yaml")), ROOT / "deploy/compose/whymiss.yaml"]
ENVIRON = {
    "WHYMISS_DIGEST_KEY": "0123456789abcdef",
    "WHYMISS_KV_EVENTS": "tcp://vllm:5557",
    "WHYMISS_KV_REPLAY": "tcp://vllm:5558",
}
SCRAPED = {"job", "instance", "le"}
OUTSIDE = {"up": SCRAPED}
"""Metrics that are not ours, with their labels."""


def series() -> Mapping[str, set[str]]:
    """Every name on /metrics with the labels that it can have."""
    found = dict(OUTSIDE)
    for instrument in INSTRUMENTS:
        labels = {label.replace(".", "_") for label in instrument.labels} | SCRAPED
        if instrument.dimensional:
            labels |= {dimension.replace(".", "_") for dimension in DIMENSIONS}
        name = name_of(instrument)
        suffixes = {Kind.SUM: ("_total",), Kind.GAUGE: ("",), Kind.HISTOGRAM: ("_bucket", "_sum", "_count")}
        found.update({name + suffix: labels for suffix in suffixes[instrument.kind]})
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def records() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}


def problems(expression: str) -> Iterator[str]:
    """What an expression names that is not on /metrics."""
    known, recorded = series(), records()
    labels_of_all: set[str] = set()
    for name in re.findall(
        r"(?<![\w:])(?:prefix_cache|whymiss|up)[a-z_]*(?![\w:=])", re.sub(r'"[^"]*"', '""', expression)
    ):
        if name not in known:
            yield f"no metric {name}"
        labels_of_all |= known.get(name, set())
    if any(name in expression for name in recorded):
        labels_of_all |= SCRAPED | set(DIMENSIONS) | {"cause"}
    matched = re.findall(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"', expression)
    grouped = re.findall(r"(?:by|on|ignoring|without) \(([^)]*)\)", expression)
    for label in {*matched, *(one.strip() for group in grouped for one in group.split(","))}:
        if label not in labels_of_all:
            yield f"no label {label}"


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_each_configuration_of_ours_is_one(file: Path) -> None:
    assert isinstance(parse(file.read_text(encoding="utf-8"), ENVIRON), Config)


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_variables_without_a_default_are_named_above(file: Path) -> None:
    needed = set(re.findall(r"\$\{env:(\w+)\}", file.read_text(encoding="utf-8")))
    assert needed <= ENVIRON.keys()


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_alert_says_who_acts_and_where_to_read(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"(PrefixCache|Whymiss)[A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["labels"]["owner"] in set(Owner)
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"deploy/runbooks.md#{rule['alert'].lower()}"


def test_each_alert_has_a_section_in_the_runbook_and_none_is_left_over() -> None:
    text = (ROOT / "deploy/runbooks.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^## (.+)$", text) == [rule["alert"] for rule in alerts()]
    for section in text.split("\n## ")[1:]:
        assert "**Means**" in section
        assert "**Owner**" in section
        assert "**Do**" in section or "| do |" in section


def test_the_runbook_has_every_reason_of_unknown() -> None:
    text = (ROOT / "deploy/runbooks.md").read_text(encoding="utf-8")
    named = {str(reason) for reason in Reason if reason and f"`{reason}`" in text}
    refinements = {
        Reason.CAPACITY, Reason.BRANCH, Reason.CONCURRENT_PREFILL, Reason.FIRST_SEEN, Reason.AFTER_ROUTE,
        Reason.CLEARED, Reason.RESTARTED, Reason.HOLDER_KNOWN, Reason.HOLDER_UNKNOWN, Reason.PINNED,
    }  # fmt: skip
    assert {str(reason) for reason in Reason if reason} - {str(one) for one in refinements} <= named


def test_the_runbook_has_every_reason_of_a_refused_connection() -> None:
    text = (ROOT / "deploy/runbooks.md").read_text(encoding="utf-8")
    receivers = ROOT / "processor/whymiss/edge/receivers"
    files = {
        name: (receivers / name).read_text(encoding="utf-8")
        for name in ("listener.py", "grpc_tls.py", "http_connection.py")
    }
    said = {word for source in files.values() for word in re.findall(r'refused\("(\w+)"\)', source)}
    handshake = re.findall(r'(?m)^    "[A-Z0-9_]+": "(\w+)",$', files["listener.py"])
    certificate = re.findall(r'return "(\w+)"(?: if .*)?$', files["listener.py"], re.MULTILINE)
    reasons = said | {*handshake, *certificate}
    assert reasons >= {"stopping", "tls_to_plain_text", "connections_max", "we_are_not_trusted", "certificate_expired"}
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_alert_asks_for_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    assert list(problems(rule["expr"])) == []


@pytest.mark.parametrize("expression", records().values(), ids=records().keys())
def test_each_recording_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    assert list(problems(expression)) == []


def test_a_wrong_name_would_be_noticed() -> None:
    assert list(problems("rate(prefix_cache_mises_total[5m])")) == ["no metric prefix_cache_mises_total"]
    assert list(problems('sum by (tenant) (prefix_cache_misses_total{cause="x"})')) == ["no label tenant"]


def panels() -> list[tuple[str, dict[str, Any]]]:
    read = [(file.stem, json.loads(file.read_text(encoding="utf-8"))) for file in DASHBOARDS]
    return [(f"{name}: {panel['title']}", panel) for name, dashboard in read for panel in dashboard["panels"]]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_each_dashboard_lets_one_choose_source_job_and_instance(file: Path) -> None:
    dashboard = json.loads(file.read_text(encoding="utf-8"))
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables.keys() >= {"datasource", "job", "instance"}
    assert variables["datasource"]["type"] == "datasource"
    assert all(one["label"] for one in variables.values())
    for one in variables.values():
        if one["type"] == "query":
            assert one["datasource"]["uid"] == "${datasource}"
            assert one["refresh"] == 2
            assert list(problems(one["query"]["query"].split(",")[0])) == []
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert dashboard["description"]


@pytest.mark.parametrize(("name", "panel"), panels(), ids=[name for name, _ in panels()])
def test_each_panel_can_be_read_alone(name: str, panel: dict[str, Any]) -> None:
    assert name
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        assert 'job=~"$job"' in target["expr"]
        assert 'instance=~"$instance"' in target["expr"]
        assert target["legendFormat"]
        assert list(problems(target["expr"])) == []
        # A budget has its own window; everything else is as fine as the picture.
        windows = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
        assert windows <= {"$__rate_interval", "$__range", "30m"}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_do_not_cover_each_other(file: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_time_to_first_token_links_to_traces() -> None:
    shown = [panel for _, panel in panels() if "time_to_first_token" in panel["targets"][0]["expr"]]
    assert shown
    assert all(target["exemplar"] for panel in shown for target in panel["targets"])


def test_the_tail_sampler_keeps_every_cause_that_somebody_can_act_on() -> None:
    sampler = yaml.safe_load((ROOT / "collector-config/collector/tail-sampling.yaml").read_text(encoding="utf-8"))
    policies = {one["name"]: one for one in sampler["processors"]["tail_sampling"]["policies"]}
    left = {Cause.NONE, Cause.BELOW_MATCH_UNIT, Cause.NEW_CONTENT, Cause.NO_RECENT_MATCH, Cause.UNKNOWN}
    assert set(policies["misses"]["string_attribute"]["values"]) == {str(cause) for cause in set(Cause) - left}


def test_the_tail_sampler_waits_longer_than_spans_are_held() -> None:
    sampler = yaml.safe_load((ROOT / "collector-config/collector/tail-sampling.yaml").read_text(encoding="utf-8"))
    wait = sampler["processors"]["tail_sampling"]["decision_wait"]
    assert float(wait.removesuffix("s")) > Config.default().join.hold_seconds + 5


def test_the_gateway_queues_and_retries_by_trace() -> None:
    gateway = yaml.safe_load((ROOT / "collector-config/collector/gateway.yaml").read_text(encoding="utf-8"))
    balancing = gateway["exporters"]["load_balancing"]
    assert balancing["routing_key"] == "traceID"
    assert balancing["sending_queue"]["enabled"]
    assert balancing["retry_on_failure"]["enabled"]


def test_the_chart_carries_the_rules_and_the_version() -> None:
    chart = ROOT / "deploy/helm/whymiss"
    assert (chart / "files/rules.yaml").read_bytes() == RULES.read_bytes()
    assert yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == __version__
    assert json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))["additionalProperties"] is False


def test_containers_are_given_longer_to_stop_than_the_service_takes() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    grace = compose["services"]["whymiss"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) > Config.default().shutdown.deadline_seconds + 5


def test_the_image_runs_as_nobody_and_knows_its_health() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    final = text.rpartition("\nFROM ")[2]
    assert "\nUSER 10001:10001\n" in final
    assert "HEALTHCHECK" in final
    assert ":13133/" in final
    assert 'ENTRYPOINT ["whymiss"]' in final
