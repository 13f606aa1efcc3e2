"""The table of ``whymiss whatif`` for people, and under it the answer in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from ..model import Cause
from .fleet.setup import Setup
from .fleet.trace import Trace
from .whatif_axes import AXES, Axis, varied
from .whatif_cells import OWNERS, Cell, share

WIDTH = 160
"""Columns a table may take: rather a terminal breaks its lines than that its figures are broken or cut."""


def amount(tokens: int) -> str:
    """A number of tokens, to three digits or so."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(tokens) >= size:
            return f"{tokens / size:,.1f} {unit}"
    return str(tokens)


def percent(value: float) -> str:
    """A share for people."""
    return f"{100 * value:.1f} %"


def causes_of(cells: Sequence[Cell]) -> list[Cause]:
    """The causes that lost anything anywhere, in the order of the table of causes."""
    return [cause for cause in Cause if any(cell.lost[cause] for cell in cells)]


def print_report(trace: Trace, cells: Sequence[Cell], out: TextIO) -> None:
    """Print what was replayed, the table, and the answer."""
    out.writelines(f"{line}\n" for line in _heading(trace, cells))
    console = Console(file=out, highlight=False, width=WIDTH)
    console.print(_table(cells))
    out.writelines(f"note: {line}\n" for line in _notes(cells))
    out.write(answer(cells) + "\n")


def _heading(trace: Trace, cells: Sequence[Cell]) -> Iterator[str]:
    first = cells[0].outcome
    tokens = amount(sum(ask.prompt_tokens for ask in trace.asks))
    short = f", {trace.short:,} requests of less than one left out" if trace.short else ""
    yield (
        f"{Path(trace.name).name}: {len(trace.asks):,} requests, {tokens} prompt tokens, "
        f"blocks of {trace.block_tokens} tokens{short}"
    )
    fixed = [axis for axis in AXES if axis not in varied([cell.setup for cell in cells])]
    yield "every fleet: " + ", ".join(_said(axis, cells[0].setup) for axis in fixed if _tells(axis, cells[0].setup))
    new, ends = cells[0].new_tokens, first.unmatchable_tokens
    best = 1 - share(new + ends, first.queried_tokens)
    yield (
        f"nobody could reuse {amount(new)} tokens of new blocks and {amount(ends)} at the ends of prompts: "
        f"at best {percent(best)} hit"
    )


def _said(axis: Axis, setup: Setup) -> str:
    return f"{axis.title} {axis.write(setup)}"


def _tells(axis: Axis, setup: Setup) -> bool:
    """Whether an axis says more than that nothing was asked of it."""
    return axis.name in {"workers", "capacity", "routing"} or axis.write(setup) != axis.write(Setup())


def _table(cells: Sequence[Cell]) -> Table:
    axes, causes = varied([cell.setup for cell in cells]), causes_of(cells)
    table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    for axis in axes:
        table.add_column(axis.title, justify="left" if axis.name == "routing" else "right")
    tiers, several = any(cell.setup.tier for cell in cells), any(cell.setup.workers > 1 for cell in cells)
    headings = ["hit", *(["from tier"] if tiers else []), "lost"]
    headings += [f"{cause}\n{OWNERS[cause].value}" for cause in causes]
    headings += [*(["busiest\nworker"] if several else []), *(["saved against\nthe first"] if len(cells) > 1 else [])]
    for heading in headings:
        table.add_column(heading, justify="right")
    for cell in cells:
        outcome = cell.outcome
        loaded = [percent(share(outcome.loaded_tokens, outcome.queried_tokens))] if tiers else []
        row = [*(axis.write(cell.setup) for axis in axes), percent(cell.hit_share), *loaded, amount(cell.lost.total())]
        row += [amount(cell.lost[cause]) for cause in causes]
        row += [percent(cell.busiest_share)] if several else []
        row += [_saved(cell, cells[0])] if len(cells) > 1 else []
        table.add_row(*row)
    return table


def _saved(cell: Cell, first: Cell) -> str:
    saved = cell.saved_tokens(first)
    if cell is first or saved is None:
        return "-"
    return f"{amount(saved)} ({100 * share(saved, first.lost.total()):.0f} %)"


def _notes(cells: Sequence[Cell]) -> Iterator[str]:
    refused = sorted({cell.outcome.refused for cell in cells} - {0})
    if refused:
        counts = " to ".join(dict.fromkeys(f"{count:,}" for count in (refused[0], refused[-1])))
        yield f"{counts} requests are longer than a worker's cache and were served by nobody"
    if any(cell.saved_tokens(cells[0]) is None for cell in cells):
        yield "fleets that served other requests than the first are not compared with it"


def answer(cells: Sequence[Cell]) -> str:
    """What the best change of each kind saves, measured against the first fleet."""
    first = cells[0]
    lost = first.lost.total()
    if len(cells) == 1:
        return _only(first)
    axes = varied([cell.setup for cell in cells])
    parts = [_change(axis, first, best) for axis in axes if (best := _best(_along(axis, axes, cells)))]
    best = _best(cells)
    if best is not None and len(_changed(axes, first, best)) > 1:
        parts.append(f"{_all(axes, first, best)} saves {_saved(best, first)}")
    if not parts:
        return f"nothing here saves any of the {amount(lost)} tokens that the first fleet lost"
    return f"of the {amount(lost)} tokens that the first fleet lost: " + "; ".join(parts)


def _only(cell: Cell) -> str:
    lost = cell.lost
    if not lost.total():
        return "nothing was lost"
    cause, tokens = max(lost.items(), key=lambda item: item[1])
    part = percent(share(tokens, lost.total()))
    return f"{amount(lost.total())} tokens lost, most of them to {cause} ({OWNERS[cause].value}): {amount(tokens)} ({part})"


def _best(cells: Sequence[Cell]) -> Cell | None:
    """The fleet that saves most, the first of equals; None where nothing is saved."""
    saving = [
        (saved, -number) for number, cell in enumerate(cells) if (saved := cell.saved_tokens(cells[0])) and saved > 0
    ]
    return cells[-max(saving)[1]] if saving else None


def _along(axis: Axis, axes: Sequence[Axis], cells: Sequence[Cell]) -> list[Cell]:
    """The first fleet and those that differ from it in one axis only."""
    others = [one for one in axes if one is not axis]
    return [cell for cell in cells if all(one.write(cell.setup) == one.write(cells[0].setup) for one in others)]


def _changed(axes: Sequence[Axis], first: Cell, cell: Cell) -> list[Axis]:
    return [axis for axis in axes if axis.write(cell.setup) != axis.write(first.setup)]


def _change(axis: Axis, first: Cell, cell: Cell) -> str:
    before, after = first.setup.capacity, cell.setup.capacity
    if axis.name == "capacity" and before is not None and after == 2 * before:
        return f"doubling the capacity saves {_saved(cell, first)}"
    return f"{axis.title} {axis.write(cell.setup)} saves {_saved(cell, first)}"


def _all(axes: Sequence[Axis], first: Cell, cell: Cell) -> str:
    return " with ".join(f"{axis.title} {axis.write(cell.setup)}" for axis in _changed(axes, first, cell))
