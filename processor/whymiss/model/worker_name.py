"""The text of worker names: what emitters, operators and topics call one engine process.

A name is a pod, ``namespace/pod``, an id, a host or an address with or without a port; a router's may be a URL. llm-d
appends the data-parallel rank as ``-rank-N``. Which worker a name means is not known here: see ``evidence/workers.py``.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

_RANKED = re.compile(r"(?P<worker>.+)-rank-(?P<rank>[0-9]{1,6})", re.DOTALL)
_PORT = re.compile(r"(?P<host>[^:]+):(?P<port>[0-9]+)")
_BRACKETED = re.compile(r"\[(?P<host>[^]]+)](?::(?P<port>[0-9]+))?")


def split_rank(name: str) -> tuple[str, int | None]:
    """A name without ``-rank-N``, and that data-parallel rank; ``None`` where there is none."""
    found = _RANKED.fullmatch(name)
    return (name, None) if found is None else (found["worker"], int(found["rank"]))


def with_rank(worker: str, rank: int | None) -> str:
    """A worker as users see it: ranks other than the first are appended as llm-d appends them."""
    return f"{worker}-rank-{rank}" if rank else worker


class Address(NamedTuple):
    """A name that may be a host's. IPv6 hosts have no brackets and are in their one shortest spelling."""

    host: str
    port: int | None = None

    @property
    def is_host(self) -> bool:
        """Whether the host is an address or a qualified name, which ports are left off of; a bare word is a name."""
        return "." in self.host or ":" in self.host


def plain_name(name: str) -> str:
    """The spelling by which names are compared: ``http://Host:80/v1`` is ``host:80``.

    Scheme, path, case and surrounding spaces are no part of a name; an IPv6 address has one spelling, in brackets
    only before a port.
    """
    _, _, rest = name.rpartition("://")
    plain = (rest.split("/", 1)[0] if "://" in name else name.strip()).lower()
    host, port = address_of(plain)
    if ":" not in host:
        return plain
    return host if port is None else f"[{host}]:{port}"


def address_of(plain: str) -> Address:
    """Host and port of a name as `plain_name` spells it; a name that is no address is a host without a port."""
    found = _BRACKETED.fullmatch(plain) or _PORT.fullmatch(plain)
    host, port = (plain, None) if found is None else (found["host"], found["port"])
    return Address(_shortest(host), None if port is None else int(port))


def _shortest(host: str) -> str:
    if ":" not in host:
        return host
    try:
        return str(IPv6Address(host))
    except AddressValueError:
        return host
