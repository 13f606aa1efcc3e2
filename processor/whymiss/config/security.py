"""Certificates and tokens: who may connect, and whom we trust."""

from __future__ import annotations

from ..errors import ConfigError
from .kinds import Secret, Section


class ServerTlsConfig(Section, frozen=True, kw_only=True):
    """TLS of a receiver. The files are read at start; a missing or broken one is an error then."""

    cert_file: str
    """Our certificate and its chain, PEM. No default."""
    key_file: str
    """The certificate's private key, PEM. No default."""
    client_ca_file: str | None = None
    """Authorities of clients, PEM: clients must show a certificate of theirs. Default null: none is asked for."""


class ClientTlsConfig(Section, frozen=True, kw_only=True):
    """TLS towards a next hop."""

    ca_file: str | None = None
    """Authorities of the next hop, PEM. Default null: those of the system."""
    cert_file: str | None = None
    """Our own certificate, PEM, for a next hop that asks for one. Default null."""
    key_file: str | None = None
    """Its private key, PEM. Default null; needed with ``cert_file``, and only then."""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("key_file", "cert_file and key_file go together")


BEARER_CHARS_MIN = 16


def check_tokens(tokens: tuple[Secret, ...]) -> None:
    """Refuse a token that could be guessed or that no header can carry. Raises `ConfigError`."""
    for index, token in enumerate(tokens):
        text = token.reveal()
        if len(text) < BEARER_CHARS_MIN or not text.isascii() or not text.isprintable() or " " in text:
            raise ConfigError(
                f"bearer_tokens[{index}]",
                f"must have at least {BEARER_CHARS_MIN} printable ASCII characters, no spaces",
            )
