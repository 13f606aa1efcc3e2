"""KV-cache events that come as OTLP log records, for publishers that only reach an OTLP receiver.

A record is one of them if its scope, its event or one of its attributes is named ``whymiss.kv_event``. Its
body holds, as bytes, the payload that the engine would publish (msgpack); its attributes say the rest:

=============  ==========================================================================
``kv.seq``     number of the batch, from 0 in each life of the publisher; required
``kv.worker``  name of the worker; required where ``kv.topic`` does not say it
``kv.topic``   the engine's topic, such as ``kv@worker@model``
``kv.rank``    data-parallel rank; else the payload's
``kv.model``   model served; else the topic's
=============  ==========================================================================

The body holds token ids and salts, so such a record never leaves, whether or not it can be read. All
others are not touched. Batches that overtake each other on the way leave holes, as they do on any wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ..errors import BadInput
from .fields import scope_name
from .kv_push import NAME_CHARS_MAX, SEQ_MAX, Pushed
from .logs import assemble_logs, split_logs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

MARK: Final = "whymiss.kv_event"

_MARK_BYTES: Final = MARK.encode()
_RANKS_MAX: Final = 1 << 20


class KvRecord(msgspec.Struct, frozen=True):
    """One batch, and when the record of it was made; 0 where it does not say."""

    pushed: Pushed
    observed_unix_nanos: int


class KvLogs(msgspec.Struct, frozen=True):
    """What was in a log request: batches in their order, why others were rejected, and what may leave.

    ``rest`` is the request itself where nothing was taken out, and empty where nothing is left.
    """

    records: tuple[KvRecord, ...]
    rejected: tuple[str, ...]
    rest: bytes


def take_kv_events(body: bytes) -> KvLogs:
    """Take the KV-cache events out of an encoded ``ExportLogsServiceRequest``.

    A request without any costs one search of its bytes, and is not looked at further.

    Raises:
        BadInput: the bytes name such events, but are no such request.
    """
    if _MARK_BYTES not in body:
        return KvLogs((), (), body)
    records: list[KvRecord] = []
    rejected: list[str] = []
    rest = []
    groups = split_logs(body)
    for group in groups:
        scoped = scope_name(group.envelope) == MARK
        others = []
        for raw in group.spans:
            try:
                record = _read(raw, scoped=scoped)
            except BadInput as problem:
                rejected.append(problem.problem)
                continue
            if record is None:
                others.append(raw)
            else:
                records.append(record)
        rest.append((group.envelope, others))
    if not records and not rejected:
        return KvLogs((), (), body)
    return KvLogs(tuple(records), tuple(rejected), assemble_logs(rest))


def _read(raw: bytes, *, scoped: bool) -> KvRecord | None:
    if not scoped and _MARK_BYTES not in raw:
        return None
    record = LogRecord()
    try:
        record.ParseFromString(raw)
    except DecodeError:
        raise BadInput("not a log record") from None
    attributes = {one.key: one.value for one in record.attributes}
    if not scoped and record.event_name != MARK and MARK not in attributes:
        return None
    return KvRecord(_pushed(record, attributes), record.observed_time_unix_nano or record.time_unix_nano)


def _pushed(record: LogRecord, attributes: Mapping[str, AnyValue]) -> Pushed:
    if record.body.WhichOneof("value") != "bytes_value":
        raise BadInput("body: must be bytes")
    seq = _number(attributes, "kv.seq", SEQ_MAX)
    if seq is None:
        raise BadInput("kv.seq: must be given")
    worker, topic = _name(attributes, "kv.worker"), _name(attributes, "kv.topic")
    if worker is None and topic is None:
        raise BadInput("kv.worker: must be given, or else kv.topic")
    return Pushed(
        source=f"logs:{worker or topic}",
        worker=worker,
        rank=_number(attributes, "kv.rank", _RANKS_MAX),
        model=_name(attributes, "kv.model"),
        kv_connector=False,
        seq=seq,
        frames=((topic or "").encode(), seq.to_bytes(8, "big"), record.body.bytes_value),
    )


def _number(attributes: Mapping[str, AnyValue], key: str, most: int) -> int | None:
    value = attributes.get(key)
    if value is None:
        return None
    number = -1
    if value.WhichOneof("value") == "int_value":
        number = value.int_value
    elif value.string_value.isascii() and value.string_value.isdigit() and len(value.string_value) < 20:
        # Some pipelines know attributes of text only.
        number = int(value.string_value)
    if not 0 <= number <= most:
        raise BadInput(f"{key}: must be a whole number from 0 to {most}")
    return number


def _name(attributes: Mapping[str, AnyValue], key: str) -> str | None:
    value = attributes.get(key)
    if value is None or not value.string_value:
        return None
    name: str = value.string_value
    if not name.strip() or not name.isprintable() or len(name) > NAME_CHARS_MAX:
        raise BadInput(f"{key}: must be 1 to {NAME_CHARS_MAX} printable characters")
    return name
