"""No metric is promised that nothing counts, and each is counted under the labels that it is declared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from whymiss.measures import INSTRUMENTS, Instrument, Kind

PACKAGE = Path(__file__).parents[1] / "processor" / "whymiss"
OWN = [one for one in INSTRUMENTS if not one.dimensional]
BY_CLASS = [one for one in INSTRUMENTS if one.dimensional]
VERBS = {Kind.SUM: "count", Kind.GAUGE: "gauge"}


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Each ``count`` and ``gauge`` of a named metric in the source: the verb, the name and the labels."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                # Whoever reads the totals has a `count` too.
                if not ast.unparse(node.func.value).endswith("measures"):
                    continue
                name = node.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield node.func.attr, name.value, {keyword.arg or "**" for keyword in node.keywords}


CALLS = list(calls())


@pytest.mark.parametrize("instrument", OWN, ids=[one.name for one in OWN])
def test_each_declared_metric_is_counted_somewhere(instrument: Instrument) -> None:
    labels = {label.replace(".", "_") for label in instrument.labels}
    told = [given for verb, name, given in CALLS if name == instrument.name and verb == VERBS[instrument.kind]]
    assert told
    assert all(given == labels for given in told)


@pytest.mark.parametrize("instrument", BY_CLASS, ids=[one.name for one in BY_CLASS])
def test_each_class_metric_has_its_table_that_verdicts_are_added_to(instrument: Instrument) -> None:
    tree = ast.parse((PACKAGE / "measures" / "sums.py").read_text(encoding="utf-8"))
    fields = {
        node.targets[0].attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Subscript)
        and isinstance(node.value.slice, ast.Constant)
        and node.value.slice.value == instrument.name
    }
    added_to = {
        node.func.value.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "at"
        and isinstance(node.func.value, ast.Attribute)
    }
    assert len(fields) == 1
    assert fields <= added_to


def test_the_search_sees_what_it_should() -> None:
    names = {name for _, name, _ in CALLS}
    assert "whymiss.spans.claimed" in names
    assert "whymiss.exporter.enqueue_failed_spans" not in names
