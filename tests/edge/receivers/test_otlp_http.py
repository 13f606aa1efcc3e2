from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import time
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
import zstandard
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.edge.cores import PassingCore, counted
from tests.edge.doors import LOCAL, call, http_door, post, room
from tests.edge.loops import looped
from tests.edge.traffic import BODIES, numbers, redacted, traces
from whymiss.config import HttpReceiverConfig
from whymiss.edge.receivers.otlp_http import HttpReceiver
from whymiss.errors import BadInput, Overloaded
from whymiss.redaction import Signal
from whymiss.wire.json_in import traces_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.edge.doors import Answered

PROTOBUF, JSON = "application/x-protobuf", "application/json"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}
SPAN = {"traceId": "AB" * 16, "spanId": "cd" * 8, "name": "n", "startTimeUnixNano": "1", "endTimeUnixNano": 2}
AS_JSON = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}], "unknown": 1}).encode()


def status_of(answer: Answered) -> Status:
    """The google.rpc.Status that is the body, in either encoding."""
    if answer.headers["Content-Type"] == PROTOBUF:
        return Status.FromString(answer.body)
    assert answer.headers["Content-Type"].startswith(JSON)
    said = json.loads(answer.body)
    return Status(code=said["code"], message=said["message"])


@pytest.mark.parametrize("coding", PACK)
@looped
async def test_every_signal_reaches_the_core_byte_for_byte(coding: str) -> None:
    behind = room()
    async with http_door(behind) as door:
        for signal, body in BODIES.items():
            answer = await post(door.port, f"/v1/{signal}", PACK[coding](body), Content_Encoding=coding)
            assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"", PROTOBUF)
    assert behind.core.bodies == list(BODIES.items())
    assert behind.accepted(transport="http") == 3
    assert counted(behind.core.measures, "whymiss.receiver.accepted_spans", transport="http") == 1


@pytest.mark.parametrize("coding", PACK)
@pytest.mark.parametrize("media", [JSON, "application/json; charset=utf-8"])
@looped
async def test_json_arrives_as_protobuf_and_is_answered_in_json(coding: str, media: str) -> None:
    behind = room()
    async with http_door(behind) as door:
        answer = await post(door.port, "/v1/traces", PACK[coding](AS_JSON), media=media, Content_Encoding=coding)
    assert (answer.status, answer.body) == (200, b"{}")
    [(_, body)] = behind.core.bodies
    span = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans[0]
    assert (span.trace_id.hex(), span.span_id.hex(), span.end_time_unix_nano) == ("ab" * 16, "cd" * 8, 2)


@pytest.mark.parametrize(("media", "body"), [(PROTOBUF, b""), (JSON, b"{}"), (JSON, b"")])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@looped
async def test_an_empty_request_is_a_success(media: str, body: bytes, coding: str) -> None:
    async with http_door(room()) as door:
        answer = await post(door.port, "/v1/traces", body and PACK[coding](body), media=media, Content_Encoding=coding)
    assert answer.status == 200


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
@looped
async def test_a_rejected_part_is_told_in_a_partial_success(media: str) -> None:
    async with http_door(room(PassingCore(rejects=(2, "no id")))) as door:
        answer = await post(door.port, "/v1/traces", AS_JSON if media == JSON else traces(1), media=media)
    assert answer.status == 200
    if media == JSON:
        assert json.loads(answer.body) == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no id"}}
    else:
        partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
        assert (partial.rejected_spans, partial.error_message) == (2, "no id")


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    ("failure", "status", "code", "reason"),
    [
        (BadInput("not an OTLP trace request"), 400, 3, "bad_input"),
        (ZeroDivisionError("a secret"), 500, 13, "failed"),
        (Overloaded("too much", limit_key="some.key"), 503, 14, "overloaded"),
    ],
)
@looped
async def test_failures_are_a_status_in_the_encoding_of_the_request(
    media: str, failure: Exception, status: int, code: int, reason: str
) -> None:
    behind = room(PassingCore(failure=failure))
    async with http_door(behind) as door:
        answer = await post(door.port, "/v1/traces", AS_JSON if media == JSON else traces(1), media=media)
    said = status_of(answer)
    assert (answer.status, said.code) == (status, code)
    assert said.message
    assert "secret" not in said.message
    assert answer.headers.get("Retry-After") == ("1" if status == 503 else None)
    assert behind.refused(transport="http", signal="traces", reason=reason) == 1


@looped
async def test_overload_carries_a_retry_info_too() -> None:
    failure = Overloaded("too much", limit_key="some.key", retry_after_seconds=2)
    async with http_door(room(PassingCore(failure=failure))) as door:
        answer = await post(door.port, "/v1/traces", traces(1))
    info = RetryInfo()
    assert status_of(answer).details[0].Unpack(info)
    assert (info.retry_delay.seconds, answer.headers["Retry-After"]) == (2, "2")


@looped
async def test_a_full_queue_refuses_before_the_core_sees_the_request() -> None:
    behind = room(queue_requests_max=1)
    async with http_door(behind) as door:
        behind.exporter.submit(redacted(7))
        answer = await post(door.port, "/v1/traces", traces(1))
    assert (answer.status, answer.headers["Retry-After"], behind.core.bodies) == (503, "1", [])
    assert "exporters.next.queue_requests_max" in status_of(answer).message


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
@looped
async def test_what_is_asked_for_wrongly_is_refused_with_the_right_status(media: str) -> None:
    behind = room()
    async with http_door(behind) as door:
        other_method = await post(door.port, "/v1/traces", b"", media=media, method="PUT")
        other_path = await post(door.port, "/v1/profiles", b"", media=media)
        other_coding = await post(door.port, "/v1/traces", b"x", media=media, Content_Encoding="snappy")
        other_media = await post(door.port, "/v1/traces", b"x", media="text/plain")
    assert [one.status for one in (other_method, other_path, other_coding, other_media)] == [405, 404, 400, 415]
    assert other_method.headers["Allow"] == "POST"
    for answer in (other_method, other_path, other_coding, other_media):
        assert status_of(answer).message
    assert [behind.refused(reason=reason) for reason in ("method", "coding", "media_type")] == [1, 1, 1]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@looped
