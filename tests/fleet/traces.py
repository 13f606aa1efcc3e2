"""The public traces, as requests made of blocks with identity.

A block is an integer that represents the whole prefix up to and including it: equal integers mean equal
tokens from token 0 on. Shipped blocks are those of the file, full blocks those that an engine can cache.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data"
FILES = {
    "mooncake_conversation": "mooncake/conversation_trace.jsonl.gz",
    "mooncake_synthetic": "mooncake/synthetic_trace.jsonl.gz",
    "weka_60": "weka/weka_60s_c8_b512.jsonl.gz",
    "weka_200": "weka/weka_200s_c32_b512.jsonl.gz",
    "miniswe": "lmcache-agent/miniswe_tokens.jsonl.gz",
}
KEYS = (
    *("mooncake_conversation", "mooncake_conversation_full", "mooncake_synthetic", "mooncake_synthetic_full"),
    *("weka_60", "weka_200", "miniswe"),
)


class Ask(NamedTuple):
    """One request of a trace."""

    at: float
    """Seconds since the trace began."""
    input_length: int
    """Tokens of the prompt."""
    output_length: int
    blocks: tuple[int, ...]
    session: int
    tokens: tuple[int, ...] = ()
    """The prompt's token ids, where the trace has them."""


class Trace(NamedTuple):
    """A trace as it is replayed: requests without a block are not in it."""

    key: str
    block_tokens: int
    asks: tuple[Ask, ...]
    rows: int

    def first(self, count: int) -> Trace:
        """Its first requests."""
        return self._replace(asks=self.asks[:count])


def present(name: str) -> Path:
    """The path of a file of the traces; skips the test that needs it where it is absent."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"the public traces are not here: {path} is missing")
    return path


@cache
def load(key: str) -> Trace:
    """A trace by its key in ``expected.json``."""
    path = present(FILES[key.removesuffix("_full")])
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    if key == "miniswe":
        return Trace(key, 16, tuple(_of_tokens(rows)), len(rows))
    asks = []
    for row in rows:
        blocks = tuple(row["hash_ids"])
        if key.endswith("_full"):
            blocks = blocks[: row["input_length"] // 512]
        if blocks:
            at = row["timestamp"] / 1000
            asks.append(Ask(at, row["input_length"], row["output_length"], blocks, row.get("session", 0)))
    return Trace(key, 512, tuple(asks), len(rows))


@cache
def expected() -> dict[str, dict[str, object]]:
    """The published figures, by trace."""
    traces: dict[str, dict[str, object]] = json.loads(present("expected.json").read_text())["traces"]
    return traces


def _of_tokens(rows: list[dict[str, object]], size: int = 16) -> Iterator[Ask]:
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    prompts: list[tuple[int, ...]] = []
    sessions: dict[str, int] = {}
    for row in rows:
        new = row["tokens"]
        assert isinstance(new, list)
        base, share = row["base"], row["share"]
        assert isinstance(share, int | None)
        shared = prompts[base][:share] if isinstance(base, int) else ()
        prompt = (*shared, *new)
        prompts.append(prompt)
        blocks, parent = [], -1
        for begin in range(0, len(prompt) - size + 1, size):
            parent = known.setdefault((parent, prompt[begin : begin + size]), len(known))
            blocks.append(parent)
        at, output = row["timestamp"], row["output_length"]
        assert isinstance(at, int | float)
        assert isinstance(output, int)
        session = sessions.setdefault(str(row["session"]), len(sessions))
        yield Ask(at / 1000, len(prompt), output, tuple(blocks), session, prompt)
