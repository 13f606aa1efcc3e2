"""A scraper is given the format that it would rather have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.edge.telemetry.negotiation import format_for, takes_gzip
from whymiss.edge.telemetry.prometheus import Format

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("text/html, */*", Format.TEXT),
        (PROMETHEUS_3, Format.OPENMETRICS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", Format.OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1,text/plain;q=0.5", Format.TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.5", Format.TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0", Format.TEXT),
        ("application/openmetrics-text;q=much", Format.TEXT),
    ],
)
def test_format_is_the_one_that_is_preferred(accept: str, form: Format) -> None:
    assert format_for(accept) is form


@pytest.mark.parametrize(
    ("header", "taken"),
    [("", False), ("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("br, identity", False)],
)
def test_gzip_is_used_where_it_is_named_and_not_refused(header: str, taken: bool) -> None:
    assert takes_gzip(header) is taken


@given(header=st.text(max_size=40) | st.text('apq=;,/01.+-"* ', max_size=40))
def test_no_header_is_too_odd(header: str) -> None:
    assert format_for(header) in Format
    assert takes_gzip(header) in {True, False}
