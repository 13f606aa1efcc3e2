"""Whose record a request's is: one candidate, or none."""

from __future__ import annotations

from typing import Any

import pytest

from whymiss.config import WorkersConfig, parse
from whymiss.evidence.requests.workers import KnownWorkers, Workers
from whymiss.ledger.events import KvBatch
from whymiss.ledger.ledger import Ledger
from whymiss.model import (
    EngineRequest,
    Envelope,
    Reason,
    Request,
    ResourceIdentity,
    Role,
    RouteDecision,
    Span,
    StreamId,
)

KNOWN = ("10.0.0.7:8000", "10.0.0.8:8000", "10.0.0.8:8001", "ns/pod-1", "pod-2", "pod-9-rank-1")


def workers(text: str = "{}") -> Workers:
    return Workers(parse(f"workers: {text}", {}).workers)


def known(text: str = "{}") -> KnownWorkers:
    return workers(text).known([StreamId(worker, 0) for worker in KNOWN])


def ledger(*streams: tuple[str, int]) -> Ledger:
    record = Ledger()
    for worker, rank in streams:
        record.accept(StreamId(worker, rank), 0, KvBatch(unix_nanos=1, events=[]))
    return record


def span(says: EngineRequest | RouteDecision, **resource: Any) -> Span:
    return Span(
        raw=b"",
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=bytes(16),
        span_id=bytes(8),
        parent_span_id=b"",
        start_unix_nanos=0,
        end_unix_nanos=1,
        flags=0,
        trace_state="",
        role=Role.ENGINE,
        dialect="vllm",
        says=(says,),
        resource=ResourceIdentity(**resource),
    )


def request(*routes: RouteDecision, **resource: Any) -> Request:
    return Request(
        engine=span(EngineRequest(prompt_tokens=1), **resource), routes=tuple(span(route) for route in routes)
    )


@pytest.mark.parametrize(
    ("name", "worker", "rank"),
    [
        ("10.0.0.7:8000", "10.0.0.7:8000", None),
        ("http://10.0.0.7:8000/v1", "10.0.0.7:8000", None),
        ("10.0.0.7", "10.0.0.7:8000", None),
        ("10.0.0.7:9999", None, None),
        ("10.0.0.8", None, None),
        ("NS/Pod-1", "ns/pod-1", None),
        ("pod-1", None, None),
        ("pod-2-rank-3", "pod-2", 3),
        ("http://pod-2/", "pod-2", None),
        ("pod-9-rank-1", "pod-9-rank-1", None),
        ("pod-7-rank-1", None, None),
        ("", None, None),
    ],
)
def test_a_name_means_one_worker_or_none(name: str, worker: str | None, rank: int | None) -> None:
    assert known().find(name) == (worker, rank)


def test_an_alias_means_its_worker_and_an_ambiguous_name_means_none() -> None:
    named = known("{aliases: {pod-2: ['7587870', '10.1.1.1:80'], ns/pod-1: ['10.1.1.2:80']}}")
    assert named.find("7587870") == ("pod-2", None)
    assert named.find("http://10.1.1.1:80") == ("pod-2", None)
    assert named.find("10.1.1.3:80") == (None, None)
    # An alias that is also the plain name of another known worker fits two.
    assert known("{aliases: {pod-2: ['ns/pod-1']}}").find("ns/pod-1") == (None, None)


@pytest.mark.parametrize(
    ("name", "worker", "rank"),
    [
        ("[fd00::1]:8000", "[fd00::1]:8000", None),
        ("http://[FD00:0:0::1]:8000/v1", "[fd00::1]:8000", None),
        ("fd00:0::1", "[fd00::1]:8000", None),
        ("[fd00::1]", "[fd00::1]:8000", None),
        ("[fd00::1]:8001", None, None),
        ("fd00::2", "FD00::2", None),
        ("[fd00::2]:8000", "FD00::2", None),
        ("[fd00::2]:8000-rank-1", "FD00::2", 1),
        ("fd00::3", None, None),
        ("fd00::", None, None),
        ("[fd00::3]:8001", "[fd00::3]:8001", None),
    ],
)
def test_an_ipv6_address_means_the_worker_that_lives_there(name: str, worker: str | None, rank: int | None) -> None:
    there = ("[fd00::1]:8000", "FD00::2", "[fd00::3]:8000", "[fd00::3]:8001")
    known = KnownWorkers([StreamId(one, 0) for one in there], {})
    assert known.find(name) == (worker, rank)


def test_the_operators_map_comes_before_what_a_resource_says() -> None:
    config = "{map: [{match: {service.name: a, zone: z1}, worker: pod-2, rank: 1}]}"
    resource = {"worker": "pod-1", "attributes": (("service.name", "a"), ("zone", "z1"))}
    resolved = workers(config).resolve(request(**resource), ledger(("pod-1", 0), ("pod-2", 0), ("pod-2", 1)))
    assert resolved.streams == (StreamId("pod-2", 1),)


def test_a_resource_that_names_two_workers_names_none() -> None:
    known = ledger(("pod-1", 0), ("10.0.0.7", 0))
    assert workers().resolve(request(pod_name="pod-1"), known).worker == "pod-1"
    assert workers().resolve(request(pod_name="pod-1", pod_ip="10.0.0.7"), known).gap is Reason.NO_WORKER


def test_an_engine_and_a_lookup_of_two_workers_are_nobodys() -> None:
    both = Request(
        engine=span(EngineRequest(prompt_tokens=1), worker="pod-1"),
        lookup=span(EngineRequest(prompt_tokens=1), worker="pod-2"),
    )
    assert workers().resolve(both, ledger(("pod-1", 0), ("pod-2", 0))).gap is Reason.NO_WORKER


def test_where_spans_name_nobody_the_routers_pick_does() -> None:
    known = ledger(("pod-1", 0), ("pod-2", 0), ("pod-2", 1))
    picked = request(RouteDecision(worker="pod-2-rank-1"))
    assert workers().resolve(picked, known).streams == (StreamId("pod-2", 1),)
    twice = request(RouteDecision(worker="pod-2"), RouteDecision(worker="pod-1"))
    assert workers().resolve(twice, known).gap is Reason.NO_WORKER


def test_all_ranks_of_a_worker_are_candidates_until_a_span_names_one() -> None:
    known = ledger(("pod-1", 0), ("pod-1", 1))
    assert len(workers().resolve(request(worker="pod-1"), known).streams) == 2
    assert workers().resolve(request(worker="pod-1", rank=1), known).streams == (StreamId("pod-1", 1),)
    assert workers().resolve(request(worker="pod-1", rank=7), known).gap is Reason.NO_EVENT_SOURCE


def test_a_sole_source_is_behind_all_spans_and_without_any_source_there_is_no_record() -> None:
    sole = Workers(WorkersConfig(sole_source=True))
    assert sole.resolve(request(), ledger(("any", 0))).worker == "any"
    assert sole.resolve(request(), ledger(("any", 0), ("other", 0))).gap is Reason.NO_WORKER
    assert workers().resolve(request(), ledger()).gap is Reason.NO_EVENT_SOURCE
    assert workers().resolve(request(worker="silent"), ledger(("any", 0))).gap is Reason.NO_EVENT_SOURCE
