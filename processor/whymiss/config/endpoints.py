"""The forms of an address, checked when the file is read.

A check raises `ConfigError` and never repeats the value, which may hold a secret.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from ..errors import ConfigError

PORT_MAX: Final = 65535
OtlpProtocol: TypeAlias = Literal["grpc", "http/protobuf"]

# Printable ASCII, as sockets, headers and gRPC's targets take it; a name in other letters has such a form of its own.
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\x00-\x20\x7f-\U0010ffff:/?#@\[\]]+)"
_PORT = r":(?P<port>[0-9]{1,5})"
_LISTENER = re.compile(_HOST + _PORT)
_GRPC = re.compile(rf"(?:(?P<scheme>https?)://)?{_HOST}{_PORT}")
_HTTP = re.compile(rf"(?P<scheme>https?)://{_HOST}(?:{_PORT})?(?:/[^\x00-\x20\x7f-\U0010ffff?#]*)?")
_SIGNAL = re.compile(r"/v1/(?:traces|metrics|logs)/*$")
"""The path of one signal where the base of all belongs: each request would go to ``/v1/traces/v1/traces`` and be lost."""
_ZMQ = re.compile(rf"tcp://{_HOST}{_PORT}|ipc://[^\x00-\x20\x7f]+")
_IPC_BYTES_MAX = 107
"""The longest path of a Unix socket on Linux, less the zero behind it."""


def check_listener(key: str, endpoint: str | None) -> None:
    """Check an address to listen on; ``None`` is off."""
    if endpoint is not None:
        _match(key, endpoint, _LISTENER, "host:port")


def check_otlp(key: str, endpoint: str, protocol: OtlpProtocol) -> str | None:
    """Check an address to send OTLP to, and return its scheme, which gRPC may leave out."""
    if protocol == "grpc":
        return _match(key, endpoint, _GRPC, "host:port")["scheme"]
    scheme = _match(key, endpoint, _HTTP, "http://host:4318 or https://host:4318")["scheme"]
    signal = _SIGNAL.search(endpoint)
    if signal is not None:
        raise ConfigError(key, f"must not end in {signal[0]}: whymiss adds it")
    return scheme


def check_zmq(key: str, endpoint: str | None) -> None:
    """Check the address of a publisher; ``None`` is off."""
    if endpoint is not None:
        _match(key, endpoint, _ZMQ, "tcp://host:5557 or ipc:///path")
        if endpoint.startswith("ipc://") and len(endpoint.removeprefix("ipc://").encode()) > _IPC_BYTES_MAX:
            raise ConfigError(key, f"has a path of over {_IPC_BYTES_MAX} bytes, which no socket can have")


def check_text(key: str, text: str | None) -> None:
    """Check that a name has a visible character and no line end or the like; ``None`` is no name."""
    if text is None:
        return
    if not text.strip():
        raise ConfigError(key, "must not be empty")
    if not text.isprintable():
        raise ConfigError(key, "must be printable characters")


def _match(key: str, endpoint: str, pattern: re.Pattern[str], form: str) -> re.Match[str]:
    found = pattern.fullmatch(endpoint)
    if found is None:
        raise ConfigError(key, f"must look like {form}")
    if int(found["port"] or 0) > PORT_MAX:
        raise ConfigError(key, f"has a port above {PORT_MAX}")
    return found
