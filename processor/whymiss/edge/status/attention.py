"""What somebody should look at, most urgent first: a pure function of what the page says.

The limits are those of the alerts in ``deploy/prometheus/rules.yaml`` where there is one for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from ...model import ReleaseReason
from .snapshot import Destination, Snapshot
from .wording import lately, number, percent, size, span

Urgency: TypeAlias = Literal["error", "warning", "note"]
"""Something is lost or refused; something may be soon, or verdicts suffer; good to know."""

FULL: Final = 0.8
UNKNOWN_BUDGET: Final = 0.2
LOOKUPS_MIN: Final = 20
"""With fewer lookups a share of them says little."""
RETRYING_SECONDS: Final = 60.0


class Notice(msgspec.Struct, frozen=True):
    """One sentence, and the section that says more."""

    urgency: Urgency
    sentence: str
    section: str


def notices(snapshot: Snapshot) -> tuple[Notice, ...]:
    """Everything that is out of order."""
    found = [
        *_service(snapshot),
        *_destinations(snapshot),
        *_spool(snapshot),
        *_evidence(snapshot),
        *_verdicts(snapshot),
    ]
    order: tuple[Urgency, ...] = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda notice: order.index(notice.urgency)))


def _service(snapshot: Snapshot) -> Iterator[Notice]:
    when = f"in the {lately(snapshot.recent_seconds)}"
    if snapshot.state != "ok":
        yield Notice("note", f"The service is {snapshot.state}: it is not ready for traffic.", "settings")
    for one in snapshot.failures:
        if one.count.recent:
            times = _several(one.count.recent, "time")
            yield Notice("error", f"The stage {one.name} failed {times} {when}.", "troubles")
    for one in snapshot.spans.dropped:
        if one.count.recent:
            spans = _several(one.count.recent, "accepted span")
            yield Notice("error", f"{spans} dropped {when}: {one.name}.", "spans")
    refused = sum(door.refused.recent for door in snapshot.doors)
    if refused:
        yield Notice("error", f"{_several(refused, 'request')} refused {when}.", "requests")
    for one in snapshot.hold.released:
        if one.name == ReleaseReason.SHED and one.count.recent:
            requests = _several(one.count.recent, "request")
            yield Notice("warning", f"{requests} let go early {when}: too much was held.", "hold")


def _destinations(snapshot: Snapshot) -> Iterator[Notice]:
    for one in snapshot.destinations:
        if one.fullness >= 1:
            yield Notice("error", f"The queue to {one.name} is full: senders are asked to come again.", "destinations")
        elif one.fullness >= FULL:
            yield Notice("warning", f"The queue to {one.name} is {percent(one.fullness, 1)} full.", "destinations")
        if one.retrying_seconds is not None:
            urgency: Urgency = "error" if one.retrying_seconds >= RETRYING_SECONDS else "warning"
            yield Notice(urgency, _retrying(one, one.retrying_seconds), "destinations")
        if one.failed.recent:
            spans = _several(one.failed.recent, "span")
            when = lately(snapshot.recent_seconds)
            yield Notice("error", f"{spans} for {one.name} given up in the {when}.", "destinations")


def _retrying(one: Destination, seconds: float) -> str:
    return f"{one.name} has not taken anything for {span(seconds)} ({one.code}); it is tried again."


def _spool(snapshot: Snapshot) -> Iterator[Notice]:
    spool = snapshot.spool
    if spool is None:
        return
    if spool.failures.recent:
        times = _several(spool.failures.recent, "time")
        yield Notice("error", f"The spool's disk failed {times} in the {lately(snapshot.recent_seconds)}.", "spool")
    if spool.size_bytes >= FULL * spool.bytes_max:
        share = percent(spool.size_bytes, spool.bytes_max)
        yield Notice("warning", f"The spool is {share} full ({size(spool.size_bytes)}).", "spool")
    if spool.corrupt.total:
        requests = _several(spool.corrupt.total, "request")
        yield Notice("warning", f"{requests} on disk could not be read again.", "spool")


def _evidence(snapshot: Snapshot) -> Iterator[Notice]:
    silent = [source.name for source in snapshot.sources if source.state == "silent"]
    never = [source.name for source in snapshot.sources if source.state == "never heard"]
    if silent:
        yield Notice(
            "warning", f"{_several(len(silent), 'KV source')} said nothing for long: {_such(silent)}.", "sources"
        )
    if never:
        yield Notice("note", f"{_several(len(never), 'KV source')} never spoke yet: {_such(never)}.", "sources")
    if not snapshot.sources and not snapshot.streams:
        text = "There is no source of KV events: what the spans cannot tell will be unknown."
        yield Notice("note", text, "sources")
    failures = snapshot.discovery_failures.recent
    if failures:
        text = f"Publishers could not be looked up {_several(failures, 'time')}; the last answers hold."
        yield Notice("warning", text, "sources")
    states = {tally.name: tally.count.total for tally in snapshot.stream_states}
    if broken := states.get("broken"):
        yield Notice("warning", f"{_several(broken, 'record')} of KV events with holes or a late start.", "records")
    if waiting := states.get("waiting"):
        yield Notice("note", f"{_several(waiting, 'record')} waiting for missing batches.", "records")


def _verdicts(snapshot: Snapshot) -> Iterator[Notice]:
    lookups = snapshot.verdicts.lookups.recent
    unknown = sum(tally.count.recent for tally in snapshot.verdicts.unknown)
    if lookups >= LOOKUPS_MIN and unknown > UNKNOWN_BUDGET * lookups:
        worst = max(snapshot.verdicts.unknown, key=lambda tally: tally.count.recent).name or "for no reason given"
        share = percent(unknown, lookups)
        text = f"{share} of the lookups are unknown, mostly {worst}; the budget is {UNKNOWN_BUDGET:.0%}."
        yield Notice("warning", text, "unknown")


def _several(count: float, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{number(count)} {noun}s"


def _such(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and others"
