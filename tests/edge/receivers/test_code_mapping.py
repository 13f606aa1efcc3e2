"""The code matrix in both directions: what a next hop's code makes us do, and what our refusals tell a sender.

An acknowledgement is not taken back, so no code of a next hop reaches a sender: it decides between again and lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.cores import PassingCore, counted, measures
from tests.edge.doors import call, grpc_door, http_door, post, room
from tests.edge.loops import looped
from tests.edge.paces import HeldPace
from tests.edge.sink import GrpcFault, HttpFault, Sink
from tests.edge.traffic import numbers, redacted, traces
from whymiss.config import ExporterConfig, RetryConfig, parse
from whymiss.edge.exporters.delivery import Deferred, Delivered, Reply
from whymiss.edge.exporters.exporter import Exporter
from whymiss.edge.receivers import refusals
from whymiss.edge.service import Service, serving
from whymiss.errors import BadInput, Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from whymiss.edge.receivers.refusals import Refusal
    from whymiss.redaction import Signal

AGAIN, LOST = "again", "lost"

GRPC_CODES = {
    "CANCELLED": AGAIN,
    "UNKNOWN": LOST,
    "INVALID_ARGUMENT": LOST,
    "DEADLINE_EXCEEDED": AGAIN,
    "NOT_FOUND": LOST,
    "ALREADY_EXISTS": LOST,
    "PERMISSION_DENIED": LOST,
    "RESOURCE_EXHAUSTED": LOST,
    "FAILED_PRECONDITION": LOST,
    "ABORTED": AGAIN,
    "OUT_OF_RANGE": AGAIN,
    "UNIMPLEMENTED": LOST,
    "INTERNAL": LOST,
    "UNAVAILABLE": AGAIN,
    "DATA_LOSS": AGAIN,
    "UNAUTHENTICATED": LOST,
}
"""OTLP's table of gRPC codes, all that there are but OK."""

HTTP_STATUSES = {
    **dict.fromkeys((301, 302, 307, 308, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422), LOST),
    **dict.fromkeys((500, 501, 505, 507), LOST),
    **dict.fromkeys((429, 502, 503, 504), AGAIN),
}
RETRYABLE_STATUSES = {429, 502, 503, 504}

RETRY_INFO = ("google.rpc.retryinfo-bin", RetryInfo(retry_delay=Duration(nanos=1_000_000)).SerializeToString())


def test_the_table_has_every_grpc_code() -> None:
    assert set(GRPC_CODES) == {code.name for code in grpc.StatusCode} - {"OK"}


# --- a next hop's code, and what we do ------------------------------------------------------------------


def cases() -> list[tuple[str, GrpcFault | HttpFault, str, str]]:
    found: list[tuple[str, GrpcFault | HttpFault, str, str]] = [
        ("grpc", GrpcFault(grpc.StatusCode[code]), code, what) for code, what in GRPC_CODES.items()
    ]
    # With a hint it is a promise that it gets better; of other codes a hint makes no retry.
    found.append(("grpc", GrpcFault(grpc.StatusCode.RESOURCE_EXHAUSTED, (RETRY_INFO,)), "RESOURCE_EXHAUSTED", AGAIN))
    found.append(("grpc", GrpcFault(grpc.StatusCode.INVALID_ARGUMENT, (RETRY_INFO,)), "INVALID_ARGUMENT", LOST))
    found += [("http/protobuf", HttpFault(status), str(status), what) for status, what in HTTP_STATUSES.items()]
    found.append(("http/protobuf", HttpFault(500, (("Retry-After", "0"),)), "500", LOST))
    found.append(("http/protobuf", HttpFault(429, (("Retry-After", "0"),)), "429", AGAIN))
    found.append(("http/protobuf", HttpFault(0), "ServerDisconnectedError", AGAIN))
    return found


