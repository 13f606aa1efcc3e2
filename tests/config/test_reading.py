"""From a file's text to the frozen tree; what is wrong is named by the user's key and never repeated."""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from whymiss.config import Config, KvSourceConfig, Secret, WorkerRuleConfig, parse, render
from whymiss.config.text import HIDDEN
from whymiss.errors import ConfigError

FULL = """
receivers:
  grpc: {endpoint: "0.0.0.0:4317", max_receive_bytes: 8MiB}
  http: {endpoint: null, max_body_bytes: 20MiB}
exporters:
  tempo:
    protocol: http/protobuf
    endpoint: https://tempo.example/otlp
    headers: {authorization: "Bearer ${env:TOKEN}"}
    compression: none
    timeout_seconds: 2s
    queue_requests_max: 10
    queue_bytes_max: 64MB
    retry: {initial_seconds: 100ms, max_seconds: 1s, max_elapsed_seconds: 0}
  beside:
    endpoint: localhost:14317
    insecure: true
join: {hold_seconds: 3, linger_seconds: 500ms, open_spans_max: 7, open_bytes_max: 1KiB, remembered_max: 0, remembered_seconds: 0}
kv_events:
  sources:
  - {endpoint: "tcp://engine-0:5557", worker: engine-0, rank: 0, replay_endpoint: "tcp://engine-0:5558", kv_connector: true}
  - {endpoint: "tcp://*:5560", bind: true, topic: kv@, model: m, hash_family: sha256}
  - {endpoint: "tcp://engine-1:5557", ranks: 2, default_worker: engine-1}
  discovery:
  - {dns: "engines:5557", refresh_seconds: 30s, replay_port: 5558, ranks: 2, topic: kv@, worker: w, model: m, kv_connector: true, hash_family: h}
  - {file: /etc/whymiss/engines.yaml}
  silence_seconds: 2m
ledger: {window_seconds: 2h, bytes_max: 4GiB, token_digests: false}
workers:
  map:
  - {match: {k8s.pod.name: engine-0}, worker: engine-0, rank: 1}
  aliases: {engine-0: ["10.0.0.7:8000", 10.0.0.7]}
attribution:
  fleet_view: declared
  clock_tolerance_seconds: 10ms
  index_lag_seconds: 0
  match_unit: 544
  block_size: 16
  decode_step_seconds_max: 5
redaction:
  digest_key: ${env:DIGEST_KEY}
  digest_key_id: 7
  unknown_sampling: treat_as_unsampled
  drop_attributes: [user.id]
measures: {dimensions: [model, route], values_max: 3, series_max: 9}
telemetry:
  metrics_endpoint: "[::]:8888"
  otlp_endpoint: http://localhost:4317
  otlp_protocol: grpc
  otlp_interval_seconds: 15
  log_level: debug
health: {endpoint: "0.0.0.0:13133"}
shutdown: {deadline_seconds: 45}
"""
ENVIRON = {"TOKEN": "t0k3n", "DIGEST_KEY": "0123456789abcdef"}


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        parse(text, ENVIRON)
    return raised.value


