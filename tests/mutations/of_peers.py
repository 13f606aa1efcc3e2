"""Guards of leaving out, at a glance, who surely never heard of a block."""

from __future__ import annotations

from .mutation import guards
from .operators import drop, drop_operand, never, replace

LAZINESS = (
    *guards(
        "tests/ledger/memtable/test_deferred_flush.py",
        ("lazy-position", "what was said before a position is part of its answer", drop_operand("or", 1)),
        ("lazy-waits", "what was said since waits", drop_operand("and", 1)),
        ("lazy-news", "what is said of groups holds for every question", drop_operand("or", 0)),
    ),
    *guards(
        "tests/ledger/memtable/test_deferred_flush.py",
        ("news-tier", "a tier that is named for the first time", never("Compare")),
        ("news-placeholder", "a placeholder describes nothing", drop()),
        ("news-life", "a group of a new life", drop_operand("or", 1)),
        ("news-size", "a group whose blocks have another size now", drop_operand("or", 2)),
        ("news-dense", "another dense group's blocks have another size", never("and")),
        ("news-pairs", "token ids that are pairs", drop()),
    ),
)
PEERS = (
    *guards(
        "tests/ledger/query/test_never_named.py",
        ("peer-silent", "a record that ends with the lookup may lack what came last", drop_operand("or", 1)),
        ("peer-empty", "who never spoke says nothing", replace("or", "Name_0 and Compare_0")),
        ("peer-edge", "what left the window after the lookup is not known", drop_operand("or", 0)),
        ("peer-begins", "never seen needs a record over the window", drop_operand("or", 1)),
        ("peer-birth", "before its birth a publisher held nothing", drop_operand("and", 1, 1)),
        ("peer-hole", "in a hole anything may have happened", drop()),
        ("peer-hole-before", "a hole that ended before the window", drop_operand("and", 1)),
        ("peer-hole-after", "a hole that began after the lookup", drop_operand("and", 0)),
        ("peer-clears", "a reset that is not laid out yet", drop()),
        ("peer-barrier", "a reset around the lookup", drop()),
        ("peer-barrier-before", "a reset that surely was before the lookup", drop_operand("and", 1)),
        ("peer-pending", "what is laid out is not pending any more", drop()),
    ),
    *guards(
        "tests/ledger/query/test_never_named.py",
        ("named-laid-out", "what the columns name", drop()),
        ("named-version", "columns that came since", replace("Compare", "Attribute_0 < 0")),
        ("named-noted", "batches that came since", replace("Subscript", "Subscript_0 if not Attribute_0 else ()")),
        ("named-pending", "what is not laid out yet", never("and")),
        ("named-forgotten", "what is laid out is not pending any more", drop()),
    ),
    *guards(
        "tests/ledger/query/test_never_named.py",
        ("peer-clocks", "clocks are as far apart as they show", drop_operand("+", 1)),
        ("peer-clock-before", "another's clock may be behind", drop_operand("-", 1)),
        ("peer-clock-after", "another's clock may be ahead", drop_operand("+", 1)),
    ),
)