def service_to(sink: Sink, protocol: str) -> AbstractAsyncContextManager[Service]:
    hop = (
        f'"127.0.0.1:{sink.grpc_port}", insecure: true'
        if protocol == "grpc"
        else f'"http://127.0.0.1:{sink.http_port}"'
    )
    return serving(
        parse(
            f"""
receivers: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}}}
exporters: {{sink: {{protocol: {protocol}, endpoint: {hop}, retry: {{initial_seconds: 0.01}}}}}}
telemetry: {{metrics_endpoint: null}}
health: {{endpoint: null}}
""",
            {},
        )
    )


@pytest.mark.parametrize("door", ["grpc", "http"])
@pytest.mark.parametrize(("protocol", "fault", "code", "what"), cases(), ids=str)
@looped
async def test_a_code_of_the_next_hop_means_again_or_lost_and_never_reaches_the_sender(
    door: str, protocol: str, fault: GrpcFault | HttpFault, code: str, what: str
) -> None:
    async with Sink() as sink:
        if isinstance(fault, GrpcFault):
            sink.grpc_script.append(fault)
        else:
            sink.http_script.append(fault)
        async with service_to(sink, protocol) as service:
            if door == "grpc":
                assert await call(service.grpc_port, "traces", traces(7)) == b""
            else:
                assert (await post(service.http_port, "/v1/traces", traces(7))).status == 200
            await sink.until_attempts(2 if what == AGAIN else 1)
        counts = [
            counted(service.measures, "whymiss.exporter.sent_spans"),
            counted(service.measures, "whymiss.exporter.failed_spans", error_type="refused"),
            counted(service.measures, "whymiss.exporter.deferred_attempts", code=code),
        ]
    assert numbers(*(one.body for one in sink.taken)) == ([7] if what == AGAIN else [])
    assert counts == ([1, 0, 1] if what == AGAIN else [0, 1, 0])
    assert len(sink.attempts) == (2 if what == AGAIN else 1)


# --- our refusals, and what a sender is told --------------------------------------------------------------

REFUSALS: list[tuple[str, Exception, str, int, bool]] = [
    ("the queue is full", Overloaded("full", limit_key="exporters.a.queue_bytes_max"), "UNAVAILABLE", 503, True),
    ("too much is held", Overloaded("full", limit_key="memory.hard_limit_bytes"), "UNAVAILABLE", 503, True),
    ("the spool is full", Overloaded("full", limit_key="spool.bytes_max"), "UNAVAILABLE", 503, True),
    ("malformed", BadInput("no request"), "INVALID_ARGUMENT", 400, False),
    ("our mistake", ZeroDivisionError("secret"), "INTERNAL", 500, False),
]


@pytest.mark.parametrize(
    ("failure", "code", "status", "again"), [one[1:] for one in REFUSALS], ids=[one[0] for one in REFUSALS]
)
@looped
async def test_a_refusal_says_by_both_doors_whether_to_come_again(
    failure: Exception, code: str, status: int, again: bool
) -> None:
    behind = room(PassingCore(failure=failure))
    async with grpc_door(behind) as door:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(door.port, "traces", traces(1))
    assert refused.value.code().name == code
    trailers = dict(refused.value.trailing_metadata() or ())
    assert ("google.rpc.retryinfo-bin" in trailers) is again
    details = Status.FromString(bytes(trailers["grpc-status-details-bin"]))
    assert [one.Is(RetryInfo.DESCRIPTOR) for one in details.details] == ([True] if again else [])
    assert details.code == grpc.StatusCode[code].value[0]
    async with http_door(behind) as other:
        answer = await post(other.port, "/v1/traces", traces(1))
    assert answer.status == status
    assert ("Retry-After" in answer.headers) is again
    assert Status.FromString(answer.body).code == grpc.StatusCode[code].value[0]


