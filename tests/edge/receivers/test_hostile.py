"""What a hostile client can do to the memory of the service, and to those who mean well. The figures are printed."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
import time
import zlib
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.edge.hosted import Hosted, ThreadedSink
from tests.edge.http2 import PREFACE, SETTINGS, Http2, frame
from tests.edge.traffic import span, traces
from whymiss.edge.otlp_names import METHODS
from whymiss.redaction import Signal
from whymiss.wire.encode import delimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
CONNECTIONS = [2000, pytest.param(10_000, marks=pytest.mark.deep)]
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def hosted() -> Iterator[Hosted]:
    with ThreadedSink() as sink, Hosted(sink.port, receivers=DOORS, environment={"MALLOC_ARENA_MAX": "2"}) as service:
        assert asyncio.run(served(service)) < PATIENCE_SECONDS
        yield service
        assert service.stop() == 0
        assert service.mistakes() == []


CONNECTIONS_MAX = 1000
DOORS = f"grpc: {{endpoint: '127.0.0.1:0'}}, http: {{endpoint: '127.0.0.1:0', connections_max: {CONNECTIONS_MAX}}}"


async def served(service: Hosted) -> float:
    """Be an honest client over both transports, and say how many seconds it took."""
    begin = time.monotonic()
    assert await post(service, traces(1)) == 200
    assert await call(service, traces(2)) is grpc.StatusCode.OK
    return time.monotonic() - begin


async def post(service: Hosted, body: bytes, *, coding: str = "identity", media: str = "application/x-protobuf") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.http_port)
    writer.write(
        f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {media}\r\nContent-Encoding: {coding}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        status = int((await reader.readline()).split()[1])
    writer.transport.abort()
    return status


async def call(service: Hosted, body: bytes, compression: grpc.Compression | None = None) -> grpc.StatusCode:
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}", options=options) as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHODS[Signal.TRACES])
        try:
            await export(body, timeout=PATIENCE_SECONDS, compression=compression)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@contextmanager
def bounded(service: Hosted, mib_max: float, what: str) -> Iterator[None]:
    """The most that the service grows by, meanwhile."""
    before = service.forget_peak()
    yield
    growth = service.resident_mib(peak=True) - before
    print(f"\n{what}: {growth:.0f} MiB at most above {before:.0f}")
    assert growth < mib_max, what


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1),
    "deflate": lambda body: zlib.compress(body, 1),
    "zstd": zstandard.compress,
}


def test_bombs_are_refused_in_bounded_memory(hosted: Hosted) -> None:
    bombs = {coding: pack(bytes(100 * MIB)) for coding, pack in PACKED.items()}
    bombs["zstd"] *= 40  # frames one behind the other, which would be 4 GB
    bombs["gzip"] *= 10

    async def scene() -> None:
        for coding, bomb in bombs.items():
            with bounded(hosted, 160, f"{len(bomb) / MIB:.1f} MiB of {coding} over HTTP"):
                status, seconds = await asyncio.gather(post(hosted, bomb, coding=coding), served(hosted))
                assert status == 413
                assert seconds < 5
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            with bounded(hosted, 40, f"100 MiB by gRPC's {compression.name}"):
                code, _ = await asyncio.gather(call(hosted, bytes(100 * MIB), compression), served(hosted))
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(scene())


def test_a_coding_that_grpc_does_not_know_is_refused_before_the_message(hosted: Hosted) -> None:
    async def scene() -> None:
        async with Http2(hosted.grpc_port) as client, asyncio.timeout(PATIENCE_SECONDS):
            client.begin(METHODS[Signal.TRACES], ("grpc-encoding", "zstd"), claimed=1000)
            await client.until_ended(1)

    before = hosted.counted("whymiss_receiver_accepted_requests_total", transport="grpc")
    asyncio.run(scene())
    assert hosted.counted("whymiss_receiver_accepted_requests_total", transport="grpc") == before


def engine_span(attributes: int) -> bytes:
    """A request whose span the service claims, and another that it does not look at, both with many attributes."""
    request = ExportTraceServiceRequest()
    for scope_name in ("vllm.tracing.otel", "db"):
        scope = request.resource_spans.add().scope_spans.add()
        scope.scope.name = scope_name
        wide = scope.spans.add()
        wide.CopyFrom(span(7 if scope_name == "db" else 8))
        wide.name = "llm_request"
        wide.attributes.add(key="gen_ai.usage.prompt_tokens").value.int_value = 65
        for number in range(attributes):
            wide.attributes.add(key=f"k{number}").value.int_value = number
    return request.SerializeToString()


def test_a_span_of_a_hundred_thousand_attributes_is_taken(hosted: Hosted) -> None:
    body = engine_span(100_000)
    document = {"name": "n", "traceId": "ab" * 16, "spanId": "cd" * 8}
    document_attributes = [{"key": f"k{number}", "value": {"intValue": str(number)}} for number in range(100_000)]
    text = json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [document | {"attributes": document_attributes}]}]}]}
    )

    async def scene() -> None:
        with bounded(hosted, 200, f"{len(body) / MIB:.1f} MiB of attributes"):
            assert await post(hosted, body) == 200
            assert await call(hosted, body) is grpc.StatusCode.OK
            assert await post(hosted, text.encode(), media="application/json") == 200
            assert await served(hosted) < 5

    asyncio.run(scene())


def nested(levels: int, kind: bytes) -> bytes:
    """An AnyValue in arrays (0x2a) or kvlists (0x32) in one another."""
    value = b"\x18\x01"
    for _ in range(levels):
        inside = delimited(b"\x12", value) if kind == b"\x32" else value
        value = delimited(kind, delimited(b"\x0a", inside))
    return value


@pytest.mark.parametrize("levels", [50, 1000, 10_000])
def test_deep_nesting_is_refused_or_passed_through(hosted: Hosted, levels: int) -> None:
    async def scene() -> None:
        for scope in (b"vllm.tracing.otel", b"db"):
            for kind in (b"\x2a", b"\x32"):
                attribute = delimited(b"\x0a", b"gen_ai.request.id") + delimited(b"\x12", nested(levels, kind))
                request = ExportTraceServiceRequest()
                request.resource_spans.add().scope_spans.add().spans.append(span(3))
                raw = request.resource_spans[0].scope_spans[0].spans[0].SerializeToString()
                named = delimited(b"\x0a", delimited(b"\x0a", scope))
                spans = delimited(b"\x12", raw + delimited(b"\x4a", attribute))
                body = delimited(b"\x0a", delimited(b"\x12", named + spans))
                assert await post(hosted, body) in {200, 400}
                assert await call(hosted, body) in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
        for open_, close in ((b'{"arrayValue":{"values":[', b"]}}"), (b"[", b"]"), (b'{"a":', b"}")):
            value = open_ * levels + b"1" + close * levels
            head = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"k","value":'
            body = head + value + b"}]}]}]}]}"
            assert await post(hosted, body, media="application/json") in {200, 400}
        await served(hosted)

    with bounded(hosted, 100, f"{levels} levels"):
        asyncio.run(scene())


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"


@contextmanager
def allowed(wanted: int) -> Iterator[int]:
    """How many connections there may be: each needs a descriptor of ours, and one of the service's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted + 1000 if hard == resource.RLIM_INFINITY else min(hard, wanted + 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    yield min(wanted, max(soft, limit) - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("wanted", CONNECTIONS)
