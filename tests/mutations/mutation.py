"""What a mutation is: one guard of the product taken out, and the tests that must notice.

To add a guard, write ``# guard: its-id`` behind the first line of its statement (above it where the line is full), and
a row with the same id in the group of `of_*.py` whose tests watch it: id, why the guard is there, an operator.
To move a guard, within a file or to another one, take its comment along: no list says where it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.mutations.operators import Operator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "whymiss"
SOURCE = ROOT / "processor"


class Mutation(NamedTuple):
    """One guard less: the operator is applied to the statement that the id marks; ``tests`` is a pytest selection."""

    id: str
    why: str
    operator: Operator
    tests: str


def guards(tests: str, *rows: tuple[str, str, Operator]) -> tuple[Mutation, ...]:
    """Mutations with one selection of tests; a row is id, why the guard is there, and how it is taken out."""
    return tuple(Mutation(name, why, operator, tests) for name, why, operator in rows)
