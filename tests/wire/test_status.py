"""The message of a span's status goes, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.wire.messages import messages
from whymiss.errors import BadInput
from whymiss.wire.status import without_status_message


@given(messages(Span))
def test_only_the_message_goes(span: Span) -> None:
    left = Span.FromString(without_status_message(span.SerializeToString()))
    span.status.message = ""
    left.status.SetInParent()
    assert left == span


def test_a_span_without_a_message_keeps_its_bytes() -> None:
    raw = Span(name="x", status=Status(code=Status.STATUS_CODE_ERROR)).SerializeToString()
    assert without_status_message(raw) == raw


def test_half_a_field_is_bad_input() -> None:
    with pytest.raises(BadInput):
        without_status_message(b"\x7a\x7f")
