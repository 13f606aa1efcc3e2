"""``whymiss replay`` on recordings."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from whymiss.config import parse
from whymiss.errors import ConfigError
from whymiss.tools import replay

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "replay_references"


def causes(name: str, beside: Path | None) -> dict[str, str]:
    out = io.StringIO()
    config = parse((FOLDER / name).read_text(), {})
    assert replay.run(FOLDER, config=config, beside=beside, as_json=True, out=out) == 0
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    return {row["request_id"].split("-")[1]: row["cause"] for row in rows}


def test_references_of_the_configuration_are_compared_with() -> None:
    assert causes("whymiss.yaml", FOLDER)["line"] == "token_divergence"
    assert causes("key.yaml", FOLDER)["line"] != "token_divergence"


def test_a_reference_that_is_not_there_ends_the_replay() -> None:
    with pytest.raises(ConfigError, match=r"references\.files\[0\]: ref\.json cannot be read"):
        causes("whymiss.yaml", None)