async def test_a_truncated_body_is_refused_and_never_half_taken(coding: str) -> None:
    # Cut where a whole request ends, what is left would be valid protobuf.
    packed = PACK[coding](b"".join(traces(*range(k, k + 50)) for k in range(0, 600, 50)))
    behind = room()
    async with http_door(behind) as door:
        statuses = {
            (await post(door.port, "/v1/traces", packed[:-cut], Content_Encoding=coding)).status for cut in range(1, 30)
        }
    assert (statuses, behind.core.bodies) == ({400}, [])


@looped
async def test_every_member_of_a_gzip_body_is_taken() -> None:
    behind = room()
    async with http_door(behind) as door:
        body = gzip.compress(traces(1)) + gzip.compress(traces(2))
        assert (await post(door.port, "/v1/traces", body, Content_Encoding="gzip")).status == 200
    assert numbers(behind.core.bodies[0][1]) == [1, 2]


@pytest.mark.parametrize("coding", PACK)
@looped
async def test_a_bomb_is_refused_in_bounded_memory(coding: str) -> None:
    bomb = PACK[coding](bytes(100 << 20) if coding != "identity" else bytes(2 << 20))
    behind = room()
    async with http_door(behind, max_body_bytes=1 << 20) as door:
        tracemalloc.start()
        try:
            answer = await post(door.port, "/v1/traces", bomb, Content_Encoding=coding)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        after = await post(door.port, "/v1/traces", traces(1))
    assert (answer.status, after.status, len(behind.core.bodies)) == (413, 200, 1)
    assert "receivers.http.max_body_bytes" in status_of(answer).message
    assert peak < 24 << 20
    assert behind.refused(reason="too_large") == 1


@looped
async def test_a_body_without_a_length_is_limited_while_it_comes() -> None:
    async with http_door(room(), max_body_bytes=1000) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(
            b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + bytes(1001)
        )
        assert (await reader.readline()).split()[1] == b"413"
        writer.close()


@looped
async def test_all_bodies_together_are_limited_and_give_their_room_back() -> None:
    async with http_door(room(), max_body_bytes=1000) as door:
        head = (
            b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\nContent-Length: 1000\r\n"
        )
        writers = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(head + b"Expect: 100-continue\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"100"
            writer.write(bytes(999))
            writers.append(writer)
        while door.bytes_left > 4:  # noqa: ASYNC110 - four bodies of 999 bytes are on their way
            await asyncio.sleep(0)
        assert (await post(door.port, "/v1/traces", traces(1))).status == 503
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        while door.bytes_left < 4000:  # noqa: ASYNC110 - the connections are going
            await asyncio.sleep(0)
        assert (await post(door.port, "/v1/traces", traces(1))).status == 200


@looped
async def test_garbage_is_never_our_fault() -> None:
    async with http_door(room()) as door:
        for media in (PROTOBUF, JSON):
            for coding in PACK:
                garbage = b"\x0a\xff" + os.urandom(60)
                answer = await post(door.port, "/v1/traces", garbage, media=media, Content_Encoding=coding)
                assert answer.status == 400
                assert base64.b64encode(garbage[2:20]) not in answer.body


@looped
async def test_a_stuck_upload_does_not_hold_up_the_end() -> None:
    behind = room()
    receiver = HttpReceiver(LOCAL, HttpReceiverConfig(), behind.intake, grace_seconds=0.05)
    await receiver.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
    writer.write(
        b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    )
    await reader.readline()
    async with asyncio.timeout(5):
        await receiver.stop()
    writer.close()


@looped
async def test_an_address_in_use_is_an_os_error() -> None:
    behind = room()
    async with http_door(behind) as door:
        second = HttpReceiver(f"127.0.0.1:{door.port}", HttpReceiverConfig(), behind.intake)
        with pytest.raises(OSError):  # noqa: PT011 - the operating system's own words
            await second.start()
        await second.stop()


@looped
async def test_large_json_is_not_read_on_the_event_loop() -> None:
    attributes = [{"key": f"k{number}", "value": {"stringValue": "v" * 20}} for number in range(10)]
    large = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**SPAN, "attributes": attributes}] * 8000}]}]})
    behind = room()
    async with http_door(behind) as door:
        traces_from_json(b"{}")  # what is made once is made now
        began = time.thread_time()
        expected = traces_from_json(large.encode())
        alone = time.thread_time() - began
        answer = await post(door.port, "/v1/traces", large.encode(), Content_Type=JSON)
        assert answer.status == 200
        assert time.thread_time() - began - alone < alone / 2
        broken = await post(door.port, "/v1/traces", large.encode()[:-1], Content_Type=JSON)
        assert broken.status == 400
    assert behind.core.bodies == [(Signal.TRACES, expected)]


@looped
async def test_grpc_at_the_wrong_port_is_told_apart_from_what_is_no_http() -> None:
    behind = room()
    async with http_door(behind) as door:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(door.port, "traces", traces(1))
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(b"\x00\x01\x02\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()

    def refused(reason: str) -> float:
        name = "whymiss.receiver.refused_connections"
        return counted(behind.core.measures, name, transport="http", reason=reason)

    assert refused("http2") >= 1  # gRPC may try twice
    assert refused("malformed") == 1
