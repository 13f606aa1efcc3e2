"""What a mutation is: one guard of the product taken out, and the tests that must notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "whymiss"
SOURCE = ROOT / "processor"


class Mutation(NamedTuple):
    """One guard less. ``old`` stands once in ``file`` (below the package), ``tests`` is a pytest selection."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    why: str

    def applied(self, text: str) -> str:
        """The text without the guard. Raises ``ValueError`` where the guard is not there exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: its text stands {count} times in {self.file}")
        return text.replace(self.old, self.new)


def guards(file: str, tests: str, *rows: tuple[str, str, str, str]) -> tuple[Mutation, ...]:
    """Mutations of one file with one selection; a row is name, why the guard is there, old text and new text."""
    return tuple(Mutation(name, file, old, new, tests, why) for name, why, old, new in rows)
