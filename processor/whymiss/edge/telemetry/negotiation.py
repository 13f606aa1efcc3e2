"""What a client of ours would rather be given, by the headers of its request (RFC 9110, 12.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .prometheus import Format


def format_for(accept: str) -> Format:
    """The text format that an ``Accept`` header prefers; where it asks for neither, plain Prometheus text."""
    wanted = {Format.TEXT: 0.0, Format.OPENMETRICS: 0.0}
    for value, parameters, quality in _items(accept):
        if value == "application/openmetrics-text" and parameters.get("version", "1.0.0").startswith("1."):
            wanted[Format.OPENMETRICS] = max(wanted[Format.OPENMETRICS], quality)
        elif value == "text/plain":
            wanted[Format.TEXT] = max(wanted[Format.TEXT], quality)
    asked = 0 < wanted[Format.OPENMETRICS] >= wanted[Format.TEXT]
    return Format.OPENMETRICS if asked else Format.TEXT


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an ``Accept-Encoding`` header names gzip, and not only to refuse it."""
    return any(value in {"gzip", "x-gzip"} and quality > 0 for value, _, quality in _items(accept_encoding))


def _items(header: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Each value of a header in lower case, with its parameters and how much it is wanted."""
    for item in header.lower().split(","):
        value, *rest = [part.strip() for part in item.split(";")]
        pairs = [part.partition("=") for part in rest]
        parameters = {name.strip(): text.strip().strip('"') for name, _, text in pairs}
        yield value, parameters, _quality(parameters.get("q", "1"))


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
