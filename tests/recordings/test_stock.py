"""Recordings 01, 02 and 08: a stock vLLM, request spans and KV events only.

Every request that the engine exported a span for has its expected verdict here, with why. The
engine's own word (the API's cached tokens) is the judge of every named cause.
"""

from __future__ import annotations

from typing import TypeAlias

import pytest

from tests.recordings.plays import api_cached_tokens, label_of, rows

Expected: TypeAlias = tuple[str, str, int | None]

COLD: Expected = ("no_recent_match", "first_seen", 0)

# label -> (cause, reason, lost tokens), in the order of the recording
STOCK: dict[str, Expected] = {
    # First traffic of a fresh engine whose events are followed from number 0: nothing like it ever.
    "cold": COLD,
    # All 8 full blocks hit; no event at all, in a record that is unbroken and confirmed later.
    "hit": ("none", "", 0),
    # 8 whole blocks: 7 can match, the last is recomputed and stored a second time. No miss.
    "hit-exact-multiple": ("none", "", 0),
    # One token changed inside block 4; blocks 5 to 7 have the same own tokens again.
    # Restoring that token saves blocks 4 to 7: 128 tokens.
    "divergence": ("token_divergence", "", 128),
    # 20 tokens, block 32.
    "short-first-block": ("below_match_unit", "", 0),
    # Same tokens as "cold", resident without the salt: all 8 blocks would have hit.
    "salt": ("extra_key_mismatch", "", 256),
    "salt-again": ("none", "", 0),
    # kv_cache_report_mode=full re-announces the reused blocks as stores. The same stores could come of
    # a request that skipped the lookup, so events alone cannot tell (the API says 256: a full hit).
    "session": ("unknown", "lookup_unseen", None),
    # 32 tokens are one block, and the last token is always recomputed: nothing could match.
    "decode-fill": ("none", "", 0),
    "chat-turn1": COLD,
    # 5 blocks of turn 1 (one of them filled while it decoded) hit, block 5 is the new message.
    "chat-turn2": ("new_content", "", 0),
    # A timestamp in front of everything shifts all tokens: other blocks, nothing realigns.
    "chat-timestamp": COLD,
    # The request has a trace of its own; it hit all blocks.
    "no-trace-header": ("none", "", 0),
    # batch-prompt and n2 appear twice each and are tested below.
    # prompt_logprobs skips the lookup: 0 cached though all blocks were there. Never a cause from events.
    "skip-read": ("unknown", "lookup_unseen", None),
    **{f"filler{index}": COLD for index in range(6)},
    # The fillers pushed all 8 blocks out: all of them would have hit with more room.
    "after-evict": ("evicted", "capacity", 256),
    "after-evict-hit": ("none", "", 0),
    # Reset: AllBlocksCleared comes with the next step, before that step's own stores.
    "after-reset": ("evicted", "cleared", 256),
}
TWICE = {"n2", "batch-prompt", "concurrent0", "concurrent1"}


@pytest.mark.parametrize("number", ["01", "02"])
@pytest.mark.parametrize("label", STOCK)
def test_each_request_has_its_cause(number: str, label: str) -> None:
    (row,) = (row for row in rows(number) if label_of(row) == label)
    assert (row["cause"], row["reason"], row["lost_tokens"]) == STOCK[label]


@pytest.mark.parametrize("number", ["01", "02"])
def test_every_sampled_request_is_judged_once(number: str) -> None:
    labels = [label_of(row) for row in rows(number)]
    # "unsampled" asked for no span; the children of n2 and batch-prompt are lookups of their own.
    assert sorted(labels) == sorted([*STOCK, "n2", "n2", "batch-prompt", "batch-prompt", "concurrent0", "concurrent1"])


@pytest.mark.parametrize("number", ["01", "02", "08"])
def test_cached_tokens_equal_the_engines_wherever_a_cause_is_named(number: str) -> None:
    said = api_cached_tokens(number)
    for row in rows(number):
        label = label_of(row)
        if row["cause"] != "unknown" and label != "n2":
            assert row["cached_tokens"] == said[label], label


@pytest.mark.parametrize("number", ["01", "02"])
def test_children_of_one_request_are_told_apart_by_time_or_not_at_all(number: str) -> None:
    # n = 2: the first child computes 3 blocks, the second finds them (the API sums to 96). Both were admitted in one
    # step, and nothing that is published says which of the two stored.
    assert {str(row["cause"]) for row in rows(number) if label_of(row) == "n2"} == {"unknown"}
    # Two prompts of equal length: either chain may be the second's, and both mean the same.
    batch = {str(row["request_id"])[-1]: row for row in rows(number) if label_of(row) == "batch-prompt"}
    assert batch["0"]["evidence"] == "derived"
    assert batch["1"]["evidence"] in {"derived", "consensus"}
    assert {row["cause"] for row in batch.values()} == {"no_recent_match"}


@pytest.mark.parametrize("number", ["01", "02"])
def test_of_two_identical_prompts_at_once_nothing_says_which_was_cold(number: str) -> None:
    said = api_cached_tokens(number)
    pair = {label_of(row): row for row in rows(number) if label_of(row).startswith("concurrent")}
    assert sorted(said[label] for label in pair) == [0, 192]
    # One hit 192 tokens that were not yet published: the stores may be of either.
    assert {(row["cause"], row["reason"]) for row in pair.values()} == {("unknown", "ambiguous_chain")}


OBSERVER = {
    "cold": COLD,
    "hit": ("none", "", 0),
    "hit-exact-multiple": ("none", "", 0),
    "divergence": ("token_divergence", "", 128),
    "short-first-block": ("below_match_unit", "", 0),
    "salt": ("extra_key_mismatch", "", 256),
    "salt-again": ("none", "", 0),
    "session": ("unknown", "lookup_unseen", None),
    **{f"filler{index}": COLD for index in range(4)},
    # Tails go first: two blocks were left, six would have hit with more room.
    "after-evict": ("evicted", "capacity", 192),
    "after-evict-hit": ("none", "", 0),
    # Seven prompts of equal length wait for room; whichever chain is whose, all of it is new.
    **{f"pressure{index}": COLD for index in range(7)},
    # The blocks had left for want of room before the reset.
    "after-reset": ("evicted", "capacity", 256),
}


@pytest.mark.parametrize("label", OBSERVER)
def test_observer_recording_has_its_causes_from_events_alone(label: str) -> None:
    (row,) = (row for row in rows("08") if label_of(row) == label)
    assert (row["cause"], row["reason"], row["lost_tokens"]) == OBSERVER[label]
    assert row["evidence"] in {"derived", "consensus", "none"}
