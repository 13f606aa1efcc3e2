"""How a guard is taken out of the statement that its marker stands at.

An operator gets one statement and gives what takes its place. It finds the part it changes by kind and number, in
the order of the syntax tree, so that neither new names nor new line breaks change what it finds. The kind of an
operation is its sign (``and``, ``or``, ``not``, ``&``, ``|``, ``+``, ``~`` ...), that of any other part is the name
of its class in ``ast``. Statements inside a statement are no parts of it: they have markers of their own.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator

Operator = Callable[[ast.stmt], list[ast.stmt]]
"""Gives the statements that take the place of one. Raises ``ValueError`` where it finds nothing to change."""
Part = ast.expr | ast.comprehension

_SIGNS: dict[type[ast.AST], str] = {
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.Invert: "~",
    ast.USub: "-x",
    ast.UAdd: "+x",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    "is": ast.Is,
    "is not": ast.IsNot,
    "in": ast.In,
    "not in": ast.NotIn,
}
_PART = re.compile(r"([A-Z][A-Za-z]+)_(\d+)")


def kind_of(part: ast.AST) -> str:
    """The kind by which a part is found."""
    if isinstance(part, ast.BoolOp | ast.BinOp | ast.UnaryOp):
        return _SIGNS[type(part.op)]
    return type(part).__name__


def parts(node: ast.AST) -> Iterator[Part]:
    """The parts of a statement or of a part, each before its own parts."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            if isinstance(child, ast.expr | ast.comprehension):
                yield child
            yield from parts(child)


def drop() -> Operator:
    """The statement does nothing."""
    return lambda statement: [ast.copy_location(ast.Pass(), statement)]


def always(kind: str = "", nth: int = 0) -> Operator:
    """The condition of an ``if`` or ``while``, or the nth part of a kind, is true."""
    return lambda statement: _put(statement, _condition(statement, kind, nth), ast.Constant(True))


def never(kind: str = "", nth: int = 0) -> Operator:
    """The condition of an ``if`` or ``while``, or the nth part of a kind, is false."""
    return lambda statement: _put(statement, _condition(statement, kind, nth), ast.Constant(False))


def negate(kind: str = "", nth: int = 0) -> Operator:
    """The condition of an ``if`` or ``while``, or the nth part of a kind, is the opposite."""

    def changed(statement: ast.stmt) -> list[ast.stmt]:
        part = _condition(statement, kind, nth)
        opposite = part.operand if kind_of(part) == "not" and isinstance(part, ast.UnaryOp) else _not(part)
        return _put(statement, part, opposite)

    return changed


def drop_operand(kind: str, operand: int, nth: int = 0) -> Operator:
    """The nth part of a kind has one operand less.

    Operands are those of ``and`` and ``or``, both sides of an operation, the sides of a chain of comparisons, what is
    in a tuple, list or set, the arguments of a ``Call`` (those with a name last), and the conditions of a
    ``comprehension``.
    """

    def changed(statement: ast.stmt) -> list[ast.stmt]:
        part = _nth(statement, kind, nth)
        return _put(statement, part, _without(part, operand))

    return changed


def take(branch: str, nth: int = 0) -> Operator:
    """The nth ``x if condition else y`` is always its ``then`` (x) or always its ``else`` (y)."""

    def changed(statement: ast.stmt) -> list[ast.stmt]:
        part = _nth(statement, "IfExp", nth)
        assert isinstance(part, ast.IfExp)
        return _put(statement, part, {"then": part.body, "else": part.orelse}[branch])

    return changed


def compare(sign: str, nth: int = 0, step: int = 0) -> Operator:
    """The nth comparison has another sign; ``step`` says which one of a chain."""

    def changed(statement: ast.stmt) -> list[ast.stmt]:
        part = _nth(statement, "Compare", nth)
        assert isinstance(part, ast.Compare)
        other = copy.deepcopy(part)
        other.ops[step] = _COMPARISONS[sign]()
        return _put(statement, part, other)

    return changed


def keep(kind: str, inner: str, nth: int = 0, inner_nth: int = 0) -> Operator:
    """Of the nth part of a kind nothing is left but one of its own parts."""

    def changed(statement: ast.stmt) -> list[ast.stmt]:
        part = _nth(statement, kind, nth)
        return _put(statement, part, _nth(part, inner, inner_nth))

    return changed


def replace(kind: str, expression: str, nth: int = 0) -> Operator:
    """The nth part of a kind is another expression, where no other operator says it.

    In the expression ``Name_0`` stands for the first ``Name`` of the statement, ``Call_1`` for its second call.
    """

    def changed(statement: ast.stmt) -> list[ast.stmt]:
        filled = ast.parse(_filled(statement, expression), mode="eval").body
        return _put(statement, _nth(statement, kind, nth), filled)

    return changed


def instead(text: str) -> Operator:
    """Another statement, with parts of the first written as `replace` has them."""
    return lambda statement: ast.parse(_filled(statement, text)).body


def _filled(statement: ast.stmt, text: str) -> str:
    def part(found: re.Match[str]) -> str:
        same = [one for one in parts(statement) if type(one).__name__ == found[1]]
        if len(same) <= int(found[2]):
            raise ValueError(f"the statement has no {found[0]}")
        return f"({ast.unparse(same[int(found[2])])})"

    return _PART.sub(part, text)


def _nth(node: ast.AST, kind: str, nth: int) -> Part:
    same = [part for part in parts(node) if kind_of(part) == kind]
    if nth >= len(same):
        raise ValueError(f"there are {len(same)} of {kind}, and number {nth} is asked for")
    return same[nth]


def _condition(statement: ast.stmt, kind: str, nth: int) -> Part:
    if kind:
        return _nth(statement, kind, nth)
    if isinstance(statement, ast.If | ast.While):
        return statement.test
    raise ValueError(f"{type(statement).__name__} has no condition")


def _not(part: Part) -> ast.expr:
    assert isinstance(part, ast.expr), "a loop is no condition"
    return ast.UnaryOp(ast.Not(), part)


def _without(part: Part, operand: int) -> Part:
    """A part with one operand less."""
    other = copy.deepcopy(part)
    match other:
        case ast.BoolOp(values=values):
            del values[operand]
            return other if len(values) > 1 else values[0]
        case ast.BinOp():
            return (other.right, other.left)[operand]
        case ast.Compare(ops=ops, comparators=sides) if len(ops) > 1 and operand in {0, len(ops)}:
            if operand == 0:
                other.left = sides[0]
            del ops[min(operand, len(ops) - 1)], sides[max(operand - 1, 0)]
        case ast.Call(args=args, keywords=named) if operand >= len(args):
            del named[operand - len(args)]
        case ast.Call(args=operands) | ast.Tuple(elts=operands) | ast.List(elts=operands) | ast.Set(elts=operands):
            del operands[operand]
        case ast.comprehension(ifs=ifs):
            del ifs[operand]
        case _:
            raise ValueError(f"{kind_of(part)} has no operand {operand} to do without")
    return other


class _Put(ast.NodeTransformer):
    def __init__(self, part: ast.AST, other: ast.AST) -> None:
        self._part = part
        self._other = other

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._part:
            return copy.deepcopy(self._other)
        return self.generic_visit(node)


def _put(statement: ast.stmt, part: Part, other: Part) -> list[ast.stmt]:
    """The statement with another part in the place of one; the one that is given is changed."""
    changed = _Put(part, other).visit(statement)
    assert isinstance(changed, ast.stmt), "a part is no statement"
    return [changed]
