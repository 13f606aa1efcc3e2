"""Recordings with lookup spans from inside the engine (03-07, 09): the same causes with direct evidence."""

from __future__ import annotations

import pytest

from tests.recordings.plays import Row, api_cached_tokens, folder, label_of, rows
from tests.recordings.test_stock import COLD, STOCK, Expected
from whymiss.tools.recording import Recording
from whymiss.tools.replay import Replay, default_config

# What the engine itself saw settles what events left open in STOCK.
SETTLED: dict[str, Expected] = {
    "session": ("none", "", 0),
    # The request opted out; the 8 blocks that were resident would have hit.
    "skip-read": ("cache_disabled", "", 256),
    "concurrent0": COLD,
    "concurrent1": ("none", "", 0),
}


def verdict(row: Row) -> tuple[object, object, object]:
    return row["cause"], row["reason"], row["lost_tokens"]


OBSERVED: dict[str, Expected] = STOCK | SETTLED


@pytest.mark.parametrize("label", OBSERVED)
def test_direct_evidence_names_every_cause(label: str) -> None:
    (row,) = (row for row in rows("03") if label_of(row) == label)
    assert verdict(row) == OBSERVED[label]
    assert row["evidence"] == "direct"


def test_direct_evidence_tells_children_apart() -> None:
    children = sorted((int(row["cached_tokens"] or 0), row["cause"]) for row in rows("03") if label_of(row) == "n2")
    assert children == [(0, "no_recent_match"), (96, "none")]


def without_lookup_spans(number: str) -> list[Row]:
    """The same recording as a stock engine would have sent it: engine-core exports left out."""
    recording = Recording(folder(number))
    recording.otlp = [request for request in recording.otlp if b"vllm.prefix_cache." not in request.body]
    return list(Replay(recording, default_config()).play())


@pytest.mark.parametrize("number", ["03", "04", "05", "09"])
def test_direct_and_derived_never_disagree(number: str) -> None:
    direct = {row["span_id"]: row for row in rows(number)}
    derived = without_lookup_spans(number)
    assert derived
    for row in derived:
        if row["cause"] != "unknown":
            other = direct[row["span_id"]]
            assert verdict(row) == verdict(other), label_of(row)
            assert row["cached_tokens"] == other["cached_tokens"]


def test_derived_evidence_names_most_of_the_same_traffic() -> None:
    derived = without_lookup_spans("03")
    assert sum(row["cause"] != "unknown" for row in derived) >= len(derived) - 6


HYBRID = {
    "cold": COLD,
    "hit": ("none", "", 0),
    # The sliding-window group had kept blocks 6 and 7; a prompt of 8 whole blocks must match at 7, for
    # which the window needs 5 and 6. The dense group held all 7: 224 tokens.
    "hit-exact-multiple": ("sparse_retention", "", 224),
    # Dense blocks 0 to 3 matched, the window had none there.
    "divergence": ("sparse_retention", "", 128),
    "short-first-block": ("below_match_unit", "", 0),
    "salt": ("extra_key_mismatch", "", 256),
    "salt-again": ("none", "", 0),
    # 128 hit at the boundary that "divergence" left; dense blocks to 8 were there, their window was not.
    "session": ("sparse_retention", "", 128),
    **{f"filler{index}": COLD for index in range(4)},
    "after-evict": ("evicted", "capacity", 256),
    "after-evict-hit": ("none", "", 0),
    "after-reset": ("evicted", "cleared", 256),
}


@pytest.mark.parametrize("label", HYBRID)
def test_hybrid_recording_keeps_sparse_loss_apart_from_eviction(label: str) -> None:
    (row,) = (row for row in rows("04") if label_of(row) == label)
    assert verdict(row) == HYBRID[label]


LORA = {
    "cold": COLD,
    "hit": ("none", "", 0),
    "hit-exact-multiple": ("none", "", 0),
    "divergence": ("token_divergence", "", 128),
    "short-first-block": ("below_match_unit", "", 0),
    "salt": ("extra_key_mismatch", "", 256),
    "salt-again": ("none", "", 0),
    "session": ("none", "", 0),
    **{f"filler{index}": COLD for index in range(4)},
    "after-evict": ("evicted", "capacity", 192),
    "after-evict-hit": ("none", "", 0),
    # The same tokens are resident for the base model, for another adapter, without a salt.
    "lora-ad-one": ("extra_key_mismatch", "", 256),
    "lora-ad-one-again": ("none", "", 0),
    "lora-ad-two": ("extra_key_mismatch", "", 256),
    "lora-ad-two-again": ("none", "", 0),
    "lora-salt": ("extra_key_mismatch", "", 256),
    **{f"pressure{index}": COLD for index in range(7)},
    "after-reset": ("evicted", "capacity", 256),
}


@pytest.mark.parametrize("label", LORA)
def test_adapters_and_pressure_have_their_causes(label: str) -> None:
    (row,) = (row for row in rows("05") if label_of(row) == label)
    assert verdict(row) == LORA[label]


@pytest.mark.parametrize("number", ["03", "04", "05", "06", "09"])
def test_cached_tokens_equal_the_engines(number: str) -> None:
    said = api_cached_tokens(number)
    for row in rows(number):
        label = label_of(row)
        if row["cause"] != "unknown" and label != "n2":
            assert row["cached_tokens"] == said[label], label


# Rank 1 of two is cold while rank 0 holds the prompt, but rank 0 publishes nothing ever after, so
# nothing confirms that it still held it. All later requests hit.
RANKS = {"dp-same0": COLD, "dp-same1": ("unknown", "evidence_late", None)}


def test_two_ranks_are_two_records_of_one_worker() -> None:
    for row in rows("06"):
        expected = RANKS.get(label_of(row), ("none", "", 0))
        assert verdict(row) == expected, label_of(row)
    assert {row["worker"] for row in rows("06")} == {"vllm-replica-0", "vllm-replica-0-rank-1"}


def test_without_engine_core_spans_a_rank_is_named_only_by_a_record_that_accounts_for_the_request() -> None:
    by_label = {label_of(row): row for row in rows("06b")}
    assert verdict(by_label["dp-same0"]) == COLD
    # The ranks publish nothing later: nothing confirms that no event was lost, on either.
    later = [row for label, row in by_label.items() if label != "dp-same0"]
    assert {verdict(row) for row in later} == {("unknown", "evidence_late", None)}
    assert {row["worker"] for row in later} == {"vllm-replica-0"}
