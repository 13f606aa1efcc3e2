"""The picture of ``whymiss whatif``: a bar of lost tokens for each fleet, by cause, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from ..model import Cause
from .fleet.trace import Trace
from .whatif_axes import varied
from .whatif_cells import OWNERS, Cell
from .whatif_report import amount, causes_of, percent

COLOURS: Mapping[Cause, str] = {
    Cause.STALE_INDEX: "#cc79a7",
    Cause.ROUTING_MISS: "#0072b2",
    Cause.EVICTED: "#d55e00",
    Cause.EVICTED_ELSEWHERE: "#e69f00",
}
"""Colours that colour-blind readers can distinguish (Okabe and Ito, 2008)."""
BAR, GAP, WIDTH, RIGHT = 22, 12, 560, 150
LETTER = 7.2
"""Width of a letter of the text, about: where names end decides where bars begin."""


def drawn(trace: Trace, cells: Sequence[Cell]) -> str:
    """The picture of a grid, bars in the order of the table."""
    names = [_name(cells, cell) for cell in cells]
    left = 24 + LETTER * max(len(name) for name in names)
    causes = causes_of(cells)
    top, height = 62, 62 + len(cells) * (BAR + GAP) + 16
    longest = max(1, *(cell.lost.total() for cell in cells))
    view = f"0 0 {left + WIDTH + RIGHT:.0f} {height}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(12, 22, f"Tokens computed again: {Path(trace.name).name}", weight="bold"),
        *_legend(causes),
    ]
    for number, (name, cell) in enumerate(zip(names, cells, strict=True)):
        y = top + number * (BAR + GAP)
        lines.append(_text(left - 8, y + 16, name, anchor="end"))
        lines.extend(_bar(cell, causes, left, y, WIDTH / longest))
        said = f"{amount(cell.lost.total())}, {percent(cell.hit_share)} hit"
        lines.append(_text(left + cell.lost.total() * WIDTH / longest + 8, y + 16, said))
    return "\n".join([*lines, "</svg>", ""])


def _name(cells: Sequence[Cell], cell: Cell) -> str:
    axes = varied([one.setup for one in cells])
    return ", ".join(
        axis.write(cell.setup) if axis.name == "routing" else f"{axis.title} {axis.write(cell.setup)}" for axis in axes
    )


def _bar(cell: Cell, causes: Sequence[Cause], x: float, y: float, scale: float) -> Iterator[str]:
    for cause in causes:
        width = cell.lost[cause] * scale
        if width:
            title = f"<title>{cause}: {amount(cell.lost[cause])}</title>"
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[cause]}">{title}</rect>'
        x += width


def _legend(causes: Sequence[Cause]) -> Iterator[str]:
    x = 12.0
    for cause in causes:
        said = f"{cause} ({OWNERS[cause].value})"
        yield f'<rect x="{x:.1f}" y="34" width="12" height="12" fill="{COLOURS[cause]}"/>'
        yield _text(x + 17, 45, said)
        x += 36 + LETTER * len(said)


def _text(x: float, y: float, said: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="#222222">{escape(said)}</text>'
    )
