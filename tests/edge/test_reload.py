"""A new configuration while the service runs: what can change does, the rest is named, and a bad one changes nothing."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from tests.edge.cores import counted
from tests.edge.doors import call
from tests.edge.kv.test_service import pipeline_of, until, workers
from tests.edge.loops import looped
from tests.edge.publisher import Publisher, numbered
from tests.edge.sinks import GrpcSink, config_for
from tests.ledger.batches import payload, stored
from whymiss.config import Config, parse
from whymiss.edge.config_file import read
from whymiss.edge.reload import ReloadRequests, differences
from whymiss.edge.service import Service, serving
from whymiss.edge.telemetry import logs
from whymiss.errors import ConfigError

KEYS = ("a key of the operator", "another key of his")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    logs.configure("info")


def written(lines: io.StringIO, message: str) -> list[dict[str, str]]:
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line for line in found if line["message"] == message]


class Operator:
    """Changes the configuration, and has it read again."""

    def __init__(self, port: int, more: str) -> None:
        self._port = port
        self.more = more
        self.service: Service | None = None

    def read(self) -> Config:
        return config_for(self._port, more=self.more)

    async def changes(self, more: str, outcome: str = "ok") -> None:
        self.more = more
        assert self.service is not None
        measures = self.service.measures
        before = counted(measures, "whymiss.config.reloads", outcome=outcome)
        self.service.reload()
        await until(lambda: counted(measures, "whymiss.config.reloads", outcome=outcome) > before)


@asynccontextmanager
async def operated(sink: GrpcSink, more: str) -> AsyncIterator[tuple[Service, Operator]]:
    operator = Operator(sink.port, more)
    async with sink, serving(operator.read(), requests=ReloadRequests(operator.read)) as service:
        operator.service = service
        yield service, operator


def sources(*names: tuple[str, str]) -> str:
    listed = ", ".join(f"{{endpoint: '{endpoint}', worker: {worker}}}" for endpoint, worker in names)
    return f"kv_events: {{sources: [{listed}]}}"


def lookup(request: int) -> bytes:
    """A lookup that says which block it missed."""

    def attribute(key: str, value: str | int) -> KeyValue:
        said = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
        return KeyValue(key=f"prefix_cache.lookup.{key}", value=said)

    span = Span(name="prefix_cache.lookup", trace_id=request.to_bytes(16, "big"), span_id=request.to_bytes(8, "big"))
    span.flags = 1
    span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + 1000
    span.attributes.extend(
        [
            attribute("prompt_tokens", 64),
            attribute("cached_tokens", 16),
            attribute("block_size", 16),
            attribute("first_miss_key", "00000000000000aa"),
        ]
    )
    resource = ResourceSpans()
    resource.scope_spans.add().spans.append(span)
    return ExportTraceServiceRequest(resource_spans=[resource]).SerializeToString()


async def digest_of(service: Service, sink: GrpcSink, request: int) -> str:
    """The digest under which a service names the missed block."""
    await call(service.grpc_port, "traces", lookup(request))
    while True:
        spans = await sink.wait_for_spans(1)
        for span in spans:
            if span.span_id == request.to_bytes(8, "big"):
                return str(dict(span.attributes)["prefix_cache.first_miss.digest"])
        await sink.wait_for_spans(len(spans) + 1)


@looped
async def test_publishers_come_and_go_and_the_others_are_not_touched() -> None:
    async with Publisher() as one, Publisher() as two, Publisher() as three:
        both = sources((one.endpoint, "a"), (two.endpoint, "b"))
        async with operated(GrpcSink(), both) as (service, operator):
            await one.subscribed()
            await operator.changes(sources((one.endpoint, "a"), (three.endpoint, "c")))
            await three.subscribed()
            for publisher in (one, two, three):
                await publisher.send(b"", numbered(0), payload(stored()))
            await until(lambda: len(workers(service)) == 2)
            assert sorted(workers(service)) == [("a", 0), ("c", 0)]
            assert counted(service.measures, "whymiss.ledger.sources") == 2
            # One that was stopped and started again would have asked anew.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await one.subscribed()


def test_what_cannot_change_is_named_and_what_can_is_changed_beside_it(lines: io.StringIO) -> None:
    @looped
    async def play() -> None:
        async with Publisher() as publisher, operated(GrpcSink(), "") as (service, operator):
            await operator.changes(sources((publisher.endpoint, "a")) + "\nattribution: {block_size: 16}")
            await publisher.subscribed()
            assert counted(service.measures, "whymiss.config.reloads", outcome="failed") == 0
            # It still has not changed, so it is named again.
            await operator.changes(operator.more + "\nmeasures: {dimensions: [], series_max: 7}")

    play()
    named = [line["needs_a_restart"] for line in written(lines, "part of the new configuration needs a restart")]
    both = "attribution.block_size, measures.dimensions, measures.series_max"
    assert named == ["attribution.block_size", both]


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("redaction: {digest_key: short}", "redaction.digest_key"),
        ("kv_events: {sources: [{endpoint: 'tcp://secret:1', worekr: a}]}", "kv_events.sources[0].worekr"),
        # Each by itself is right; together with what a restart alone can change they are not.
        ("kv_events: {sources: [{endpoint: 'tcp://secret:1', worker: b}]}", "workers.sole_source"),
    ],
)
def test_a_bad_configuration_is_refused_by_its_key_and_the_old_one_stays(
    more: str, key: str, lines: io.StringIO
) -> None:
    @looped
    async def play() -> None:
        async with Publisher() as publisher:
            good = f"workers: {{sole_source: a}}\n{sources((publisher.endpoint, 'a'))}"
            async with operated(GrpcSink(), good) as (service, operator):
                await publisher.subscribed()
                await operator.changes(more, "failed")
                await publisher.send(b"", numbered(0), payload(stored()))
                await until(lambda: workers(service) == [("a", 0)])
                await operator.changes(good)

    play()
    (line,) = written(lines, "the new configuration is refused, the old one stays")
    assert key in line["error.message"]
    assert "secret" not in lines.getvalue()


@looped
async def test_replicas_with_one_key_give_one_digest_and_a_new_key_gives_another() -> None:
    here, there = GrpcSink(), GrpcSink()
    async with Publisher() as one, Publisher() as other:

        def keyed(publisher: Publisher, number: int) -> str:
            key = f"redaction: {{digest_key: '{KEYS[number]}', digest_key_id: '{number + 1}'}}"
            return f"{key}\nworkers: {{sole_source: a}}\n{sources((publisher.endpoint, 'a'))}"

        async with operated(here, keyed(one, 0)) as (first, operator), operated(there, keyed(other, 0)) as (second, _):
            for service, publisher in ((first, one), (second, other)):
                await publisher.subscribed()
                await publisher.send(b"", numbered(0), payload(stored(hashes=(9,))))
                await until(lambda service=service: workers(service) == [("a", 0)])  # type: ignore[misc]
            before = await digest_of(first, here, 1)
            assert before == await digest_of(second, there, 2)
            assert before.startswith("1:")
            await operator.changes(keyed(one, 1))
            after = await digest_of(first, here, 3)
            assert after.startswith("2:")
            assert after.partition(":")[2] != before.partition(":")[2]
            await operator.changes(keyed(one, 0))
            assert await digest_of(first, here, 4) == before


def test_a_mounted_key_is_read_with_the_configuration_and_never_printed(tmp_path: Path) -> None:
    file, key = tmp_path / "whymiss.yaml", tmp_path / "key"
    file.write_text(f"redaction: {{digest_key_file: '{key}'}}\n")
    for secret in KEYS:
        key.write_text(f"{secret}\n")
        found = read(file, {})
        assert found.redaction.digest_key is not None
        assert found.redaction.digest_key.reveal() == secret
        assert secret not in repr(found)
    key.write_text("short\n")
    with pytest.raises(ConfigError, match=r"digest_key_file: the key in the file must have at least 16 characters"):
        read(file, {})
    key.write_bytes(b"\xff\xfe" * 16)
    with pytest.raises(ConfigError, match=r"redaction\.digest_key_file: the file is not UTF-8"):
        read(file, {})
    key.unlink()
    with pytest.raises(ConfigError, match=r"redaction\.digest_key_file: the file cannot be read: No such file"):
        read(file, {})
    assert read(file, {}, keys=False).redaction.digest_key is None


def test_a_file_of_the_configuration_that_is_gone_is_told() -> None:
    with pytest.raises(ConfigError, match="gone: No such file or directory"):
        read(Path("gone"), {})


@looped
async def test_without_a_file_there_is_nothing_to_read_again() -> None:
    async with GrpcSink() as sink, serving(config_for(sink.port)) as service:
        service.reload()
        assert counted(service.measures, "whymiss.config.reloads") == 0
        assert pipeline_of(service).ledger.streams() == []


@looped
async def test_sighup_has_the_file_read_again(tmp_path: Path) -> None:
    file = tmp_path / "whymiss.yaml"
    settings = """
