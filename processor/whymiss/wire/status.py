"""Take the message out of a span's status: exporters put the text of an exception there."""

from __future__ import annotations

from .encode import delimited, varint
from .scan import fields

_STATUS = 15 * 8 + 2
_MESSAGE = 2 * 8 + 2


def without_status_message(raw: bytes) -> bytes:
    """Copy an encoded span without the message of its status; the code stays.

    The bytes must be those of a span that ``read_span`` has read.

    Raises:
        BadInput: a field is malformed.
    """
    pieces: list[bytes] = []
    for tag, start, value, end in fields(raw):
        if tag != _STATUS:
            pieces.append(raw[start:end])
            continue
        kept = [raw[begin:stop] for inner, begin, _, stop in fields(raw, value, end) if inner != _MESSAGE]
        pieces.append(delimited(varint(_STATUS), b"".join(kept)))
    return b"".join(pieces)
