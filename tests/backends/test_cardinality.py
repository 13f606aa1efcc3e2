"""Ten thousand adapters, routes and tenants: what Prometheus holds of them, and what they cost whymiss in memory."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.backends.programs import Program, collector, eventually, free_ports, get, post, whymiss
from whymiss.config import Config

NAMES = 10_000
SHOWN = 100
"""``measures.values_max`` by default."""
SIDE = 50
CAP = 2000
"""``measures.series_max`` by default."""
BATCH = 500
RESIDENT = "whymiss_process_memory_bytes"
GROWTH_MAX_BYTES = 32 * 2**20
"""What requests may leave behind, of which a few hundred bytes each are remembered for a while. Names that became series
would leave nine metrics each, one of them with twenty buckets: over 100 MiB."""

pytestmark = pytest.mark.server("otelcol", "prometheus")

Pair = tuple[str, str]


def export(first: int, pairs: Iterable[Pair]) -> bytes:
    """A router's and an engine's span a request, with a tenant in every place where one could be."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    routers, engines = resource.scope_spans.add(), resource.scope_spans.add()
    routers.scope.name, engines.scope.name = "router", "sglang.request"
    now = time.time_ns()
    for number, (route, adapter) in enumerate(pairs, first):
        texts = {
            "tenant.id": f"tenant-{number}",
            "cache_salt": f"tenant-{number}",
            "gen_ai.request.id": f"rid-{number}",
        }
        for scope, more in (
            (routers, {"prefix_cache.route.worker": "engine", "prefix_cache.route.reason": route}),
            (engines, {"module": "sglang::request", "rid": f"rid-{number}", "gen_ai.response.model": adapter}),
        ):
            name = "route" if scope is routers else f"Req {number}"
            span = scope.spans.add(name=name, trace_id=(number + 1).to_bytes(16, "big"), flags=0x101)
            span.span_id = name[:5].ljust(8).encode() if scope is routers else (number + 1).to_bytes(8, "big")
            span.start_time_unix_nano, span.end_time_unix_nano = now, now + 1_000_000
            for key, text in {**texts, **more}.items():
                span.attributes.add(key=key).value.string_value = text
            if scope is engines:
                span.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 640
                span.attributes.add(key="gen_ai.latency.time_to_first_token").value.double_value = 0.1
    return request.SerializeToString()


def taken(url: str, body: bytes) -> bool | None:
    """Offer a batch; whoever is full says so, and it is offered again."""
    try:
        post(url, body)
    except urllib.error.HTTPError as refusal:
        if refusal.code != 503:
            raise
        return None
    return True


def distinct(generation: str) -> list[Pair]:
    """As many routes and adapters as requests."""
    return [(f"route-{generation}-{number}", f"adapter-{generation}-{number}") for number in range(NAMES)]


def grid() -> list[Pair]:
    """Every pair of the names that are shown: more series than a metric may have."""
    return [(f"route-a-{one}", f"adapter-a-{other}") for one in range(SIDE) for other in range(SIDE)]


class Seen(msgspec.Struct, kw_only=True):
    """What the programs said at the end."""

    sent: int
    series: dict[str, int]
    counted: float
    labels: dict[str, list[str]]
    overflow: float
    other: float
    resident: list[float]
    """Memory of whymiss in bytes: after the first names and the grid, and after as many names again."""


