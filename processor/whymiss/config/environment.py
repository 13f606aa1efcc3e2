"""The exporter that OpenTelemetry's standard variables describe, for a file that names none.

They are those of the specification's *OTLP Exporter Configuration*; where there is one for traces
(``OTEL_EXPORTER_OTLP_TRACES_…``), it goes before the one for all signals. An empty variable is an unset one. What they
do not say is as an exporter has it by default: gRPC, and gzip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from ..errors import ConfigError
from .endpoints import OtlpProtocol
from .kinds import Secret
from .network import ExporterConfig
from .security import ClientTlsConfig

_ALL: Final = "OTEL_EXPORTER_OTLP_"
_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_"
_PATH: Final = "/v1/traces"
_GRPC_PORT: Final = ":4317"

_PROTOCOLS: Final[Mapping[str, OtlpProtocol]] = {"grpc": "grpc", "http/protobuf": "http/protobuf"}
_COMPRESSIONS: Final[Mapping[str, Literal["none", "gzip"]]] = {"none": "none", "gzip": "gzip"}
_TRUTHS: Final = {"true": True, "false": False}
_ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")

_Choice = TypeVar("_Choice")


def exporter_of(environ: Mapping[str, str]) -> ExporterConfig | None:
    """Make the exporter that an environment describes; ``None`` where it names no endpoint.

    Raises:
        ConfigError: with the name of the variable, and never its value.
    """
    if not _text(environ, "ENDPOINT"):
        return None
    protocol = _one_of(environ, "PROTOCOL", _PROTOCOLS, "grpc")
    endpoint, insecure = _grpc(environ) if protocol == "grpc" else (_http(environ), False)
    is_plain = insecure or endpoint.startswith("http://")
    try:
        return ExporterConfig(
            protocol=protocol,
            endpoint=endpoint,
            insecure=insecure,
            tls=None if is_plain else _tls(environ),
            headers=_headers(environ),
            compression=_one_of(environ, "COMPRESSION", _COMPRESSIONS, "gzip"),
            timeout_seconds=_timeout_seconds(environ),
        )
    except ConfigError as error:
        if error.key.startswith("OTEL_"):
            raise
        end = "HEADERS" if error.key.startswith("headers") else "ENDPOINT"
        raise ConfigError(_name(environ, end), error.problem) from None


def _name(environ: Mapping[str, str], end: str) -> str:
    """The name of the variable that counts."""
    return (_TRACES if environ.get(_TRACES + end, "").strip() else _ALL) + end


def _text(environ: Mapping[str, str], end: str) -> str:
    return environ.get(_name(environ, end), "").strip()


def _one_of(environ: Mapping[str, str], end: str, choices: Mapping[str, _Choice], default: _Choice) -> _Choice:
    word = _text(environ, end).lower()
    if word and word not in choices:
        raise ConfigError(_name(environ, end), f"must be one of {', '.join(choices)}")
    return choices.get(word, default)


def _grpc(environ: Mapping[str, str]) -> tuple[str, bool]:
    """The address for gRPC, and whether it is plain text: its scheme says so, and else ``INSECURE``."""
    scheme, mark, target = _text(environ, "ENDPOINT").rstrip("/").rpartition("://")
    if not re.search(r":[0-9]+$", target):
        target += _GRPC_PORT
    plain = scheme == "http" if mark else _one_of(environ, "INSECURE", _TRUTHS, default=False)
    return f"{scheme}{mark}{target}", plain


def _http(environ: Mapping[str, str]) -> str:
    """The URL to which the paths of all signals are added; the variable for traces has that of traces already."""
    url = _text(environ, "ENDPOINT").rstrip("/")
    if _name(environ, "ENDPOINT") == _ALL + "ENDPOINT":
        return url
    if not url.endswith(_PATH):
        raise ConfigError(_TRACES + "ENDPOINT", f"must end in {_PATH}: metrics and logs go to the same place")
    return url.removesuffix(_PATH)


def _tls(environ: Mapping[str, str]) -> ClientTlsConfig | None:
    names = {"ca_file": "CERTIFICATE", "cert_file": "CLIENT_CERTIFICATE", "key_file": "CLIENT_KEY"}
    files = {key: _text(environ, end) or None for key, end in names.items()}
    if not any(files.values()):
        return None
    try:
        return ClientTlsConfig(**files)
    except ConfigError:
        message = f"goes together with {_name(environ, 'CLIENT_CERTIFICATE')}"
        raise ConfigError(_name(environ, "CLIENT_KEY"), message) from None


def _headers(environ: Mapping[str, str]) -> Mapping[str, Secret]:
    """Pairs as in W3C Baggage: ``name=value``, with commas between them, and percent signs before what is escaped."""
    headers: dict[str, Secret] = {}
    for pair in filter(None, (pair.strip() for pair in _text(environ, "HEADERS").split(","))):
        name, mark, value = pair.partition("=")
        plain = _unescaped(value)
        if not mark or plain is None:
            raise ConfigError(_name(environ, "HEADERS"), "must look like name=value,name=value, in printable ASCII")
        headers[name.strip().lower()] = Secret(plain)
    return headers


def _unescaped(escaped: str) -> str | None:
    """A header's value; ``None`` where no header can carry it."""
    text = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), escaped.strip().encode()).decode("latin-1")
    return text if text.isascii() and text.isprintable() else None


def _timeout_seconds(environ: Mapping[str, str]) -> float:
    text = _text(environ, "TIMEOUT")
    if not text:
        return ExporterConfig(endpoint="none:1").timeout_seconds
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise ConfigError(_name(environ, "TIMEOUT"), "must be a whole number of milliseconds, above 0")
    return int(text) / 1000
