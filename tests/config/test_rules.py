"""The rules between fields, and the forms of addresses."""

from __future__ import annotations

import pytest

from whymiss.config import Config, ExporterConfig, parse
from whymiss.config.dimensions import DIMENSIONS
from whymiss.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("join: {hold_seconds: 1}", "join.linger_seconds: is 2, which exceeds hold_seconds (1)"),
        ("receivers: {grpc: {endpoint: null}, http: {endpoint: null}}",
         "receivers.http.endpoint: is null like grpc.endpoint; one of them must listen"),
        ("receivers: {grpc: {endpoint: '127.0.0.1:4318'}}",
         "receivers.http.endpoint: is the same address as receivers.grpc.endpoint"),
        ("health: {endpoint: '127.0.0.1:8888'}", "health.endpoint: is the same address as telemetry.metrics_endpoint"),
        ("health: {endpoint: '127.0.0.1:70000'}", "health.endpoint: has a port above 65535"),
        ("exporters: {}", "exporters: must name at least one exporter"),
        ("exporters: {a: {endpoint: 'http://t:4317'}}",
         "exporters.a.insecure: must be true for an http:// endpoint; without it gRPC uses TLS"),
        ("exporters: {a: {endpoint: 't:4317', compression: zstd}}",
         "exporters.a.compression: is zstd, which gRPC's library does not have; take http/protobuf or gzip"),
        ("ledger: {bytes_max: 1GiB}\nmemory: {soft_limit_bytes: 1GiB}",
         "memory.soft_limit_bytes: must exceed ledger.bytes_max"),
        ("ledger: {bytes_max: 1GiB}\nmemory: {hard_limit_bytes: 1025MiB}",
         "memory.hard_limit_bytes: must not be below ledger.bytes_max and the largest request"),
        ("memory: {soft_limit_bytes: 3GiB, hard_limit_bytes: 2GiB}",
         "memory.soft_limit_bytes: must not exceed hard_limit_bytes"),
        ("exporters: {a: {endpoint: 'https://t:4317', insecure: true}}",
         "exporters.a.insecure: must be false for an https:// endpoint"),
        ("exporters: {a: {endpoint: 'http://t', protocol: http/protobuf, insecure: true}}",
         "exporters.a.insecure: is for grpc; with http/protobuf the endpoint's scheme decides"),
        ("exporters: {a: {endpoint: 'http://t:4318/v1/traces', protocol: http/protobuf}}",
         "exporters.a.endpoint: must not end in /v1/traces: whymiss adds it"),
        ("exporters: {a: {endpoint: 'http://t/otlp/v1/logs/', protocol: http/protobuf}}",
         "exporters.a.endpoint: must not end in /v1/logs/: whymiss adds it"),
        ("telemetry: {otlp_endpoint: 'http://t:4318/v1/metrics', otlp_protocol: http/protobuf}",
         "telemetry.otlp_endpoint: must not end in /v1/metrics: whymiss adds it"),
        ("exporters: {a: {endpoint: 't:4318', protocol: http/protobuf}}",
         "exporters.a.endpoint: must look like http://host:4318 or https://host:4318"),
        ("exporters: {a: {endpoint: 't:1', headers: {'a b': x}}}",
         "exporters.a.headers[0]: a header's name has letters, digits, '-', '_' and '.' only"),
        ("exporters: {a: {endpoint: '127.0.0.1:4317', insecure: true}}",
         "exporters.a.endpoint: is a receiver of this service: spans would go round"),
        ("exporters: {a: {endpoint: 't:1', queue_bytes_max: 32MiB}}",
         "exporters.a.queue_bytes_max: must not be below receivers.http.max_body_bytes"),
        ("exporters: {a: {endpoint: 't:1', queue_bytes_max: 1MiB}}",
         "exporters.a.queue_bytes_max: must not be below receivers.grpc.max_receive_bytes"),
        ("exporters: {a: {endpoint: 't:1', retry: {max_seconds: 100ms}}}",
         "exporters.a.retry.max_seconds: must not be below initial_seconds"),
        ("exporters: {a: {endpoint: 't:1', retry: {max_elapsed_seconds: 100ms}}}",
         "exporters.a.retry.max_elapsed_seconds: must be 0 (never give up) or not below initial_seconds"),
        ("ledger: {checkpoint_path: ' '}", "ledger.checkpoint_path: must not be empty"),
        ("spool: {directory: ' '}", "spool.directory: must not be empty; null is off"),
        ("spool: {bytes_max: 1MiB}", "spool.bytes_max: must not be below segment_bytes"),
        ("spool: {directory: d, bytes_max: 64MiB}", "spool.bytes_max: must exceed receivers.http.max_body_bytes"),
        ("spool: {directory: d, bytes_max: 4MiB, segment_bytes: 1MiB}",
         "spool.bytes_max: must exceed receivers.grpc.max_receive_bytes"),
        ("spool: {fsync: sometimes}", "spool.fsync: must be one of always, interval, never (line 1)"),
        ("kv_events: {sources: [{endpoint: 'engine:5557'}]}",
         "kv_events.sources[0].endpoint: must look like tcp://host:5557 or ipc:///path"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:5557', replay_endpoint: 'e:1'}]}",
         "kv_events.sources[0].replay_endpoint: must look like tcp://host:5557 or ipc:///path"),
        ("kv_events: {sources: [{endpoint: 'tcp://*:5557', bind: true, replay_endpoint: 'tcp://e:1'}]}",
         "kv_events.sources[0].replay_endpoint: needs worker: with bind, several publishers share one endpoint"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:5557', worker: ' '}]}", "kv_events.sources[0].worker: must not be empty"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:5557'}, {endpoint: 'tcp://e:5557'}]}",
         "kv_events.sources[1].endpoint: the same endpoint and topic as sources[0]"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:5557', ranks: 0}]}",
         "kv_events.sources[0].ranks: must be a whole number, at least 1 (line 1)"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:5557', ranks: 2, rank: 1}]}",
         "kv_events.sources[0].rank: has no use beside ranks: each rank has its own port"),
        ("kv_events: {sources: [{endpoint: 'ipc:///run/kv', ranks: 2}]}",
         "kv_events.sources[0].endpoint: must be tcp:// where ranks exceeds 1"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:1', replay_endpoint: 'ipc:///run/kv', ranks: 2}]}",
         "kv_events.sources[0].replay_endpoint: must be tcp:// where ranks exceeds 1"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:65535', ranks: 2}]}",
         "kv_events.sources[0].endpoint: has a port above 65535 for the last of the ranks"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:5557', ranks: 2}, {endpoint: 'tcp://e:5558'}]}",
         "kv_events.sources[1].endpoint: the same endpoint and topic as sources[0]"),
        ("kv_events: {sources: [{endpoint: 'tcp://e:1', default_worker: ''}]}",
         "kv_events.sources[0].default_worker: must not be empty"),
        ("kv_events: {discovery: [{}]}",
         "kv_events.discovery[0].dns: must be given, or else file: exactly one of them"),
        ("kv_events: {discovery: [{dns: 'e:1', file: f}]}",
         "kv_events.discovery[0].dns: must be given, or else file: exactly one of them"),
        ("kv_events: {discovery: [{dns: engines}]}", "kv_events.discovery[0].dns: must look like host:port"),
        ("kv_events: {discovery: [{dns: 'e:0'}]}",
         "kv_events.discovery[0].dns: must have a port from 1 to 65535 for each of the ranks"),
        ("kv_events: {discovery: [{dns: 'e:65535', ranks: 2}]}",
         "kv_events.discovery[0].dns: must have a port from 1 to 65535 for each of the ranks"),
        ("kv_events: {discovery: [{dns: 'e:1', replay_port: 65535, ranks: 2}]}",
         "kv_events.discovery[0].replay_port: must be a port from 1 to 65535 for each of the ranks"),
        ("kv_events: {discovery: [{dns: 'e:1', worker: ' '}]}", "kv_events.discovery[0].worker: must not be empty"),
        ("kv_events: {discovery: [{dns: 'e:1', refresh: 5}]}",
         "kv_events.discovery[0].refresh: unknown key; did you mean kv_events.discovery[0].refresh_seconds? (line 1)"),
        ("kv_events: {discovery: [{dns: 'e:1', refresh_seconds: 0}]}",
         "kv_events.discovery[0].refresh_seconds: must be a duration such as 5s, 200ms or 1.5 (seconds), above 0 (line 1)"),
        ("kv_events: {discovery: [{file: ' '}]}", "kv_events.discovery[0].file: must not be empty"),
        ("kv_events: {discovery: [{file: f, replay_port: 1}]}",
         "kv_events.discovery[0].replay_port: is for dns; with file it belongs in the file"),
        ("kv_events: {discovery: [{file: f, model: m}]}",
         "kv_events.discovery[0].model: is for dns; with file it belongs in the file"),
        ("workers: {map: [{match: {}, worker: a}]}", "workers.map[0].match: must name at least one resource attribute"),
        ("workers: {sole_source: a, map: [{match: {x: y}, worker: a}]}", "workers.map: has no use beside sole_source"),
        ("workers: {sole_source: ''}", "workers.sole_source: must not be empty"),
        ("workers: {sole_source: false}", "workers.sole_source: must be true, a worker's name or null"),
        ("workers: {sole_source: true}", "workers.sole_source: is true, but kv_events.sources is empty"),
        ("{workers: {sole_source: true}, kv_events: {sources: [{endpoint: 'tcp://e:1'}, {endpoint: 'tcp://f:1'}]}}",
         "workers.sole_source: must not be set: kv_events.sources are several workers"),
        ("{workers: {sole_source: a}, kv_events: {sources: [{endpoint: 'tcp://e:1', worker: b}]}}",
         "workers.sole_source: must not be set: kv_events.sources name another worker"),
        ("workers: {aliases: {a: [x], b: [x]}}", "workers.aliases.b: shares a name with aliases.a"),
        ("workers: {aliases: {a: [b], b: [x]}}", "workers.aliases.a: holds a name that is a worker of its own"),
        ("attribution: {match_unit: 17, block_size: 16}", "attribution.match_unit: must be a multiple of block_size"),
        ("redaction: {digest_key: short}", "redaction.digest_key: must have at least 16 characters"),
        ("redaction: {digest_key_id: ''}", "redaction.digest_key_id: must not be empty"),
        ("measures: {dimensions: [model, tenant]}", f"measures.dimensions[1]: must be one of {', '.join(DIMENSIONS)}"),
        ("measures: {dimensions: [model, model]}", "measures.dimensions: names a dimension twice"),
        ("telemetry: {otlp_endpoint: 'localhost:4318', otlp_protocol: http/protobuf}",
         "telemetry.otlp_endpoint: must look like http://host:4318 or https://host:4318"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_told_with_the_users_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, {})
    assert str(raised.value) == message


