"""Whatever comes in at a door: an answer of the contract, nothing of it in the log, nothing invented behind us.

Sixty cases a door in the normal run, three thousand in `make deep`.
"""

from __future__ import annotations

import gzip
import http.client
import re
import socket
import zlib
from contextlib import closing
from typing import TYPE_CHECKING

import grpc
import pytest
import zmq
import zstandard
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.edge.hosted import Hosted, ThreadedSink, free_port
from tests.edge.http2 import PREFACE
from tests.edge.mutations import CANARY, broken, captured, captured_frames, documents, kv_frames
from tests.edge.traffic import traces
from whymiss.edge.kv.push import PUSH, SNAPSHOT
from whymiss.edge.otlp_names import METHODS
from whymiss.errors import BadInput
from whymiss.redaction import Signal
from whymiss.wire import kv_push_pb2 as schema
from whymiss.wire.json_in import logs_from_json, metrics_from_json, traces_from_json
from whymiss.wire.scan import fields
from whymiss.wire.split import split

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUSES = {200, 400, 401, 405, 413, 415, 429, 503}
CODES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAVAILABLE,
}
TOKEN = "a-token-of-some-length"
GROWTH_MIB_MAX = 200
PATIENCE_SECONDS = 20
_FROM_JSON = {Signal.TRACES: traces_from_json, Signal.METRICS: metrics_from_json, Signal.LOGS: logs_from_json}
_PACK = {
    "identity": bytes,
    "gzip": lambda body: gzip.compress(body, 1),
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}


def spans_of(body: bytes) -> set[bytes]:
    """What identifies the spans of a request: their ids, or where those cannot be read all their bytes."""
    return {_identity(raw) for group in split(body) for raw in group.spans}


def _identity(raw: bytes) -> bytes:
    try:
        ids = {tag: raw[value:end] for tag, _, value, end in fields(raw) if tag in {0x0A, 0x12}}
    except BadInput:
        return raw
    return ids.get(0x0A, b"") + b"/" + ids.get(0x12, b"")


