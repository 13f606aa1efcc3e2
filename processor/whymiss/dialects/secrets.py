"""What no claimed span may leave with, whoever emitted it and wherever in it an attribute stands.

Each dialect knows the secrets of its own emitter. But a salt that an operator sets as a resource attribute comes with the
spans of any of them, and a map inside a value can hold what no dialect looks at. So what one dialect names is taken out
of the spans of all: from the span, its events and links, its resource and scope, and from maps in values of these.

The families of the input contract are closed: an attribute under ``prefix_cache.lookup.`` that the contract does not know
may be a block hash under a new name, and goes.
"""

from __future__ import annotations

from ..wire.splice import Closed
from .registry import DIALECTS

_IN_THEIR_PLACE = frozenset({"exception.message", "exception.stacktrace"})
"""Secret in LMCache's spans, where they quote keys; elsewhere they are what makes a span worth reading."""

SECRETS: tuple[str, ...] = tuple(
    dict.fromkeys(
        name for dialect in DIALECTS for name in (*dialect.sensitive, *dialect.digested) if name not in _IN_THEIR_PLACE
    )
)
"""Names of attributes whose value must not leave."""

_LOOKUP = (
    *("prompt_tokens", "cached_tokens", "block_size", "match_unit", "first_miss_key", "expected_keys"),
    *("extra_key_kinds", "local_hit_tokens", "external_hit_tokens", "sparse_lost_tokens"),
    *("disabled", "speculative", "event_seq"),
)
# ``chosen`` is what another whymiss in front of this one has written.
_ROUTE = (*("worker", "predicted_blocks", "best_worker", "best_blocks", "index_version", "reason", "pinned", "chosen"),)
_OFFLOAD = ("found_blocks", "loaded_blocks", "status", "tier")

CONTRACT = Closed(
    prefixes=("prefix_cache.lookup.", "prefix_cache.route.", "prefix_cache.offload."),
    known=frozenset(
        f"prefix_cache.{family}.{name}"
        for family, names in (("lookup", _LOOKUP), ("route", _ROUTE), ("offload", _OFFLOAD))
        for name in names
    ),
)
"""The families of the input contract, and the names in them that it knows."""
