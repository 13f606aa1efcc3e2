"""Operators and markers: what takes the place of a statement, and which statement a comment marks."""

from __future__ import annotations

import ast

import pytest

from tests.mutations.markers import markers_in, mutated
from tests.mutations.mutation import Mutation
from tests.mutations.operators import (
    Operator,
    always,
    compare,
    drop,
    drop_operand,
    instead,
    keep,
    negate,
    never,
    replace,
    take,
)


def applied(operator: Operator, text: str) -> str:
    tree = ast.Module(operator(ast.parse(text).body[0]), [])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize(
    ("operator", "text", "expected"),
    [
        (drop(), "if a:\n    b()", "pass"),
        (always(), "if a:\n    b()", "if True:\n    b()"),
        (never(), "while a:\n    b()", "while False:\n    b()"),
        (never("and"), "x = a or (b and c)", "x = a or False"),
        (always("Call", 1), "x = [f(), g()]", "x = [f(), True]"),
        (negate(), "if a:\n    b()", "if not a:\n    b()"),
        (negate(), "if not a:\n    b()", "if a:\n    b()"),
        (negate("Compare"), "x = a < b", "x = not a < b"),
        (drop_operand("or", 1), "x = a or b or c", "x = a or c"),
        (drop_operand("and", 0), "x = a and b", "x = b"),
        (drop_operand("and", 0, 1), "x = (a and b) or (c and d)", "x = a and b or d"),
        (drop_operand("&", 0), "x = a & b", "x = b"),
        (drop_operand("-", 1), "x = a - b", "x = a"),
        (drop_operand("Compare", 0), "x = a < b <= c", "x = b <= c"),
        (drop_operand("Compare", 2), "x = a < b <= c", "x = a < b"),
        (drop_operand("Set", 1), "x = {a, b}", "x = {a}"),
        (drop_operand("Call", 1), "f(a, b, c=d)", "f(a, c=d)"),
        (drop_operand("Call", 2), "f(a, b, c=d)", "f(a, b)"),
        (drop_operand("comprehension", 0), "x = [a for a in b if a]", "x = [a for a in b]"),
        (take("then"), "x = a if b else c", "x = a"),
        (take("else", 1), "x = (a if b else c) + (d if e else f)", "x = (a if b else c) + f"),
        (compare("<="), "x = a < b", "x = a <= b"),
        (compare("==", 0, 1), "x = a < b < c", "x = a < b == c"),
        (keep("Call", "Attribute"), "x = min(a.b, 3)", "x = a.b"),
        (keep("Compare", "Name", 0, 1), "x = len(a) == 1", "x = a"),
        (replace("Call", "list(Name_1) or None"), "f(a)", "list(a) or None"),
        (instead("Name_0 = Constant_0"), "a, b = 1, 2", "a = 1"),
        (instead("continue"), "return a", "continue"),
    ],
)
def test_an_operator_gives_what_takes_the_place_of_a_statement(operator: Operator, text: str, expected: str) -> None:
    assert applied(operator, text) == expected


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (never(), "x = a"),
        (drop_operand("or", 0), "x = a and b"),
        (drop_operand("and", 0, 1), "x = a and b"),
        (drop_operand("Compare", 1), "x = a < b < c"),
        (drop_operand("Name", 0), "x = a"),
        (take("then"), "if a:\n    x = b if c else d"),
        (replace("Name", "Call_0"), "x = a"),
    ],
)
def test_an_operator_that_finds_nothing_to_change_says_so(operator: Operator, text: str) -> None:
    with pytest.raises(ValueError, match=r"has no|there are|no operand"):
        applied(operator, text)


def test_a_marker_stands_behind_its_statement_or_above_it() -> None:
    text = "# guard: one\n# why\nif a:  # guard: two, three\n    b()\nelif c:  # guard: four\n    d()\n"
    assert [(marker.id, marker.line) for marker in markers_in("a.py", text)] == [
        ("one", 3),
        ("two", 3),
        ("three", 3),
        ("four", 5),
    ]


@pytest.mark.parametrize("text", ["a()\n# guard: one\n", "f(\n    1,  # guard: one\n)\n", "a()  # guard: One two\n"])
def test_a_marker_that_marks_no_statement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py"):
        list(markers_in("a.py", text))


def test_a_mutation_changes_the_statement_at_its_line_and_no_other() -> None:
    mutation = Mutation("one", "", never(), "")
    tree = mutated("if a:\n    b()\nelif c:\n    b()\n", 3, mutation)
    assert ast.unparse(tree) == "if a:\n    b()\nelif False:\n    b()"


@pytest.mark.parametrize(
    ("operator", "problem"),
    [(always(), "changes nothing"), (replace("Constant", "unheard"), "not there"), (take("else"), "there are 0")],
)
def test_a_mutation_that_no_test_could_judge_is_refused(operator: Operator, problem: str) -> None:
    with pytest.raises(ValueError, match=f"one.*{problem}"):
        mutated("if True:\n    b()\n", 1, Mutation("one", "", operator, ""))