class Siege:
    """A service, what stands behind it, and what it has acknowledged."""

    def __init__(self, service: Hosted, sink: ThreadedSink, publisher: zmq.Socket[bytes], bound_port: int) -> None:
        self.service = service
        self.sink = sink
        self.publisher = publisher
        self.bound_port = bound_port
        self.acknowledged: dict[Signal, set[bytes]] = {signal: set() for signal in Signal}
        self.web = http.client.HTTPConnection("127.0.0.1", service.http_port, timeout=PATIENCE_SECONDS)
        options = [("grpc.enable_retries", 0)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}", options=options)

    def post(self, path: str, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
        try:
            return self._post(path, body, headers, method)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            # What was refused unread costs the connection, and a client comes again.
            return self._post(path, body, headers, method)

    def _post(self, path: str, body: bytes, headers: dict[str, str], method: str) -> int:
        try:
            self.web.request(method, path, body, headers)
            with closing(self.web.getresponse()) as answer:
                answer.read()
                return answer.status
        except (OSError, http.client.HTTPException):
            self.web.close()  # the next is not to suffer from it
            raise

    def call(
        self, method: str, body: bytes, token: str, compression: grpc.Compression | None = None
    ) -> grpc.StatusCode:
        unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(method)
        try:
            unary(
                body,
                timeout=PATIENCE_SECONDS,
                metadata=(("authorization", f"Bearer {token}"),),
                compression=compression,
            )
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
        return grpc.StatusCode.OK

    def note(self, signal: Signal, body: bytes) -> None:
        """Keep what an acknowledged request could let out."""
        if signal is Signal.TRACES:
            self.acknowledged[signal] |= spans_of(body)
        else:
            self.acknowledged[signal].add(body)

    def is_served(self) -> bool:
        """Whether an honest client is."""
        body = traces(1)
        self.note(Signal.TRACES, body)
        headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {TOKEN}"}
        served = self.post("/v1/traces", body, headers) == 200
        return served and self.call(METHODS[Signal.TRACES], body, TOKEN) is grpc.StatusCode.OK

    def audit(self, resident_mib: float) -> None:
        """Close the service, and look at what is left."""
        assert self.is_served()
        growth = self.service.resident_mib() - resident_mib
        assert self.service.stop() == 0
        assert self.service.mistakes() == []
        assert [line for line in self.service.lines if CANARY in line] == []
        out = {span for body in self.sink.bodies[Signal.TRACES] for span in spans_of(body)}
        assert out <= self.acknowledged[Signal.TRACES]
        assert set(self.sink.bodies[Signal.METRICS]) <= self.acknowledged[Signal.METRICS]
        assert growth < GROWTH_MIB_MAX
        print(f"\n{len(out)} spans out, {growth:.0f} MiB grown, {len(self.service.lines)} lines")


@pytest.fixture(scope="module")
def siege() -> Iterator[Siege]:
    bound_port = free_port()
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher, ThreadedSink() as sink:
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        service = Hosted(
            sink.port,
            receivers="grpc: {endpoint: '127.0.0.1:0', max_receive_bytes: 64KiB}, "
            f"http: {{endpoint: '127.0.0.1:0', max_body_bytes: 64KiB}}, bearer_tokens: [{TOKEN}]",
            more=f"kv_events: {{sources: [{{endpoint: 'tcp://127.0.0.1:{port}', worker: w}}, "
            f"{{endpoint: 'tcp://127.0.0.1:{bound_port}', bind: true}}]}}",
        )
        publisher.linger = 0
        with service:
            publisher.recv()  # it has subscribed
            besieged = Siege(service, sink, publisher, bound_port)
            assert besieged.is_served()
            resident_mib = service.resident_mib()
            with closing(besieged.web), besieged.channel:
                yield besieged
                besieged.audit(resident_mib)


BODIES = broken(st.sampled_from(captured()), protobuf=True) | st.sampled_from(captured()) | st.binary(max_size=200)
SIGNALS = st.sampled_from((Signal.TRACES, Signal.TRACES, Signal.METRICS, Signal.LOGS))
TOKENS = st.sampled_from((TOKEN, TOKEN, TOKEN, TOKEN, "another-token-of-length", ""))


@given(SIGNALS, BODIES, TOKENS, st.sampled_from(tuple(grpc.Compression)))
def test_grpc_answers_by_the_contract(
    siege: Siege, signal: Signal, body: bytes, token: str, compression: grpc.Compression
) -> None:
    code = siege.call(METHODS[signal], body, token, compression)
    event(code.name)
    assert code in CODES
    assert (code is grpc.StatusCode.UNAUTHENTICATED) == (token != TOKEN)
    if code is grpc.StatusCode.OK:
        siege.note(signal, body)


@given(SIGNALS, BODIES | documents(), TOKENS, st.data())
def test_http_answers_by_the_contract(
    siege: Siege, signal: Signal, body: bytes, token: str, data: st.DataObject
) -> None:
    coding = data.draw(st.sampled_from(tuple(_PACK)))
    packed = _PACK[coding](body)
    sent = data.draw(st.just(packed) | st.just(packed) | broken(st.just(packed)))
    media = "json" if body[:1] in b"{[" else "x-protobuf"
    headers = {
        "Content-Type": data.draw(
            st.sampled_from((f"application/{media}",) * 6 + ("application/json; charset=utf-8", "text/plain", ""))
        ),
        "Content-Encoding": data.draw(st.sampled_from((coding,) * 8 + ("br", *_PACK))),
        "Authorization": f"Bearer {token}",
    }
    method = data.draw(st.sampled_from(("POST",) * 8 + ("GET", "PUT", "DELETE")))
    status = siege.post(f"/v1/{signal}", sent, headers, method)
    event(str(status))
    assert status in STATUSES
    assert (status == 401) == (token != TOKEN)
    if status == 200 and sent == packed and headers["Content-Encoding"] == coding:
        siege.note(signal, _FROM_JSON[signal](body) if "json" in headers["Content-Type"] and body else body)
    elif status == 200:
        siege.note(signal, _plain(signal, sent, headers))


def _plain(signal: Signal, sent: bytes, headers: dict[str, str]) -> bytes:
    """What a broken body meant after all, by our own reading: it was accepted."""
    from whymiss.edge.receivers.inflate import inflate  # noqa: PLC0415 - beside its only use

    body = b"".join(inflate(sent, headers["Content-Encoding"])) if sent else b""
    return _FROM_JSON[signal](body) if "json" in headers["Content-Type"] and body else body


@settings(max_examples=10)  # gRPC takes a quarter of a second to refuse one that is not packed
@given(st.integers(65_000, 70_000), st.sampled_from(tuple(_PACK)))
def test_a_body_over_the_limit_is_too_large_however_it_is_packed(siege: Siege, size: int, coding: str) -> None:
    # A field that nobody knows, of which only the length is of interest.
    body = (b"\x9a\x06" + b"\x80\x80\x04" + bytes(1 << 16) + b"\x98\x06\x01" * 3000)[:size]
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": coding,
        "Authorization": f"Bearer {TOKEN}",
    }
    status = siege.post("/v1/traces", _PACK[coding](body), headers)
    assert (status == 413) == (size > 1 << 16)
    compression = grpc.Compression.Gzip if coding == "gzip" else grpc.Compression.NoCompression
    code = siege.call(METHODS[Signal.TRACES], body, TOKEN, compression)
    assert (code is grpc.StatusCode.RESOURCE_EXHAUSTED) == (size > 1 << 16)