class Running:
    """whymiss, a next hop that forgets, and Prometheus."""

    def __init__(self, folder: Path) -> None:
        grpc, http, self.metrics, health, hop, hop_health, self.prometheus = free_ports(7)
        self.url = f"http://127.0.0.1:{http}/v1/traces"
        config = {
            "receivers": {"grpc": {"endpoint": f"127.0.0.1:{grpc}"}, "http": {"endpoint": f"127.0.0.1:{http}"}},
            "exporters": {"hop": {"endpoint": f"127.0.0.1:{hop}", "insecure": True}},
            # Nothing of a request is kept once it has left, so that what grows would be names.
            "join": {"hold_seconds": 1, "linger_seconds": 0.2, "remembered_max": 0},
            "workers": {"sole_source": "engine"},
            "telemetry": {"metrics_endpoint": f"127.0.0.1:{self.metrics}"},
            "health": {"endpoint": f"127.0.0.1:{health}"},
        }
        (folder / "whymiss.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        next_hop = {
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{hop}"}}}},
            "exporters": {"debug": {"verbosity": "basic"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
            },
        }
        scrape = {"job_name": "whymiss", "static_configs": [{"targets": [f"127.0.0.1:{self.metrics}"]}]}
        prometheus = {
            "global": {"scrape_interval": "5s", "scrape_timeout": "5s"},
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(prometheus), encoding="utf-8")
        command = (
            "prometheus",
            f"--config.file={folder}/prometheus.yaml",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
        )
        self.programs = [
            collector(folder, "next-hop", next_hop, hop_health),
            whymiss(folder, "whymiss", str(folder / "whymiss.yaml"), {}, health),
            Program(folder / "prometheus.log", *command, ready=f"http://127.0.0.1:{self.prometheus}/-/ready"),
        ]
        self.sent = 0

    def send(self, pairs: list[Pair]) -> None:
        """Send requests in batches, and wait until all of them are judged."""
        for first in range(0, len(pairs), BATCH):
            body = export(self.sent, pairs[first : first + BATCH])
            eventually("a batch is taken", partial(taken, self.url, body))
            self.sent += len(pairs[first : first + BATCH])
        # Prometheus is asked, and not /metrics: what it holds is what counts.
        counted = "sum(prefix_cache_requests_total)"
        eventually("all are judged", lambda: self.ask(counted).get("", 0) >= self.sent or None, 120)

    def ask(self, expression: str) -> dict[str, float]:
        """Prometheus' answer, by the first label."""
        answer = get(f"http://127.0.0.1:{self.prometheus}/api/v1/query", query=expression)
        found = (answer or {}).get("data", {}).get("result", [])
        return {next(iter(one["metric"].values()), ""): float(one["value"][1]) for one in found}

    def values(self, label: str) -> list[str]:
        """The values of a label of everything that Prometheus holds."""
        answer = get(f"http://127.0.0.1:{self.prometheus}/api/v1/label/{label}/values")
        return list((answer or {}).get("data", []))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Running(tmp_path_factory.mktemp("cardinality"))
    with ExitStack() as stack:
        for program in running.programs:
            stack.enter_context(program)
        running.send(distinct("a"))
        running.send(grid())
        resident = [running.ask(f"sum({RESIDENT})")[""]]
        running.send(distinct("b"))
        resident.append(running.ask(f"sum({RESIDENT})")[""])
        every = "count by (__name__) ({__name__=~'prefix_cache_.*_total|prefix_cache_.*_count'})"
        labels = [*(get(f"http://127.0.0.1:{running.prometheus}/api/v1/labels") or {}).get("data", [])]
        yield Seen(
            sent=running.sent,
            series={name: int(count) for name, count in running.ask(every).items()},
            counted=running.ask("sum(prefix_cache_requests_total)")[""],
            labels={label: running.values(label) for label in labels},
            overflow=running.ask('sum(prefix_cache_requests_total{otel_metric_overflow="true"})').get("", 0),
            other=running.ask('sum(prefix_cache_requests_total{route="_other",model="_other"})').get("", 0),
            resident=resident,
        )


def test_series_stay_under_the_cap(seen: Seen) -> None:
    assert set(seen.series) >= {"prefix_cache_requests_total", "prefix_cache_time_to_first_token_seconds_count"}
    assert max(seen.series.values()) == CAP
    assert all(count <= CAP for count in seen.series.values())


def test_a_dimension_shows_so_many_values_and_other(seen: Seen) -> None:
    assert (Config.default().measures.values_max, Config.default().measures.series_max) == (SHOWN, CAP)
    for label in ("route", "model"):
        assert len(seen.labels[label]) == SHOWN + 1
        assert "_other" in seen.labels[label]


def test_nothing_that_came_too_late_is_lost_from_a_sum(seen: Seen) -> None:
    assert seen.sent == 2 * NAMES + SIDE**2
    assert seen.counted == seen.sent
    # Of the first names all but those shown, and all of the later ones.
    assert seen.other == 2 * NAMES - SHOWN
    assert seen.overflow > 0


def test_no_tenant_is_a_label(seen: Seen) -> None:
    assert not [label for label, values in seen.labels.items() for value in values if "tenant-" in value]


def test_memory_is_flat(seen: Seen) -> None:
    after, *later = seen.resident
    assert max(later) <= after + GROWTH_MAX_BYTES, [round(one / 2**20) for one in seen.resident]
