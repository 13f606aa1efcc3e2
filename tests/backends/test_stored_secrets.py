"""What Jaeger and Prometheus hold, in their answers and on their disks: digests, and nothing that they are digests of."""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
import zmq
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.backends.programs import Program, eventually, free_ports, get, post, whymiss, yaml_of
from tests.pipeline.test_leaks import batch, spans, spellings

CHAIN = [hashlib.sha256(f"planted block {number}".encode()).digest() for number in range(3)]
TOKENS = [305_419_897 + number * 100_000_003 for number in range(4)]
SALT = "8c1f6a52-planted-salt-of-a-tenant"
PROMPT = "planted prompt: the patient of bed nine"
KEYS = ("the key of two replicas", "the key of two replicas", "the key after it was rotated")
KEY_IDS = ("0", "0", "2")
SAMPLED, UNSAMPLED = 0x301, 0x302
IDENTITIES = {
    "prefix_cache.first_miss.digest",
    "prefix_cache.last_hit.digest",
    "prefix_cache.holders.workers",
    "prefix_cache.route.chosen",
    "cache_salt",
}

pytestmark = pytest.mark.server("jaeger", "prometheus")


def planted(trace: int, flags: int, url: str) -> bytes:
    """A request of an engine, a probe, an offload tier and a stranger, with secrets wherever they could be."""
    request = ExportTraceServiceRequest.FromString(spans(CHAIN, SALT, f"cmpl-planted-{trace}"))
    for scope in ("lmcache.trace.otel", "somebody"):
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = "engine"
        inner = group.scope_spans.add()
        inner.scope.name = scope
        span = inner.spans.add(name="lookup", span_id=(scope.encode() * 8)[-8:])
        span.attributes.add(key="cache_salt").value.string_value = SALT
        span.attributes.add(key="input.value").value.string_value = PROMPT
        span.events.add(name="lookup").attributes.add(key="cache_salt").value.string_value = SALT
    now = time.time_ns()
    for group in request.resource_spans:
        for span in (span for scope in group.scope_spans for span in scope.spans):
            span.trace_id, span.flags = trace.to_bytes(16, "big"), flags
            span.start_time_unix_nano, span.end_time_unix_nano = now - 1_000_000_000, now
    body = request.SerializeToString()
    post(url, body)
    return body


