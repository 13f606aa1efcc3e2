"""OTLP/JSON requests to the protobuf bytes of the same requests.

protobuf's own ``json_format`` must not be used for this: OTLP writes ids in hexadecimal, which it
silently decodes as base64 into ids of 24 bytes; and it is fifty times slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ..errors import BadInput
from .json_names import is_unusual, not_understood, usual
from .json_schema import encoder, shape
from .json_values import Mismatch

_REQUESTS = {
    "traces": ExportTraceServiceRequest.DESCRIPTOR,
    "metrics": ExportMetricsServiceRequest.DESCRIPTOR,
    "logs": ExportLogsServiceRequest.DESCRIPTOR,
}
_OFFSET = re.compile(r"\(byte (\d+)\)")


def traces_from_json(body: bytes) -> bytes:
    """Encode an OTLP/JSON trace request as protobuf.

    Field names may be those of the proto files, and enums may be names, as the Collector reads both. Unknown keys are
    ignored, except in a body that has nothing else: it would become an empty request without an error.
    Ids must be hexadecimal and of the right size, or empty.

    Raises:
        BadInput: no JSON, a value that its field cannot hold, or nothing that is understood; the message has its JSON path.
    """
    return _convert("traces", body)


def metrics_from_json(body: bytes) -> bytes:
    """Encode an OTLP/JSON metrics request as protobuf, on the terms of ``traces_from_json``.

    Raises:
        BadInput: as there.
    """
    return _convert("metrics", body)


def logs_from_json(body: bytes) -> bytes:
    """Encode an OTLP/JSON logs request as protobuf, on the terms of ``traces_from_json``.

    Raises:
        BadInput: as there.
    """
    return _convert("logs", body)


def _convert(signal: str, body: bytes) -> bytes:
    try:
        return _converter(signal)(body)
    except msgspec.ValidationError as error:
        # Its text is types and a path of field names, never a value.
        raise BadInput(str(error)) from None
    except msgspec.DecodeError as error:
        offset = _OFFSET.search(str(error))
        raise BadInput("malformed JSON", offset=int(offset[1]) if offset else None) from None
    except RecursionError:
        raise BadInput("JSON nested too deeply") from None
    except Mismatch as mismatch:
        raise BadInput(f"{mismatch.problem} - at `{mismatch.place}`") from None


@cache
def _converter(signal: str) -> Callable[[bytes], bytes]:
    message = _REQUESTS[signal]
    # Not strict: integers and floats may be strings. It reads "true" as a boolean too; no harm.
    decode, encode = msgspec.json.Decoder(shape(message), strict=False).decode, encoder(message)
    levels = _levels(message)

    def convert(body: bytes) -> bytes:
        shaped = decode(usual(body, message) if is_unusual(body, message) else body)
        if not _has_items(shaped, levels) and (place := not_understood(body, message)) is not None:
            # An acknowledgement of nothing would be a silent loss.
            raise BadInput(f"nothing in it is understood - at `{place}`")
        return encode(shaped)

    return convert


def _levels(message: Descriptor, depth: int = 3) -> tuple[str, ...]:
    """The names of the lists from a request down to its items: ``("resource_spans", "scope_spans", "spans")``."""
    lists = [(one.name, one.message_type) for one in message.fields if one.is_repeated and one.message_type is not None]
    name, inner = lists[0]
    return (name,) if depth == 1 else (name, *_levels(inner, depth - 1))


def _has_items(shaped: msgspec.Struct, levels: Sequence[str]) -> bool:
    """Whether a request holds a span, a metric or a log record."""
    inner = getattr(shaped, levels[0]) or ()
    if len(levels) == 1:
        return bool(inner)
    return any(_has_items(one, levels[1:]) for one in inner)
