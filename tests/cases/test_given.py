"""Small recordings of reported faults: what each of their requests may be called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whymiss.config import parse
from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay, default_config

GIVEN = Path(__file__).resolve().parent / "given"

UNKNOWN = {
    "04-store-only-tier",
    "15-twins-router-names-worker",
    "16-twins-pod-names-control",
    "17-engine-left",
    "18-route-only-worker",
    "19-route-only-worker-control",
}
"""Cases whose every request is ``unknown``: but for 17, of which more could be said, nothing published tells them apart."""


@pytest.mark.parametrize("case", sorted(path.name for path in GIVEN.iterdir()))
def test_no_request_of_a_given_case_is_misnamed(case: str) -> None:
    folder = GIVEN / case
    config = folder / "whymiss.yaml"
    replay = Replay(Recording(folder), parse(config.read_text(), {}) if config.is_file() else default_config())
    rows = {row["request_id"]: row for row in replay.play()}
    expected = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    wrong = [
        (one["label"], row["cause"], row["reason"], row["cached_tokens"])
        for one in expected
        if (row := rows[one["request_id"]])["cause"] not in {*one["accept"], "unknown"}
        or (row["cause"] != "unknown" and row["cached_tokens"] not in {None, one.get("cached", row["cached_tokens"])})
    ]
    assert wrong == []
    told = any(rows[one["request_id"]]["cause"] in {*one["accept"]} - {"unknown"} for one in expected)
    assert told is (case not in UNKNOWN)
