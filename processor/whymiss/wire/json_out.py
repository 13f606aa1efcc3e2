"""What a receiver answers, in protobuf or JSON as the request was."""

from __future__ import annotations

import msgspec

from .encode import delimited, utf8, varint

_RETRY_TYPE = "type.googleapis.com/google.rpc.RetryInfo"
_REJECTED = {"traces": "rejectedSpans", "metrics": "rejectedDataPoints", "logs": "rejectedLogRecords"}
_NANOS = 1_000_000_000


def export_response(rejected: int, message: str, *, as_json: bool, signal: str) -> bytes:
    """Encode the ``Export…ServiceResponse`` to an accepted request.

    ``rejected`` counts spans, data points or log records by ``signal`` (``traces``, ``metrics`` or
    ``logs``). With none rejected a message is a warning; with neither the response is empty, as
    OTLP demands of a full success.
    """
    if as_json:
        partial: dict[str, str] = {}
        if rejected:
            partial[_REJECTED[signal]] = str(rejected)
        if message:
            partial["errorMessage"] = message
        return msgspec.json.encode({"partialSuccess": partial} if partial else {})
    encoded = _integer(1, rejected) + _string(b"\x12", message)
    return delimited(b"\x0a", encoded) if encoded else b""


def status_body(code: int, message: str, *, retry_seconds: float | None, as_json: bool) -> bytes:
    """Encode the ``google.rpc.Status`` that is the body of an HTTP error.

    ``code`` is a gRPC status code. ``retry_seconds`` becomes a ``RetryInfo`` detail; ``None`` means
    that the client is not asked to retry.
    """
    if not as_json:
        return status_details_bytes(code, message, retry_seconds)
    status: dict[str, object] = {"code": code, "message": message}
    if retry_seconds is not None:
        seconds, nanos = _duration(retry_seconds)
        delay = f"{seconds}.{nanos:09}".rstrip("0").rstrip(".") if nanos else str(seconds)
        status["details"] = [{"@type": _RETRY_TYPE, "retryDelay": f"{delay}s"}]
    return msgspec.json.encode(status)


def retry_delay_bytes(seconds: float) -> bytes:
    """Encode a ``google.rpc.RetryInfo``: the trailer ``google.rpc.retryinfo-bin`` that Python exporters read."""
    whole, nanos = _duration(seconds)
    return delimited(b"\x0a", _integer(1, whole) + _integer(2, nanos))


def status_details_bytes(code: int, message: str, retry_seconds: float | None) -> bytes:
    """Encode a ``google.rpc.Status``: the trailer ``grpc-status-details-bin`` that Go exporters read."""
    encoded = _integer(1, code) + _string(b"\x12", message)
    if retry_seconds is None:
        return encoded
    detail = _string(b"\x0a", _RETRY_TYPE) + delimited(b"\x12", retry_delay_bytes(retry_seconds))
    return encoded + delimited(b"\x1a", detail)


def _duration(seconds: float) -> tuple[int, int]:
    return divmod(max(0, round(seconds * _NANOS)), _NANOS)


def _integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value) if value else b""


def _string(tag: bytes, text: str) -> bytes:
    return delimited(tag, utf8(text)) if text else b""
