"""Bytes that almost are what was captured: broken anywhere, and broken where the format is known."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.json_format import MessageToDict
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whymiss.errors import BadInput
from whymiss.wire.encode import varint
from whymiss.wire.scan import fields

if TYPE_CHECKING:
    from collections.abc import Callable

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
CANARY = "canary-of-a-prompt"
"""Stands in every body where a prompt would; no line of the log may have it."""

_EXTREMES = (0, 1, 2, 127, 128, 255, 1 << 14, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@cache
def captured() -> tuple[bytes, ...]:
    """Trace requests of real engines, each with a canary in its first span, and the largest left out."""
    requests = []
    for path in sorted(CAPTURES.glob("*/otlp/*.pb")):
        if path.stat().st_size < 8192:
            request = ExportTraceServiceRequest.FromString(path.read_bytes())
            span = request.resource_spans[0].scope_spans[0].spans[0]
            span.attributes.add(key="gen_ai.prompt").value.string_value = CANARY
            requests.append(request.SerializeToString())
    return tuple(requests)


@cache
def captured_frames() -> tuple[tuple[bytes, ...], ...]:
    """KV-event messages of real engines, as ZMQ frames."""
    messages = []
    for path in sorted(CAPTURES.glob("*/*kv_events_raw.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            messages += [
                tuple(base64.b64decode(frame) for frame in json.loads(line)["frames_b64"]) for line in list(lines)[:20]
            ]
    return tuple(messages)


def as_json(request: bytes) -> dict[str, Any]:
    """The same trace request in OTLP/JSON, whose ids are hexadecimal."""
    document: dict[str, Any] = MessageToDict(ExportTraceServiceRequest.FromString(request), use_integers_for_enums=True)

    def with_hex(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: base64.b64decode(inner).hex() if key in {"traceId", "spanId", "parentSpanId"} else with_hex(inner)
                for key, inner in value.items()
            }
        return [with_hex(one) for one in value] if isinstance(value, list) else value

    hexed: dict[str, Any] = with_hex(document)
    return hexed


def _flip(body: bytes, at: int, other: bytes) -> bytes:
    return body[:at] + other[:1] + body[at + 1 :]


def _insert(body: bytes, at: int, other: bytes) -> bytes:
    return body[:at] + other + body[at:]


def _cut(body: bytes, at: int, other: bytes) -> bytes:
    return body[:at] + body[at + max(1, len(other)) :]


def _end(body: bytes, at: int, other: bytes) -> bytes:
    del other
    return body[:at]


def _repeat(body: bytes, at: int, other: bytes) -> bytes:
    return body + body[at : at + 50 * (1 + len(other))]


def _number(body: bytes, at: int, other: bytes) -> bytes:
    return body[:at] + varint(_EXTREMES[len(other) % len(_EXTREMES)]) + body[at + 1 :]


_BROKEN: tuple[Callable[[bytes, int, bytes], bytes], ...] = (_flip, _insert, _cut, _end, _repeat, _number)


def _in_message(body: bytes, at: int, other: bytes) -> bytes:
    """Break one field of a message, or of a message within it, and keep the lengths around it right."""
    try:
        found = fields(body)
    except BadInput:
        return _flip(body, at % max(1, len(body)), other)
    if not found:
        return other
    tag, start, value, end = found[at % len(found)]
    if tag & 7 == 2 and at % 5:
        inner = _in_message(body[value:end], at // 5, other)
        return body[:start] + varint(tag) + varint(len(inner)) + inner + body[end:]
    replaced = (
        b"",
        body[start:end] * 2,
        varint(tag ^ 1) + other,
        varint(tag & ~7 | 2) + varint(len(other)) + other,
        varint(tag & ~7) + varint(_EXTREMES[at % len(_EXTREMES)]),
        varint(tag & ~7 | 2) + varint(_EXTREMES[at % len(_EXTREMES)]) + other,
        varint(tag & ~7 | 1) + other.ljust(8, b"\xff")[:8],
        varint(tag & ~7 | 3) * 90,
    )[at % 8]
    return body[:start] + replaced + body[end:]


@st.composite
def broken(draw: st.DrawFn, bodies: st.SearchStrategy[bytes], *, protobuf: bool = False) -> bytes:
    """A body after one to four breakages."""
    body = draw(bodies)
    for _ in range(draw(st.integers(1, 4))):
        breakage = draw(st.sampled_from((*_BROKEN, _in_message, _in_message) if protobuf else _BROKEN))
        at = draw(st.integers(0, 1 << 20))
        other = draw(st.binary(min_size=1, max_size=12))
        body = breakage(body, at if breakage is _in_message else at % (len(body) + 1), other)
    return body


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.just(CANARY)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def _replaced(value: Any, path: list[int], other: Any) -> Any:
    """The document with one of its parts replaced: the numbers choose the way down."""
    if not path or not isinstance(value, dict | list) or not value:
        return other
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    copy = value.copy()
    copy[key] = _replaced(value[key], path[1:], other)
    return copy


_WAY = st.lists(st.integers(0, 50), max_size=10)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """OTLP/JSON in which a part has another type, or whose text is broken."""
    document: Any = as_json(draw(st.sampled_from(captured())))
    for _ in range(draw(st.integers(0, 3))):
        document = _replaced(document, draw(_WAY), draw(VALUES))
    text = json.dumps(document).encode()
    return draw(broken(st.just(text))) if draw(st.booleans()) else text


@st.composite
def kv_payloads(draw: st.DrawFn) -> bytes:
    """A batch of KV events in which a part has another type, or whose bytes are broken."""
    batch: Any = msgspec.msgpack.decode(draw(st.sampled_from(captured_frames()))[-1])
    for _ in range(draw(st.integers(0, 3))):
        batch = _replaced(batch, draw(_WAY), draw(VALUES | st.binary(max_size=40)))
    packed = msgspec.msgpack.encode(batch)
    return draw(broken(st.just(packed))) if draw(st.booleans()) else packed


@st.composite
def kv_frames(draw: st.DrawFn) -> list[bytes]:
    """A message of a publisher: its frames as they should be, as they should not be, or some other number of them."""
    topic, seq, _ = draw(st.sampled_from(captured_frames()))
    whole = [
        draw(st.sampled_from((topic, b"", CANARY.encode())) | st.binary(max_size=20)),
        draw(st.integers(0, (1 << 64) - 1).map(lambda number: number.to_bytes(8, "big")) | st.just(seq) | st.binary()),
        draw(kv_payloads()),
    ]
    return draw(st.just(whole) | st.lists(st.sampled_from(whole) | st.binary(max_size=30), min_size=1, max_size=6))
