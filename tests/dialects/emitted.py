"""Spans as an emitter sends them, and what the dialects make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

from whymiss.dialects.registry import candidates, claim
from whymiss.model import Envelope, Evidenced, ResourceIdentity, Span

Value = str | bool | int | float | Sequence[str] | bytes
Event = tuple[str, Mapping[str, Value]]

SECRET = "s3cr3t-salt"
ERROR = 2


def any_value(value: Value) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    made = AnyValue()
    made.array_value.values.extend([AnyValue(string_value=item) for item in value])
    return made


def encoded(
    name: str, attributes: Mapping[str, Value], *, status: int = 0, events: Sequence[Event] = (), links: int = 0
) -> bytes:
    """One span with valid ids."""
    message = Message(trace_id=bytes(range(1, 17)), span_id=bytes(range(1, 9)), name=name, flags=0x100)
    message.start_time_unix_nano, message.end_time_unix_nano = 1_000_000_000, 2_000_000_000
    if status:
        message.status.MergeFromString(bytes((0x18, status)))
    for key, value in attributes.items():
        message.attributes.add(key=key, value=any_value(value))
    for event_name, pairs in events:
        event = message.events.add(name=event_name)
        for key, value in pairs.items():
            event.attributes.add(key=key, value=any_value(value))
    for number in range(links):
        message.links.add(trace_id=bytes([number + 1]) * 16, span_id=bytes(range(1, 9)))
    return message.SerializeToString()


def claimed(
    name: str,
    attributes: Mapping[str, Value],
    *,
    scope: str = "any",
    status: int = 0,
    events: Sequence[Event] = (),
) -> Span | None:
    """The span as the registry claims it, if it does."""
    raw = encoded(name, attributes, status=status, events=events)
    dialects = candidates(scope, raw)
    return claim(raw, Envelope(resource=b"", scope=b""), ResourceIdentity(), dialects) if dialects else None


def said(
    name: str,
    attributes: Mapping[str, Value],
    *,
    scope: str = "any",
    status: int = 0,
    events: Sequence[Event] = (),
) -> tuple[Evidenced, ...]:
    """What is said of a span, nothing where nobody claims it."""
    span = claimed(name, attributes, scope=scope, status=status, events=events)
    return () if span is None else span.says
