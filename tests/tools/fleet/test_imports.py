"""The fleet model stays independent of what it is compared with."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "processor" / "whymiss" / "tools" / "fleet"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in sorted(FOLDER.glob("*.py"))])
def test_the_fleet_model_knows_no_ledger_and_no_table(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            assert (node.level, node.module) in {(3, "errors"), (3, "model")}
        elif isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
            assert "whymiss" not in ast.dump(node)
