"""Recordings of a real vLLM, played through the whole pipeline and laid beside what its API said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay, default_config

CAPTURES = Path(__file__).resolve().parent.parent / "captures"

Row = Mapping[str, str | int | None]


def folder(number: str) -> Path:
    """The recording whose folder begins with a number."""
    (found,) = (path for path in CAPTURES.iterdir() if path.name.split("-")[0] == number)
    return found


@cache
def played(number: str) -> Replay:
    """A recording, played once."""
    replay = Replay(Recording(folder(number)), default_config())
    replay.play()
    return replay


@cache
def rows(number: str) -> tuple[Row, ...]:
    """One row a lookup."""
    return tuple(Replay(Recording(folder(number)), default_config()).play())


def label_of(row: Row) -> str:
    """The recording's own name of a request: ``cmpl-req-05-salt-0`` is ``salt``.

    Requests of one API call (n = 2, a list of prompts) have one label.
    """
    name = str(row["request_id"]).removeprefix("chatcmpl-").removeprefix("cmpl-")
    label = name.split("-", 2)[2]
    return label if str(row["request_id"]).startswith("chatcmpl-") else label.rsplit("-", 1)[0]


def api_cached_tokens(number: str) -> dict[str, int]:
    """What the API answered as ``usage.prompt_tokens_details.cached_tokens``, by label."""
    lines = (json.loads(line) for line in (folder(number) / "summary.jsonl").read_text().splitlines())
    return {line["label"]: line["cached_tokens"] for line in lines if "cached_tokens" in line}
