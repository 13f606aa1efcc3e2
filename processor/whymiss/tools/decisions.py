"""The decisions under ``docs/decisions``, read from their files: one file each, numbered in the order of their dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import BadInput

SECTIONS = ("Context", "Choice", "Price")

_FILE = re.compile(r"(\d{4})-[a-z0-9-]+\.md")
_HEAD = re.compile(
    r"# (?P<title>.+)\n\n- Date: (?P<date>\d{4}-\d\d-\d\d)\n- Parts: (?P<parts>.+)\n- Superseded by: (?P<superseded>none|\d{4})\n\n"
)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, as its file states it."""

    file: str
    number: str
    """Four digits."""
    title: str
    date: str
    """``YYYY-MM-DD``."""
    parts: str
    superseded: str
    """The number of the decision that replaced it, or ``none``."""


def read_decision(path: Path) -> Decision:
    """The decision in a file. Raises ``BadInput`` where the name, the head or the sections are not as they must be."""
    named = _FILE.fullmatch(path.name)
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    if named is None or head is None:
        raise BadInput(f"{path.name}: wanted NNNN-title.md with a title, Date, Parts and Superseded by")
    written = re.split(r"(?m)^## (.+)$\n", text[head.end() :])
    if tuple(written[1::2]) != SECTIONS or not all(body.strip() for body in written[2::2]):
        raise BadInput(f"{path.name}: wanted the sections {', '.join(SECTIONS)}, none of them empty")
    return Decision(file=path.name, number=named[1], **head.groupdict())


def decisions(directory: Path) -> Sequence[Decision]:
    """All decisions of a directory, in order of their numbers.

    Raises ``BadInput`` where a number is missing or taken twice, where a date is before that of the decision before,
    or where a decision is superseded by one that is not there.
    """
    found = [read_decision(path) for path in sorted(directory.glob("*.md")) if path.name != "README.md"]
    for place, one in enumerate(found, 1):
        if int(one.number) != place:
            raise BadInput(f"{one.file}: its number should be {place:04}")
        if place > 1 and one.date < found[place - 2].date:
            raise BadInput(f"{one.file}: decided before {found[place - 2].file}; numbers follow dates")
    numbers = {one.number for one in found}
    for one in found:
        if one.superseded != "none" and one.superseded not in numbers:
            raise BadInput(f"{one.file}: there is no decision {one.superseded}")
    return found
