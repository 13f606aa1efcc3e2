"""What the status page says of the publishers of KV-cache events and of their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from ...ledger.ports import Condition, HistoryHealth, StreamHealth
from ...model import SECOND, StreamId
from ..kv.silence import Heard
from .markup import clean
from .snapshot import Count, NamedCount, Source, Stream
from .totals import Totals

ROWS_MAX: Final = 50
"""Rows of a list whose length the fleet decides on; the ones that need somebody come first."""

_WORST_FIRST: Final = (StreamHealth.WAITING, StreamHealth.BROKEN, StreamHealth.SILENT, StreamHealth.WHOLE)
_SOURCE_STATES: Final = ("silent", "never heard", "heard", "not subscribed")


def sources_of(totals: Totals, heard: Mapping[str, Heard]) -> tuple[tuple[Source, ...], int]:
    """All publishers that are followed or have ever been heard, those that say nothing first; how many are left out."""
    names = set(heard) | totals.values("whymiss.ledger.events") | totals.values("whymiss.ledger.bad_events")
    order = sorted(names, key=lambda name: (_SOURCE_STATES.index(_state(heard.get(name))), name))
    return tuple(_source(name, totals, heard.get(name)) for name in order[:ROWS_MAX]), max(0, len(order) - ROWS_MAX)


def _source(name: str, totals: Totals, heard: Heard | None) -> Source:
    lag = totals.gauge("whymiss.ledger.lag", name)
    return Source(
        name=clean(name),
        state=_state(heard),
        heard_seconds=heard.seconds if heard is not None else None,
        lag_seconds=lag,
        events=totals.exactly("whymiss.ledger.events", name),
        blocks=totals.exactly("whymiss.ledger.blocks", name),
        gaps=totals.exactly("whymiss.ledger.gaps", name),
        replays=totals.exactly("whymiss.ledger.replays", name),
        restarts=totals.exactly("whymiss.ledger.restarts", name),
        bad_events=totals.exactly("whymiss.ledger.bad_events", name),
    )


def _state(heard: Heard | None) -> str:
    if heard is None:
        return "not subscribed"  # it pushes, or it has left
    if heard.silent:
        return "silent"
    return "never heard" if heard.seconds is None else "heard"


class Records(NamedTuple):
    """The worst records, how many are left out, and how many there are in each state."""

    streams: tuple[Stream, ...] = ()
    left_out: int = 0
    states: tuple[NamedCount, ...] = ()


def records_of(history: HistoryHealth, now: float, unix_nanos: int, recent_seconds: float) -> Records:
    """All records, the broken ones first."""
    found = history.conditions(now)
    states = Counter(one.health for one in found.values())
    times = _Times(now, unix_nanos, unix_nanos - round(recent_seconds * SECOND))
    order = sorted(found, key=lambda stream: (_WORST_FIRST.index(found[stream].health), stream))
    return Records(
        streams=tuple(_stream(stream, found[stream], times) for stream in order[:ROWS_MAX]),
        left_out=max(0, len(order) - ROWS_MAX),
        states=tuple(NamedCount(state.value, Count(states[state], 0.0)) for state in StreamHealth if states[state]),
    )


class _Times(NamedTuple):
    """The moment of the look on the two clocks, and where its recent past begins."""

    now: float
    unix_nanos: int
    since_unix_nanos: int


def _stream(stream: StreamId, known: Condition, times: _Times) -> Stream:
    coverage = known.coverage
    totals = Counter(hole.reason for hole in coverage.holes)
    recent = Counter(hole.reason for hole in coverage.holes if hole.until_unix_nanos >= times.since_unix_nanos)
    last = max((hole.until_unix_nanos for hole in coverage.holes), default=None)
    covered = coverage.confirmed_unix_nanos - coverage.begins_unix_nanos
    return Stream(
        worker=clean(stream.worker),
        rank=stream.rank,
        model=None if known.model is None else clean(known.model),
        state=known.health.value,
        heard_seconds=max(0.0, times.now - known.heard) if known.heard else None,
        covered_seconds=max(0, covered) / SECOND if coverage.begins_unix_nanos else None,
        complete=coverage.from_birth,
        expired=coverage.expired,
        holes=tuple(NamedCount(reason.value, Count(count, recent[reason])) for reason, count in totals.most_common()),
        last_hole_seconds=None if last is None else max(0, times.unix_nanos - last) / SECOND,
    )
