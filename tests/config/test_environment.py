"""OpenTelemetry's standard variables configure an exporter where the file names none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.config import ClientTlsConfig, Config, ExporterConfig, Secret, parse
from whymiss.errors import ConfigError

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
TLS = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4317"}
FORM = "must look like name=value,name=value, in printable ASCII"
HTTP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def exporter(environ: dict[str, str], text: str = "") -> ExporterConfig:
    (one,) = parse(text, environ).exporters.values()
    return one


def test_without_an_endpoint_the_default_holds() -> None:
    others = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": " ",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "x",
    }
    assert parse("", others) == Config.default()


@pytest.mark.parametrize("text", ["exporters: {mine: {endpoint: 'a:1'}}", "exporters:\n  mine: {endpoint: 'a:1'}"])
def test_what_the_file_names_goes_before_it(text: str) -> None:
    assert set(parse(text, ENDPOINT).exporters) == {"mine"}
    assert exporter({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "nonsense"}, text).endpoint == "a:1"


@pytest.mark.parametrize("text", ["", "exporters:\n", "join: {hold_seconds: 9}"])
def test_a_file_that_names_none_is_filled_up(text: str) -> None:
    assert exporter(ENDPOINT, text) == ExporterConfig(endpoint="http://collector:4317", insecure=True)


@pytest.mark.parametrize(
    ("endpoint", "more", "found", "insecure"),
    [
        ("http://c:4317", {}, "http://c:4317", True),
        ("http://c:4317/", {}, "http://c:4317", True),
        ("https://c", {}, "https://c:4317", False),
        ("http://[::1]", {}, "http://[::1]:4317", True),
        ("c:4317", {}, "c:4317", False),
        ("c:4317", {"OTEL_EXPORTER_OTLP_INSECURE": "true"}, "c:4317", True),
        ("https://c:1", {"OTEL_EXPORTER_OTLP_INSECURE": "true"}, "https://c:1", False),
        ("c:4317", {"OTEL_EXPORTER_OTLP_INSECURE": "true", "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "False"}, "c:4317", False),
    ],
)  # fmt: skip
def test_the_scheme_says_whether_grpc_is_plain_and_else_a_variable_does(
    endpoint: str, more: dict[str, str], found: str, *, insecure: bool
) -> None:
    one = exporter({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **more})
    assert (one.protocol, one.endpoint, one.insecure) == ("grpc", found, insecure)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (HTTP, "http://collector:4318"),
        ({**HTTP, "OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/otlp/"}, "https://c/otlp"),
        ({**HTTP, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t:4318/x/v1/traces"}, "https://t:4318/x"),
    ],
)
def test_http_has_a_url_without_the_path_of_a_signal(environ: dict[str, str], found: str) -> None:
    one = exporter(environ)
    assert (one.protocol, one.endpoint, one.insecure) == ("http/protobuf", found, False)


def test_variables_for_traces_go_before_those_for_all() -> None:
    one = exporter(
        {
            **ENDPOINT,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces:1",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=all",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=traces",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "7000",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "250",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "all.pem",
            "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": "traces.pem",
        }
    )
    assert one == ExporterConfig(
        endpoint="https://traces:1",
        headers={"b": Secret("traces")},
        timeout_seconds=0.25,
        compression="none",
        tls=ClientTlsConfig(ca_file="traces.pem"),
    )


def test_a_client_certificate_is_shown_to_whoever_asks() -> None:
    mine = {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "c.pem", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "k.pem"}
    assert exporter({**TLS, **mine}).tls == ClientTlsConfig(cert_file="c.pem", key_file="k.pem")
    assert exporter({**ENDPOINT, **mine}).tls is None  # nobody asks without TLS


def test_headers_are_unescaped_and_secret() -> None:
    one = exporter({**ENDPOINT, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20secret%2C=, x-b = 2,"})
    assert {name: value.reveal() for name, value in one.headers.items()} == {
        "authorization": "Bearer secret,=",
        "x-b": "2",
    }
    assert "cret" not in repr(one)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL: must be one of grpc, http/protobuf"),
        ({"TRACES_PROTOCOL": "secret"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: must be one of grpc, http/protobuf"),
        ({"COMPRESSION": "secret"}, "OTEL_EXPORTER_OTLP_COMPRESSION: must be one of none, gzip"),
        ({"ENDPOINT": "secret", "INSECURE": "1"}, "OTEL_EXPORTER_OTLP_INSECURE: must be one of true, false"),
        ({"TIMEOUT": "10s"}, "OTEL_EXPORTER_OTLP_TIMEOUT: must be a whole number of milliseconds, above 0"),
        ({"TIMEOUT": "0"}, "OTEL_EXPORTER_OTLP_TIMEOUT: must be a whole number of milliseconds, above 0"),
        ({"HEADERS": "secret"}, f"OTEL_EXPORTER_OTLP_HEADERS: {FORM}"),
        ({"HEADERS": "a=secret%0Ab: c"}, f"OTEL_EXPORTER_OTLP_HEADERS: {FORM}"),
        ({"HEADERS": "a=%C3%A9"}, f"OTEL_EXPORTER_OTLP_HEADERS: {FORM}"),
        ({"HEADERS": "a b=secret"},
         "OTEL_EXPORTER_OTLP_HEADERS: a header's name has letters, digits, '-', '_' and '.' only"),
        ({"ENDPOINT": "secret secret"}, "OTEL_EXPORTER_OTLP_ENDPOINT: must look like host:port"),
        ({"ENDPOINT": "secret", "PROTOCOL": "http/protobuf"},
         "OTEL_EXPORTER_OTLP_ENDPOINT: must look like http://host:4318 or https://host:4318"),
        ({"TRACES_ENDPOINT": "http://secret:4318", "PROTOCOL": "http/protobuf"},
         "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must end in /v1/traces: metrics and logs go to the same place"),
        ({"ENDPOINT": "https://c", "CLIENT_KEY": "secret"},
         "OTEL_EXPORTER_OTLP_CLIENT_KEY: goes together with OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named_and_its_value_is_not(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse("", ENDPOINT | {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()})
    assert str(raised.value) == message


def test_spans_do_not_go_round_by_a_variable() -> None:
    with pytest.raises(ConfigError, match="is a receiver of this service"):
        parse("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"})


@given(
    st.dictionaries(
        st.sampled_from(
            [
                f"OTEL_EXPORTER_OTLP_{signal}{end}"
                for signal in ("", "TRACES_")
                for end in ("ENDPOINT", "PROTOCOL", "HEADERS", "COMPRESSION", "TIMEOUT", "CERTIFICATE", "INSECURE")
            ]
        ),
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(
                ["http://c:1", "https://c/x", "c:4317", "grpc", "http/protobuf", "a=b%20c", "gzip", "9", "true"]
            ),
        ),
    )
)
def test_whatever_the_variables_say_they_are_read_or_refused_by_name(environ: dict[str, str]) -> None:
    blamed = None
    try:
        parse("", environ)
    except ConfigError as error:
        blamed = error.key
    assert blamed is None or blamed.startswith("OTEL_EXPORTER_OTLP_")