@pytest.mark.parametrize("endpoint", ["127.0.0.1:0", "[::1]:4317", "localhost:1", "0.0.0.0:65535", "pod-0.engine:80"])
def test_an_address_to_listen_on(endpoint: str) -> None:
    assert parse(f"health: {{endpoint: '{endpoint}'}}", {}).health.endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint", ["", "4317", ":4317", "localhost", "localhost:", "a b:1", "::1:4317", "http://a:1", "a:1/x", "u@a:1"]
)
def test_no_address_to_listen_on(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"health\.endpoint: must look like host:port"):
        parse(f"health: {{endpoint: '{endpoint}'}}", {})


def test_several_listeners_may_ask_for_a_free_port() -> None:
    parse("{health: {endpoint: 'a:0'}, telemetry: {metrics_endpoint: 'a:0'}}", {})


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [("t:4317", "t:4317"), ("https://t:4317", "t:4317"), ("[::1]:1", "[::1]:1"), ("https://[::1]:1", "[::1]:1")],
)
def test_target_is_host_and_port(endpoint: str, target: str) -> None:
    assert ExporterConfig(endpoint=endpoint).target == target


@pytest.mark.parametrize("endpoint", ["http://t", "https://t/otlp", "http://[::1]:4318/a/b", "http://t:4318"])
def test_an_address_for_http(endpoint: str) -> None:
    assert ExporterConfig(endpoint=endpoint, protocol="http/protobuf").endpoint == endpoint


