"""What may go as a header (gRPC: metadata) of each request: a transport refuses others when it sends, request by request."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import ConfigError
from .endpoints import OtlpProtocol
from .kinds import Secret

_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
"""Both transports forbid other names: HTTP by its grammar, gRPC by a narrower one."""

_VALUE = re.compile(r"[ -~]*")
"""Printable ASCII: gRPC takes no more, and HTTP/1.1 says of no more what it means (RFC 9110, 5.5)."""

_OURS = frozenset(
    {
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
    }
)
"""They say how a request is sent, and each transport writes them itself."""


def check_headers(headers: Mapping[str, Secret], protocol: OtlpProtocol) -> None:
    """Check the names and values of an exporter's headers.

    Raises:
        ConfigError: with the header's name where it is one, and never a value.
    """
    for index, (name, value) in enumerate(headers.items()):
        if not _NAME.fullmatch(name):
            # What is no name may be a value in a name's place.
            raise ConfigError(f"headers[{index}]", "a header's name has letters, digits, '-', '_' and '.' only")
        key, lower = f"headers.{name}", name.lower()
        if lower in _OURS or (protocol == "grpc" and lower.startswith("grpc-")):
            raise ConfigError(key, "is a header that the transport writes itself")
        if protocol == "grpc" and lower.endswith("-bin"):
            raise ConfigError(key, "is binary by its name in gRPC, and a text here")
        if not _VALUE.fullmatch(value.reveal()):
            raise ConfigError(key, "must have a value of printable ASCII characters, with no line ends inside")