receivers: {grpc: {endpoint: null}, http: {endpoint: "127.0.0.1:0"}}
telemetry: {metrics_endpoint: null}
health: {endpoint: null}
"""
    file.write_text(settings)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "whymiss", "run", "--config", str(file), stderr=asyncio.subprocess.PIPE, env={**os.environ}
    )  # fmt: skip
    assert process.stderr is not None
    while b"running" not in await process.stderr.readline():
        pass
    async with Publisher() as publisher:
        file.write_text(settings + sources((publisher.endpoint, "a")))
        process.send_signal(signal.SIGHUP)
        await publisher.subscribed()
    file.write_text("recievers: {}")
    process.send_signal(signal.SIGHUP)
    while b"refused" not in (line := await process.stderr.readline()):
        pass
    assert b"recievers: unknown key; did you mean receivers?" in line
    process.terminate()
    assert await process.wait() == 0


TEXTS = st.sampled_from(
    [
        "",
        "redaction: {digest_key: 0123456789abcdef}",
        "redaction: {digest_key: 0123456789abcdeX}",
        "exporters: {a: {endpoint: 'a:1'}}",
        "exporters: {a: {endpoint: 'a:2'}, b: {endpoint: 'b:1', headers: {x: y}}}",
        "exporters: {b: {endpoint: 'b:1', headers: {x: z}}}",
        "kv_events: {sources: [{endpoint: 'tcp://a:1'}]}",
        "workers: {aliases: {a: [b]}}",
    ]
)


@given(TEXTS, TEXTS)
def test_there_are_differences_between_different_configurations_only(one: str, other: str) -> None:
    old, new = parse(one, {}), parse(other, {})
    found = list(differences(old, new))
    assert (found == []) == (old == new)
    assert sorted(found) == sorted(differences(new, old))
    assert "0123456789abcde" not in "".join(found)


def test_differences_are_named_by_the_keys_of_the_file() -> None:
    old = parse("exporters: {a: {endpoint: 'a:1'}}\nreceivers: {grpc: {endpoint: 'h:1'}}", {})
    new = parse("exporters: {a: {endpoint: 'a:2'}, b: {endpoint: 'b:1'}}\nreceivers: {grpc: {endpoint: 'h:2'}}", {})
    assert list(differences(old, new)) == ["receivers.grpc.endpoint", "exporters.a.endpoint", "exporters.b"]


@looped
async def test_the_page_for_humans_shows_the_configuration_in_force() -> None:
    async def shown(service: Service) -> Mapping[str, str]:
        url = f"http://127.0.0.1:{service.health_port}/status.json"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return {one["name"]: one["value"] for one in (await response.json())["settings"]}

    async def until_changed(service: Service) -> Mapping[str, str]:
        while (settings := await shown(service))["Digest key"].startswith("random"):
            pass  # the page is made once a second
        return settings

    sink = GrpcSink()
    async with operated(sink, "redaction: {sample_ratio: 0.25}") as (service, operator):
        assert (await shown(service))["Digests on"] == "25.0 % of sampled traces"
        await operator.changes(
            f"redaction: {{digest_key: {KEYS[0]}, digest_key_id: k2}}\nattribution: {{fleet_view: declared}}"
        )
        settings = await asyncio.wait_for(until_changed(service), 30)
    assert settings["Digest key"] == "configured, id k2"
    assert settings["Digests on"] == "100 % of sampled traces"
    assert settings["Fleet view"] == "complete", "what waits for a restart is not in force"
