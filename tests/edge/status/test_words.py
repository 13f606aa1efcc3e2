from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.edge.status.wording import lately, number, percent, rate, size, span


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (7, "7"),
        (0.25, "0.25"),
        (1234, "1,234"),
        (1234.5, "1,234"),
        (999_999, "999,999"),
        (1_234_567, "1.23 M"),
        (999_700_000, "1 G"),
        (7.5e12, "7.5 T"),
        (2e16, "2e+04 T"),
    ],
)
def test_numbers_are_whole_until_they_are_long(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("count", "seconds", "words"),
    [(0, 60, "0/s"), (5, 0, "0/s"), (1, 60, "1/min"), (3, 10, "0.3/s"), (12345, 10, "1,234/s"), (130, 10, "13/s")],
)
def test_a_slow_rate_is_by_the_minute(count: float, seconds: float, words: str) -> None:
    assert rate(count, seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), ((1 << 20) - 1, "1 MiB")],
)
def test_sizes_are_in_powers_of_1024(count: int, words: str) -> None:
    assert size(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"),
        (0, "0 ms"),
        (0.004, "4 ms"),
        (0.0999, "0.1 s"),
        (8, "8.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (95, "1 min 35 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (86400 * 2 + 3600 * 4, "2 d 4 h"),
    ],
)
def test_a_length_of_time_has_two_units_at_most(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (0, 0, "none yet"),
        (0, 5, "0 %"),
        (1, 10_000, "< 0.1 %"),
        (9_999, 10_000, "> 99.9 %"),
        (1, 1, "100 %"),
        (1, 3, "33.3 %"),
        (4, 1, "400 %"),
        (999, 1000, "99.9 %"),
    ],
)
def test_a_share_is_neither_none_nor_all_unless_it_is(part: float, whole: float, words: str) -> None:
    assert percent(part, whole) == words


@pytest.mark.parametrize(("seconds", "words"), [(4.4, "last 4 s"), (89, "last 89 s"), (904, "last 15 min")])
def test_the_recent_past_is_one_unit(seconds: float, words: str) -> None:
    assert lately(seconds) == words


@given(st.floats(0, 1e18), st.floats(1e-9, 1e18))
def test_no_amount_is_too_large_or_too_small_for_words(one: float, other: float) -> None:
    for words in (number(one), size(one), span(one), lately(one), rate(one, other), percent(one, other + 1)):
        assert 0 < len(words) <= 30
        assert words.isprintable()
