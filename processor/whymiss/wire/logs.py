"""Cut a log request into records as bytes, and put records together into a request.

Log requests have the form of trace requests: the same field numbers all the way down to the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import BadInput
from ..model import Envelope
from .split import assemble, split


class LogGroup(NamedTuple):
    """The records of one resource and scope, in the order in which they came."""

    envelope: Envelope
    records: list[bytes]


def split_logs(body: bytes) -> list[LogGroup]:
    """Cut an encoded ``ExportLogsServiceRequest`` into its records; whether one is well-formed is not looked at.

    Raises:
        BadInput: the bytes are no such request.
    """
    try:
        return [LogGroup(group.envelope, group.spans) for group in split(body)]
    except BadInput:
        raise BadInput("not an OTLP log request") from None


def assemble_logs(groups: Iterable[tuple[Envelope, Sequence[bytes]]]) -> bytes:
    """Encode records and the envelopes they came in; no records yield no bytes, which is an empty request."""
    return assemble(groups)
