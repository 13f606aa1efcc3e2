"""Snapshots: an empty service, a busy one, and any at all."""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from whymiss.edge.status.snapshot import (
    CauseCount,
    Count,
    Destination,
    Hold,
    MemoryUse,
    NamedCount,
    ReceiverCounts,
    Setting,
    Snapshot,
    Source,
    Spans,
    SpoolRoom,
    Stream,
    TimelineStep,
    Trouble,
    VerdictCounts,
)

NOON = 1_780_056_000_000_000_000

EMPTY = Snapshot(
    version="1.2.3",
    state="ok",
    taken_unix_nanos=NOON,
    started_unix_nanos=NOON - 5_000_000_000,
    uptime_seconds=5.0,
    recent_seconds=5.0,
    memory=MemoryUse(resident_bytes=61 << 20, parts=(), limits=(), refused=Count()),
    doors=(),
    spans=Spans(
        accepted=Count(),
        refused=Count(),
        claimed=(),
        passed_through=Count(),
        late=Count(),
        rejected=(),
        dropped=(),
        sent=(),
        failed=(),
    ),
    hold=Hold(
        open_traces=0,
        open_spans=0,
        open_spans_max=100_000,
        held_bytes=0,
        held_bytes_max=256 << 20,
        oldest_seconds=None,
        hold_seconds=8.0,
        released=(),
    ),
    sources=(),
    sources_left_out=0,
    discovery_failures=Count(),
    streams=(),
    streams_left_out=0,
    stream_states=(),
    retained_bytes=0,
    retained_bytes_max=1 << 30,
    destinations=(),
    spool=None,
    verdicts=VerdictCounts(
        lookups=Count(), misses=Count(), queried_tokens=Count(), hit_tokens=Count(), causes=(), unknown=()
    ),
    moments=(),
    moment_seconds=15.0,
    failures=(),
    troubles=(),
    settings=(),
)

DESTINATION = Destination(
    name="collector",
    protocol="grpc",
    target="otel-collector:4317",
    state="ok",
    retrying_seconds=None,
    code=None,
    code_seconds=None,
    held_requests=3,
    held_requests_max=1000,
    held_bytes=3 << 20,
    held_bytes_max=256 << 20,
    fullness=0.012,
    sent=Count(1_204_331, 50_113),
    failed=Count(),
)

SOURCE = Source(
    name="tcp://vllm-0.engines.svc:5557#kv@vllm-0",
    state="heard",
    heard_seconds=0.8,
    lag_seconds=0.004,
    events=482_113,
    blocks=7_702_931,
    gaps=0,
    replays=1,
    restarts=0,
    bad_events=0,
)

STREAM = Stream(
    worker="vllm-0",
    rank=0,
    model="meta-llama/Llama-3.3-70B-Instruct",
    state="whole",
    heard_seconds=0.8,
    covered_seconds=3598.0,
    complete=True,
    expired=False,
    holes=(),
    last_hole_seconds=None,
)


def cause(name: str, owner: str, total: int, recent: int, lost: int = 0) -> CauseCount:
    return CauseCount(
        cause=name,
        owners=(owner,) if owner else (),
        lookups=Count(total, recent),
        lost_tokens=Count(lost * total, lost * recent),
    )


