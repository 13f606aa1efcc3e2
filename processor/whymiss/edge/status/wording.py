"""Numbers as people read them."""

from __future__ import annotations

from typing import Final

_SI: Final = ("", " k", " M", " G", " T")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float) -> str:
    """``1,234`` up to a million, then ``1.23 M``: whole where it was whole."""
    if abs(value) < 1_000_000:
        return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.2f}"
    step = 0
    while abs(value) >= 999.5 and step < len(_SI) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.3g}{_SI[step]}"


_SHORTEST_SECONDS = 1e-3
"""Over less than this nothing can be called a rate."""


def rate(count: float, seconds: float) -> str:
    """So many a second, or a minute where it is few."""
    if seconds < _SHORTEST_SECONDS or count <= 0:
        return "0/s"
    each = count / seconds
    return f"{number(round(each))}/s" if each >= 100 else f"{each:.3g}/s" if each >= 0.1 else f"{each * 60:.2g}/min"


def size(count: float) -> str:
    """Bytes, in powers of 1024."""
    step = 0
    while count >= 1023.5 and step < len(_BINARY) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.0f} B" if not step else f"{count:.3g} {_BINARY[step]}"


def span(seconds: float) -> str:
    """A length of time with its two largest units."""
    if seconds < 0.0995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for length, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= length:
            first, rest = divmod(whole, length)
            second = rest // smaller
            return f"{first} {unit} {second} {name}" if second else f"{first} {unit}"
    return f"{whole} s"


def lately(seconds: float) -> str:
    """How far the recent past reaches, in one unit."""
    return f"last {round(seconds / 60)} min" if seconds >= 90 else f"last {round(seconds)} s"


def percent(part: float, whole: float) -> str:
    """A share; a small one is not said to be none, nor a large one to be all."""
    if whole <= 0:
        return "none yet"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %" if share < 99.95 and share >= 0.05 else f"{share:.0f} %"
