"""Recorded vLLM traffic and a real SDK, through real collectors, into a real Jaeger and a real Prometheus.

The configurations are those of collector-config/ and deploy/, moved to free ports.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
import yaml
import zmq
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.backends.programs import ROOT, Program, collector, eventually, free_ports, get, post, whymiss, yaml_of
from whymiss.tools.recording import KvMessage, OtlpRequest, Recording

RECORDING = ROOT / "tests" / "captures" / "01-vanilla-sha256-bytes"
ENGINE = "vllm-replica-0"
SALT = "tenant-b"
SPEED = 20.0
RECENT = "10s"
"""What a rate is taken over, instead of the minutes of a rule that people use."""

pytestmark = pytest.mark.server("otelcol", "jaeger", "prometheus")


class Stack:
    """agent collector → whymiss → collector → Jaeger, and Prometheus beside them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(14)
        self.agent_http, self.jaeger_query, self.prometheus, self.metrics = ports[:4]
        agent_grpc, why_grpc, why_http, hop_grpc, hop_http, hop_metrics, jaeger_otlp, *health = ports[4:]
        self._context = zmq.Context()
        self.publisher = self._context.socket(zmq.XPUB)
        events = self.publisher.bind_to_random_port("tcp://127.0.0.1")
        self._whymiss = {
            "WHYMISS_GRPC": f"127.0.0.1:{why_grpc}",
            "WHYMISS_HTTP": f"127.0.0.1:{why_http}",
            "WHYMISS_NEXT_HOP": f"127.0.0.1:{hop_grpc}",
            "WHYMISS_KV_EVENTS": f"tcp://127.0.0.1:{events}",
            "WHYMISS_METRICS": f"127.0.0.1:{self.metrics}",
            "WHYMISS_HEALTH": f"127.0.0.1:{health[0]}",
        }
        self._programs = [
            self._jaeger(jaeger_otlp),
            self._next_hop(hop_grpc, hop_http, hop_metrics, jaeger_otlp, health[1]),
            whymiss(folder, "whymiss", str(ROOT / "collector-config/whymiss/env.yaml"), self._whymiss, health[0]),
            self._agent(agent_grpc, why_http, health[2]),
            self._prometheus(),
        ]
        self._stack = ExitStack()

    def _jaeger(self, otlp: int) -> Program:
        config = yaml_of("deploy/compose/jaeger.yaml")
        query = config["extensions"]["jaeger_query"]
        query["ui"]["config_file"] = str(ROOT / "deploy/compose/jaeger-ui.json")
        query["http"]["endpoint"] = f"127.0.0.1:{self.jaeger_query}"
        query["grpc"]["endpoint"] = "127.0.0.1:0"
        config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = f"127.0.0.1:{otlp}"
        file = self._folder / "jaeger.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        ready = f"http://127.0.0.1:{self.jaeger_query}/api/services"
        # Its spans about itself are nobody's business here.
        quiet = {"OTEL_TRACES_SAMPLER": "always_off"}
        return Program(self._folder / "jaeger.log", "jaeger", "--config", str(file), ready=ready, environ=quiet)

    def _next_hop(self, grpc: int, http: int, metrics: int, jaeger: int, health: int) -> Program:
        config = yaml_of("collector-config/collector/next-hop.yaml")
        config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = f"127.0.0.1:{grpc}"
        config["receivers"]["otlp"]["protocols"]["http"]["endpoint"] = f"127.0.0.1:{http}"
        config["exporters"]["prometheus"]["endpoint"] = f"127.0.0.1:{metrics}"
        config["exporters"]["otlp_grpc/jaeger"]["endpoint"] = f"127.0.0.1:{jaeger}"
        return collector(self._folder, "next-hop", config, health)

    def _agent(self, grpc: int, whymiss_http: int, health: int) -> Program:
        config = yaml_of("collector-config/collector/agent.yaml")
        config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = f"127.0.0.1:{grpc}"
        config["receivers"]["otlp"]["protocols"]["http"]["endpoint"] = f"127.0.0.1:{self.agent_http}"
        config["exporters"]["otlp_http/whymiss"]["endpoint"] = f"http://127.0.0.1:{whymiss_http}"
        return collector(self._folder, "agent", config, health)

    def _prometheus(self) -> Program:
        rules = (ROOT / "deploy/prometheus/rules.yaml").read_text(encoding="utf-8")
        rules = re.sub(r"\[\d+m\]", f"[{RECENT}]", rules)
        rules = re.sub(r"(?m)^( +for: ).*", r"\g<1>1s", rules)
        rules = re.sub(r"(?m)^( +interval: ).*", r"\g<1>1s", rules)
        (self._folder / "rules.yaml").write_text(rules, encoding="utf-8")
        config = yaml_of("deploy/compose/prometheus.yaml")
        config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{self.metrics}"]}]
        del config["alerting"]
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        command = (
            "prometheus",
            f"--config.file={self._folder}/prometheus.yaml",
            f"--storage.tsdb.path={self._folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
            "--enable-feature=exemplar-storage,created-timestamp-zero-ingestion",
        )
        return Program(self._folder / "prometheus.log", *command, ready=f"http://127.0.0.1:{self.prometheus}/-/ready")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for program in self._programs:
                stack.enter_context(program)
            self._stack = stack.pop_all()
        # The subscription arrives when whymiss is connected: nothing published before is lost.
        assert self.publisher.poll(20_000), "whymiss did not subscribe"
        self.publisher.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.publisher.close(linger=0)
        self._context.term()

    @property
    def otlp(self) -> str:
        return f"http://127.0.0.1:{self.agent_http}/v1/traces"

    def play(self, recording: Recording) -> None:
        """The recorded events and exports in the order and, faster, at the distances of their arrival."""
        arrivals: list[KvMessage | OtlpRequest] = [*recording.kv_events, *recording.otlp]
        arrivals.sort(key=lambda one: one.received_unix_nanos)
        before = arrivals[0].received_unix_nanos
        for arrival in arrivals:
            time.sleep((arrival.received_unix_nanos - before) / 1e9 / SPEED)
            before = arrival.received_unix_nanos
            if isinstance(arrival, KvMessage):
                self.publisher.send_multipart(arrival.frames)
            else:
                post(self.otlp, arrival.body)

    def found(self, service: str, **tags: str) -> list[Any]:
        """Jaeger's traces of a service in which one span has all the tags."""
        answer = get(
            f"http://127.0.0.1:{self.jaeger_query}/api/traces",
            service=service,
            tags=json.dumps(tags),
            start="0",
            end=str(time.time_ns() // 1000 + 3_600_000_000),
            limit="1000",
        )
        return list((answer or {}).get("data") or [])

    def query(self, expression: str) -> dict[str, float]:
        """Prometheus' answer: value by the label ``cause``, ``alertstate`` or nothing."""
        answer = get(f"http://127.0.0.1:{self.prometheus}/api/v1/query", query=expression)
        return {
            next(iter(one["metric"].values()), ""): float(one["value"][1])
            for one in (answer or {}).get("data", {}).get("result", [])
        }


class Sdk:
    """A service instrumented with the real SDK; what it sent is kept to compare with."""

    def __init__(self, url: str, service: str) -> None:
        self._kept = InMemorySpanExporter()
        self._provider = TracerProvider(resource=Resource({"service.name": service}))
        self._provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self._provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=url)))

    def tracer(self, scope: str) -> trace.Tracer:
        return self._provider.get_tracer(scope)

    def sent(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()


def shop(tracer: trace.Tracer) -> None:
    """A trace that has nothing to do with us, of every kind of value."""
    with tracer.start_as_current_span("checkout", attributes={"cart.items": 3, "cart.price": 9.5}) as outer:
        outer.add_event("paid", {"method": "card", "retries": 0})
        with tracer.start_as_current_span("db.query", kind=trace.SpanKind.CLIENT) as inner:
            inner.set_attributes({"db.system": "postgresql", "db.ok": True, "db.tables": ["a", "b"]})
            inner.set_status(trace.StatusCode.ERROR, "deadlock")


def as_jaeger(span: ReadableSpan) -> dict[str, Any]:
    """What Jaeger must say of a span if nobody touched it."""
    assert span.context is not None and span.start_time is not None and span.end_time is not None  # noqa: PT018
    return {
        "traceID": f"{span.context.trace_id:032x}",
        "spanID": f"{span.context.span_id:016x}",
        "operationName": span.name,
        "startTime": span.start_time // 1000,
        "duration": (span.end_time - span.start_time) // 1000,
        "events": [event.name for event in span.events],
        **{key: list(value) if isinstance(value, tuple) else value for key, value in (span.attributes or {}).items()},
    }


def of_jaeger(span: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    tags = {tag["key"]: tag["value"] for tag in span["tags"]}
    own = {key: tags[key] for key in tags if key not in keys}
    own = {key: json.loads(value) if key == "db.tables" else value for key, value in own.items()}
    events = [field["value"] for log in span["logs"] for field in log["fields"] if field["key"] == "event"]
    head = {key: span[key] for key in ("traceID", "spanID", "operationName", "startTime", "duration")}
    return {**head, "events": events, **own}


ADDED_BY_JAEGER = frozenset(
    {"span.kind", "otel.scope.name", "otel.status_code", "otel.status_description", "error", "otel.scope.version"}
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        running.play(Recording(RECORDING))
        yield running


def evicted_in_the_recording() -> set[str]:
    lines = (RECORDING / "summary.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["trace_id"] for line in map(json.loads, lines) if line["label"] in {"after-evict", "after-reset"}}


def test_jaeger_finds_the_evicted_requests_by_tag(stack: Stack) -> None:
    expected = evicted_in_the_recording()

    def look() -> list[Any] | None:
        found = stack.found(ENGINE, **{"prefix_cache.miss.cause": "evicted"})
        return found if len(found) >= len(expected) else None

    found = eventually("both evictions in Jaeger", look)
    assert {one["traceID"] for one in found} == expected
    tags = {tag["key"]: tag["value"] for one in found for span in one["spans"] for tag in span["tags"]}
    assert tags["prefix_cache.miss.owner"] == "platform"
    assert tags["prefix_cache.lost_tokens"] == 256
    assert stack.found(ENGINE, **{"prefix_cache.miss.cause": "no_such_cause"}) == []


def test_spans_of_others_arrive_unchanged(stack: Stack) -> None:
    with Sdk(stack.otlp, "shop") as sdk:
        shop(sdk.tracer("shop"))
        sent = {span["spanID"]: span for span in map(as_jaeger, sdk.sent())}

    def look() -> list[Any] | None:
        spans = [span for one in stack.found("shop") for span in one["spans"]]
        return spans if len(spans) >= len(sent) else None

    arrived = eventually("the shop's spans in Jaeger", look)
    assert {span["spanID"]: of_jaeger(span, ADDED_BY_JAEGER) for span in arrived} == sent


def test_prometheus_has_the_class_metrics(stack: Stack) -> None:
    def look() -> dict[str, float] | None:
        misses = stack.query("sum by (cause) (prefix_cache_misses_total)")
        return misses if misses.get("evicted") == 2 else None

    misses = eventually("two evictions in Prometheus", look)
    assert misses["token_divergence"] == 1
    assert misses["extra_key_mismatch"] == 1
    assert stack.query("sum by (cause) (prefix_cache_lost_tokens_total)")["evicted"] == 512


def test_an_alert_fires_and_ends(stack: Stack) -> None:
    firing = 'count by (alertstate) (ALERTS{alertname="PrefixCacheUnknownBudgetSpent", alertstate="firing"})'
    eventually("the alert is quiet", lambda: None if stack.query(firing) else True)
    with Sdk(stack.otlp, ENGINE) as sdk:
        tracer = sdk.tracer("vllm.tracing.otel")

        def look() -> bool | None:
            # A request of which no event tells: its cause is unknown.
            with tracer.start_as_current_span("llm_request") as span:
                span.set_attributes({"gen_ai.usage.prompt_tokens": 640, "gen_ai.request.id": "cmpl-nobody"})
            return True if stack.query(firing) else None

        eventually("the alert fires", look)
    eventually("the alert ends", lambda: None if stack.query(firing) else True)


def test_no_raw_key_salt_or_token_is_stored_anywhere(stack: Stack) -> None:
    recording = Recording(RECORDING)
    stored = eventually("spans and series are stored", lambda: everything_stored(stack))
    assert SALT not in stored
    keys = block_keys(recording)
    assert len(keys) > 50
    for key in keys:
        assert key.hex() not in stored
        assert base64.b64encode(key).decode() not in stored


def everything_stored(stack: Stack) -> str | None:
    """All that Jaeger and Prometheus answer, once both have something of ours."""
    series = get(f"http://127.0.0.1:{stack.prometheus}/api/v1/series", **{"match[]": '{__name__=~".+"}'})
    stored = json.dumps(stack.found(ENGINE)) + json.dumps(series)
    return stored if "llm_request" in stored and "prefix_cache_misses_total" in stored else None


def block_keys(recording: Recording) -> set[bytes]:
    """All block hashes of the recording: this engine's are 32 bytes each."""
    found: set[bytes] = set()

    def walk(value: object) -> None:
        if isinstance(value, bytes) and len(value) == 32:
            found.add(value)
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    for message in recording.kv_events:
        walk(msgspec.msgpack.decode(message.frames[2]))
    return found