@looped
async def test_a_sender_without_a_token_is_told_so_by_both_doors_and_not_to_come_again() -> None:
    text = """
receivers: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:0"}, bearer_tokens: [0123456789abcdef]}
telemetry: {metrics_endpoint: null}
health: {endpoint: null}
"""
    async with serving(parse(text, {})) as service:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(service.grpc_port, "traces", traces(1))
        answer = await post(service.http_port, "/v1/traces", traces(1))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert answer.status == 401
    assert "Retry-After" not in answer.headers


def every_answer() -> list[Refusal]:
    fixed = [one for one in vars(refusals).values() if isinstance(one, refusals.Refusal)]
    made: list[Callable[[], Refusal]] = [
        lambda: refusals.too_large("some.key", 1),
        *(lambda failure=failure: refusals.refusal_of(failure) for _, failure, *_ in REFUSALS),
    ]
    return fixed + [make() for make in made]


@pytest.mark.parametrize("answer", every_answer(), ids=lambda one: one.reason)
def test_what_may_be_sent_again_says_so_in_code_status_and_hint_alike(answer: Refusal) -> None:
    again = answer.retry_seconds is not None
    assert (answer.status in RETRYABLE_STATUSES) is again
    assert (GRPC_CODES[answer.code.name] == AGAIN) is again
    # A longer hint makes OpenTelemetry's Python exporters drop the batch at once.
    assert answer.retry_seconds is None or 1 <= answer.retry_seconds <= 3


MAPPED = {
    "UNAVAILABLE": 503,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "INTERNAL": 500,
    "RESOURCE_EXHAUSTED": 413,
}
"""A Collector's way from gRPC to HTTP, but for 413: its 429 would ask for the same body again."""


@pytest.mark.parametrize("answer", every_answer(), ids=lambda one: one.reason)
def test_code_and_status_of_a_refusal_are_the_same_by_a_collectors_table(answer: Refusal) -> None:
    if answer.code.name == "UNIMPLEMENTED":
        assert answer.status in {400, 404, 405, 415}  # HTTP is more exact about what is not implemented
    else:
        assert answer.status == MAPPED[answer.code.name]


# --- how long we wait -----------------------------------------------------------------------------------


class Chancy(HeldPace):
    """A held clock with a chance of the test's choice."""

    chances: deque[float]

    def random(self) -> float:
        return self.chances.popleft()


class Scripted:
    def __init__(self, replies: list[Reply]) -> None:
        self.replies = deque(replies)

    async def send(self, signal: Signal, body: bytes) -> Reply:
        del signal, body
        return self.replies.popleft() if self.replies else Delivered()

    async def close(self) -> None:
        pass


@given(
    initial=st.floats(0.01, 10),
    factor=st.floats(1, 100),
    tries=st.lists(
        st.tuples(st.none() | st.floats(0, 1000), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=8
    ),
)
def test_a_wait_is_exponential_within_its_jitter_and_never_shorter_than_the_hint(
    initial: float, factor: float, tries: list[tuple[float | None, float]]
) -> None:
    retry = RetryConfig(initial_seconds=initial, max_seconds=initial * factor, max_elapsed_seconds=0)

    @looped
    async def scenario() -> None:
        pace = Chancy()
        pace.chances = deque(chance for _, chance in tries)
        settings = ExporterConfig(endpoint="next:4317", insecure=True, retry=retry)
        hop = Scripted([Deferred("503", hint) for hint, _ in tries])
        exporter = Exporter("next", settings, hop, measures(), pace)
        exporter.enqueue(redacted(1))
        for count in range(1, len(tries) + 2):
            await pace.until_waits(count)
            pace.pass_by(pace.waits[count - 1])
        await exporter.stop(1)
        waits.extend(pace.waits[1 : len(tries) + 1])

    waits: list[float] = []
    scenario()
    for attempt, (waited, (hint, chance)) in enumerate(zip(waits, tries, strict=True)):
        full = min(initial * 1.5**attempt, initial * factor)
        assert waited == pytest.approx(max(full * (0.5 + chance), hint or 0.0))
        assert waited >= max(full / 2, hint or 0.0)
