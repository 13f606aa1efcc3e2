from __future__ import annotations

import pytest

from whymiss.config import Config, parse
from whymiss.edge.status.settings import settings_of

TEXT = """
receivers:
  grpc: {tls: {cert_file: /etc/secret/cert.pem, key_file: /etc/secret/key.pem, client_ca_file: /etc/secret/ca.pem}}
  http: {endpoint: null}
  bearer_tokens: [0123456789abcdef]
redaction: {digest_key: fedcba9876543210, digest_key_id: "2026-11", sample_ratio: 0.25}
spool: {directory: /var/lib/secret, fsync: always}
telemetry: {otlp_endpoint: "secret:4317"}
kv_events: {sources: [{endpoint: "ipc:///run/secret"}]}
"""


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("OTLP/gRPC", "TLS, client certificates, 1 bearer token(s)", "plain text, no bearer token"),
        ("OTLP/HTTP", "off", "plain text, no bearer token"),
        ("KV-event sources", "1 configured, 0 discoveries", "0 configured, 0 discoveries"),
        ("Digest key", "configured, id 2026-11", "random, of this process"),
        ("Digests on", "25.0 % of sampled traces", "100 % of sampled traces"),
        ("Spool", "on, fsync always", "off: a crash loses what is held"),
        ("Metrics by OTLP", "on", "off"),
        ("Hold", "8.0 s, lingering 2.0 s", "8.0 s, lingering 2.0 s"),
    ],
)
def test_a_setting_is_said_in_words(name: str, value: str, default: str) -> None:
    assert {one.name: one.value for one in settings_of(parse(TEXT, {}))}[name] == value
    assert {one.name: one.value for one in settings_of(Config.default())}[name] == default


def test_no_path_no_address_and_no_secret_is_said() -> None:
    said = " ".join(one.value for one in settings_of(parse(TEXT, {})))
    for hidden in ("secret", "0123456789abcdef", "fedcba9876543210", "/"):
        assert hidden not in said
