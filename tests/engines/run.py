"""``make engines``: fresh seeds of every engine through whymiss, and a table of how often it was right.

Ends with 1 where anything was named wrong; the first failing seed of a mode is kept as a recording.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from . import programs
from .scoring import Score, score
from .table import HEADING, MODES, line, total

REQUESTS = {"vllm": 250, "sglang": 250, "dynamo": 150}
"""In a seed."""
RESULTS = programs.ROOT / "tests" / "bench" / "results" / "engines.md"
KEPT = programs.ROOT / "tests" / "captures" / "engines" / "failed"


def mode_score(engine: str, mode: str, lookups: int, rng: random.Random, kept: Path) -> tuple[Score, list[int]]:
    """Play fresh seeds of a mode until so many lookups were judged; gives their sum and the seeds."""
    whole, seeds = Score(), []
    while whole.lookups < lookups:
        count = max(1, min(4, -(-(lookups - whole.lookups) // REQUESTS[engine])))
        fresh = [rng.randrange(1, 1_000_000) for _ in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            played = programs.play(engine, Path(folder), REQUESTS[engine], [(mode, seed) for seed in fresh])
            for recording in played.values():
                one = score(recording)
                if one.wrong + one.missing and not list(kept.glob(f"{mode}-*")):
                    shutil.copytree(recording, kept / recording.name)
                whole += one
        seeds += fresh
    return whole, seeds


def report(rows: dict[str, dict[str, Score]], seeds: dict[str, list[int]], seconds: float, base: int) -> str:
    """The table of all engines, as markdown."""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        "# whymiss against the engines' own code",
        "",
        f"`make engines`, {when}, {os.cpu_count()} cores of {platform.machine()}, {seconds / 60:.0f} minutes; base seed {base}.",
        "Truth is the engine's own state at each admitted lookup (`tests/engines/`); Dynamo's mock engines tell theirs by",
        "their stream, read to its end between requests. Wrong is a cause that the engine's",
        "state contradicts, or a cached-token count that is not the engine's.",
    ]
    for engine, modes in rows.items():
        parts += ["", f"## {engine}", "", HEADING, *(line(mode, one) for mode, one in modes.items())]
        parts += [line("all", total(modes.values()))]
    parts += ["", "Seeds:", *(f"- {name}: {', '.join(map(str, used))}" for name, used in seeds.items()), ""]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engines.run", description=__doc__)
    parser.add_argument("--vllm", type=int, default=20_000, help="lookups over all modes (default %(default)s)")
    parser.add_argument("--sglang", type=int, default=3_000, help="the same (default %(default)s)")
    parser.add_argument("--dynamo", type=int, default=300, help="the same (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="where the fresh seeds come from")
    parser.add_argument("--modes", nargs="*", help="only these")
    parser.add_argument("--store", type=Path, default=RESULTS, help="where the table goes")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the first failing seed of a mode goes")
    chosen = parser.parse_args()
    base = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"base seed {base}", flush=True)
    rng, begun = random.Random(base), time.monotonic()
    rows: dict[str, dict[str, Score]] = {}
    seeds: dict[str, list[int]] = {}
    for engine, modes in MODES.items():
        wanted = [mode for mode in modes if not chosen.modes or mode in chosen.modes]
        lookups = getattr(chosen, engine)
        for mode in wanted if lookups else ():
            one, used = mode_score(engine, mode, -(-lookups // len(wanted)), rng, chosen.keep)
            rows.setdefault(engine, {})[mode] = one
            seeds[f"{engine} {mode}"] = used
            print(line(f"{engine} {mode}", one), flush=True)
            for fault in one.faults[:3]:
                print(f"    {fault}", flush=True)
    text = report(rows, seeds, time.monotonic() - begun, base)
    chosen.store.write_text(text, encoding="utf-8")
    everything = total(one for modes in rows.values() for one in modes.values())
    print(line("all", everything), f"\nstored in {chosen.store}", flush=True)
    return 1 if everything.wrong or everything.missing else 0


if __name__ == "__main__":
    sys.exit(main())
