"""The parts of the page that tell why lookups missed."""

from __future__ import annotations

from ...model import Cause, Owner
from .attention import UNKNOWN_BUDGET
from .charts import bar, swatch, timeline
from .markup import Child, Html, join, tag
from .snapshot import CauseCount, Snapshot
from .tables import Heading, nothing, table
from .totals import STEPS_MAX
from .wording import lately, number, percent, span


def causes(snapshot: Snapshot) -> Html:
    """Draw the lookups of the recent past, and list them by cause with the tokens that each fix would have saved."""
    found = snapshot.verdicts.causes
    if not found:
        return nothing("No lookup has been judged yet.")
    # Lookups without a miss would dwarf every miss: their number is said, and no bar is drawn of it.
    missed = [one for one in found if one.cause != Cause.NONE]
    most = max((one.lookups.recent for one in missed), default=0.0)
    dearest = max((one.lost_tokens.recent for one in missed), default=0.0)
    headings = (
        Heading("cause"),
        Heading("owner"),
        Heading(f"lookups, {lately(snapshot.recent_seconds)}", numeric=True),
        Heading("since start", numeric=True),
        Heading(""),
        Heading(f"tokens lost, {lately(snapshot.recent_seconds)}", numeric=True),
        Heading("since start", numeric=True),
        Heading(""),
    )
    order = sorted(found, key=lambda one: (one.cause == Cause.NONE, -one.lookups.recent, -one.lookups.total))
    rows = [_cause(one, most, dearest) for one in order]
    return join(_history(snapshot), table("Lookups by cause", headings, rows, stacked=True))


def _cause(one: CauseCount, most: float, dearest: float) -> tuple[Child, ...]:
    if one.cause == Cause.NONE:
        return "none: no miss", "", number(one.lookups.recent), number(one.lookups.total), "", "", "", ""
    kind = "unknown" if one.cause == Cause.UNKNOWN else "calm" if set(one.owners) <= {Owner.NONE} else "known"
    return (
        one.cause,
        ", ".join(one.owners),
        number(one.lookups.recent),
        number(one.lookups.total),
        bar(one.lookups.recent, most, kind),
        number(one.lost_tokens.recent),
        number(one.lost_tokens.total),
        bar(one.lost_tokens.recent, dearest, kind),
    )


def _history(snapshot: Snapshot) -> Html:
    legend = (("hits", "without a miss"), ("misses", "missed, cause known"), ("unknown", "unknown"))
    legends = [tag("span", swatch(kind), words) for kind, words in legend]
    ends = tag("p", tag("span", f"{span(STEPS_MAX * snapshot.moment_seconds)} ago"), tag("span", "now"), class_="ends")
    drawing = timeline(snapshot.moments, snapshot.moment_seconds, STEPS_MAX + 1)
    caption = tag("figcaption", f"Lookups each {span(snapshot.moment_seconds)}: ", *legends)
    return tag("figure", caption, drawing, ends)


def unknown(snapshot: Snapshot) -> Html:
    """List the lookups without a cause by the hole in their evidence."""
    found = snapshot.verdicts.unknown
    if not found:
        return nothing("No lookup ended without a cause.")
    recent = sum(one.count.recent for one in found)
    most = max(one.count.recent for one in found)
    share = percent(recent, snapshot.verdicts.lookups.recent)
    headings = (
        Heading("hole in the evidence"),
        Heading(lately(snapshot.recent_seconds), numeric=True),
        Heading(""),
        Heading("since start", numeric=True),
    )
    rows = [
        (
            one.name or "no reason given",
            number(one.count.recent),
            bar(one.count.recent, most, "unknown"),
            number(one.count.total),
        )
        for one in found
    ]
    return join(
        tag(
            "p", f"{share} of the lookups in the {lately(snapshot.recent_seconds)}; the budget is {UNKNOWN_BUDGET:.0%}."
        ),
        table("Unknown lookups by reason", headings, rows),
    )