@given(kv_frames(), TOKENS, st.sampled_from((PUSH, SNAPSHOT)), st.data())
def test_pushed_batches_are_answered_by_the_contract(
    siege: Siege, frames: list[bytes], token: str, method: str, data: st.DataObject
) -> None:
    origin = schema.Origin(source="s", worker="pushed")
    request = schema.PushRequest(origin=origin, seq=data.draw(st.integers(0, 1 << 63)), payload=frames[-1])
    encoded = request.SerializeToString()
    body = data.draw(st.just(encoded) | broken(st.just(encoded), protobuf=True))
    code = siege.call(method, body, token)
    event(code.name)
    assert code in CODES


@settings(max_examples=max(10, settings().max_examples // 20))  # to know that a message was taken is what takes time
@given(st.lists(kv_frames(), min_size=1, max_size=20))
def test_messages_of_a_publisher_never_stop_the_next(siege: Siege, messages: list[list[bytes]]) -> None:
    for frames in messages:
        siege.publisher.send_multipart(frames)
    bad = siege.service.counted("whymiss_ledger_bad_events_total")
    siege.publisher.send_multipart([b"one frame is no message"])
    siege.service.until(lambda: siege.service.counted("whymiss_ledger_bad_events_total") > bad)


@given(broken(st.just(b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48))) | st.binary(max_size=100))
def test_a_socket_that_is_bound_for_publishers_survives_strangers(siege: Siege, greeting: bytes) -> None:
    with socket.create_connection(("127.0.0.1", siege.bound_port), timeout=PATIENCE_SECONDS) as stranger:
        stranger.sendall(greeting)
    assert siege.service.is_running()


_HEAD = (
    f"POST /v1/traces?{CANARY} HTTP/1.1\r\nHost: x\r\nX-{CANARY}: {CANARY}\r\nContent-Length: 4\r\n\r\nabcd".encode()
)
_CHUNKED = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"


@given(broken(st.sampled_from((_HEAD, _CHUNKED))) | st.binary(max_size=300))
def test_whatever_an_http_connection_says_is_answered_or_closed(siege: Siege, said: bytes) -> None:
    answer = _converse(siege.service.http_port, said)
    status = re.match(rb"HTTP/\d\.\d (\d{3}) ", answer)
    assert answer == b"" or (status is not None and int(status[1]) in STATUSES | {404})
    assert CANARY.encode() not in answer


@given(broken(st.just(PREFACE + b"\0\0\0\4\0\0\0\0\0")) | st.binary(max_size=300))
def test_whatever_a_grpc_connection_says_harms_no_other(siege: Siege, said: bytes) -> None:
    _converse(siege.service.grpc_port, said)
    assert siege.call(METHODS[Signal.METRICS], b"", TOKEN) is grpc.StatusCode.OK


def _converse(port: int, said: bytes) -> bytes:
    """Say something, say that this was all, and hear the answer to its end."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        try:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answer += part
        except ConnectionError:  # it was closed before we were done
            pass
    return answer


def test_the_captures_are_there_to_be_broken() -> None:
    assert len(captured()) > 50
    assert len(captured_frames()) > 100
