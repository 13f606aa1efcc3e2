"""Each thing that is out of order is one sentence; nothing else is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from tests.edge.status.snapshots import BUSY, DESTINATION, EMPTY, SOURCE, STREAM, any_of
from whymiss.edge.status.attention import notices
from whymiss.edge.status.sections import SECTIONS
from whymiss.edge.status.snapshot import Count, NamedCount, ReceiverCounts, Snapshot, SpoolRoom

QUIET = msgspec.structs.replace(
    EMPTY,
    destinations=(DESTINATION,),
    sources=(SOURCE,),
    streams=(STREAM,),
    stream_states=(NamedCount("whole", Count(1, 0)), NamedCount("silent", Count(1, 0))),
)
SPOOL = SpoolRoom(
    size_bytes=1,
    bytes_max=100,
    replaying_bytes=0,
    fsync="interval",
    refused=Count(),
    failures=Count(),
    corrupt=Count(),
    replayed=Count(),
)


def with_(**changes: Any) -> Snapshot:
    return msgspec.structs.replace(QUIET, **changes)


def destination(**changes: Any) -> Snapshot:
    return with_(destinations=(msgspec.structs.replace(DESTINATION, **changes),))


def spool(**changes: Any) -> Snapshot:
    return with_(spool=msgspec.structs.replace(SPOOL, **changes))


def unknown(lookups: int, holes: int) -> Snapshot:
    verdicts = msgspec.structs.replace(
        QUIET.verdicts, lookups=Count(9000, lookups), unknown=(NamedCount("no_worker", Count(5000, holes)),)
    )
    return with_(verdicts=verdicts)


def source(state: str) -> Snapshot:
    return with_(sources=(msgspec.structs.replace(SOURCE, state=state),))


def dropped(recent: float) -> Snapshot:
    return with_(
        spans=msgspec.structs.replace(QUIET.spans, dropped=(NamedCount("redaction_failed", Count(9, recent)),))
    )


def shed(recent: float) -> Snapshot:
    return with_(hold=msgspec.structs.replace(QUIET.hold, released=(NamedCount("shed", Count(9, recent)),)))


def refused(recent: float) -> Snapshot:
    return with_(doors=(ReceiverCounts(transport="grpc", signal="traces", accepted=Count(), refused=Count(9, recent)),))


def states(name: str) -> Snapshot:
    return with_(stream_states=(NamedCount(name, Count(3, 0)),))


@pytest.mark.parametrize(
    ("snapshot", "urgency", "words"),
    [
        (with_(state="stopping"), "note", "The service is stopping"),
        (with_(failures=(NamedCount("judge", Count(9, 2)),)), "error", "The stage judge failed 2 times"),
        (dropped(1), "error", "1 accepted span dropped in the last 5 s: redaction_failed"),
        (refused(3), "error", "3 requests refused"),
        (shed(4), "warning", "4 requests let go early"),
        (destination(fullness=1.0), "error", "The queue to collector is full"),
        (destination(fullness=0.8), "warning", "The queue to collector is 80.0 % full"),
        (destination(retrying_seconds=59.0, code="503"), "warning", "collector has not taken anything for 59 s (503)"),
        (destination(retrying_seconds=60.0, code="503"), "error", "for 1 min (503)"),
        (destination(failed=Count(9, 1)), "error", "1 span for collector given up"),
        (spool(size_bytes=80), "warning", "The spool is 80.0 % full"),
        (spool(failures=Count(9, 1)), "error", "The spool's disk failed 1 time"),
        (spool(corrupt=Count(1, 0)), "warning", "1 request on disk could not be read again"),
        (source("silent"), "warning", "1 KV source said nothing for long: tcp://vllm-0"),
        (source("never heard"), "note", "1 KV source never spoke yet"),
        (with_(sources=(), streams=()), "note", "There is no source of KV events"),
        (with_(discovery_failures=Count(9, 2)), "warning", "Publishers could not be looked up 2 times"),
        (states("broken"), "warning", "3 records of KV events with holes or a late start"),
        (states("waiting"), "note", "3 records waiting"),
        (unknown(20, 5), "warning", "25.0 % of the lookups are unknown, mostly no_worker; the budget is 20%"),
    ],
)
def test_what_is_out_of_order_is_said(snapshot: Snapshot, urgency: str, words: str) -> None:
    (notice,) = notices(snapshot)
    assert notice.urgency == urgency
    assert words in notice.sentence


@pytest.mark.parametrize(
    "snapshot",
    [
        QUIET,
        dropped(0),
        refused(0),
        shed(0),
        destination(fullness=0.79, failed=Count(9, 0), code="503", code_seconds=99.0),
        spool(size_bytes=79, failures=Count(9, 0)),
        source("heard"),
        source("not subscribed"),
        unknown(19, 19),
        unknown(20, 4),
        with_(failures=(NamedCount("judge", Count(9, 0)),), discovery_failures=Count(9, 0)),
    ],
)
def test_what_is_in_order_or_long_over_is_not(snapshot: Snapshot) -> None:
    assert notices(snapshot) == ()


def test_the_most_urgent_comes_first() -> None:
    found = [notice.urgency for notice in notices(BUSY)]
    assert found == sorted(found, key=["error", "warning", "note"].index)
    assert set(found) == {"error", "warning", "note"}


@settings(max_examples=30)
@given(any_of(Snapshot))
def test_every_notice_leads_to_a_section(snapshot: Snapshot) -> None:
    assert {notice.section for notice in notices(snapshot)} <= {section.name for section in SECTIONS}
