"""The page as a pure function of what it says: plain HTML, one style, no script, nothing loaded from anywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ...model import SECOND
from .attention import Notice, notices
from .markup import Html, join, tag
from .sections import SECTIONS
from .snapshot import Snapshot
from .tables import badge
from .wording import lately, number, percent, rate, size, span

STYLE: Final = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
REFRESH_SECONDS: Final = 10
"""What the link on the page asks for."""

_SIGNS: Final = {"error": "Lost or refused", "warning": "Look soon", "note": "Note"}


def page_of(snapshot: Snapshot, refresh_seconds: int | None = None) -> str:
    """Write the page; ``refresh_seconds`` has the browser load it again and again."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content=str(refresh_seconds)) if refresh_seconds else Html(),
        tag("title", f"whymiss: {snapshot.state}"),
        tag("style", Html(STYLE)),
    )
    sections = [
        tag("section", tag("h2", title), content, id=name, class_="wide" if wide else None)
        for name, title, wide, content in ((one.name, one.title, one.wide, one.make(snapshot)) for one in SECTIONS)
        if content
    ]
    main = tag("main", _attention(snapshot), _figures(snapshot), tag("div", *sections, class_="cards"))
    body = tag("body", _header(snapshot, refresh_seconds), main)
    return f"<!DOCTYPE html>{tag('html', head, body, lang='en')}"


def _header(snapshot: Snapshot, refresh_seconds: int | None) -> Html:
    urgency = "ok" if snapshot.state == "ok" else "warning"
    refresh = (
        tag("a", f"stop refreshing (each {span(refresh_seconds)})", href="status")
        if refresh_seconds
        else tag("a", f"refresh each {REFRESH_SECONDS} s", href=f"status?refresh={REFRESH_SECONDS}")
    )
    facts = (
        ("version", snapshot.version),
        ("up", span(snapshot.uptime_seconds)),
        ("since", _clock(snapshot.started_unix_nanos)),
        ("memory", size(snapshot.memory.resident_bytes)),
        ("looked at", _clock(snapshot.taken_unix_nanos)),
    )
    said = [join(tag("dt", name), tag("dd", value)) for name, value in facts]
    return tag(
        "header",
        tag("h1", "whymiss ", badge("ready" if snapshot.state == "ok" else snapshot.state, urgency)),
        tag("dl", *(tag("div", one) for one in said)),
        tag("nav", refresh, tag("a", "JSON", href="status.json"), aria_label="This page"),
    )


def _clock(unix_nanos: int) -> str:
    return f"{datetime.fromtimestamp(unix_nanos // SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _attention(snapshot: Snapshot) -> Html:
    found = notices(snapshot)
    if not found:
        body = tag("p", badge("All quiet", "ok"), " Nothing is lost, refused, late or in the way of a verdict.")
    else:
        body = tag("ul", *(_notice(one) for one in found))
    return tag("section", tag("h2", "Attention"), body, id="attention")


def _notice(notice: Notice) -> Html:
    return tag(
        "li", badge(_SIGNS[notice.urgency], notice.urgency), " ", tag("a", notice.sentence, href=f"#{notice.section}")
    )


def _figures(snapshot: Snapshot) -> Html:
    when, verdicts, seconds = (
        f"in the {lately(snapshot.recent_seconds)}",
        snapshot.verdicts,
        snapshot.recent_seconds,
    )
    unknown = sum(tally.count.recent for tally in verdicts.unknown)
    fullest = max((one.fullness for one in snapshot.destinations), default=0.0)
    figures = (
        ("Spans in", rate(snapshot.spans.accepted.recent, seconds), when),
        ("Lookups judged", number(verdicts.lookups.recent), when),
        ("Prompt tokens cached", percent(verdicts.hit_tokens.recent, verdicts.queried_tokens.recent), when),
        ("Lookups unknown", percent(unknown, verdicts.lookups.recent), when),
        ("Traces held", number(snapshot.hold.open_traces), "now"),
        ("Fullest queue", percent(fullest, 1), "now"),
    )
    made = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), " ", tag("small", when)))
        for name, value, when in figures
    ]
    return tag("section", tag("h2", "Key figures", class_="unseen"), tag("dl", *made), id="figures")
