"""The sums of the metrics without their dimensions, now and in the recent past."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ...measures import INSTRUMENTS, Kind, Measures
from .snapshot import Count, NamedCount

Key: TypeAlias = tuple[str, ...]
"""A metric's name and the values of its own labels, in their order."""

Sums: TypeAlias = Mapping[Key, float]

STEP_SECONDS: Final = 15.0
STEPS_MAX: Final = 60
"""Together a quarter of an hour."""

SUMS: Final = tuple(one.name for one in INSTRUMENTS if one.kind is Kind.SUM)
GAUGES: Final = tuple(one.name for one in INSTRUMENTS if one.kind is Kind.GAUGE)
PAST: Final = tuple(name for name in SUMS if not name.startswith("whymiss.ledger.") or "discovery" in name)
"""A fleet has thousands of series for its sources; of them only totals are shown, so their past is not kept."""


def sums_of(measures: Measures, names: Iterable[str] = SUMS) -> dict[Key, float]:
    """Add up metrics over everything but their own labels."""
    return {
        (name, *(value or "" for value in labels)): total
        for name in names
        for labels, total in measures.totals(name).items()
    }


class Window:
    """What was added in each of the last steps; only what changed is kept."""

    def __init__(self, began: float, steps_max: int = STEPS_MAX) -> None:
        self._added: deque[tuple[float, Sums]] = deque(maxlen=steps_max)
        self._last: Sums = {}
        self._last_at = began

    def note(self, now: float, sums: Sums) -> None:
        """End a step."""
        self._added.append((now - self._last_at, self._since(sums)))
        self._last, self._last_at = sums, now

    def steps(self, now: float, sums: Sums) -> Sequence[tuple[float, Sums]]:
        """The lengths of the steps and what was added in each, oldest first, with the one that has not ended."""
        return (*self._added, (max(0.0, now - self._last_at), self._since(sums)))

    def _since(self, sums: Sums) -> dict[Key, float]:
        last = self._last
        return {key: value - before for key, value in sums.items() if value != (before := last.get(key, 0.0))}


class Totals:
    """Both at once, to be asked by name and labels; ``gauges`` have no past."""

    def __init__(self, sums: Sums, steps: Sequence[tuple[float, Sums]], gauges: Sums | None = None) -> None:
        self.seconds = sum(seconds for seconds, _ in steps)
        self._sums = sums
        self._gauges = gauges or {}
        self._keys: dict[str, list[Key]] = {}
        for key in sums:
            self._keys.setdefault(key[0], []).append(key)
        self._recent: dict[Key, float] = {}
        for _, added in steps:
            for key, value in added.items():
                self._recent[key] = self._recent.get(key, 0.0) + value

    def exactly(self, name: str, *labels: str) -> int:
        """The sum of one series since the start."""
        return round(self._sums.get((name, *labels), 0.0))

    def gauge(self, name: str, *labels: str) -> float | None:
        """A gauge, where it was ever set."""
        return self._gauges.get((name, *labels))

    def gauges(self, name: str) -> tuple[NamedCount, ...]:
        """A gauge by its only label, largest first."""
        found = [NamedCount(key[1], Count(value, value)) for key, value in self._gauges.items() if key[0] == name]
        return tuple(sorted(found, key=lambda tally: (-tally.count.total, tally.name)))

    def count(self, name: str, *labels: str | None) -> Count:
        """The sum of the series with these labels; ``None`` means any value, and so do labels left out."""
        total = recent = 0.0
        for key in self._matching(name, labels):
            total += self._sums[key]
            recent += self._recent.get(key, 0.0)
        return Count(total, recent)

    def tallies(self, name: str, *labels: str | None, by: int = 0) -> tuple[NamedCount, ...]:
        """Counts of the series with these labels by the label at a place, largest first; without those that are 0."""
        found: dict[str, tuple[float, float]] = {}
        for key in self._matching(name, labels):
            total, recent = found.get(key[1 + by], (0.0, 0.0))
            found[key[1 + by]] = (total + self._sums[key], recent + self._recent.get(key, 0.0))
        tallies = [NamedCount(one, Count(*count)) for one, count in found.items() if count[0]]
        return tuple(sorted(tallies, key=lambda tally: (-tally.count.total, tally.name)))

    def values(self, name: str, place: int = 0) -> set[str]:
        """What the label at a place says in a metric's series."""
        return {key[1 + place] for key in self._keys.get(name, ())}

    def _matching(self, name: str, labels: Sequence[str | None]) -> Iterator[Key]:
        for key in self._keys.get(name, ()):
            if all(wanted in {None, said} for wanted, said in zip(labels, key[1:], strict=False)):
                yield key