BUSY = msgspec.structs.replace(
    EMPTY,
    started_unix_nanos=NOON - 190_000_000_000_000,
    uptime_seconds=190_000.0,
    recent_seconds=904.0,
    memory=MemoryUse(
        resident_bytes=771 << 20,
        parts=tuple(
            NamedCount(name, Count(held, held))
            for name, held in (("ledger", 311 << 20), ("queue", 6 << 20), ("join", 1_204_224), ("receiving", 9_000))
        ),
        limits=(
            NamedCount("resident", Count(3 << 30)),
            NamedCount("hard", Count(2 << 30)),
            NamedCount("soft", Count(1_900 << 20)),
        ),
        refused=Count(),
    ),
    doors=(
        ReceiverCounts(transport="grpc", signal="traces", accepted=Count(80_001, 5_100), refused=Count()),
        ReceiverCounts(
            transport="http",
            signal="traces",
            accepted=Count(9_120, 80),
            refused=Count(12, 3),
            reasons=(NamedCount("overloaded", Count(12, 3)),),
        ),
        ReceiverCounts(transport="http", signal="logs", accepted=Count(311, 9), refused=Count()),
    ),
    spans=Spans(
        accepted=Count(1_310_044, 52_010),
        refused=Count(96, 24),
        claimed=(NamedCount("vllm", Count(310_002, 14_210)), NamedCount("llm_d", Count(309_871, 14_198))),
        passed_through=Count(690_171, 23_602),
        late=Count(214, 2),
        rejected=(NamedCount("invalid_id", Count(3, 0)),),
        dropped=(),
        sent=(NamedCount("collector", Count(1_204_331, 50_113)), NamedCount("archive", Count(1_101_020, 12_007))),
        failed=(NamedCount("refused", Count(41, 0)),),
    ),
    hold=Hold(
        open_traces=117,
        open_spans=402,
        open_spans_max=100_000,
        held_bytes=1_204_224,
        held_bytes_max=256 << 20,
        oldest_seconds=6.2,
        hold_seconds=8.0,
        released=(NamedCount("complete", Count(300_120, 14_003)), NamedCount("hold", Count(9_001, 203))),
    ),
    sources=(
        msgspec.structs.replace(SOURCE, name="tcp://vllm-3.engines.svc:5557", state="silent", heard_seconds=611.0),
        msgspec.structs.replace(SOURCE, name="tcp://vllm-9.engines.svc:5557", state="never heard", heard_seconds=None),
        SOURCE,
        msgspec.structs.replace(SOURCE, name="tcp://vllm-1.engines.svc:5557", gaps=2, lag_seconds=0.31),
    ),
    streams=(
        msgspec.structs.replace(
            STREAM,
            worker="vllm-1",
            state="broken",
            complete=False,
            holes=(NamedCount("events_dropped", Count(2, 1)),),
            last_hole_seconds=431.0,
        ),
        STREAM,
    ),
    stream_states=(NamedCount("whole", Count(1, 0)), NamedCount("broken", Count(1, 0))),
    retained_bytes=311 << 20,
    destinations=(
        DESTINATION,
        msgspec.structs.replace(
            DESTINATION,
            name="archive",
            protocol="http/protobuf",
            target="tempo.tracing.svc:4318",
            state="retrying",
            retrying_seconds=95.0,
            code="503",
            code_seconds=1.4,
            held_requests=864,
            fullness=0.864,
            sent=Count(1_101_020, 12_007),
            failed=Count(41, 0),
        ),
    ),
    spool=SpoolRoom(
        size_bytes=231 << 20,
        bytes_max=1 << 30,
        replaying_bytes=0,
        fsync="interval",
        refused=Count(),
        failures=Count(),
        corrupt=Count(),
        replayed=Count(512, 0),
    ),
    verdicts=VerdictCounts(
        lookups=Count(308_900, 14_190),
        misses=Count(121_002, 5_911),
        queried_tokens=Count(812_000_000, 35_100_000),
        hit_tokens=Count(590_000_000, 24_810_000),
        causes=(
            cause("none", "", 187_898, 8_279),
            cause("new_content", "none", 60_120, 2_990, 0),
            cause("evicted", "platform", 30_004, 1_544, 1_904),
            cause("routing_miss", "routing", 14_110, 610, 2_304),
            cause("unknown", "observability", 11_001, 420, 0),
            cause("token_divergence", "application", 4_020, 301, 880),
            cause("stale_index", "platform", 1_120, 40, 1_400),
            cause("extra_key_mismatch", "security", 627, 6, 96),
        ),
        unknown=(
            NamedCount("events_dropped", Count(6_001, 260)),
            NamedCount("ambiguous_chain", Count(3_900, 120)),
            NamedCount("no_worker", Count(1_100, 40)),
        ),
    ),
    moments=tuple(TimelineStep(120 + 7 * (n % 9), 70 + 11 * (n % 5), 3 + n % 7) for n in range(61)),
    troubles=(
        Trouble(
            level="info",
            part="exporter",
            message="export will be tried again",
            details="exporter = archive, code = 503, wait_seconds = 4.02",
            count=61,
            first_seconds=95.0,
            last_seconds=1.4,
        ),
        Trouble(
            level="error",
            part="exporter",
            message="accepted data was not delivered",
            details="exporter = archive, reason = refused, spans = 41",
            count=2,
            first_seconds=4_000.0,
            last_seconds=3_100.0,
        ),
    ),
    settings=(Setting("OTLP/gRPC", "TLS, 1 bearer token(s)"), Setting("Digest key", "configured, id 2026-11")),
)

_T = TypeVar("_T")

NAMES = st.text(max_size=300) | st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'/><style>*{display:none}", "</style></title><b>"]
)
"""Any text, and what would do harm."""

_AMOUNTS = st.floats(0, 1e15) | st.integers(0, 1 << 40).map(float)
_ONES: dict[Any, st.SearchStrategy[Any]] = {
    str: NAMES,
    int: st.integers(0, 1 << 60),
    float: _AMOUNTS,
    bool: st.booleans(),
    type(None): st.none(),
}


def any_of(kind: type[_T]) -> st.SearchStrategy[_T]:
    """Any struct of a kind; its names are any texts."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: _any(hints[name]) for name in kind.__struct_fields__})  # type: ignore[attr-defined]


def _any(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, UnionType):
        return st.one_of(*map(_any, get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(_any(get_args(hint)[0]), max_size=3).map(tuple)
    return _ONES[hint] if hint in _ONES else any_of(hint)
