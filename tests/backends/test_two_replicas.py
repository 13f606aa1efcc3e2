"""Two replicas behind a load-balancing collector, one of them restarted in the middle."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.backends.programs import ROOT, Program, collector, eventually, free_ports, whymiss, yaml_of

TRACES = 200
BATCH = 10
ENGINE_SCOPE = "vllm.tracing.otel"


def export(first: int, url: str) -> None:
    """Traces of three spans: one of the engine, one of a router that nobody knows, one of a shop."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for scope, name in ((ENGINE_SCOPE, "llm_request"), ("router", "route"), ("shop", "checkout")):
        spans = resource.scope_spans.add()
        spans.scope.name = scope
        for number in range(first, first + BATCH):
            span = spans.spans.add(name=name, trace_id=trace_id(number), span_id=name[:8].ljust(8, "x").encode())
            span.start_time_unix_nano = 1_795_965_356_000_000_000 + number
            span.end_time_unix_nano = span.start_time_unix_nano + 1_000_000
            if name == "llm_request":
                span.attributes.add(key="gen_ai.request.id").value.string_value = f"cmpl-{number}"
                span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 640
    body = request.SerializeToString()
    post = urllib.request.Request(url, data=body, headers={"Content-Type": "application/x-protobuf"})
    with urllib.request.urlopen(post, timeout=10) as answer:
        assert answer.status == 200


def trace_id(number: int) -> bytes:
    # Spread over the ring, as real ones are.
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128 or 1).to_bytes(16, "big")


class Fleet:
    """gateway → two whymiss → a collector that writes a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "arrived.jsonl"
        ports = free_ports(14)
        gateway_grpc, gateway_http, gateway_health, hop_grpc, hop_health, events = ports[:6]
        self.metrics = (ports[6], ports[7])
        grpc = (ports[8], ports[9])
        self.url = f"http://127.0.0.1:{gateway_http}/v1/traces"
        self.replicas = [
            self._replica(folder, number, grpc[number], ports[10 + number], ports[12 + number], hop_grpc, events)
            for number in (0, 1)
        ]
        self.programs = [
            collector(folder, "next-hop", self._next_hop(hop_grpc), hop_health),
            *self.replicas,
            collector(folder, "gateway", self._gateway(gateway_grpc, gateway_http, grpc), gateway_health),
        ]

    def _replica(self, folder: Path, number: int, grpc: int, http: int, health: int, hop: int, events: int) -> Program:
        environ = {
            "WHYMISS_GRPC": f"127.0.0.1:{grpc}",
            "WHYMISS_HTTP": f"127.0.0.1:{http}",
            "WHYMISS_NEXT_HOP": f"127.0.0.1:{hop}",
            # Nobody publishes there: every cause is unknown, and it is the spans that are counted.
            "WHYMISS_KV_EVENTS": f"tcp://127.0.0.1:{events}",
            "WHYMISS_METRICS": f"127.0.0.1:{self.metrics[number]}",
            "WHYMISS_HEALTH": f"127.0.0.1:{health}",
        }
        config = str(ROOT / "collector-config/whymiss/env.yaml")
        return whymiss(folder, f"whymiss-{number}", config, environ, health)

    def _next_hop(self, grpc: int) -> Mapping[str, Any]:
        return {
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{grpc}"}}}},
            "exporters": {"file": {"path": str(self.file), "flush_interval": "100ms"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        }

    def _gateway(self, grpc: int, http: int, replicas: tuple[int, int]) -> Mapping[str, Any]:
        config: dict[str, Any] = yaml_of("collector-config/collector/gateway.yaml")
        protocols = config["receivers"]["otlp"]["protocols"]
        protocols["grpc"]["endpoint"] = f"127.0.0.1:{grpc}"
        protocols["http"]["endpoint"] = f"127.0.0.1:{http}"
        hosts = [f"127.0.0.1:{port}" for port in replicas]
        config["exporters"]["load_balancing"]["resolver"] = {"static": {"hostnames": hosts}}
        return config

    def arrived(self) -> Counter[tuple[str, str]]:
        """Spans in the file, by trace and name."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        return Counter(
            (span["traceId"], span["name"])
            for line in lines
            if line.endswith("}")
            for resource in json.loads(line)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        )

    def verdicts(self) -> dict[str, set[str]]:
        """Causes by name of the span that carries one."""
        found: dict[str, set[str]] = {}
        for line in self.file.read_text(encoding="utf-8").splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                    for attribute in span.get("attributes", []):
                        if attribute["key"] == "prefix_cache.miss.cause":
                            found.setdefault(span["name"], set()).add(attribute["value"]["stringValue"])
        return found

    def claimed(self, replica: int) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[replica]}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("whymiss_spans_claimed_total{"))


@pytest.mark.server("otelcol")
def test_a_restart_of_one_replica_loses_no_span(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    expected = {
        (trace_id(number).hex(), name) for number in range(TRACES) for name in ("llm_request", "route", "checkout")
    }
    with ExitStack() as stack:
        for program in fleet.programs:
            stack.enter_context(program)
        for first in range(0, TRACES // 2, BATCH):
            export(first, fleet.url)
        eventually("both replicas have work", lambda: all(fleet.claimed(one) > 0 for one in (0, 1)) or None)
        fleet.replicas[1].stop()
        for first in range(TRACES // 2, TRACES, BATCH):
            export(first, fleet.url)
        fleet.replicas[1].start()
        eventually("every span in the file", lambda: True if fleet.arrived().keys() >= expected else None, 120)
    assert fleet.arrived().keys() == expected
    # Without events nothing can be known, and a restart makes no cause of that.
    assert fleet.verdicts() == {"llm_request": {"unknown"}}