def paths(tree: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value, sections and scalars."""
    yield above
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from paths(item, (*above, key))
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from paths(item, (*above, index))


def value_at(tree: object, path: tuple[str | int, ...]) -> object:
    for step in path:
        assert isinstance(tree, dict | list)
        tree = tree[step]  # type: ignore[index]  # a path comes from the tree itself
    return tree


def dotted(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


TREE = yaml.safe_load(FULL)
OPEN = {"match", "aliases", "headers", "exporters"}  # their keys are the user's own
SECTIONS = [path for path in paths(TREE) if isinstance(value_at(TREE, path), dict) and not (path and path[-1] in OPEN)]
KEYS = set(re.findall(r"\w+", render(parse(FULL, ENVIRON))))
SCALARS = [path for path in paths(TREE) if not isinstance(value_at(TREE, path), dict | list)]


def test_a_full_file_is_read() -> None:
    config = parse(FULL, ENVIRON)
    assert config.receivers.grpc.max_receive_bytes == 8 * 1024 * 1024
    assert config.receivers.http.endpoint is None
    assert list(config.exporters) == ["tempo", "beside"]
    tempo = config.exporters["tempo"]
    assert tempo.headers["authorization"].reveal() == "Bearer t0k3n"
    assert (tempo.retry.initial_seconds, tempo.retry.max_elapsed_seconds) == (0.1, 0.0)
    assert (config.join.hold_seconds, config.join.linger_seconds) == (3.0, 0.5)
    assert config.kv_events.sources[1] == KvSourceConfig(
        endpoint="tcp://*:5560", bind=True, topic="kv@", model="m", hash_family="sha256"
    )
    assert config.kv_events.silence_seconds == 120.0
    assert config.workers.map == (WorkerRuleConfig(match={"k8s.pod.name": "engine-0"}, worker="engine-0", rank=1),)
    assert config.workers.aliases == {"engine-0": ("10.0.0.7:8000", "10.0.0.7")}
    assert config.redaction.digest_key == Secret("0123456789abcdef")
    assert config.redaction.digest_key_id == "7"
    assert config.measures.dimensions == ("model", "route")
    assert config.telemetry.log_level == "debug"


@pytest.mark.parametrize(
    "text", ["", "join:\n", "join: {}\n", "receivers: {grpc: }\nexporters:\n", "kv_events: {sources: }\n"]
)
def test_what_is_left_out_is_default(text: str) -> None:
    assert parse(text, {}) == Config.default()


def test_a_rendered_configuration_means_the_same() -> None:
    config = parse(FULL.replace("${env:", "0123456789abcdef ${env:").replace("digest_key:", "# "), ENVIRON)
    hidden = parse(render(config), {})
    assert [*hidden.exporters["tempo"].headers.values()] == [Secret("[REDACTED]")]
    assert render(hidden) == render(config)
    assert parse(render(Config.default()), {}) == Config.default()


def test_secrets_print_nowhere() -> None:
    config = parse(FULL, ENVIRON)
    for printed in (repr(config), str(config), render(config), f"{config.redaction.digest_key}"):
        assert "t0k3n" not in printed
        assert "0123456789abcdef" not in printed


def test_secrets_are_equal_by_what_they_hide() -> None:
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_a_hidden_secret_is_no_key() -> None:
    assert refusal(render(parse(FULL, ENVIRON))).key == "redaction.digest_key"


@given(st.sampled_from(SECTIONS), st.text(alphabet=string.ascii_lowercase + "_", min_size=1))
def test_an_unknown_key_is_named_at_any_depth(section: tuple[str | int, ...], name: str) -> None:
    tree = yaml.safe_load(FULL)
    target = value_at(tree, section)
    assert isinstance(target, dict)
    assume(name not in KEYS)
    target[name] = 1
    error = refusal(yaml.safe_dump(tree))
    # A long name that is near no key might be a secret.
    hidden = {dotted((*section, HIDDEN))} if len(name) > 15 else set()
    assert error.key in {dotted((*section, name)), *hidden}
    assert "unknown key" in error.problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("join: {hold_second: 1}", "join.hold_second: unknown key; did you mean join.hold_seconds? (line 1)"),
        ("\nfoo: 1", "foo: unknown key; known here: attribution, exporters, health, join, kv_events, ledger, measures, memory, receivers, redaction, references, shutdown, spool, telemetry, workers (line 2)"),
        ("jion: 1", "jion: unknown key; did you mean join? (line 1)"),
        ("exporters: {a: {}}", "exporters.a.endpoint: must be given (line 1)"),
        ("exporters:\n  a:\n", "exporters.a.endpoint: must be given (line 2)"),
        ("kv_events: {sources: [{}]}", "kv_events.sources[0].endpoint: must be given (line 1)"),
        ("join: 1", "join: must hold keys of its own (line 1)"),
        ("exporters: [1]", "exporters: must be a mapping (line 1)"),
        ("kv_events: {sources: {a: 1}}", "kv_events.sources: must be a list (line 1)"),
        ("join: {hold_seconds: [1]}", "join.hold_seconds: must be a single value (line 1)"),
        ("join: {hold_seconds: }", "join.hold_seconds: must not be null (line 1)"),
        ("join: {hold_seconds: soon}", "join.hold_seconds: must be a duration such as 5s, 200ms or 1.5 (seconds), at least 0 (line 1)"),
        ("join: {hold_seconds: -1}", "join.hold_seconds: must be a duration such as 5s, 200ms or 1.5 (seconds), at least 0 (line 1)"),
        ("ledger: {window_seconds: 0}", "ledger.window_seconds: must be a duration such as 5s, 200ms or 1.5 (seconds), above 0 (line 1)"),
        ("ledger: {bytes_max: 1gb}", "ledger.bytes_max: must be a size such as 64MiB or 4096 (bytes), at least 1 (line 1)"),
        ("ledger: {bytes_max: 0}", "ledger.bytes_max: must be a size such as 64MiB or 4096 (bytes), at least 1 (line 1)"),
        ("ledger: {checkpoint_seconds: 0}", "ledger.checkpoint_seconds: must be a duration such as 5s, 200ms or 1.5 (seconds), above 0 (line 1)"),
        ("ledger: {token_digests: maybe}", "ledger.token_digests: must be true or false (line 1)"),
        ("measures: {values_max: 1.5}", "measures.values_max: must be a whole number, at least 1 (line 1)"),
        ("attribution: {block_size: 0}", "attribution.block_size: must be a whole number, at least 1 (line 1)"),
        ("attribution: {fleet_view: partial}", "attribution.fleet_view: must be one of complete, declared (line 1)"),
        ("redaction: {drop_attributes: [null]}", "redaction.drop_attributes[0]: must not be null (line 1)"),
        ("exporters: {a: {headers: {x: }}}", "exporters.a.headers.x: must not be null (line 1)"),
        ("redaction: {digest_key: '${env:GONE}'}",
         "redaction.digest_key: the environment has no GONE; set it, or write ${env:GONE:-default} (line 1)"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_key_and_line(text: str, message: str) -> None:
    assert str(refusal(text)) == message


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "'true'"])
def test_a_truth_may_be_large_or_quoted(word: str) -> None:
    assert parse(f"ledger: {{token_digests: {word}}}", {}).ledger.token_digests is True


def test_a_variable_may_hold_any_kind_of_value() -> None:
    text = "{join: {hold_seconds: '${env:A}'}, ledger: {token_digests: '${env:B}', bytes_max: '${env:C}'}}"
    config = parse(text, {"A": "20s", "B": "false", "C": "2GiB"})
    assert (config.join.hold_seconds, config.ledger.token_digests, config.ledger.bytes_max) == (
        20.0,
        False,
        2 * 1024**3,
    )


def test_an_empty_variable_switches_nothing_off() -> None:
    with pytest.raises(ConfigError, match=r"receivers\.grpc\.endpoint: must look like host:port"):
        parse("receivers: {grpc: {endpoint: '${env:EMPTY}'}}", {"EMPTY": ""})
    with pytest.raises(ConfigError, match=r"redaction\.digest_key: must have at least 16 characters"):
        parse("redaction: {digest_key: '${env:EMPTY}'}", {"EMPTY": ""})


@given(
    st.text(min_size=1).filter(
        lambda text: text.strip() and text.isprintable() and text not in {"~", "null", "Null", "NULL"}
    )
)
def test_a_variable_reaches_a_text_field_untouched(value: str) -> None:
    assert parse("redaction: {digest_key_id: '${env:A}'}", {"A": value}).redaction.digest_key_id == value


@given(st.sampled_from(SCALARS), st.text(min_size=4, max_size=40))
def test_no_value_is_repeated_in_an_error(path: tuple[str | int, ...], noise: str) -> None:
    marker = f"<{noise}>"
    tree = yaml.safe_load(FULL)
    above = value_at(tree, path[:-1])
    above[path[-1]] = "${env:PLANTED}"  # type: ignore[index]  # a path comes from the tree itself
    with contextlib.suppress(ConfigError):
        parse(yaml.safe_dump(tree), {**ENVIRON, "PLANTED": marker})
        return
    with pytest.raises(ConfigError) as raised:
        parse(yaml.safe_dump(tree), {**ENVIRON, "PLANTED": marker})
    assert marker not in str(raised.value)


@given(
    st.sampled_from(SCALARS),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([]) | st.just({}),
)
def test_any_value_anywhere_is_read_or_refused_by_its_key(path: tuple[str | int, ...], value: object) -> None:
    tree = yaml.safe_load(FULL)
    above = value_at(tree, path[:-1])
    above[path[-1]] = value  # type: ignore[index]  # a path comes from the tree itself
    with contextlib.suppress(ConfigError):
        assert isinstance(parse(yaml.safe_dump(tree), ENVIRON), Config)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text, {})
