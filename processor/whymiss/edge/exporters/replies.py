"""What destinations say in protobuf: how much they rejected, and when to come again.

None of it is worth an error. A reply that cannot be read says nothing: a resend would only
duplicate what an unreadable 2xx has accepted.
"""

from __future__ import annotations

from ...errors import BadInput
from ...wire.scan import fields, read_varint

_RETRY_TYPE = b"google.rpc.RetryInfo"


def read_partial_success(response: bytes) -> tuple[int, str]:
    """Read how many spans, data points or records an Export*ServiceResponse rejects, and its message."""
    rejected, message = 0, ""
    try:
        for tag, _, start, end in fields(response):
            if tag == 0x0A:  # partial_success
                for inner, _, value, stop in fields(response, start, end):
                    if inner == 0x08:  # rejected_spans, rejected_data_points, rejected_log_records
                        rejected = read_varint(response, value)[0]
                    elif inner == 0x12:  # error_message
                        message = response[value:stop].decode(errors="replace")
    except BadInput:
        return 0, ""
    return rejected if rejected < 1 << 63 else 0, message


def read_status_delay_seconds(status: bytes) -> float | None:
    """Read the delay of the RetryInfo among a google.rpc.Status's details, if there is one."""
    try:
        for tag, _, start, end in fields(status):
            if tag == 0x1A:  # details, an Any
                parts = {inner: status[value:stop] for inner, _, value, stop in fields(status, start, end)}
                if parts.get(0x0A, b"").endswith(_RETRY_TYPE):
                    return read_bare_delay_seconds(parts.get(0x12, b""))
    except BadInput:
        return None
    return None


def read_bare_delay_seconds(delay: bytes) -> float | None:
    """Read the delay of a bare google.rpc.RetryInfo; one without a delay is a hint of no time."""
    seconds = 0.0
    try:
        for tag, _, start, end in fields(delay):
            if tag == 0x0A:  # retry_delay, a Duration
                for inner, _, value, _ in fields(delay, start, end):
                    if inner in {0x08, 0x10}:  # seconds, nanos
                        number = read_varint(delay, value)[0]
                        # A negative delay is ten bytes of two's complement; there is no time to go back to.
                        seconds += (0 if number >> 63 else number) * (1.0 if inner == 0x08 else 1e-9)
    except BadInput:
        return None
    return seconds
