"""Cut a log request into records as bytes, read one, and put records together again.

A log request nests resources, scopes and records under the field numbers that a trace request gives to
resources, scopes and spans (opentelemetry-proto ``logs/v1/logs.proto``), so ``split`` does the cutting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..errors import BadInput
from ..model import Attribute, Envelope
from .encode import delimited
from .fields import read_span
from .scan import fields
from .split import Group, assemble, split

# Field numbers of LogRecord times 8, plus the wire type.
_TIME = 1 * 8 + 1
_ATTRIBUTE = 6 * 8 + 2
_TRACE_ID = 9 * 8 + 2
_SPAN_ID = 10 * 8 + 2
_OBSERVED = 11 * 8 + 1
_SPAN_ATTRIBUTE = b"\x4a"


class LogFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a dialect may ask of a log record. Absent fields hold protobuf's default."""

    unix_nanos: int = 0
    """The record's own time, else when it was observed."""
    trace_id: bytes = b""
    span_id: bytes = b""
    attributes: dict[str, Attribute]


def split_logs(body: bytes) -> list[Group]:
    """Cut an encoded ``ExportLogsServiceRequest`` into its records, on the terms of ``split``.

    Raises:
        BadInput: the bytes are no such request.
    """
    try:
        return split(body)
    except BadInput:
        raise BadInput("not an OTLP log request") from None


def assemble_logs(groups: Iterable[tuple[Envelope, Sequence[bytes]]]) -> bytes:
    """Encode records and the envelopes they came in as an ``ExportLogsServiceRequest``."""
    return assemble(groups)


def read_log(raw: bytes) -> LogFields:
    """Read one encoded ``LogRecord``.

    Raises:
        BadInput: the bytes are no log record.
    """
    times: dict[int, int] = {}
    ids: dict[int, bytes] = {}
    attributes: list[bytes] = []
    for tag, _, value, end in fields(raw):
        if tag in {_TIME, _OBSERVED}:
            times[tag] = int.from_bytes(raw[value:end], "little")
        elif tag in {_TRACE_ID, _SPAN_ID}:
            ids[tag] = raw[value:end]
        elif tag == _ATTRIBUTE:
            attributes.append(delimited(_SPAN_ATTRIBUTE, raw[value:end]))
    return LogFields(
        unix_nanos=times.get(_TIME) or times.get(_OBSERVED) or 0,
        trace_id=ids.get(_TRACE_ID, b""),
        span_id=ids.get(_SPAN_ID, b""),
        # A record's attributes are encoded as a span's are.
        attributes=read_span(b"".join(attributes)).attributes,
    )
