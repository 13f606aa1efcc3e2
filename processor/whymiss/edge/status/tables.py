"""Tables that can be read on a telephone and by a screen reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from .markup import Child, Html, join, tag
from .snapshot import Count
from .wording import number, rate

Row: TypeAlias = Sequence[Child]
"""Its first cell is its name."""


class Heading(msgspec.Struct, frozen=True):
    """The head of a column."""

    words: str
    numeric: bool = False


def table(caption: str, headings: Sequence[Heading], rows: Sequence[Row], *, stacked: bool = False) -> Html:
    """Make a table; a ``stacked`` one becomes a list of its rows where there is no room for its columns.

    What is styled as no table is none to some screen readers, so its roles are written out.
    """
    head = [
        tag("th", one.words, scope="col", role="columnheader", class_="number" if one.numeric else None)
        for one in headings
    ]
    body = [_row(headings, cells) for cells in rows]
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
        class_="stacked" if stacked else None,
    )


def _row(headings: Sequence[Heading], cells: Row) -> Html:
    first = tag("th", cells[0], scope="row", role="rowheader")
    others = [
        tag("td", cell, role="cell", data_label=heading.words, class_="number" if heading.numeric else None)
        for heading, cell in zip(headings[1:], cells[1:], strict=True)
    ]
    return tag("tr", first, *others, role="row")


def left_out(count: int, noun: str) -> Html:
    """Say that a list goes on."""
    return tag("p", f"And {count:,} more {noun}; /metrics has all.", class_="quiet") if count else Html()


def pair(count: Count, seconds: float) -> tuple[Child, Child, Child]:
    """Three cells: lately, as a rate, and since the start."""
    return number(count.recent), rate(count.recent, seconds), number(count.total)


def quiet(words: str, kind: str = "") -> Html:
    """Words in a quieter colour."""
    return tag("span", words, class_=f"quiet {kind}".strip())


def named(name: str) -> Html:
    """A name that others chose: it may be long, and breaks anywhere."""
    return tag("span", name, class_="name")


def badge(word: str, urgency: str) -> Html:
    """A state: the word says it, the colour repeats it."""
    return tag("span", word, class_=f"badge {urgency}")


def lines(*parts: Child) -> Html:
    """Parts below one another in one cell."""
    return join(*(tag("span", part, class_="line") for part in parts if part))


def nothing(words: str) -> Html:
    """What a section says that has nothing to list."""
    return tag("p", words, class_="quiet")
