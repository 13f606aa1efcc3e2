"""The page says what the snapshot says, and no name in it can become anything but text."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings

from tests.edge.status.snapshots import BUSY, DESTINATION, EMPTY, SOURCE, STREAM, any_of
from whymiss.edge.status.page import STYLE, page_of
from whymiss.edge.status.sections import SECTIONS
from whymiss.edge.status.snapshot import Count, NamedCount, Setting, Snapshot

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "nav", "h1", "h2", "p", "a"),
    *("dl", "div", "dt", "dd", "ul", "li", "span", "b", "small", "figure", "figcaption", "svg", "rect"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "id", "class", "href", "role", "scope", "data-label"),
    *("aria-label", "aria-hidden", "viewbox", "preserveaspectratio", "width", "height", "x", "y"),
}
EMPTY_ELEMENTS = {"meta", "rect"}


class Seen(HTMLParser):
    """What a browser would make of a page, as far as elements go."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.declarations: list[str] = []
        self.feed(page)
        self.close()

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in EMPTY_ELEMENTS
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def words_of(snapshot: Snapshot) -> str:
    return " ".join(" ".join(Seen(page_of(snapshot)).words).split())


@settings(max_examples=40)
@given(any_of(Snapshot))
def test_no_name_from_anywhere_can_become_markup(snapshot: Snapshot) -> None:
    page = page_of(snapshot)
    page.encode()
    seen = Seen(page)
    assert seen.open == []
    assert set(seen.elements) <= ELEMENTS
    assert [seen.elements.count(only) for only in ("html", "head", "title", "style", "body", "main")] == [1] * 6
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    links = [value for name, value in seen.attributes if name == "href"]
    assert all(
        link in {"status?refresh=10", "status.json"} or link in {f"#{one.name}" for one in SECTIONS} for link in links
    )
    assert seen.declarations == ["DOCTYPE html"]


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "</style><script>", "\"'><img src=x onerror=y>", "<!--", "&lt;b&gt;", "]]>"]
)
def test_the_name_of_a_source_is_shown_as_it_is(name: str) -> None:
    named = msgspec.structs.replace(EMPTY, sources=(msgspec.structs.replace(SOURCE, name=name),))
    assert name in words_of(named)


@pytest.mark.parametrize("unseen", ["\x00", "\x1b", "\n", "\u202e", "\u200b", "\ud800", "\ufeff"])
def test_what_cannot_be_seen_is_shown_as_something_that_cannot_be_read(unseen: str) -> None:
    named = msgspec.structs.replace(EMPTY, streams=(msgspec.structs.replace(STREAM, worker=f"pod{unseen}0"),))
    assert "pod\N{REPLACEMENT CHARACTER}0" in words_of(named)


def test_every_section_of_a_busy_service_has_its_rows() -> None:
    words = words_of(BUSY)
    for said in (
        *("evicted", "routing_miss", "none: no miss", "ambiguous_chain", "claimed vllm", "passed through"),
        *("http traces refused: overloaded", "sent to archive", "retrying for 1 min 35 s", "503, 1.4 s ago"),
        *("silent", "never heard", "tcp://vllm-1.engines.svc:5557", "2 events_dropped", "the worker's first event"),
        *("accepted data was not delivered", "231 MiB of 1 GiB", "6.2 s of 8.0 s", "configured, id 2026-11"),
    ):
        assert said in words, said


def test_every_section_of_an_empty_service_says_that_it_is_empty() -> None:
    words = words_of(EMPTY)
    for said in (
        *("No lookup has been judged yet.", "No lookup ended without a cause.", "No request has come yet."),
        *("None is configured or has pushed.", "No worker has a record yet.", "nothing is held"),
        *("Off: what is held is in memory only.", "The exporters have not started yet.", "No warning and no error"),
    ):
        assert said in words, said


@pytest.mark.parametrize("snapshot", [EMPTY, BUSY], ids=["empty", "busy"])
def test_nothing_is_loaded_and_nothing_runs(snapshot: Snapshot) -> None:
    seen = Seen(page_of(snapshot))
    assert not {"script", "link", "img", "iframe", "form"} & set(seen.elements)
    assert not {"src", "style"} & {name for name, _ in seen.attributes}
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@pytest.mark.parametrize("snapshot", [EMPTY, BUSY], ids=["empty", "busy"])
def test_every_link_leads_to_something(snapshot: Snapshot) -> None:
    seen = Seen(page_of(snapshot))
    there = {value for name, value in seen.attributes if name == "id"}
    assert {value for name, value in seen.attributes if name == "href" and value and value.startswith("#")} <= {
        f"#{one}" for one in there
    }


def test_a_table_names_its_rows_and_columns() -> None:
    seen = Seen(page_of(BUSY))
    assert seen.elements.count("table") == seen.elements.count("caption")
    scopes = [value for name, value in seen.attributes if name == "scope"]
    assert scopes.count("row") == seen.elements.count("tr") - seen.elements.count("thead")
    assert len(scopes) == seen.elements.count("th")


def test_a_page_reloads_itself_only_when_it_was_asked_to() -> None:
    assert "http-equiv" not in page_of(BUSY)
    assert '<meta http-equiv="refresh" content="30"/>' in page_of(BUSY, 30)


def test_a_list_that_is_cut_says_how_much_is_missing() -> None:
    cut = msgspec.structs.replace(BUSY, sources_left_out=1950, streams_left_out=3)
    assert "And 1,950 more sources" in words_of(cut)
    assert "And 3 more records" in words_of(cut)


def test_bars_are_in_proportion_to_the_largest_miss() -> None:
    page = page_of(BUSY)
    assert '<rect width="51.64" height="10"/>' in page  # 1,544 of 2,990 lookups


def test_a_full_queue_has_a_full_meter_and_no_longer_one() -> None:
    full = msgspec.structs.replace(EMPTY, destinations=(msgspec.structs.replace(DESTINATION, fullness=1.7),))
    page = page_of(full)
    assert 'class="bar error"' in page
    assert '<rect width="100.00" height="10"/>' in page


def test_the_configuration_and_a_missing_reason_are_said_in_words() -> None:
    verdicts = msgspec.structs.replace(EMPTY.verdicts, lookups=Count(4, 4), unknown=(NamedCount("", Count(1, 1)),))
    words = words_of(msgspec.structs.replace(EMPTY, verdicts=verdicts, settings=(Setting("Fleet view", "declared"),)))
    assert "Fleet view declared" in words
    assert "no reason given" in words
    assert "25.0 % of the lookups" in words
