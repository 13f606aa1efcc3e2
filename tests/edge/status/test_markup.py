from __future__ import annotations

from html import unescape

import pytest
from hypothesis import given

from tests.edge.status.snapshots import NAMES
from whymiss.edge.status.markup import NAME_CHARS_MAX, Html, clean, escaped, join, tag, visible


@given(NAMES)
def test_a_text_is_itself_again_for_who_reads_the_markup(name: str) -> None:
    written = escaped(name)
    assert not set("<>\"'") & set(written)
    assert unescape(written) == visible(name)


@given(NAMES)
def test_an_attribute_ends_where_it_should(name: str) -> None:
    assert tag("svg", aria_label=name) == f'<svg aria-label="{escaped(name)}"></svg>'


@given(NAMES)
def test_a_clean_name_is_short_visible_and_can_be_encoded(name: str) -> None:
    shown = clean(name)
    assert len(shown) <= NAME_CHARS_MAX
    assert shown.isprintable()
    shown.encode()
    if name.isprintable() and len(name) <= NAME_CHARS_MAX:
        assert shown == name


def test_markup_is_not_escaped_twice() -> None:
    assert join(tag("b", "<"), "&", 7) == "<b>&lt;</b>&amp;7"
    assert isinstance(join("x"), Html)


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (tag("td", "x", class_="number", data_label="rate"), '<td class="number" data-label="rate">x</td>'),
        (tag("td", "x", class_=None), "<td>x</td>"),
        (tag("rect", width="1"), '<rect width="1"/>'),
        (tag("meta", name="viewport"), '<meta name="viewport"/>'),
    ],
)
def test_an_element_is_written_as_html(made: Html, written: str) -> None:
    assert made == written
