"""The parts of the page, each a pure function of what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from .charts import meter
from .markup import Child, Html, join, tag
from .misses import causes, unknown
from .snapshot import Count, Destination, NamedCount, Snapshot, Source, Stream, Trouble
from .tables import Heading, badge, left_out, lines, named, nothing, pair, quiet, table
from .wording import lately, number, percent, size, span


class Section(msgspec.Struct, frozen=True):
    """A part: the name that links lead to, its title, and how it is made; what makes nothing is not shown."""

    name: str
    title: str
    make: Callable[[Snapshot], Html]
    wide: bool = False


def _lately(snapshot: Snapshot) -> tuple[Heading, Heading, Heading]:
    return (
        Heading(lately(snapshot.recent_seconds), numeric=True),
        Heading("rate", numeric=True),
        Heading("since start", numeric=True),
    )


def _spans(snapshot: Snapshot) -> Html:
    spans, seconds = snapshot.spans, snapshot.recent_seconds
    rows: list[tuple[Child, ...]] = [("accepted", *pair(spans.accepted, seconds))]
    rows += _named(spans.claimed, "claimed", seconds)
    rows += [("passed through", *pair(spans.passed_through, seconds)), ("late", *pair(spans.late, seconds))]
    rows += [("refused with their request", *pair(spans.refused, seconds))]
    rows += _named(spans.rejected, "rejected", seconds)
    rows += _named(spans.dropped, "dropped", seconds)
    rows += _named(spans.sent, "sent to", seconds)
    rows += _named(spans.failed, "given up", seconds)
    return table("What became of spans", (Heading("spans"), *_lately(snapshot)), rows)


def _named(tallies: Iterable[NamedCount], what: str, seconds: float) -> list[tuple[Child, ...]]:
    return [(join(f"{what} ", tag("b", one.name, class_="name")), *pair(one.count, seconds)) for one in tallies]


def _requests(snapshot: Snapshot) -> Html:
    if not snapshot.doors:
        return nothing("No request has come yet.")
    seconds = snapshot.recent_seconds
    rows: list[tuple[Child, ...]] = []
    for door in snapshot.doors:
        name = f"{door.transport} {door.signal}"
        rows.append((name, *pair(door.accepted, seconds)))
        rows += [
            (join(f"{name} refused: ", tag("b", one.name, class_="name")), *pair(one.count, seconds))
            for one in door.reasons
        ]
    return table("Requests by receiver and signal", (Heading("requests"), *_lately(snapshot)), rows)


def _hold(snapshot: Snapshot) -> Html:
    hold = snapshot.hold
    oldest = (
        "nothing is held"
        if hold.oldest_seconds is None
        else f"{span(hold.oldest_seconds)} of {span(hold.hold_seconds)}"
    )
    return join(
        _facts(
            ("open traces", number(hold.open_traces)),
            ("oldest", oldest),
            ("spans", _filled(hold.open_spans, hold.open_spans_max, number)),
            ("bytes", _filled(hold.held_bytes, hold.held_bytes_max, size)),
        ),
        table(
            "Requests released, by reason",
            (Heading("released"), *_lately(snapshot)),
            [(one.name, *pair(one.count, snapshot.recent_seconds)) for one in hold.released],
        )
        if hold.released
        else Html(),
    )


def _filled(held: float, limit: float, words: Callable[[float], str]) -> Html:
    share = held / limit if limit else 0.0
    return join(f"{words(held)} of {words(limit)} ", meter(share, f"{percent(share, 1)} full"))


def _destinations(snapshot: Snapshot) -> Html:
    if not snapshot.destinations:
        return nothing("The exporters have not started yet.")
    headings = (
        Heading("destination"),
        Heading("state"),
        Heading("queue"),
        Heading("spans sent", numeric=True),
        Heading("given up", numeric=True),
        Heading("last error"),
    )
    return table("Destinations", headings, [_destination(one) for one in snapshot.destinations], stacked=True)


def _destination(one: Destination) -> tuple[Child, ...]:
    if one.retrying_seconds is not None:
        state = badge(
            f"retrying for {span(one.retrying_seconds)}", "error" if one.retrying_seconds >= 60 else "warning"
        )
    else:
        state = badge(one.state, "ok" if one.state == "ok" else "note")
    error = quiet("none") if one.code is None else named(f"{one.code}, {span(one.code_seconds or 0)} ago")
    return (
        lines(tag("b", one.name, class_="name"), quiet(f"{one.protocol} {one.target}", "name")),
        state,
        lines(
            f"{number(one.held_requests)} of {number(one.held_requests_max)} requests",
            f"{size(one.held_bytes)} of {size(one.held_bytes_max)}",
            meter(one.fullness, f"{percent(one.fullness, 1)} full"),
        ),
        _recent_and_total(one.sent),
        _recent_and_total(one.failed),
        error,
    )


def _recent_and_total(count: Count) -> Html:
    return lines(number(count.total), quiet(f"{number(count.recent)} lately"))


def _memory(snapshot: Snapshot) -> Html:
    memory = snapshot.memory
    held = sum(one.count.total for one in memory.parts)
    limits = {one.name: one.count.total for one in memory.limits}
    facts: list[tuple[str, Child]] = [(f"held: {one.name}", size(one.count.total)) for one in memory.parts]
    if "hard" in limits:
        facts.append(("held in all", _filled(held, limits["hard"], size)))
    facts += [(f"{name} limit", size(limit)) for name, limit in limits.items()]
    facts += [("resident", size(memory.resident_bytes)), ("requests refused", number(memory.refused.total))]
    return _facts(*facts)


def _spool(snapshot: Snapshot) -> Html:
    spool = snapshot.spool
    if spool is None:
        return nothing("Off: what is held is in memory only.")
    return _facts(
        ("on disk", _filled(spool.size_bytes, spool.bytes_max, size)),
        ("being replayed", size(spool.replaying_bytes)),
        ("replayed since start", number(spool.replayed.total)),
        ("refused since start", number(spool.refused.total)),
        ("disk failures", number(spool.failures.total)),
        ("unreadable", number(spool.corrupt.total)),
        ("fsync", spool.fsync),
    )


def _sources(snapshot: Snapshot) -> Html:
    if not snapshot.sources:
        return nothing("None is configured or has pushed.")
    headings = (
        Heading("source"),
        Heading("state"),
        Heading("last message", numeric=True),
        Heading("lag", numeric=True),
        Heading("events", numeric=True),
        Heading("blocks", numeric=True),
        Heading("gaps", numeric=True),
        Heading("replays", numeric=True),
        Heading("restarts", numeric=True),
        Heading("unreadable", numeric=True),
    )
    rows = [_source(one) for one in snapshot.sources]
    return join(
        table("Sources of KV-cache events, since start", headings, rows, stacked=True),
        left_out(snapshot.sources_left_out, "sources"),
    )


def _source(one: Source) -> tuple[Child, ...]:
    urgency = {"heard": "ok", "silent": "warning"}.get(one.state, "note")
    counts = (one.events, one.blocks, one.gaps, one.replays, one.restarts, one.bad_events)
    return (
        named(one.name),
        badge(one.state, urgency),
        _ago(one.heard_seconds),
        _length(one.lag_seconds),
        *map(number, counts),
    )


def _records(snapshot: Snapshot) -> Html:
    if not snapshot.streams:
        return nothing("No worker has a record yet.")
    headings = (
        Heading("worker"),
        Heading("rank", numeric=True),
        Heading("model"),
        Heading("record"),
        Heading("last batch", numeric=True),
        Heading("reaches back", numeric=True),
        Heading("begins with"),
        Heading("holes"),
    )
    states = ", ".join(f"{number(one.count.total)} {one.name}" for one in snapshot.stream_states)
    kept = f"{size(snapshot.retained_bytes)} of {size(snapshot.retained_bytes_max)}"
    return join(
        tag("p", f"Streams: {states}. History held: {kept}."),
        table("Records of KV-cache events", headings, [_record(one) for one in snapshot.streams], stacked=True),
        left_out(snapshot.streams_left_out, "records"),
    )


def _record(one: Stream) -> tuple[Child, ...]:
    begins = "the worker's first event" if one.complete else "what the limits left" if one.expired else "our arrival"
    holes: Child = quiet("none")
    if one.holes:
        last = "" if one.last_hole_seconds is None else f"last {span(one.last_hole_seconds)} ago"
        holes = lines(*(f"{number(hole.count.total)} {hole.name}" for hole in one.holes), quiet(last))
    urgency = {"whole": "ok", "broken": "warning"}.get(one.state, "note")
    return (
        named(one.worker),
        number(one.rank),
        named(one.model) if one.model else quiet("not said"),
        badge(one.state, urgency),
        _ago(one.heard_seconds),
        _length(one.covered_seconds),
        begins,
        holes,
    )


def _troubles(snapshot: Snapshot) -> Html:
    if not snapshot.troubles:
        return nothing("No warning and no error has been logged since the start.")
    headings = (
        Heading("line"),
        Heading("level"),
        Heading("times", numeric=True),
        Heading("last", numeric=True),
        Heading("fields"),
    )
    return table("Last warnings and errors", headings, [_trouble(one) for one in snapshot.troubles], stacked=True)


def _trouble(one: Trouble) -> tuple[Child, ...]:
    level = badge(one.level, "error" if one.level in {"error", "critical"} else "warning")
    return lines(one.message, quiet(one.part)), level, number(one.count), _ago(one.last_seconds), named(one.details)


def _settings(snapshot: Snapshot) -> Html:
    return _facts(*((one.name, one.value) for one in snapshot.settings))


def _facts(*facts: tuple[str, Child]) -> Html:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _ago(seconds: float | None) -> Child:
    return quiet("never") if seconds is None else f"{span(seconds)} ago"


def _length(seconds: float | None) -> Child:
    return quiet("not known") if seconds is None else span(seconds)


SECTIONS: Final = (
    Section("verdicts", "VerdictCounts", causes, wide=True),
    Section("destinations", "Destinations", _destinations, wide=True),
    Section("sources", "KV-event sources", _sources, wide=True),
    Section("records", "Records by worker", _records, wide=True),
    Section("spans", "Spans", _spans),
    Section("unknown", "Unknown budget", unknown),
    Section("requests", "Requests", _requests),
    Section("hold", "Hold", _hold),
    Section("memory", "MemoryUse", _memory),
    Section("spool", "Spool", _spool),
    Section("troubles", "Last warnings and errors", _troubles, wide=True),
    Section("settings", "Configuration at start", _settings, wide=True),
)
"""In the order of the page."""
