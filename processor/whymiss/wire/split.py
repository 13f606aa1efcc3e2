"""Cut a trace request into spans as bytes, and put spans together into a request.

Splitting 512 spans takes about as long as parsing 20 of them, so that a span which is not ours
costs next to nothing. Whether a span is well-formed is not looked at: see ``fields.is_readable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError

from ..errors import BadInput
from ..model import Envelope
from .encode import varint
from .shallow_pb2 import ExportTraceServiceRequest, ScopeSpans

_RESOURCE_SPANS = b"\x0a"
_SCOPE_SPANS = b"\x12"


class Group(NamedTuple):
    """The spans of one resource and scope, in the order in which they came."""

    envelope: Envelope
    spans: list[bytes]


def split(body: bytes) -> list[Group]:
    """Cut an encoded ``ExportTraceServiceRequest`` into its spans.

    Groups without spans are left out, as are unknown fields of the request itself: nothing
    that could carry them further is left. Unknown fields of all else are kept.

    Raises:
        BadInput: the bytes are no such request.
    """
    groups = []
    for resource_spans in _parse(body).resource_spans:
        scopes = []
        for scope_spans in resource_spans.scope_spans:
            spans = list(scope_spans.spans)
            if spans:
                scope_spans.ClearField("spans")
                scopes.append((scope_spans.SerializeToString(), spans))
        if scopes:
            resource_spans.ClearField("scope_spans")
            resource = resource_spans.SerializeToString()
            groups += [Group(Envelope(resource=resource, scope=scope), spans) for scope, spans in scopes]
    return groups


def assemble(groups: Iterable[tuple[Envelope, Sequence[bytes]]]) -> bytes:
    """Encode spans and the envelopes they came in as an ``ExportTraceServiceRequest``.

    Equal resources become one, equal scopes of one resource too, each at its first place. The
    bytes of spans, resources and scopes are copied as they are. No spans yield no bytes, which
    is an empty request.
    """
    by_resource: dict[bytes, dict[bytes, list[bytes]]] = {}
    for envelope, spans in groups:
        if spans:
            by_resource.setdefault(envelope.resource, {}).setdefault(envelope.scope, []).extend(spans)
    pieces: list[bytes] = []
    for resource, by_scope in by_resource.items():
        inner = [resource]
        for scope, spans in by_scope.items():
            encoded = ScopeSpans(spans=spans).SerializeToString()
            # Two encodings of one message, one behind the other, are the encoding of both merged.
            inner += (_SCOPE_SPANS, varint(len(scope) + len(encoded)), scope, encoded)
        pieces += (_RESOURCE_SPANS, varint(sum(map(len, inner))), *inner)
    return b"".join(pieces)


def span_count(body: bytes) -> int:
    """Count the spans of an encoded ``ExportTraceServiceRequest``.

    Raises:
        BadInput: the bytes are no such request.
    """
    return sum(
        len(scope_spans.spans)
        for resource_spans in _parse(body).resource_spans
        for scope_spans in resource_spans.scope_spans
    )


def upb_in_use() -> bool:
    """Tell whether protobuf runs on upb; its pure-Python fallback is fifty times slower.

    The service says so at start: the fallback comes silently where no wheel fits the platform.
    """
    return api_implementation.Type() == "upb"


def _parse(body: bytes) -> ExportTraceServiceRequest:
    try:
        return ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise BadInput("not an OTLP trace request") from None
