"""The documentation: its generated tables are what the code says, and what it links to or names is there."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import MAY_IMPORT
from whymiss.attribution import TABLE
from whymiss.errors import BadInput
from whymiss.measures import INSTRUMENTS
from whymiss.tools import docs
from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay, default_config
from whymiss.wire.fields import read_span
from whymiss.wire.split import split

ROOT = docs.ROOT
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {"node_modules", "captures", "data"} & set(path.relative_to(ROOT).parts)
    and not any(one.startswith(".") for one in path.relative_to(ROOT).parts)
)
TOP = {path.name for path in ROOT.iterdir()}
SOURCES = ("processor", "tests", "deploy", "collector-config", "docs", "proto")
RECORDING = "tests/captures/01-vanilla-sha256-bytes"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The fragments that links may name: GitHub's, of every heading."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))


def dead_links(page: Path) -> Iterator[str]:
    """The links of a page, as written, whose file or heading is not there. Links to other hosts are not looked at."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def lost_files(page: Path) -> Iterator[str]:
    """The files and directories that a page names in backticks, and that are not there."""
    for named in re.findall(r"`([\w.-]+(?:/[\w.-]*)*)`", prose_of(page)):
        first, slash, _ = named.partition("/")
        if slash and first in TOP:
            there = (ROOT / named).exists()
        elif slash and re.search(r"\.(py|md|yaml|sh|proto|lock)$", named):
            there = any((base / named).exists() for base in (page.parent, ROOT / "processor/whymiss"))
        elif re.fullmatch(r"\w+\.(py|md)", named):
            there = (ROOT / named).exists() or any(any((ROOT / one).rglob(named)) for one in SOURCES)
        else:
            continue
        if not there:
            yield named


@each_page
def test_what_a_page_links_to_is_there(page: Path) -> None:
    assert list(dead_links(page)) == []


@each_page
def test_files_that_a_page_names_are_there(page: Path) -> None:
    assert list(lost_files(page)) == []


def test_a_dead_link_and_a_lost_file_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](#here) [b](#gone) [c](page.md#here) [d](lost.md) [e](https://example.org/)\n"
        "`tests/test_docs.py` `tests/lost.py` `lost_too.py` `ledger/lost.py` `deploy/` `wire/split.py` `a/b`\n"
        "```\n[f](not_read.md) `tests/not_read.py`\n```\n"
    )
    assert list(dead_links(page)) == ["#gone", "lost.md"]
    assert list(lost_files(page)) == ["tests/lost.py", "lost_too.py", "ledger/lost.py"]


def test_the_map_of_the_design_is_the_one_that_the_architecture_test_holds() -> None:
    text = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"(?m)^\| `(\w+)(?:/|\.py)` \| .* \| ([^|]+) \|$", text))
    written = {part: set() if may == "nothing" else set(may.split(", ")) for part, may in rows.items()}
    everything = {"pipeline": {"all of these"}, "edge": {"all"}, "tools": {"all"}}
    pure = {part: may for part, may in MAY_IMPORT.items() if part not in {"pipeline", "__init__"}}
    assert written == pure | everything


def test_the_readme_is_short_and_points_to_the_rest() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") < 220
    assert {"docs/reference.md", "docs/decisions/README.md", "DESIGN.md", "CHANGELOG.md"} <= set(
        re.findall(r"\]\(([^)#\s]+)", text)
    )


def test_the_readmes_example_is_what_whymiss_says_of_its_recording() -> None:
    """Before and after of one real request: each attribute that README.md shows, with its value."""
    before, after = re.findall(r"\*\*(?:Before|After)\*\*.*?```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    told, said = (dict(re.findall(r"(\S+) = (\S+)", shown)) for shown in (before, after))
    play = Replay(Recording(ROOT / RECORDING), default_config())
    play.play()
    spans = [read_span(raw) for sent in play.outgoing for group in split(sent.body) for raw in group.spans]
    (span,) = (one for one in spans if one.attributes.get("gen_ai.request.id") == told["gen_ai.request.id"])
    assert len(told) >= 3
    assert len(said) >= 6
    for name, value in (told | said).items():
        actual = span.attributes[name]
        assert str(round(actual, 4) if isinstance(actual, float) else actual) == value, name


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
