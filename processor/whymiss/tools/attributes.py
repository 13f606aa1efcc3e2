"""The attributes that a verdict puts on spans, by name: on which spans, and what each one says.

``tests/tools/test_attributes.py`` holds this table to what ``redaction`` writes.
"""

from __future__ import annotations

import msgspec

ENGINE, ROUTER, OFFLOAD = "engine", "router", "offload"
ALL = (ENGINE, ROUTER, OFFLOAD)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute of a verdict."""

    name: str
    """Without the leading ``prefix_cache.``."""
    type: str
    spans: tuple[str, ...] = (ENGINE,)
    meaning: str
    identifies: bool = False
    """It leaves on sampled spans of chosen traces only (``redaction``)."""


WRITTEN: tuple[Written, ...] = (
    Written(name="miss.cause", type="string", spans=ALL, meaning="The cause: a row of the table above."),
    Written(name="miss.owner", type="string", spans=ALL, meaning="Whose the fix is."),
    Written(name="miss.reason", type="string", meaning="The refinement of the cause, or the hole behind `unknown`."),
    Written(
        name="miss.evidence",
        type="string",
        meaning="What the verdict rests on: `direct`, `derived`, `consensus` or `spans`.",
    ),
    Written(name="prompt_tokens", type="int", meaning="Tokens of the prompt."),
    Written(name="cached_tokens", type="int", meaning="Tokens of it that were reused, reported or derived."),
    Written(name="recomputed_tokens", type="int", meaning="Prompt tokens that were not reused."),
    Written(name="lost_tokens", type="int", meaning="Tokens that the fix of the cause would have saved."),
    Written(name="sparse_lost_tokens", type="int", meaning="Tokens that one cache group matched and another vetoed."),
    Written(name="block_size", type="int", meaning="Tokens in one block."),
    Written(name="match_unit", type="int", meaning="Tokens in one match unit."),
    Written(name="first_miss.block_index", type="int", meaning="The first missed block, from 0."),
    Written(
        name="local_residency",
        type="string",
        meaning="What the serving worker's record says of that block at the lookup.",
    ),
    Written(name="eviction.age_ms", type="int", meaning="Milliseconds from its eviction here to the lookup."),
    Written(name="eviction.reason", type="string", meaning="How the block left this worker."),
    Written(
        name="holders.count",
        type="int",
        spans=(ENGINE, ROUTER),
        meaning="Other workers that held the block at the lookup.",
    ),
    Written(
        name="holders.tiers", type="string[]", spans=(ENGINE, ROUTER), meaning="Tiers in which it was held elsewhere."
    ),
    Written(
        name="index.predicted_blocks",
        type="int",
        spans=(ENGINE, ROUTER),
        meaning="Leading blocks that the router promised of the worker that it picked.",
    ),
    Written(
        name="index.best_blocks",
        type="int",
        spans=(ENGINE, ROUTER),
        meaning="Leading blocks that the router saw on the best worker.",
    ),
    Written(name="index.version", type="string", spans=(ENGINE, ROUTER), meaning="Version of the router's index."),
    Written(
        name="remote.lookup",
        type="string",
        spans=(ENGINE, OFFLOAD),
        meaning="What became of the lookup in the offload tier.",
    ),
    Written(
        name="extra_keys.kinds",
        type="string[]",
        meaning="Kinds of extra keys (`cache_salt`, `lora`, `mm`, `prompt_embeds`) in which a resident block with the same tokens differs, else those of the first missed block. Never values.",
    ),
    Written(
        name="history.window_s", type="double", meaning="The retention window that the verdict rests on, in seconds."
    ),
    Written(name="history.complete", type="bool", meaning="Whether the serving worker's record has no hole in it."),
    Written(
        name="fleet_view.complete", type="bool", meaning="Whether the records of all workers of the view have none."
    ),
    Written(
        name="first_miss.digest", type="string", identifies=True, meaning="Keyed digest of the first missed block."
    ),
    Written(name="last_hit.digest", type="string", identifies=True, meaning="Keyed digest of the last reused block."),
    Written(
        name="holders.workers",
        type="string[]",
        spans=ALL,
        identifies=True,
        meaning="Names of the workers that held the block.",
    ),
    Written(
        name="route.chosen", type="string", spans=ALL, identifies=True, meaning="The worker that the router picked."
    ),
)
