"""Durations and sizes are read as people write them, or not at all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.config import units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("1.5", 1.5),
        ("0", 0.0),
        ("1e3", 1000.0),
        ("200ms", 0.2),
        ("5s", 5.0),
        ("1m", 60.0),
        ("1m30s", 90.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("0.5h", 1800.0),
        ("-1", -1.0),
    ],
)
def test_duration_is_read_in_seconds(text: str, value: float) -> None:
    assert units.seconds(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "s", "5 s", "5sec", "s5", "5s!", "-5s", "nan", "inf", "1e999", "1_000", "9" * 400 + "s", "5S", "\u0665s"],
)
def test_what_is_no_duration_is_none(text: str) -> None:
    assert units.seconds(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("10B", 10),
        ("64MiB", 64 * 1024 * 1024),
        ("64 MiB", 64 * 1024 * 1024),
        ("1.5GiB", 3 * 512 * 1024 * 1024),
        ("2TiB", 2 * 1024**4),
        ("64MB", 64_000_000),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("-1", -1),
    ],
)
def test_size_is_read_in_bytes(text: str, value: int) -> None:
    assert units.size(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MiB",
        "64mib",
        "64M",
        "64Mi",
        "1kiB",
        "1.5",
        "1e6",
        "-1MiB",
        "64MiB/s",
        "9" * 5000,
        "9" * 400 + "TiB",
        "\u0666\u0664",
    ],
)
def test_what_is_no_size_is_none(text: str) -> None:
    assert units.size(text) is None


@given(st.integers(0, 10**9))
def test_milliseconds_are_thousandths(count: int) -> None:
    assert units.seconds(f"{count}ms") == pytest.approx(count / 1000)


@given(st.integers(0, 2**40))
def test_a_binary_size_is_exact(count: int) -> None:
    assert units.size(f"{count}KiB") == count * 1024


@given(st.text() | st.text(alphabet="0123456789.eE+-smhdkMGTiB "))
def test_any_text_is_a_finite_value_or_none(text: str) -> None:
    duration = units.seconds(text)
    assert duration is None or math.isfinite(duration)
    size = units.size(text)
    assert size is None or isinstance(size, int)
