"""The one table from what went wrong to what a client is told, by gRPC and by HTTP."""

from __future__ import annotations

import grpc
import msgspec

from ...errors import BadInput, Overloaded


class Refusal(msgspec.Struct, frozen=True):
    """A refusal. Only one with ``retry_seconds`` may be sent again; ``reason`` is the label it is counted by."""

    reason: str
    code: grpc.StatusCode
    status: int
    message: str
    retry_seconds: float | None = None

    @property
    def number(self) -> int:
        """The gRPC code as a number, as a google.rpc.Status holds it."""
        number: int = self.code.value[0]
        return number


def refusal_of(error: Exception) -> Refusal:
    """Say what a client is told about an error; the text of an unforeseen one stays with us."""
    match error:
        case Overloaded():
            return Refusal("overloaded", grpc.StatusCode.UNAVAILABLE, 503, str(error), error.retry_after_seconds)
        case BadInput():
            return Refusal("bad_input", grpc.StatusCode.INVALID_ARGUMENT, 400, str(error))
        case _:
            return FAILED


def too_large(limit_key: str, bytes_max: int) -> Refusal:
    """Refuse a body, as it was sent or as it was meant, above a limit."""
    message = f"the body exceeds {bytes_max} bytes (raise {limit_key}, or send smaller batches)"
    return Refusal("too_large", grpc.StatusCode.RESOURCE_EXHAUSTED, 413, message)


FAILED = Refusal("failed", grpc.StatusCode.INTERNAL, 500, "a mistake of whymiss, see its log")
MALFORMED = Refusal("malformed", grpc.StatusCode.INVALID_ARGUMENT, 400, "this is no request of HTTP/1.1")
NOT_FOUND = Refusal("path", grpc.StatusCode.UNIMPLEMENTED, 404, "send to /v1/traces, /v1/metrics or /v1/logs")
WRONG_METHOD = Refusal("method", grpc.StatusCode.UNIMPLEMENTED, 405, "send with POST")
WRONG_MEDIA_TYPE = Refusal(
    "media_type", grpc.StatusCode.UNIMPLEMENTED, 415, "send application/x-protobuf or application/json"
)
WRONG_CODING = Refusal(
    "coding", grpc.StatusCode.UNIMPLEMENTED, 400, "compress with gzip, deflate or zstd, or not at all"
)
TOO_SLOW = Refusal("too_slow", grpc.StatusCode.UNAVAILABLE, 503, "the body did not arrive in time", 1.0)
UNAUTHENTICATED = Refusal(
    "unauthenticated", grpc.StatusCode.UNAUTHENTICATED, 401, "show one of receivers.bearer_tokens as a bearer token"
)
