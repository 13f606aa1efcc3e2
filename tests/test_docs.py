"""The generated tables of the documentation are what the code says."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from whymiss.attribution import TABLE
from whymiss.errors import BadInput
from whymiss.measures import INSTRUMENTS
from whymiss.tools import docs


def test_the_shipped_pages_are_current() -> None:
    out = io.StringIO()
    assert docs.run(check=True, out=out) == 0, out.getvalue()


def test_every_cause_and_metric_is_in_its_table() -> None:
    assert all(f"`{row.cause}`" in docs.causes() for row in TABLE)
    assert all(f"`{one.name}`" in docs.metrics() for one in INSTRUMENTS)


@pytest.mark.parametrize("check", [True, False])
def test_a_stale_table_is_named_and_written_only_when_asked(tmp_path: Path, *, check: bool) -> None:
    page = tmp_path / "README.md"
    stale = "before\n<!-- generated: causes -->\nold\n<!-- end: causes -->\nafter\n"
    page.write_text(stale)
    out = io.StringIO()
    assert docs.run(check=check, out=out, root=tmp_path) == (1 if check else 0)
    assert "README.md" in out.getvalue()
    assert (page.read_text() == stale) is check
    assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")  # noqa: PT018 - one page


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing generated")
    assert docs.run(check=True, out=io.StringIO(), root=tmp_path) == 0


def test_without_a_page_there_is_nothing_to_be_sure_of(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no checkout"):
        docs.run(check=True, out=io.StringIO(), root=tmp_path)
