"""The decisions: one file each, whole, and numbered in the order of their dates."""

from __future__ import annotations

from pathlib import Path

import pytest

from whymiss.errors import BadInput
from whymiss.tools.decisions import decisions
from whymiss.tools.docs import ROOT

DIRECTORY = ROOT / "docs/decisions"


def written(title: str = "A choice", date: str = "2026-01-02", superseded: str = "none", price: str = "Much.") -> str:
    return (
        f"# {title}\n\n- Date: {date}\n- Parts: wire/\n- Superseded by: {superseded}\n\n"
        f"## Context\n\nWhy.\n\n## Choice\n\nThis.\n\n## Price\n\n{price}\n"
    )


def test_the_shipped_decisions_are_read() -> None:
    found = decisions(DIRECTORY)
    assert len(found) == len(list(DIRECTORY.glob("*.md"))) - 1  # README.md is the index
    assert len({one.title for one in found}) == len(found)


def test_a_decision_says_when_where_and_by_what_it_was_replaced(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("an index")
    (tmp_path / "0001-first.md").write_text(written("First", superseded="0002"))
    (tmp_path / "0002-second.md").write_text(written("Second"))
    first, second = decisions(tmp_path)
    assert (first.number, first.title, first.date, first.parts) == ("0001", "First", "2026-01-02", "wire/")
    assert (first.superseded, second.superseded) == ("0002", "none")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("0003-late.md", written(), "should be 0002"),
        ("0001-again.md", written(), "should be 0001|should be 0002"),
        ("0002-early.md", written(date="2025-12-31"), "numbers follow dates"),
        ("0002-lost.md", written(superseded="0007"), "no decision 0007"),
        ("0002-headless.md", "# Only a title\n", "wanted NNNN-title.md"),
        ("second.md", written(), "wanted NNNN-title.md"),
        ("0002-free.md", written(price=""), "sections Context, Choice, Price"),
        ("0002-short.md", written().partition("## Price")[0], "sections Context, Choice, Price"),
    ],
)
def test_a_decision_that_is_not_whole_or_out_of_order_is_named(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / "0001-first.md").write_text(written())
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=problem):
        decisions(tmp_path)
