"""``whymiss whatif``: the requests of a trace on other fleets, so that a fix is picked by replay, not by guess.

Lost are tokens that a worker computed although the fleet had computed them before; each missed block is lost to its
own cause, so that the columns add up. Queried = hit + lost + new + ends of prompts that fill no block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..errors import ConfigError
from .fleet.grid import replay_all
from .fleet.setup import Setup
from .fleet.trace import Form, Trace, read
from .whatif_axes import AXES, fleets
from .whatif_cells import Cell, record
from .whatif_plot import drawn
from .whatif_report import print_report

TIME_UNITS = {"ms": 0.001, "s": 1.0}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to read the trace, the fleets to replay it on, and what to print."""

    workers: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    routing: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    index_lag: tuple[str, ...] = ()
    form: str | None = None
    block_size: int | None = None
    time_unit: str = "ms"
    jobs: int | None = None
    as_json: bool = False
    plot: Path | None = None


def run(file: Path, options: Options, out: TextIO, err: TextIO) -> int:
    """Replay a trace on every fleet and print what each loses. Raises ``ConfigError`` and ``BadInput``."""
    _check(options)
    with _bar(err) as bar:
        trace = _read(file, options, bar)
        setups = _fleets(options, trace)
        jobs = options.jobs or os.cpu_count() or 1
        task = bar.add_task(f"replaying on {len(setups)} fleet(s)", total=len(setups) * len(trace.asks))
        outcomes = replay_all(trace, setups, jobs, lambda through: bar.update(task, completed=through))
    cells = [Cell(setup, outcome) for setup, outcome in zip(setups, outcomes, strict=True)]
    if options.plot is not None:
        _plot(options.plot, trace, cells)
    if options.as_json:
        out.writelines(msgspec.json.encode(record(cell, cells[0])).decode() + "\n" for cell in cells)
    else:
        print_report(trace, cells, out)
    return 0


def _check(options: Options) -> None:
    if options.plot is not None and options.plot.suffix != ".svg":
        raise ConfigError("--plot", "writes SVG: name a file that ends in .svg")


def _fleets(options: Options, trace: Trace) -> list[Setup]:
    given = {axis.name: getattr(options, axis.name) for axis in AXES}
    setups = fleets(given, trace.block_tokens)
    if not trace.sessions and any(one.routing == "sticky" for one in setups):
        raise ConfigError("--routing", f"sticky needs sessions, and no line of {trace.name} has one")
    return setups


def _read(file: Path, options: Options, bar: Progress) -> Trace:
    form = Form(name=options.form, block_tokens=options.block_size, time_unit=TIME_UNITS[options.time_unit])
    total = None if str(file) == "-" else file.stat().st_size
    task = bar.add_task(f"reading {file.name}", total=total)
    trace = read(file, form, lambda through: bar.update(task, completed=through))
    bar.remove_task(task)
    return trace


@contextmanager
def _bar(err: TextIO) -> Iterator[Progress]:
    """A progress bar on a terminal; it is removed when the work is done."""
    console = Console(file=err)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _plot(path: Path, trace: Trace, cells: Sequence[Cell]) -> None:
    try:
        path.write_text(drawn(trace, cells), encoding="utf-8")
    except OSError as error:
        raise ConfigError("--plot", f"{path}: {error.strerror}") from None
