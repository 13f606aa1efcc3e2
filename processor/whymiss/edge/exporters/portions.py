"""Cut an export request that is larger than its next hop takes.

HTTP lets 64 MiB in and gRPC lets 4 MiB out, so a request may have to leave as several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BadInput
from ...wire.encode import delimited
from ...wire.scan import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHILDREN = (0x0A, 0x12, 0x12)
"""Tags of the way down, alike for all signals: request, resource, scope, then span, metric or log record."""

_HEADER_BYTES = 6
"""Tag and length of a child of up to 4 GiB."""


def divide(body: bytes, bytes_max: int) -> list[bytes]:
    """Cut an encoded Export*ServiceRequest into requests of at most ``bytes_max``.

    Resources and scopes are repeated where their content is cut; spans, metrics and log records are
    never cut, so one that is larger by itself is still in a request of its own. Nothing is lost.
    """
    try:
        return _cut(body, bytes_max, 0)
    except BadInput:
        return [body]


def _cut(message: bytes, bytes_max: int, level: int) -> list[bytes]:
    if len(message) <= bytes_max or level == len(_CHILDREN):
        return [message]
    child = _CHILDREN[level]
    found = fields(message)
    shared = b"".join(message[start:end] for tag, start, _, end in found if tag != child)
    room = bytes_max - len(shared)
    pieces: list[bytes] = []
    for tag, start, value, end in found:
        if tag != child:
            continue
        if end - start <= room:
            pieces.append(message[start:end])
        else:
            smaller = _cut(message[value:end], room - _HEADER_BYTES, level + 1)
            pieces += [delimited(bytes([child]), part) for part in smaller]
    return [shared + group for group in _groups(pieces, room)] or [message]


def _groups(pieces: list[bytes], bytes_max: int) -> Iterator[bytes]:
    group: list[bytes] = []
    size = 0
    for piece in pieces:
        if group and size + len(piece) > bytes_max:
            yield b"".join(group)
            group, size = [], 0
        group.append(piece)
        size += len(piece)
    if group:
        yield b"".join(group)
