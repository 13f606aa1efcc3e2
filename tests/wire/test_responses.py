from __future__ import annotations

import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from whymiss.errors import BadInput
from whymiss.wire.json_out import export_response, retry_delay_bytes, status_details_bytes
from whymiss.wire.responses import read_partial_success, read_retry_delay

SIGNALS = ["traces", "metrics", "logs"]
DETAILS = "grpc-status-details-bin"
BARE = "google.rpc.retryinfo-bin"


@pytest.mark.parametrize("signal", SIGNALS)
@given(rejected=st.integers(0, 2**31), message=st.text(max_size=20))
def test_partial_success_is_read_as_it_was_written(signal: str, rejected: int, message: str) -> None:
    body = export_response(rejected, message, as_json=False, signal=signal)
    assert read_partial_success(signal, body) == (rejected, message)


@pytest.mark.parametrize("signal", SIGNALS)
def test_an_answer_of_another_kind_is_bad_input(signal: str) -> None:
    with pytest.raises(BadInput):
        read_partial_success(signal, b"\xff\xff")


@given(st.floats(0, 1000))
def test_both_trailers_tell_the_same_delay(seconds: float) -> None:
    assert read_retry_delay(BARE, retry_delay_bytes(seconds)) == pytest.approx(seconds, abs=1e-9)
    assert read_retry_delay(DETAILS, status_details_bytes(14, "busy", seconds)) == pytest.approx(seconds, abs=1e-9)


def test_a_trailer_without_a_delay_tells_none() -> None:
    assert read_retry_delay(DETAILS, status_details_bytes(8, "full", None)) is None
    assert read_retry_delay("x-other-bin", RetryInfo().SerializeToString()) is None
    assert read_retry_delay(DETAILS, b"\xff\xff") is None
    assert read_retry_delay(DETAILS, Status(code=3).SerializeToString()) is None
