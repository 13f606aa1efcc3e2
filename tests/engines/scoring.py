"""Holds what whymiss says of a recording against the engine's own word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from whymiss.config import parse
from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay, default_config


@dataclass
class Score:
    """How many lookups were named right, left unknown, named wrong, or not judged at all."""

    right: int = 0
    unknown: int = 0
    wrong: int = 0
    missing: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Of the unknown ones."""
    faults: list[str] = field(default_factory=list)
    """A line for each wrong or missing verdict."""

    @property
    def lookups(self) -> int:
        return self.right + self.unknown + self.wrong + self.missing

    @property
    def share(self) -> float:
        """Of the lookups, those that were named right."""
        return self.right / self.lookups if self.lookups else 0.0

    def __iadd__(self, other: Score) -> Self:
        self.right += other.right
        self.unknown += other.unknown
        self.wrong += other.wrong
        self.missing += other.missing
        self.reasons += other.reasons
        self.faults += other.faults
        return self


def score(folder: Path) -> Score:
    """Play a recording through whymiss and compare it with its ``expected.jsonl``.

    Right is an accepted cause with the engine's own count of cached tokens; where the truth is ``unknown`` by itself,
    nothing else is right.
    """
    config = folder / "whymiss.yaml"
    told = parse(config.read_text(encoding="utf-8"), {}) if config.exists() else default_config()
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in Replay(Recording(folder), told).play():
        rows.setdefault(str(row["trace_id"]), []).append(dict(row))
    found = Score()
    for line in (folder / "expected.jsonl").read_bytes().splitlines():
        truth = msgspec.json.decode(line)
        _compare(found, f"{folder.name} {truth['label']}", truth, rows.get(truth["trace_id"], []))
    return found


def _compare(found: Score, name: str, truth: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if not rows:
        found.missing += not truth.get("optional", False)
        if not truth.get("optional", False):
            found.faults.append(f"{name}: no verdict, truth {'|'.join(truth['accept'])}")
        return
    accepted = [row for row in rows if row["cause"] in truth["accept"]]
    row = accepted[0] if accepted else rows[0]
    cached = truth.get("cached")
    counted = row["cause"] == "unknown" or None in {cached, row["cached_tokens"]} or row["cached_tokens"] == cached
    if accepted and counted:
        found.right += 1
    elif row["cause"] == "unknown":
        found.unknown += 1
        found.reasons[row["reason"]] += 1
    else:
        found.wrong += 1
        said = f"said {row['cause']} ({row['reason']}), cached {row['cached_tokens']}"
        found.faults.append(f"{name}: {said}; truth {'|'.join(truth['accept'])}, cached {cached}")
