"""Two replicas that judge, one restarted in the middle: what the ring tears apart ends right or unknown, and counts add up.

The resolver of ``load_balancing`` takes seconds to notice that a replica has gone, so its ring before and its ring
after are two gateways, and the test decides which span meets which.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
import yaml
import zmq

from tests.backends.programs import (
    ROOT,
    Program,
    collector,
    eventually,
    free_ports,
    get,
    post,
    samples,
    whymiss,
    yaml_of,
)
from tests.backends.promised import Promised, promised, timeline, truth
from whymiss.tools.recording import KvMessage, Recording

RECORDING = ROOT / "tests" / "captures" / "01-vanilla-sha256-bytes"
SPEED = 10.0
TORN = ("filler0", "filler1", "filler2", "filler3", "after-evict")
"""Their router's span comes before the change and their engine's after it."""
SURELY_TORN = "cmpl-req-17-filler0-0"
AFTER = ("after-reset",)
# A counter that every process has, whatever it met.
INSTANCES = 'group by (service_instance_id) (whymiss_spans_late_total{job="pushed"})'

pytestmark = pytest.mark.server("otelcol", "prometheus")


class Replica:
    """One whymiss: gateway.yaml with addresses of its own, scraped and pushing."""

    def __init__(self, folder: Path, number: int, ports: Sequence[int], events: str, hop: tuple[int, int]) -> None:
        self.grpc, http, health, self.metrics = ports
        config: dict[str, Any] = yaml_of("collector-config/whymiss/gateway.yaml")
        config["receivers"] = {
            "grpc": {"endpoint": f"127.0.0.1:{self.grpc}"},
            "http": {"endpoint": f"127.0.0.1:{http}"},
        }
        config["exporters"]["next_hop"]["endpoint"] = f"127.0.0.1:{hop[0]}"
        config["kv_events"]["sources"] = [{"endpoint": events}]
        config["workers"] = {"sole_source": True}
        config["health"]["endpoint"] = f"127.0.0.1:{health}"
        config["telemetry"] = {
            "metrics_endpoint": f"127.0.0.1:{self.metrics}",
            "otlp_endpoint": f"http://127.0.0.1:{hop[1]}",
            "otlp_protocol": "http/protobuf",
            "otlp_interval_seconds": 1,
        }
        file = folder / f"whymiss-{number}.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        environ = {"WHYMISS_DIGEST_KEY": "one key for both replicas"}
        self.program = whymiss(folder, f"whymiss-{number}", str(file), environ, health)

    def total(self, name: str, **labels: str) -> float:
        """What /metrics says now."""
        return sum(samples(f"http://127.0.0.1:{self.metrics}/metrics", name, **labels))


class Fleet:
    """gateways → two whymiss → a collector with a file and an exporter for Prometheus → Prometheus."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "arrived.jsonl"
        self.context = zmq.Context()
        self.publisher = self.context.socket(zmq.XPUB)
        # Every subscription is told of, and not only the first to a topic.
        self.publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        events = self.publisher.bind_to_random_port("tcp://127.0.0.1")
        ports = iter(free_ports(20))
        hop = (next(ports), next(ports))
        self._pushed = next(ports)
        next_hop = collector(folder, "next-hop", self._next_hop(*hop), next(ports))
        self.replicas = [
            Replica(folder, number, [next(ports) for _ in range(4)], f"tcp://127.0.0.1:{events}", hop)
            for number in (0, 1)
        ]
        self.both, whole = self._gateway("both", ports, [one.grpc for one in self.replicas])
        self.left, rest = self._gateway("left", ports, [self.replicas[0].grpc])
        self.prometheus = next(ports)
        self.programs = [next_hop, *(one.program for one in self.replicas), whole, rest, self._prometheus()]

    def _next_hop(self, grpc: int, http: int) -> Mapping[str, Any]:
        config: dict[str, Any] = yaml_of("collector-config/collector/next-hop.yaml")
        protocols = config["receivers"]["otlp"]["protocols"]
        protocols["grpc"]["endpoint"], protocols["http"]["endpoint"] = f"127.0.0.1:{grpc}", f"127.0.0.1:{http}"
        config["exporters"]["prometheus"]["endpoint"] = f"127.0.0.1:{self._pushed}"
        del config["exporters"]["otlp_grpc/jaeger"]
        config["exporters"]["file"] = {"path": str(self.file), "flush_interval": "100ms"}
        config["service"]["pipelines"]["traces"]["exporters"] = ["file"]
        return config

    def _gateway(self, name: str, ports: Iterator[int], replicas: Sequence[int]) -> tuple[str, Program]:
        config: dict[str, Any] = yaml_of("collector-config/collector/gateway.yaml")
        http = next(ports)
        protocols = config["receivers"]["otlp"]["protocols"]
        protocols["grpc"]["endpoint"], protocols["http"]["endpoint"] = "127.0.0.1:0", f"127.0.0.1:{http}"
        hosts = [f"127.0.0.1:{port}" for port in replicas]
        config["exporters"]["load_balancing"]["resolver"] = {"static": {"hostnames": hosts}}
        return f"http://127.0.0.1:{http}/v1/traces", collector(self._folder, name, config, next(ports))

    def _prometheus(self) -> Program:
        scraped = [f"127.0.0.1:{one.metrics}" for one in self.replicas]
        jobs = {"whymiss": scraped, "pushed": [f"127.0.0.1:{self._pushed}"]}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
            ],
        }
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        command = (
            "prometheus",
            f"--config.file={self._folder}/prometheus.yaml",
            f"--storage.tsdb.path={self._folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
            # Without the time at which a count began, one that counted up to where it was before looks unbroken.
            "--enable-feature=created-timestamp-zero-ingestion",
        )
        return Program(self._folder / "prometheus.log", *command, ready=f"http://127.0.0.1:{self.prometheus}/-/ready")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.context.term)
            stack.callback(self.publisher.close, 0)
            for program in self.programs:
                stack.enter_context(program)
            for _ in self.replicas:
                self.subscribed()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def subscribed(self) -> None:
        """Wait until one more replica hears the events."""
        assert self.publisher.poll(30_000), "whymiss did not subscribe"
        assert self.publisher.recv()[:1] == b"\x01"

    def query(self, expression: str) -> list[Any]:
        """Prometheus' answer."""
        answer = get(f"http://127.0.0.1:{self.prometheus}/api/v1/query", query=expression)
        return list((answer or {}).get("data", {}).get("result", []))

    def value(self, expression: str) -> float:
        """The answer where it is a single number, or 0."""
        return sum(float(one["value"][1]) for one in self.query(expression))

    def arrived(self) -> dict[tuple[str, str], dict[str, str]]:
        """The attributes of the spans in the file, by trace and name."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        return {
            (span["traceId"], span["name"]): {
                one["key"]: str(next(iter(one["value"].values()), "")) for one in span.get("attributes", [])
            }
            for line in lines
            if line.endswith("}")
            for resource in json.loads(line)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        }

    def land(self, one: Promised, replica: int) -> Promised:
        """Send a router's span so that it meets a certain replica: in the first trace that does."""
        for number in range(32):
            one.span.trace_id = one.span.trace_id[:-1] + bytes([number])
            before = [each.total("whymiss_spans_claimed_total") for each in self.replicas]
            post(self.both, one.route())

            def met(before: list[float] = before) -> int | None:
                after = [each.total("whymiss_spans_claimed_total") for each in self.replicas]
                return next((at for at in (0, 1) if after[at] > before[at]), None)

            if eventually("the router's span arrives", met) == replica:
                return one
        raise AssertionError("32 traces, and none on that replica")


