"""Recording 07: an engine that loads blocks through a KV connector."""

from __future__ import annotations

import pytest

from tests.recordings.plays import Row, api_cached_tokens, folder, label_of
from whymiss.config import parse
from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay

TOLD = "{workers: {sole_source: true}, kv_events: {sources: [{endpoint: 'tcp://127.0.0.1:5557', kv_connector: true}]}}"


@pytest.fixture(scope="module")
def judged() -> list[Row]:
    return list(Replay(Recording(folder("07")), parse(TOLD, {})).play())


def test_what_the_connector_may_have_loaded_is_never_called_a_miss(judged: list[Row]) -> None:
    said = api_cached_tokens("07")
    for row in judged:
        if row["cause"] != "unknown":
            assert row["cached_tokens"] == said[label_of(row)]
    # "salt", "after-evict" and "after-reset" missed in the local cache and were loaded from disk: the local
    # lookup alone would have named three wrong causes.
    unnamed = {label_of(row): row["reason"] for row in judged if row["cause"] == "unknown"}
    assert {"salt", "after-evict", "after-reset"} <= set(unnamed)
    assert set(unnamed.values()) == {"no_cached_tokens"}


def test_full_local_hits_are_still_named(judged: list[Row]) -> None:
    named = {label_of(row) for row in judged if row["cause"] == "none"}
    assert {"hit", "hit-exact-multiple", "salt-again", "session", "after-evict-hit"} <= named
