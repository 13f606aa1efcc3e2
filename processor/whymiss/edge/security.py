"""TLS material from files, and the check of bearer tokens."""

from __future__ import annotations

import hmac
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..config import ClientTlsConfig, Secret, ServerTlsConfig


class Doorkeeper:
    """Knows the tokens that may enter; several at once let one be rotated. Without tokens all may."""

    def __init__(self, tokens: Iterable[Secret]) -> None:
        self._expected = [token.reveal().encode() for token in tokens]

    def admits(self, authorization: str | bytes | None) -> bool:
        """Whether an ``Authorization`` header may enter, without telling by time how much of it was right."""
        if not self._expected:
            return True
        header = authorization.encode("utf-8", "replace") if isinstance(authorization, str) else (authorization or b"")
        scheme, _, token = header.partition(b" ")
        # The name of a scheme has no case (RFC 9110, 11.1); a token has.
        shown = token.lstrip(b" ") if scheme.lower() == b"bearer" else b""
        # All are compared, so that the order of the tokens cannot be told by time either.
        matches = [hmac.compare_digest(shown, expected) for expected in self._expected]
        return True in matches


OPEN = Doorkeeper(())
"""Nobody is asked for a token."""


def _read(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(key, f"cannot read {path}: {error.strerror}") from error


def grpc_channel_credentials(settings: ClientTlsConfig, key: str) -> grpc.ChannelCredentials:
    """Credentials of a gRPC exporter. Raises `ConfigError`."""
    client_context(settings, key)
    own_key = None if settings.key_file is None else _read(settings.key_file, f"{key}.key_file")
    own_cert = None if settings.cert_file is None else _read(settings.cert_file, f"{key}.cert_file")
    authorities = None if settings.ca_file is None else _read(settings.ca_file, f"{key}.ca_file")
    return grpc.ssl_channel_credentials(authorities, own_key, own_cert)


def server_context(settings: ServerTlsConfig, key: str) -> ssl.SSLContext:
    """The TLS context of a receiver: TLS 1.2 at least. Raises `ConfigError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_pair(context, settings.cert_file, settings.key_file, key)
    if settings.client_ca_file is not None:
        _load_authorities(context, settings.client_ca_file, f"{key}.client_ca_file")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(settings: ClientTlsConfig, key: str) -> ssl.SSLContext:
    """The TLS context of an HTTP exporter. Raises `ConfigError`."""
    if settings.ca_file is None:
        context = ssl.create_default_context()
    else:
        context = _trusting(settings.ca_file, f"{key}.ca_file")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.cert_file is not None and settings.key_file is not None:
        _load_pair(context, settings.cert_file, settings.key_file, key)
    return context


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: str, key: str) -> None:
    _read(cert_file, f"{key}.cert_file")
    _read(key_file, f"{key}.key_file")
    try:
        context.load_cert_chain(cert_file, key_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{key}.cert_file", "and key_file are no certificate and its key in PEM") from error


def _trusting(path: str, key: str) -> ssl.SSLContext:
    _read(path, key)
    try:
        # Not by cadata: of an empty one it makes a context that trusts whom the system trusts.
        return ssl.create_default_context(cafile=path)
    except (ssl.SSLError, OSError) as error:
        raise _no_authorities(path, key) from error


def _load_authorities(context: ssl.SSLContext, path: str, key: str) -> None:
    _read(path, key)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise _no_authorities(path, key) from error


def _no_authorities(path: str, key: str) -> ConfigError:
    return ConfigError(key, f"{path} holds no certificates in PEM")
