"""Markers of guards in the source, and the statements they mark.

A marker is the comment ``# guard: some-id`` behind the first line of a statement, or on a line of its own directly
above it where that line is full. Several ids are separated by ``, ``.
"""

from __future__ import annotations

import ast
import builtins
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutations.mutation import PACKAGE, SOURCE, Mutation

_MARKER = re.compile(r"# guard: (?P<ids>[a-z0-9-]+(, [a-z0-9-]+)*)$")


class Marker(NamedTuple):
    """One id at one statement: ``line`` is the statement's first, counted from 1; ``file`` is below the package."""

    id: str
    file: str
    line: int


@functools.cache
def markers() -> tuple[Marker, ...]:
    """All markers of the package, file by file."""
    folder = SOURCE / PACKAGE
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))
    return tuple(marker for file in files for marker in markers_in(file, text_of(file)))


@functools.cache
def places() -> dict[str, Marker]:
    """The marker of each id. Raises ``ValueError`` where an id marks two statements."""
    found: dict[str, Marker] = {}
    for marker in markers():
        if marker.id in found:
            raise ValueError(f"{marker.id} marks two statements: {found[marker.id]} and {marker}")
        found[marker.id] = marker
    return found


def place_of(mutation: Mutation) -> Marker:
    """Where a mutation's guard is. Raises ``ValueError`` where nothing is marked by its id."""
    if mutation.id not in places():
        raise ValueError(f"{mutation.id} marks no statement")
    return places()[mutation.id]


def text_of(file: str) -> str:
    """The source of a file of the package."""
    return Path(SOURCE / PACKAGE / file).read_text(encoding="utf-8")


def markers_in(file: str, text: str) -> Iterator[Marker]:
    """The markers of one source. Raises ``ValueError`` where one cannot be read or marks no statement."""
    if "# guard:" not in text:
        return
    lines = text.splitlines()
    starts = {node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or not token.string.startswith("# guard:"):
            continue
        written = _MARKER.match(token.string)
        line = token.start[0]
        while line < len(lines) and lines[line - 1].lstrip().startswith("#"):
            line += 1
        if written is None or line not in starts:
            raise ValueError(f"{file}:{token.start[0]}: no marker of a statement: {token.string}")
        for name in written["ids"].split(", "):
            yield Marker(name, file, line)


def mutated(text: str, line: int, mutation: Mutation) -> ast.Module:
    """The syntax tree of a source without the guard at a line.

    Raises ``ValueError`` where that changes nothing, or brings a name that the source does not know: a test that
    fails because of such a name watches nothing.
    """
    tree = ast.parse(text)
    before, known = ast.dump(tree), _names(tree, ast.Load) | set(dir(builtins))
    body, at = _statement(tree, line)
    try:
        body[at : at + 1] = mutation.operator(body[at])
    except ValueError as problem:
        raise ValueError(f"{mutation.id}: {problem}") from problem
    if ast.dump(tree) == before:
        raise ValueError(f"{mutation.id} changes nothing")
    unknown = _names(tree, ast.Load) - known - _names(tree, ast.Store)
    if unknown:
        raise ValueError(f"{mutation.id} brings names that are not there: {sorted(unknown)}")
    return ast.fix_missing_locations(tree)


def _statement(tree: ast.Module, line: int) -> tuple[list[ast.stmt], int]:
    """The statements among which one begins at a line, and which of them it is."""
    for node in ast.walk(tree):
        for _, body in ast.iter_fields(node):
            if isinstance(body, list):
                for at, statement in enumerate(body):
                    if isinstance(statement, ast.stmt) and statement.lineno == line:
                        return body, at
    raise ValueError(f"no statement begins at line {line}")


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Names that a syntax tree reads (``ast.Load``) or sets (``ast.Store``)."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
