"""A scrape of as many series as the default caps allow: ours, and prometheus_client's writer on the same snapshot.

In each round both write both formats, one after the other. Run it by itself (``python tests/bench/bench_exposition.py``) or with ``make bench``.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate
from math import inf

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as ExemplarText
from prometheus_client.samples import Sample

from whymiss.edge.telemetry.prometheus import Exposition, Format, name_of
from whymiss.measures import DIMENSIONS, Dimensions, Exemplar, Kind, Measures, MetricSnapshot
from whymiss.model import Cause, Owner, Reason, Verdict

ROUNDS = 5
RESOURCE = {"service.name": "whymiss"}
TYPES = {Kind.SUM: "counter", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}
MISS = Verdict(
    cause=Cause.ROUTING_MISS,
    owner=Owner.ROUTING,
    reason=Reason.HOLDER_KNOWN,
    prompt_tokens=2048,
    cached_tokens=640,
    recomputed_tokens=1408,
    lost_tokens=1200,
    sparse_lost_tokens=0,
)
SPAN = Exemplar(trace_id="1" * 32, span_id="2" * 16, unix_nanos=1)
PEERS: Mapping[Format, Callable[[Collector], bytes]] = {
    Format.TEXT: generate_latest,
    Format.OPENMETRICS: generate_openmetrics,
}


def full() -> Measures:
    """A tenth more distinct classes than a metric may have series, with a value of every dimension."""
    seen = Measures(dimensions=DIMENSIONS, values_max=100, series_max=2000, start_unix_nanos=1)
    names = [name.replace(".", "_") for name in DIMENSIONS if name not in {"model", "route"}]
    others = dict.fromkeys(names, "a value")
    for number in range(2200):
        shown = Dimensions(route=f"route-{number % 50}", model=f"model-{number // 50}", **others)
        seen.observe(MISS, shown, first_token_seconds=0.1, exemplar=SPAN)
    return seen


class Peer(Collector):
    """The same samples as prometheus_client's objects, made when it asks for them as a collector's are."""

    def __init__(self, snapshot: tuple[MetricSnapshot, ...], *, begun: bool) -> None:
        self._snapshot = snapshot
        self._begun = begun

    def collect(self) -> Iterator[Metric]:
        for metric in self._snapshot:
            family = Metric(name_of(metric.instrument), metric.instrument.description, TYPES[metric.instrument.kind])
            for point in metric.points:
                labels = {name.replace(".", "_"): value for name, value in point.labels}
                exemplars = [
                    ExemplarText({"trace_id": seen.trace_id, "span_id": seen.span_id}, value, seen.unix_nanos / 1e9)
                    for value, seen in point.exemplars
                ]
                family.samples += samples(family.name, metric.instrument.kind, labels, point.value, exemplars)
                if metric.instrument.kind is Kind.HISTOGRAM:
                    totals = accumulate(round(count) for count in point.counts)
                    for bound, total in zip((*metric.instrument.bounds, inf), totals, strict=True):
                        edge = labels | {"le": "+Inf" if bound == inf else str(bound)}
                        family.samples.append(Sample(f"{family.name}_bucket", edge, float(total)))
                    family.samples.append(Sample(f"{family.name}_count", labels, float(sum(point.counts))))
                if self._begun and metric.instrument.kind is not Kind.GAUGE:
                    family.samples.append(Sample(f"{family.name}_created", labels, metric.start_unix_nanos / 1e9))
            yield family


def samples(
    name: str, kind: Kind, labels: Mapping[str, str], value: float, exemplars: list[ExemplarText]
) -> list[Sample]:
    suffix = {Kind.SUM: "_total", Kind.GAUGE: "", Kind.HISTOGRAM: "_sum"}[kind]
    seen = exemplars[-1] if exemplars and kind is Kind.SUM else None
    return [Sample(name + suffix, dict(labels), value, None, seen)]


def cpu_seconds(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def gzipped(portions: list[bytes]) -> int:
    packer = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    return sum(len(packer.compress(portion)) for portion in portions) + len(packer.flush())


def longest(portions: Iterator[bytes]) -> float:
    """The most that one portion takes, packed, in seconds of processor time: for so long nobody else has a turn."""
    packer = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    worst, begin = 0.0, time.thread_time()
    for portion in portions:
        packer.compress(portion)
        now = time.thread_time()
        worst, begin = max(worst, now - begin), now
    return worst


def row(name: str, seconds: list[float]) -> None:
    print(f"{name:58} {min(seconds) * 1e3:9.1f} {statistics.median(seconds) * 1e3:9.1f}")


def main() -> None:
    print(
        f"Python {platform.python_version()}, prometheus_client {version('prometheus_client')}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; processor time, {ROUNDS} rounds"
    )
    seen = full()
    snapshot = seen.snapshot()
    print(f"{sum(len(metric.points) for metric in snapshot):,} series\n{'':58} {'best ms':>9} {'median':>9}")
    row("snapshot", [cpu_seconds(seen.snapshot) for _ in range(ROUNDS)])
    for form, write in PEERS.items():
        name = form.name.lower()
        ours, peers, firsts, packed, turns = [], [], [], [], []
        portions = [*Exposition(RESOURCE).portions(snapshot, form)]
        for _ in range(ROUNDS):
            exposition = Exposition(RESOURCE)
            firsts.append(cpu_seconds(lambda: [*exposition.portions(snapshot, form)]))  # noqa: B023 - called here
            ours.append(cpu_seconds(lambda: [*exposition.portions(snapshot, form)]))  # noqa: B023 - called here
            peer = Peer(snapshot, begun=form is Format.OPENMETRICS)
            peers.append(cpu_seconds(lambda: write(peer)))  # noqa: B023 - called here
            packed.append(cpu_seconds(lambda: gzipped(portions)))  # noqa: B023 - called here
            turns.append(longest(exposition.portions(snapshot, form)))
        text = b"".join(portions)
        print(f"{name}: {text.count(10):,} lines, {len(text) / 1e6:.1f} MB, {gzipped(portions) / 1e6:.2f} MB packed")
        row(f"{name}: ours", ours)
        row(f"{name}: ours, the first time", firsts)
        row(f"{name}: peer, prometheus_client", peers)
        row(f"{name}: gzip", packed)
        row(f"{name}: the longest portion, packed", turns)
        ratio = statistics.median(peer / own for peer, own in zip(peers, ours, strict=True))
        print(f"{name}: the peer takes {ratio:.1f} times as long (median of pairs)")


if __name__ == "__main__":
    main()
