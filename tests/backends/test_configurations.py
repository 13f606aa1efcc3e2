"""Every file in deploy/ and collector-config/, read by the program that will read it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.backends.programs import ROOT
from whymiss.config import Config, parse

COLLECTORS = [*sorted((ROOT / "collector-config/collector").glob("*.yaml")), ROOT / "deploy/compose/collector.yaml"]
PROMETHEUS = ROOT / "deploy/prometheus"
CHART = ROOT / "deploy/helm/whymiss"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))


def run(*command: str | Path, text: str | None = None) -> tuple[int, str]:
    done = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def ok(*command: str | Path, text: str | None = None) -> str:
    code, output = run(*command, text=text)
    assert code == 0, output
    return output


def rendered(*arguments: str | Path) -> str:
    return ok("helm", "template", "whymiss", CHART, "--namespace", "observability", *arguments)


@pytest.mark.server("otelcol")
@pytest.mark.parametrize("file", COLLECTORS, ids=lambda file: file.stem)
def test_the_collector_takes(file: Path) -> None:
    assert ok("otelcol", "validate", "--config", file).strip() == ""


@pytest.mark.server("otelcol")
def test_the_collector_would_refuse_a_wrong_key(tmp_path: Path) -> None:
    wrong = COLLECTORS[0].read_text(encoding="utf-8").replace("send_batch_size:", "send_batch_sise:")
    (tmp_path / "wrong.yaml").write_text(wrong, encoding="utf-8")
    code, output = run("otelcol", "validate", "--config", tmp_path / "wrong.yaml")
    assert code != 0
    assert "send_batch_sise" in output


@pytest.mark.server("promtool")
def test_the_rules_are_rules() -> None:
    ok("promtool", "check", "rules", "--lint=all", "--lint-fatal", PROMETHEUS / "rules.yaml")


@pytest.mark.server("promtool")
def test_alerts_fire_and_stay_quiet() -> None:
    ok("promtool", "test", "rules", PROMETHEUS / "rules_test.yaml")


@pytest.mark.server("promtool")
def test_every_alert_is_seen_to_fire() -> None:
    rules = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text(encoding="utf-8"))
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    tests = (PROMETHEUS / "rules_test.yaml").read_text(encoding="utf-8")
    seen = set(re.findall(r'alertname="(\w+)"\}\', value: 1', tests))
    seen |= {
        one["alertname"]
        for test in yaml.safe_load(tests)["tests"]
        for one in test.get("alert_rule_test", [])
        if one["exp_alerts"]
    }
    assert seen == names


@pytest.mark.server("promtool")
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    for file in (ROOT / "deploy/compose/prometheus.yaml", PROMETHEUS / "rules.yaml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert "rules found" in ok("promtool", "check", "config", tmp_path / "prometheus.yaml")


@pytest.mark.server("promtool")
@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_prometheus_understands_each_panel(file: Path, tmp_path: Path) -> None:
    panels = json.loads(file.read_text(encoding="utf-8"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions = [one.replace("$__rate_interval", "1m").replace("$__range", "1h") for one in expressions]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    ok("promtool", "check", "rules", "--lint=none", tmp_path / "rules.yaml")


@pytest.mark.server("amtool")
def test_alertmanager_takes_its_configuration() -> None:
    ok("amtool", "check-config", ROOT / "deploy/compose/alertmanager.yaml")


@pytest.mark.server("manifests")
def test_compose_reads_the_stack() -> None:
    services = ok("manifests", "compose", ROOT / "deploy/compose.yaml").split()
    assert services == ["alertmanager", "collector", "grafana", "jaeger", "prometheus", "whymiss"]


@pytest.mark.server("manifests")
def test_compose_would_refuse_a_wrong_key(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {image: a, portz: []}}", encoding="utf-8")
    assert run("manifests", "compose", tmp_path / "compose.yaml")[0] != 0


def test_what_compose_mounts_is_there() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    mounts = [one.split(":")[0] for service in compose["services"].values() for one in service.get("volumes", [])]
    assert all((ROOT / "deploy" / one).exists() for one in mounts if one.startswith("."))


@pytest.mark.server("helm")
@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_the_chart_lints(values: Path) -> None:
    ok("helm", "lint", "--strict", CHART, "--values", values)


@pytest.mark.server("helm", "manifests")
@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_kubernetes_knows_every_field_of_the_chart(values: Path) -> None:
    kinds = set(ok("manifests", "k8s", "-", text=rendered("--values", values)).split())
    assert kinds >= {"Deployment", "Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"}
    if values.stem == "fleet-values":
        assert kinds >= {"HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.server("manifests")
def test_kubernetes_would_refuse_a_wrong_field() -> None:
    text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {portz: []}\n"
    assert run("manifests", "k8s", "-", text=text)[0] != 0


@pytest.mark.server("helm")
@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_the_chart_writes_a_configuration_of_ours(values: Path) -> None:
    objects = [one for one in yaml.safe_load_all(rendered("--values", values)) if one]
    text = next(one for one in objects if one["kind"] == "ConfigMap")["data"]["whymiss.yaml"]
    config = parse(text, {"WHYMISS_DIGEST_KEY": "0123456789abcdef"})
    assert isinstance(config, Config)
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == config.shutdown.deadline_seconds + 10
    ports = {one["name"]: one["containerPort"] for one in pod["containers"][0]["ports"]}
    assert config.health.endpoint == f"0.0.0.0:{ports['health']}"
    assert config.telemetry.metrics_endpoint == f"0.0.0.0:{ports['metrics']}"
    assert config.receivers.grpc.endpoint == f"0.0.0.0:{ports['otlp']}"
    assert config.receivers.http.endpoint == f"0.0.0.0:{ports['otlp-http']}"


@pytest.mark.server("helm")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("replicaCount=0", "replicaCount"),
        ("replicaCount=2", "digestKeySecret"),
        ("replicas=2", "replicas"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("terminationGracePeriodSeconds=5", "terminationGracePeriodSeconds"),
        ("resources.limits=null", "limits"),
    ],
)
def test_the_chart_refuses(setting: str, said: str) -> None:
    code, output = run("helm", "template", "whymiss", CHART, "--set", setting)
    assert code != 0
    assert said in output


@pytest.mark.server("helm")
def test_the_chart_links_alerts_to_the_operators_runbooks() -> None:
    text = rendered("--values", CHART / "ci/fleet-values.yaml")
    assert "https://runbooks.example/whymiss#whymissdown" in text
    assert "deploy/runbooks.md" not in text


def test_every_yaml_file_has_a_reader() -> None:
    """A new file fails here until the program that reads it is named."""
    read = {
        *COLLECTORS,
        *VALUES,
        *(ROOT / "collector-config/whymiss").glob("*.yaml"),  # tests/test_deploy.py
        *(ROOT / "deploy/compose" / f"{name}.yaml" for name in ("whymiss", "prometheus", "alertmanager")),
        ROOT / "deploy/compose/jaeger.yaml",  # test_end_to_end.py
        ROOT / "deploy/compose.yaml",
        PROMETHEUS / "rules.yaml",
        PROMETHEUS / "rules_test.yaml",
        CHART / "Chart.yaml",
        CHART / "values.yaml",
        CHART / "files/rules.yaml",
        *(CHART / "templates").glob("*.yaml"),
    }
    # Grafana itself is not built here: these two kinds are provisioning files that nothing has read.
    unread = set((ROOT / "deploy/compose/grafana").rglob("*.yaml"))
    there = {file for folder in ("deploy", "collector-config") for file in (ROOT / folder).rglob("*.yaml")}
    assert there == read | unread