class Story(msgspec.Struct, kw_only=True):
    """What the test did, and what came of it."""

    expected: dict[str, str]
    requests: list[Promised]
    arrived: dict[tuple[str, str], dict[str, str]]
    torn: list[str]
    scraped: float
    pushed: float
    instances: int

    def cause_of(self, one: Promised) -> str:
        return self.arrived[one.span.trace_id.hex(), "llm_request"]["prefix_cache.miss.cause"]


class Play:
    """The recording in its order, with the restart in the middle."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        recording = Recording(RECORDING)
        self.requests = promised(recording)
        self._arrivals = list(timeline(self.requests, recording.kv_events))
        self.torn: list[str] = []

    def part(self, url: str, until: int | None, routed: bool) -> None:
        """Everything that arrives up to a moment, the oldest first and faster than it was."""
        before = self._arrivals[0][0] if self._arrivals else 0
        while self._arrivals and (until is None or self._arrivals[0][0] < until):
            at, arrival = self._arrivals.pop(0)
            time.sleep((at - before) / 1e9 / SPEED)
            before = at
            if isinstance(arrival, KvMessage):
                self._fleet.publisher.send_multipart(arrival.frames)
                continue
            if routed or arrival.request_id not in self.torn:
                post(url, arrival.route())
            post(url, arrival.engine())

    def tear(self) -> None:
        """Send the routers' spans of what is torn, one of them to the replica that will go."""
        for one in self.requests:
            if any(label in one.request_id for label in TORN):
                self.torn.append(one.request_id)
                if one.request_id == SURELY_TORN:
                    self._fleet.land(one, 1)
                else:
                    post(self._fleet.both, one.route())

    def start_of(self, labels: tuple[str, ...]) -> int:
        return min(one.routed_nanos for one in self.requests if any(label in one.request_id for label in labels))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Fleet(tmp_path_factory.mktemp("ring")) as fleet:
        play = Play(fleet)
        play.part(fleet.both, play.start_of(TORN), routed=True)
        fleet_claims = 2 * sum(one.exported_nanos < play.start_of(TORN) for one in play.requests)
        play.tear()
        eventually("all are claimed", lambda: claimed(fleet) >= fleet_claims + len(TORN) or None)
        eventually("what is whole is judged", lambda: judged(fleet) * 2 >= fleet_claims or None)
        gone = fleet.replicas[1]
        eventually("the last scrape", lambda: all_scraped(fleet) or None)
        gone.program.stop()
        play.part(fleet.left, play.start_of(AFTER), routed=False)
        gone.program.start()
        fleet.subscribed()
        play.part(fleet.both, None, routed=True)
        names = {(one.span.trace_id.hex(), name) for one in play.requests for name in ("route", "llm_request")}
        eventually("every span in the file", lambda: fleet.arrived().keys() >= names or None)
        eventually("the last scrape", lambda: all_scraped(fleet) or None)
        count = len(play.requests)
        requests = 'sum(prefix_cache_requests_total{job="pushed"})'
        eventually("the last push", lambda: fleet.value(requests) >= count or None, 15)
        eventually("each life pushes", lambda: len(fleet.query(INSTANCES)) >= 3 or None, 15)
        yield Story(
            expected=truth(RECORDING, play.requests),
            requests=play.requests,
            arrived=fleet.arrived(),
            torn=play.torn,
            scraped=over_restarts(fleet.query('prefix_cache_requests_total{job="whymiss"}[10m]')),
            pushed=fleet.value(requests),
            instances=len(fleet.query(INSTANCES)),
        )


