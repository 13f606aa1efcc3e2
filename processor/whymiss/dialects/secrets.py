"""What no claimed span may leave with, whoever emitted it and wherever in it an attribute stands.

Each dialect knows the secrets of its own emitter. But a salt that an operator sets as a resource attribute comes with the
spans of any of them, and a map inside a value can hold what no dialect looks at. So what one dialect names is taken out
of the spans of all: from the span, its events and links, its resource and scope, and from maps in values of these.

The families of the input contract are closed: an attribute under ``prefix_cache.lookup.`` that the contract does not know
may be a block hash under a new name, and goes.
"""

from __future__ import annotations

from ..wire.splice import Closed
from . import contract
from .emitter import Guarded
from .registry import DIALECTS

_IN_THEIR_PLACE = frozenset({"exception.message", "exception.stacktrace"})
"""Secret in LMCache's spans, where they quote keys; elsewhere they are what makes a span worth reading."""

SECRETS: tuple[str, ...] = tuple(
    dict.fromkeys(
        name for dialect in DIALECTS for name in (*dialect.sensitive, *dialect.digested) if name not in _IN_THEIR_PLACE
    )
)
"""Names of attributes whose value must not leave."""

_BY_WHYMISS = frozenset({"prefix_cache.route.chosen"})
"""What another whymiss in front of this one has written."""

CONTRACT = Closed(
    prefixes=tuple(part.prefix for part in contract.PARTS),
    known=_BY_WHYMISS | {part.prefix + one.name for part in contract.PARTS for one in part.attributes},
)
"""The families of the input contract, and the names in them that it knows."""

GUARDED = Guarded(SECRETS, CONTRACT)
"""Both together."""
