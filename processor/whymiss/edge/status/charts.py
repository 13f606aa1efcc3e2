"""Bars, drawn without styles or scripts: the policy of the page allows neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .markup import Html, join, tag
from .snapshot import TimelineStep
from .wording import number, span

HEIGHT: Final = 40
_COLUMN: Final = 4
"""Of which one is the gap to the next."""


def bar(value: float, largest: float, kind: str = "known") -> Html:
    """A horizontal bar, or nothing for 0. The number is beside it, so it says nothing to a screen reader."""
    if value <= 0 or largest <= 0:
        return Html()
    return _drawing(f"bar {kind}", 100, 10, tag("rect", width=f"{100 * value / largest:.2f}", height="10"))


def meter(share: float, label: str) -> Html:
    """How full something is: calm, then not."""
    kind = "error" if share >= 1 else "warning" if share >= 0.8 else "known"
    drawn = (
        tag("rect", class_="track", width="100", height="10"),
        tag("rect", width=f"{100 * min(1.0, max(0.0, share)):.2f}", height="10"),
    )
    return _drawing(f"bar {kind}", 100, 10, *drawn, label=label)


def timeline(moments: Sequence[TimelineStep], step_seconds: float, columns: int) -> Html:
    """Lookups a step, oldest on the left; from the ground up what hit, what missed for a known cause, and what for none.

    There is room for ``columns`` steps, and the newest is always at the right.
    """
    shown = moments[-columns:]
    largest = max((one.hits + one.misses + one.unknown for one in shown), default=0.0)
    ground = columns * _COLUMN
    drawn = [
        piece
        for place, one in enumerate(shown, columns - len(shown))
        for piece in _column(one, place * _COLUMN, largest)
    ]
    totals = [sum(getattr(one, name) for one in shown) for name in ("hits", "misses", "unknown")]
    label = "Lookups in the last {}: {} without a miss, {} missed for a known cause, {} unknown.".format(
        span(columns * step_seconds), *map(number, totals)
    )
    axis = tag("rect", class_="axis", y=str(HEIGHT), width=str(ground), height="1")
    return _drawing("timeline", ground, HEIGHT + 1, axis, *drawn, label=label)


def _column(moment: TimelineStep, left: int, largest: float) -> list[Html]:
    pieces, top = [], float(HEIGHT)
    for kind in ("hits", "misses", "unknown"):
        height = 0.0 if largest <= 0 else HEIGHT * getattr(moment, kind) / largest
        if height > 0:
            top -= height
            width = str(_COLUMN - 1)
            pieces.append(tag("rect", class_=kind, x=str(left), y=f"{top:.2f}", width=width, height=f"{height:.2f}"))
    return pieces


def swatch(kind: str) -> Html:
    """The colour of a kind, for a legend."""
    return _drawing(f"swatch {kind}", 10, 10, tag("rect", width="10", height="10"))


def _drawing(kind: str, width: int, height: int, *pieces: Html, label: str | None = None) -> Html:
    role = {"role": "img", "aria_label": label} if label is not None else {"aria_hidden": "true"}
    return tag("svg", join(*pieces), class_=kind, viewBox=f"0 0 {width} {height}", preserveAspectRatio="none", **role)
