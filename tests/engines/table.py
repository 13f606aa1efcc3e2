"""The modes that are played and their targets, and how figures are printed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from .scoring import Score

FIGURES = Path(__file__).with_name("figures.toml")
VLLM = (
    *("busy", "small-pool", "async", "equal-lengths", "chunked"),
    *("preemption", "sliding-window", "mamba", "eagle", "half-traced"),
)
SGLANG = tuple(f"sglang-{mode}" for mode in ("page-1", "page-16", "extra-key", "hicache", "eagle"))
DYNAMO = ("dynamo-kv", "dynamo-round-robin")
MODES: Mapping[str, tuple[str, ...]] = {"vllm": VLLM, "sglang": SGLANG, "dynamo": DYNAMO}

HEADING = "| mode | lookups | named right | unknown | wrong | no verdict | share | why unknown |\n|---|---|---|---|---|---|---|---|"


def line(name: str, score: Score) -> str:
    """A row of the table, under ``HEADING``."""
    why = ", ".join(f"{reason} {count}" for reason, count in score.reasons.most_common(4))
    counts = " | ".join(str(count) for count in (score.lookups, score.right, score.unknown, score.wrong, score.missing))
    return f"| {name} | {counts} | {score.share:.1%} | {why} |"


def total(scores: Iterable[Score]) -> Score:
    """The sum of scores, without changing them."""
    whole = Score()
    for one in scores:
        whole += one
    return whole


def figures(kind: str) -> dict[str, dict[str, int]]:
    """What ``figures.toml`` says of ``recordings`` or ``seeds``: for each mode ``right`` at least, ``wrong`` at most."""
    rows: dict[str, dict[str, int]] = tomllib.loads(FIGURES.read_text(encoding="utf-8"))[kind]
    return rows
