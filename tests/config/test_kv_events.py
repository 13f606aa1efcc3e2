"""From what the file names to one source a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.config import KvDiscoveryConfig, KvSourceConfig, expand, parse, parse_sources, sources_at
from whymiss.errors import ConfigError

hosts = st.sampled_from(["engine-0", "10.0.0.7", "[fd00::7]", "*"])


def test_each_rank_has_its_own_ports_and_all_are_one_worker() -> None:
    source = KvSourceConfig(endpoint="tcp://e:5557", replay_endpoint="tcp://e:6000", ranks=3, model="m")
    assert [
        (one.endpoint, one.replay_endpoint, one.rank, one.default_worker, one.model) for one in expand([source])
    ] == [
        ("tcp://e:5557", "tcp://e:6000", 0, "e:5557", "m"),
        ("tcp://e:5558", "tcp://e:6001", 1, "e:5557", "m"),
        ("tcp://e:5559", "tcp://e:6002", 2, "e:5557", "m"),
    ]


def test_a_source_of_one_rank_stays_as_it_is() -> None:
    source = KvSourceConfig(endpoint="ipc:///run/kv", rank=4)
    assert expand([source]) == (source,)


@given(hosts, st.integers(1, 60_000), st.integers(1, 64), st.integers(1, 60_000) | st.none())
def test_expanding_twice_is_expanding_once(host: str, port: int, ranks: int, replay: int | None) -> None:
    source = KvSourceConfig(
        endpoint=f"tcp://{host}:{port}",
        replay_endpoint=None if replay is None else f"tcp://{host}:{replay}",
        ranks=ranks,
        worker="w",
    )
    sources = expand([source])
    assert expand(sources) == sources
    assert len({one.endpoint for one in sources}) == ranks
    assert {one.ranks for one in sources} == {1}


def test_each_address_behind_a_name_is_a_source_once() -> None:
    config = KvDiscoveryConfig(dns="engines:5557", replay_port=5558, topic="kv@", model="m", kv_connector=True)
    assert sources_at(config, ["fd00::7", "10.0.0.7", "fd00::7"]) == (
        KvSourceConfig(
            endpoint="tcp://10.0.0.7:5557",
            replay_endpoint="tcp://10.0.0.7:5558",
            default_worker="10.0.0.7",
            topic="kv@",
            model="m",
            kv_connector=True,
        ),
        KvSourceConfig(
            endpoint="tcp://[fd00::7]:5557",
            replay_endpoint="tcp://[fd00::7]:5558",
            default_worker="fd00::7",
            topic="kv@",
            model="m",
            kv_connector=True,
        ),
    )


def test_the_ranks_behind_an_address_are_one_worker() -> None:
    sources = sources_at(KvDiscoveryConfig(dns="engines:5557", ranks=2), ["10.0.0.7"])
    assert [(one.endpoint, one.rank, one.default_worker) for one in sources] == [
        ("tcp://10.0.0.7:5557", 0, "10.0.0.7"),
        ("tcp://10.0.0.7:5558", 1, "10.0.0.7"),
    ]


@pytest.mark.parametrize(("dns", "name"), [("engines:5557", "engines"), ("[fd00::7]:5557", "fd00::7")])
def test_a_name_is_told_from_its_port(dns: str, name: str) -> None:
    config = KvDiscoveryConfig(dns=dns)
    assert (config.name, config.port) == (name, 5557)


def test_discovery_is_read_with_its_template() -> None:
    text = """
kv_events:
  discovery:
  - {dns: "engines:5557", refresh_seconds: 30, replay_port: 5558, ranks: 2, worker: w, hash_family: h}
  - {file: /etc/whymiss/engines.yaml}
"""
    named, listed = parse(text, {}).kv_events.discovery
    assert named == KvDiscoveryConfig(
        dns="engines:5557", refresh_seconds=30.0, replay_port=5558, ranks=2, worker="w", hash_family="h"
    )
    assert (listed.name, listed.refresh_seconds) == ("/etc/whymiss/engines.yaml", 5.0)


def test_a_list_of_publishers_is_read() -> None:
    text = '- {endpoint: "tcp://${env:HOST}:1", rank: 0}\n- endpoint: ipc:///run/kv\n'
    assert parse_sources(text, {"HOST": "e"}) == (
        KvSourceConfig(endpoint="tcp://e:1", rank=0),
        KvSourceConfig(endpoint="ipc:///run/kv"),
    )
    assert parse_sources("[]", {}) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file must be a list of publishers; [] is none (line 1)"),
        ("sources: []", "the file must be a list of publishers; [] is none (line 1)"),
        ("[{endpoint: 'e:1'}]", "[0].endpoint: must look like tcp://host:5557 or ipc:///path"),
        ("- endpoint: tcp://e:1\n  wroker: x", "[0].wroker: unknown key; did you mean [0].worker? (line 2)"),
        ("- worker: x", "[0].endpoint: must be given (line 1)"),
        ("- tcp://e:1", "[0]: must hold keys of its own (line 1)"),
        ("[{endpoint: 'tcp://e:1'}, {endpoint: 'tcp://e:1'}]",
         "[1].endpoint: the same endpoint and topic as [0]"),
    ],
)  # fmt: skip
def test_a_broken_list_is_told_with_the_users_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_sources(text, {})
    assert str(raised.value) == message


def test_a_list_that_is_no_yaml_is_told_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"not YAML: .* \(line 2\)"):
        parse_sources("- [\n", {})


SAME = "is sources[0]'s too: name each worker, or give each its rank"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("worker: a", "worker: a", f"kv_events.sources[1].worker: {SAME}"),
        ("worker: a, rank: 0", "worker: a", f"kv_events.sources[1].worker: {SAME}"),
        ("worker: a", "worker: a, rank: 1", f"kv_events.sources[1].worker: {SAME}"),
        ("worker: a, rank: 1", "worker: a, rank: 1", f"kv_events.sources[1].worker: {SAME}"),
        ("worker: a, ranks: 2", "worker: a, rank: 1", f"kv_events.sources[1].worker: {SAME}"),
        ("default_worker: a", "default_worker: a", f"kv_events.sources[1].default_worker: {SAME}"),
    ],
)
def test_two_publishers_of_one_name_are_refused(first: str, second: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(two(first, second), {})
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("worker: a", "worker: b"),
        ("worker: a, rank: 0", "worker: a, rank: 1"),
        ("worker: a, ranks: 2", "worker: a, rank: 2"),
        ("worker: a, default_worker: c", "worker: b, default_worker: c"),
        ("topic: x", "topic: y"),
    ],
)
def test_publishers_that_can_be_told_apart_are_taken(first: str, second: str) -> None:
    assert len(parse(two(first, second), {}).kv_events.sources) == 2


def two(first: str, second: str) -> str:
    return f"kv_events: {{sources: [{{endpoint: 'tcp://e:5557', {first}}}, {{endpoint: 'tcp://f:6557', {second}}}]}}"