@pytest.mark.parametrize("endpoint", ["http://user:password@t", "http://t?x=1", "http://t#x", "ftp://t", "http://"])
def test_no_address_for_http(endpoint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ExporterConfig(endpoint=endpoint, protocol="http/protobuf")
    assert raised.value.key == "endpoint"


def test_one_engine_of_several_ranks_may_be_the_sole_source() -> None:
    sources = "[{endpoint: 'tcp://e:1', worker: e, rank: 0}, {endpoint: 'tcp://e:2', worker: e, rank: 1}]"
    for sole in ("true", "e"):
        config = parse(f"{{workers: {{sole_source: {sole}}}, kv_events: {{sources: {sources}}}}}", {})
        assert config.workers.sole_source == (sole == "true" or sole)


def test_a_small_queue_suits_a_receiver_that_is_off() -> None:
    text = "{receivers: {http: {endpoint: null}}, exporters: {a: {endpoint: 't:1', queue_bytes_max: 4MiB}}}"
    assert parse(text, {}).exporters["a"].queue_bytes_max == 4 * 1024 * 1024


def test_the_default_sends_to_a_collector_beside_us() -> None:
    (exporter,) = Config.default().exporters.values()
    assert (exporter.protocol, exporter.endpoint, exporter.insecure) == ("grpc", "127.0.0.1:14317", True)


def test_a_discovered_engine_may_be_the_sole_source() -> None:
    config = parse("{workers: {sole_source: true}, kv_events: {discovery: [{dns: 'engines:5557'}]}}", {})
    assert config.workers.sole_source is True