@pytest.mark.parametrize("said", [b"", HEAD[:40]], ids=["silent", "half a head"])
def test_thousands_of_connections_shut_nobody_out_of_http(hosted: Hosted, wanted: int, said: bytes) -> None:
    before = made_room(hosted)
    with allowed(wanted) as many, bounded(hosted, 150, f"{many} connections to HTTP"), ExitStack() as stack:
        for _ in range(many):
            stack.enter_context(connect(hosted.http_port)).sendall(said)
        seconds = asyncio.run(served(hosted))
        refused = made_room(hosted) - before
        print(f"\n{refused:.0f} made room; an honest client was served in {seconds:.2f} s")
        assert refused >= many - CONNECTIONS_MAX
        assert seconds < 5


def made_room(service: Hosted) -> float:
    return service.counted("whymiss_receiver_refused_connections_total", reason="connections_max")


@pytest.mark.parametrize("wanted", CONNECTIONS)
@pytest.mark.parametrize("said", [b"", PREFACE + frame(SETTINGS, 0, 0)], ids=["silent", "greeted"])
def test_thousands_of_connections_shut_nobody_out_of_grpc(hosted: Hosted, wanted: int, said: bytes) -> None:
    with allowed(wanted) as many, bounded(hosted, 400, f"{many} connections to gRPC"), ExitStack() as stack:
        for _ in range(many):
            stack.enter_context(connect(hosted.grpc_port)).sendall(said)
        seconds = asyncio.run(served(hosted))
        print(f"\nan honest client was served in {seconds:.2f} s")
        assert seconds < 10


def test_trickled_bodies_over_http_leave_room_for_others(hosted: Hosted) -> None:
    async def scene() -> None:
        writers = []
        for _ in range(30):
            _, writer = await asyncio.open_connection("127.0.0.1", hosted.http_port)
            writer.write(HEAD + b"Content-Length: 67108864\r\n\r\n" + bytes(16 * MIB))
            writers.append(writer)

        async def push(writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                await writer.drain()

        pushing = [asyncio.create_task(push(writer)) for writer in writers]
        seconds = await until_served(hosted)
        await asyncio.gather(*pushing)
        seconds = max(seconds, await until_served(hosted))
        print(f"\nan honest client was served within {seconds:.2f} s")
        for writer in writers:
            writer.transport.abort()

    with bounded(hosted, 450, "30 bodies of which 16 MiB came"):
        asyncio.run(scene())


async def until_served(service: Hosted) -> float:
    """Come again, as a client does that is asked to, until a body is taken."""
    begin = time.monotonic()
    while await post(service, traces(1)) != 200:
        assert time.monotonic() - begin < 5
    return time.monotonic() - begin


def test_unfinished_calls_over_grpc_leave_room_for_others(hosted: Hosted) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            attackers = [await stack.enter_async_context(Http2(hosted.grpc_port)) for _ in range(6)]
            await asyncio.gather(*(hold(attacker) for attacker in attackers))
            seconds = await served(hosted)
            print(f"\n{sum(len(one.ended) for one in attackers)} given up; an honest client took {seconds:.2f} s")
            assert seconds < 5

    async def hold(attacker: Http2) -> None:
        for _ in range(50):
            await attacker.send(attacker.begin(claimed=4_100_000), 4_000_000)

    with bounded(hosted, 500, "300 messages of which 4 MB came"):
        asyncio.run(scene())
    refused = hosted.counted("whymiss_receiver_refused_requests_total", transport="grpc")
    assert refused > 200
