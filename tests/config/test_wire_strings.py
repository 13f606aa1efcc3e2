"""Texts that go on a wire are refused when the file is read, with their key, and no error repeats a secret."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.config import parse
from whymiss.errors import ConfigError

SECRET = "9f3c5e0a7b1d2c43-Zq"


def exporter(header: str, protocol: str = "grpc", name: str = "authorization") -> str:
    endpoint = "127.0.0.1:1" if protocol == "grpc" else "http://127.0.0.1:1"
    insecure = "true" if protocol == "grpc" else "false"
    settings = f"protocol: {protocol}, endpoint: '{endpoint}', insecure: {insecure}"
    return f"exporters: {{a: {{{settings}, headers: {{{name}: '{header}'}}}}}}"


def refusal(text: str, environ: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        parse(text, environ or {})
    return raised.value


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_mounted_secret_may_end_in_one_line_end(protocol: str, end: str) -> None:
    config = parse(exporter("${env:TOKEN}", protocol), {"TOKEN": f"Bearer {SECRET}{end}"})
    assert config.exporters["a"].headers["authorization"].reveal() == f"Bearer {SECRET}"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("inner", ["\n", "\r", "\x00", "\t", "\x7f", "é", "\u0416", "\u200b", "\ud800"])
def test_a_header_that_no_transport_can_carry_is_refused_with_its_key(protocol: str, inner: str) -> None:
    error = refusal(exporter("${env:TOKEN}", protocol), {"TOKEN": f"Bearer {inner}{SECRET}"})
    assert error.key == "exporters.a.headers.authorization"
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("name", "protocol", "is_refused"),
    [
        ("content-length", "http/protobuf", True),
        ("Transfer-Encoding", "http/protobuf", True),
        ("grpc-timeout", "grpc", True),
        ("grpc-timeout", "http/protobuf", False),
        ("x-key-bin", "grpc", True),
        ("x-key-bin", "http/protobuf", False),
        ("x-api-key", "grpc", False),
    ],
)
def test_a_header_that_the_transport_writes_itself_is_refused(name: str, protocol: str, is_refused: bool) -> None:
    text = exporter("v", protocol, name)
    if is_refused:
        assert refusal(text).key == f"exporters.a.headers.{name}"
    else:
        assert parse(text, {}).exporters["a"].headers[name].reveal() == "v"


@given(st.text(max_size=20))
def test_every_header_that_is_taken_is_printable_ascii(value: str) -> None:
    taken = ""
    with contextlib.suppress(ConfigError):
        taken = parse(exporter("${env:TOKEN}"), {"TOKEN": value}).exporters["a"].headers["authorization"].reveal()
    assert re.fullmatch("[ -~]*", taken)


TEXTS = [
    ("receivers: {{grpc: {{endpoint: '{}:1'}}}}", "receivers.grpc.endpoint"),
    ("exporters: {{a: {{endpoint: '{}:1', insecure: true}}}}", "exporters.a.endpoint"),
    ("exporters: {{a: {{endpoint: 'http://h:1/{}', protocol: http/protobuf}}}}", "exporters.a.endpoint"),
    ("telemetry: {{otlp_endpoint: '{}:1'}}", "telemetry.otlp_endpoint"),
    ("kv_events: {{sources: [{{endpoint: 'tcp://{}:1'}}]}}", "kv_events.sources[0].endpoint"),
    ("kv_events: {{sources: [{{endpoint: 'tcp://h:1', topic: '{}'}}]}}", "kv_events.sources[0].topic"),
    ("kv_events: {{sources: [{{endpoint: 'tcp://h:1', worker: '{}'}}]}}", "kv_events.sources[0].worker"),
    ("kv_events: {{sources: [{{endpoint: 'tcp://h:1', model: '{}'}}]}}", "kv_events.sources[0].model"),
    ("kv_events: {{discovery: [{{dns: '{}:1'}}]}}", "kv_events.discovery[0].dns"),
    ("workers: {{sole_source: '{}'}}", "workers.sole_source"),
    ("workers: {{map: [{{match: {{a: '{}'}}, worker: w}}]}}", "workers.map[0].match.a"),
    ("redaction: {{digest_key_id: '{}'}}", "redaction.digest_key_id"),
    ("ledger: {{checkpoint_path: '{}'}}", "ledger.checkpoint_path"),
]


@pytest.mark.parametrize(("text", "key"), TEXTS)
@pytest.mark.parametrize("inner", ["\n", "\x00", "\x1b", "\ud800"])
def test_a_text_with_a_control_character_is_refused_with_its_key(text: str, key: str, inner: str) -> None:
    error = refusal(text.format("${env:VALUE}"), {"VALUE": f"a{inner}b"})
    assert error.key == key


@pytest.mark.parametrize(("text", "key"), [pair for pair in TEXTS if "endpoint" in pair[1] or pair[1].endswith("dns")])
def test_an_address_in_letters_that_no_socket_takes_is_refused(text: str, key: str) -> None:
    assert refusal(text.format("${env:VALUE}"), {"VALUE": "hôst"}).key == key


def test_a_socket_path_longer_than_sockets_have_is_refused() -> None:
    path = "/" + "p" * 106
    assert parse(f"kv_events: {{sources: [{{endpoint: 'ipc://{path}'}}]}}", {}).kv_events.sources
    error = refusal(f"kv_events: {{sources: [{{endpoint: 'ipc://{path}x'}}]}}")
    assert error.key == "kv_events.sources[0].endpoint"


@pytest.mark.parametrize("inner", ["\x01", "\n\n", " ", "é"])
def test_a_token_that_no_header_carries_is_refused(inner: str) -> None:
    error = refusal("receivers: {bearer_tokens: ['${env:TOKEN}']}", {"TOKEN": f"{SECRET}{inner}{SECRET}"})
    assert error.key == "receivers.bearer_tokens[0]"


@pytest.mark.parametrize(
    "text",
    [
        f"redaction: {{{SECRET}: }}",
        f"redaction: {{{SECRET}}}",
        f"redaction:\n  digest_key={SECRET}: 1",
        f"redaction: {{{SECRET}: 1, {SECRET}: 2}}",
        f"redaction: {{{SECRET}: !tag x}}",
        f"redaction: {{digest_key: *{SECRET}}}",
        f"redaction: {{digest_key: !{SECRET}!a b}}",
        f"{SECRET}: 1",
        f"receivers: {{bearer_tokens=Q{SECRET}: 1}}",
        f"exporters: {{a: {{endpoint: 'h:1', headers: {{'Bearer {SECRET}': x}}}}}}",
        f"exporters: {{a: {{endpoint: 'h:1', {SECRET}: x}}}}",
    ],
)
def test_a_secret_in_the_place_of_a_key_is_not_repeated(text: str) -> None:
    assert SECRET not in str(refusal(text))
