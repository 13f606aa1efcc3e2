"""Log records that are KV-cache events are taken, and nothing of them leaves; all others leave as they came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tests.ledger.batches import DIGESTER, payload, stored
from whymiss.errors import BadInput
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.message import Frame, parse_frames
from whymiss.wire.kv_logs import MARK, take_kv_events
from whymiss.wire.logs import assemble_logs, split_logs

PAYLOAD = payload(stored(tokens=(4242, 4243)))


def attribute(key: str, value: str | int | bool) -> KeyValue:
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))


def event(body: bytes | None = PAYLOAD, *, event_name: str = "", **attributes: str | int | bool) -> LogRecord:
    """A record with attributes of ``kv.``; ``mark`` is the one that marks it."""
    marked = {MARK: attributes.pop("mark")} if "mark" in attributes else {}
    named = {f"kv.{name}": value for name, value in attributes.items()} | marked
    return LogRecord(
        observed_time_unix_nano=77,
        body=None if body is None else AnyValue(bytes_value=body),
        attributes=[attribute(key, value) for key, value in named.items()],
        event_name=event_name,
    )


def text(line: str) -> LogRecord:
    return LogRecord(body=AnyValue(string_value=line), severity_text="INFO")


def request(*records: LogRecord, scope: str = "engine") -> bytes:
    scoped = ScopeLogs(scope=InstrumentationScope(name=scope), log_records=records, schema_url="u")
    resource = Resource(attributes=[attribute("host.name", "h")])
    return ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=resource, scope_logs=[scoped], schema_url="r")]
    ).SerializeToString()


HELLO = request(text("hello"))


@pytest.mark.parametrize(
    ("record", "scope"),
    [
        (event(worker="w", seq=3, mark=True), "engine"),
        (event(worker="w", seq=3, mark=""), "engine"),
        (event(worker="w", seq=3, event_name=MARK), "engine"),
        (event(worker="w", seq=3), MARK),
    ],
)
def test_a_scope_an_event_or_an_attribute_marks_a_record(record: LogRecord, scope: str) -> None:
    taken = take_kv_events(request(record, scope=scope))
    (one,) = taken.records
    assert (one.pushed.worker, one.pushed.seq, one.observed_unix_nanos) == ("w", 3, 77)
    assert (taken.rejected, taken.rest) == ((), b"")
    frame = parse_frames(one.pushed.frames)
    assert frame == Frame(b"", 3, PAYLOAD)
    assert decode_batch(PAYLOAD, DIGESTER).count == 1


def test_all_that_a_record_says_is_read() -> None:
    record = event(worker="w", topic="kv@w@m", seq="12", rank=1, model="m", mark=True)
    (one,) = take_kv_events(request(record)).records
    assert (one.pushed.source, one.pushed.rank, one.pushed.model, one.pushed.seq) == ("logs:w", 1, "m", 12)
    assert one.pushed.frames[0] == b"kv@w@m"


def test_a_topic_may_name_the_worker() -> None:
    (one,) = take_kv_events(request(event(topic="kv@w@m", seq=0, mark=True))).records
    assert (one.pushed.source, one.pushed.worker) == ("logs:kv@w@m", None)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (event(worker="w", mark=True), "kv.seq: must be given"),
        (event(worker="w", seq=-1, mark=True), "kv.seq: must be a whole number from 0 to 9223372036854775807"),
        (event(worker="w", seq="x", mark=True), "kv.seq: must be a whole number from 0 to 9223372036854775807"),
        (event(worker="w", seq=True, mark=True), "kv.seq: must be a whole number from 0 to 9223372036854775807"),
        (event(worker="w", seq=0, rank=1 << 21, mark=True), "kv.rank: must be a whole number from 0 to 1048576"),
        (event(seq=0, mark=True), "kv.worker: must be given, or else kv.topic"),
        (event(worker="a\nb", seq=0, mark=True), "kv.worker: must be 1 to 256 printable characters"),
        (event(None, worker="w", seq=0, mark=True), "body: must be bytes"),
    ],
)
def test_what_cannot_be_read_is_rejected_and_does_not_leave(record: LogRecord, problem: str) -> None:
    taken = take_kv_events(request(text("hello"), record))
    assert taken.rejected == (problem,)
    assert taken.records == ()
    assert ExportLogsServiceRequest.FromString(taken.rest) == ExportLogsServiceRequest.FromString(HELLO)


def test_a_marked_record_that_is_no_record_does_not_leave() -> None:
    broken = event(worker="w", seq=0, mark=True).SerializeToString() + b"\x0a"
    envelope = split_logs(HELLO)[0].envelope
    taken = take_kv_events(assemble_logs([(envelope, [text("hello").SerializeToString(), broken])]))
    assert taken.rejected == ("not a log record",)
    assert ExportLogsServiceRequest.FromString(taken.rest) == ExportLogsServiceRequest.FromString(HELLO)


def test_a_request_without_events_is_not_even_split() -> None:
    for body in (b"", b"no protobuf at all", request(text("hello"))):
        assert take_kv_events(body).rest is body


def test_a_record_that_speaks_of_the_mark_is_not_one() -> None:
    body = request(text(f"what is {MARK}?"))
    assert take_kv_events(body).rest is body


def test_bytes_that_are_no_request_are_bad_input() -> None:
    with pytest.raises(BadInput, match="not an OTLP log request"):
        take_kv_events(b"\xff" + MARK.encode())


lines = st.text(max_size=8).map(text)
events = st.builds(lambda seq: event(worker="w", seq=seq, mark=True), st.integers(0, 99))


@given(st.lists(st.lists(st.one_of(lines, events), max_size=4), max_size=3))
def test_others_leave_as_they_came_and_events_stay_in_order(scopes: list[list[LogRecord]]) -> None:
    def of(records: list[list[LogRecord]]) -> bytes:
        return ExportLogsServiceRequest(
            resource_logs=[
                ResourceLogs(scope_logs=[ScopeLogs(scope=InstrumentationScope(name=f"s{at}"), log_records=one)])
                for at, one in enumerate(records)
                if one
            ]
        ).SerializeToString()

    taken = take_kv_events(of(scopes))
    ours = [one for scope in scopes for one in scope if one.attributes]
    assert [one.pushed.seq for one in taken.records] == [one.attributes[1].value.int_value for one in ours]
    assert taken.rejected == ()
    others = [[one.SerializeToString() for one in scope if not one.attributes] for scope in scopes]
    assert [group.spans for group in split_logs(taken.rest)] == [one for one in others if one]
    assert MARK.encode() not in taken.rest