def written(folder: Path) -> bytes:
    """All bytes in the files below a folder, without the holes of what is only reserved."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            at = 0
            while at < end:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:  # nothing but a hole is left
                    break
                until = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                found.append(os.pread(file.fileno(), until - at, at))
                at = until
    return b"".join(found)


class Store:
    """Three whymiss into one Jaeger with a disk; Prometheus beside them, with a disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = zmq.Context()
        self._publisher = self._context.socket(zmq.XPUB)
        self._publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        events = self._publisher.bind_to_random_port("tcp://127.0.0.1")
        self.jaeger, jaeger_otlp, self.prometheus, *ports = free_ports(15)
        replicas = [ports[at : at + 4] for at in range(0, 12, 4)]
        self.urls = [f"http://127.0.0.1:{one[0]}/v1/traces" for one in replicas]
        self._programs = [self._jaeger(jaeger_otlp)]
        for number, (http, grpc, metrics, health) in enumerate(replicas):
            config = {
                "receivers": {"grpc": {"endpoint": f"127.0.0.1:{grpc}"}, "http": {"endpoint": f"127.0.0.1:{http}"}},
                "exporters": {"jaeger": {"endpoint": f"127.0.0.1:{jaeger_otlp}", "insecure": True}},
                "join": {"hold_seconds": 3, "linger_seconds": 0.5},
                "kv_events": {"sources": [{"endpoint": f"tcp://127.0.0.1:{events}"}]},
                "workers": {"sole_source": True},
                "redaction": {
                    "digest_key": KEYS[number],
                    "digest_key_id": KEY_IDS[number],
                    "drop_attributes": ["input.*"],
                },
                "telemetry": {"metrics_endpoint": f"127.0.0.1:{metrics}"},
                "health": {"endpoint": f"127.0.0.1:{health}"},
            }
            file = folder / f"whymiss-{number}.yaml"
            file.write_text(yaml.safe_dump(config), encoding="utf-8")
            self._programs.append(whymiss(folder, f"whymiss-{number}", str(file), {}, health))
        self._programs.append(self._prometheus([one[2] for one in replicas]))

    def _jaeger(self, otlp: int) -> Program:
        config = yaml_of("deploy/compose/jaeger.yaml")
        directories = {"keys": str(self._folder / "badger/keys"), "values": str(self._folder / "badger/values")}
        disk = {"badger": {"ephemeral": False, "directories": directories}}
        config["extensions"]["jaeger_storage"]["backends"] = {"memory": disk}
        query = config["extensions"]["jaeger_query"]
        del query["ui"]
        query["http"]["endpoint"], query["grpc"]["endpoint"] = f"127.0.0.1:{self.jaeger}", "127.0.0.1:0"
        config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = f"127.0.0.1:{otlp}"
        file = self._folder / "jaeger.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        ready = f"http://127.0.0.1:{self.jaeger}/api/services"
        quiet = {"OTEL_TRACES_SAMPLER": "always_off"}
        return Program(self._folder / "jaeger.log", "jaeger", "--config", str(file), ready=ready, environ=quiet)

    def _prometheus(self, metrics: Sequence[int]) -> Program:
        scrape = {
            "job_name": "whymiss",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in metrics]}],
        }
        file = self._folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump({"scrape_configs": [scrape]}), encoding="utf-8")
        command = (
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={self._folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
            "--enable-feature=exemplar-storage",
            # What is compressed cannot be searched.
            "--no-storage.tsdb.wal-compression",
        )
        return Program(self._folder / "prometheus.log", *command, ready=f"http://127.0.0.1:{self.prometheus}/-/ready")

    def __enter__(self) -> Store:  # noqa: PYI034 - nobody derives from it
        with ExitStack() as stack:
            stack.callback(self._context.term)
            stack.callback(self._publisher.close, 0)
            for program in self._programs:
                stack.enter_context(program)
            for _ in self.urls:
                assert self._publisher.poll(30_000), "whymiss did not subscribe"
                self._publisher.recv()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def publish(self) -> None:
        """The planted blocks, in two steps of an engine."""
        for number in range(2):
            payload = batch(CHAIN, TOKENS, SALT, time.time())
            self._publisher.send_multipart([b"kv@engine@m", number.to_bytes(8, "big"), payload])

    def trace(self, number: int) -> list[dict[str, Any]] | None:
        """The spans of a trace, each as its tags, once all of them are there."""
        answer = get(f"http://127.0.0.1:{self.jaeger}/api/traces/{number:032x}") or {}
        found = [span for one in answer.get("data") or [] for span in one["spans"]]
        return found if len(found) == SPANS else None

    def answers(self) -> bytes:
        """Everything that the two can be asked for."""
        prometheus = f"http://127.0.0.1:{self.prometheus}/api/v1"
        window = f"start={time.time() - 600}&end={time.time() + 600}"
        everything = "%7B__name__%3D~%22.%2B%22%7D"
        asked = [
            f"http://127.0.0.1:{self.jaeger}/api/services",
            *(f"http://127.0.0.1:{self.jaeger}/api/traces/{number:032x}" for number in TRACES),
            f"{prometheus}/series?match[]={everything}",
            f"{prometheus}/query?query={everything}",
            f"{prometheus}/query_exemplars?query={everything}&{window}",
            f"{prometheus}/metadata",
            f"{prometheus}/targets",
        ]
        found = []
        for url in asked:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found.append(answer.read())
        return b"\n".join(found)


class Stored(msgspec.Struct, kw_only=True):
    """What was held at the end."""

    traces: dict[int, list[dict[str, Any]]]
    answers: bytes
    badger: bytes
    tsdb: bytes
    sent: bytes


TRACES = (1, 2, 3, 4)
"""To the first replica, the second, the one with another key, and, unsampled, the first."""
SPANS = 5


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("stored")
    with Store(folder) as store:
        store.publish()
        sent = b""
        for number, url in zip(TRACES, (*store.urls, store.urls[0]), strict=True):
            sent += planted(number, UNSAMPLED if number == 4 else SAMPLED, url)
        traces = {}
        for number in TRACES:
            traces[number] = eventually("a trace in Jaeger", partial(store.trace, number))

        def scraped() -> bytes | None:
            answers = store.answers()
            return answers if b'"prefix_cache_requests_total"' in answers else None

        answers = eventually("the requests in Prometheus", scraped)
        yield Stored(
            traces=traces,
            answers=answers,
            badger=written(folder / "badger"),
            tsdb=written(folder / "tsdb"),
            sent=sent,
        )


def forms(secret: bytes | str | int) -> list[bytes]:
    """A secret as text, as bytes and as numbers on disks are."""
    more = []
    if isinstance(secret, int):
        more = [secret.to_bytes(8, "big"), secret.to_bytes(8, "little")]
    return [*spellings(secret), *more]


def test_what_was_searched_is_what_was_stored(stored: Stored) -> None:
    assert SALT.encode() in stored.sent
    assert PROMPT.encode() in stored.sent
    assert CHAIN[0].hex().encode() in stored.sent
    for number in TRACES:
        assert f"cmpl-planted-{number}".encode() in stored.badger
    assert b"prefix_cache_requests_total" in stored.tsdb
    assert b"prefix_cache_requests_total" in stored.answers


@pytest.mark.parametrize("secret", [*CHAIN, *TOKENS, SALT, PROMPT, *KEYS[1:]], ids=lambda one: type(one).__name__)
def test_no_planted_secret_is_stored(stored: Stored, secret: bytes | str | int) -> None:
    for form in forms(secret):
        assert form not in stored.answers
        assert form not in stored.badger
        assert form not in stored.tsdb


def tags(stored: Stored, number: int) -> list[dict[str, Any]]:
    return [{tag["key"]: tag["value"] for tag in span["tags"]} for span in stored.traces[number]]


def digests(stored: Stored, number: int) -> set[str]:
    """The digests of the first missed block on the spans of a trace."""
    name = "prefix_cache.first_miss.digest"
    return {one[name] for one in tags(stored, number) if name in one}


def test_an_unsampled_trace_has_its_cause_and_no_digest(stored: Stored) -> None:
    seen = tags(stored, 4)
    assert any("prefix_cache.miss.cause" in one for one in seen)
    assert not [name for one in seen for name in one if name in IDENTITIES]


def test_a_block_has_one_digest_on_all_replicas_and_another_under_another_key(stored: Stored) -> None:
    (one,), (other,), (rotated,) = (digests(stored, number) for number in (1, 2, 3))
    assert one == other
    assert len(one) == 16
    assert rotated.startswith("2:")
    assert rotated != f"2:{one}"


def test_a_salt_is_one_digest_on_spans_of_anyone(stored: Stored) -> None:
    salts = {number: {one["cache_salt"] for one in tags(stored, number) if "cache_salt" in one} for number in (1, 2, 3)}
    assert len(salts[1]) == 1
    assert salts[1] == salts[2] != salts[3]
    assert sum("cache_salt" in one for one in tags(stored, 1)) == 2
    assert "cache_salt" not in json.dumps([span["logs"] for span in stored.traces[1]])