def claimed(fleet: Fleet) -> float:
    return sum(one.total("whymiss_spans_claimed_total") for one in fleet.replicas)


def judged(fleet: Fleet) -> float:
    return sum(one.total("prefix_cache_requests_total") for one in fleet.replicas)


def all_scraped(fleet: Fleet) -> bool:
    """Whether Prometheus has what the replicas say now."""
    return fleet.value('sum(prefix_cache_requests_total{job="whymiss"})') == judged(fleet)


def over_restarts(series: Sequence[Any]) -> float:
    """The sum of counters over the lives of their processes: a fall is a new life, as ``increase`` takes it."""
    total = 0.0
    for one in series:
        last = 0.0
        for _, text in one["values"]:
            value = float(text)
            total += value if value < last else value - last
            last = value
    return total


def test_no_span_is_lost_and_each_lookup_is_judged(story: Story) -> None:
    assert len(story.requests) == 29
    for one in story.requests:
        assert (one.span.trace_id.hex(), "route") in story.arrived
        assert story.cause_of(one)


def test_a_verdict_is_right_or_unknown(story: Story) -> None:
    for one in story.requests:
        assert story.cause_of(one) in {story.expected[one.request_id], "unknown"}, one.request_id


def test_what_lost_its_routers_span_is_unknown_and_says_why(story: Story) -> None:
    # Its whole trace names a broken promise; without the promise its blocks look like new ones.
    assert story.expected[SURELY_TORN] == "stale_index"
    torn = next(one for one in story.requests if one.request_id == SURELY_TORN)
    said = story.arrived[torn.span.trace_id.hex(), "llm_request"]
    assert said["prefix_cache.miss.cause"] == "unknown"
    # A replica that judges half of a worker's requests cannot explain the stores of the other half either.
    assert said["prefix_cache.miss.reason"] in {"partial_trace", "ambiguous_chain"}


def test_of_what_was_whole_before_the_change_half_a_worker_s_requests_still_name_some(story: Story) -> None:
    whole = story.requests[: next(at for at, one in enumerate(story.requests) if one.request_id in story.torn)]
    assert len(whole) > 10
    # Each replica sees a part of the requests: without lookup spans only what nobody else can have stored is named.
    named = [one for one in whole if story.cause_of(one) != "unknown"]
    assert len(named) >= 4


def test_scraped_counts_add_up_over_replicas_and_restarts(story: Story) -> None:
    assert story.scraped == len(story.requests)


def test_pushed_counts_add_up_and_a_restart_is_an_instance_of_its_own(story: Story) -> None:
    assert story.pushed == len(story.requests)
    assert story.instances == 3
