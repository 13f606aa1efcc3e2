"""Guards of what is joined and what comes too late."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, keep, never, replace, take

JOIN_GROUPS = guards(
    "tests/test_join_late.py tests/test_join_released.py tests/test_join.py",
    ("join-repeated", "exporters repeat spans", drop()),
    ("join-repeated-many", "exporters repeat spans of large requests", drop()),
    ("join-links-max", "a span that sums up many requests belongs to none", drop_operand("and", 1)),
    ("join-links-tier", "only a tier's links are its requests", drop_operand("and", 0)),
)

JOIN_JOINER = guards(
    "tests/test_join_late.py tests/test_join_released.py tests/test_join.py",
    ("join-late", "a span of a released request is late", never()),
    ("join-late-learnt", "a late span teaches whom to wait for", drop()),
    ("join-late-repeated", "a repeated span is late, whatever its role", drop()),
    ("join-late-engine", "another engine span is another request", drop_operand("and", 0)),
    ("join-late-time", "a span that did not run with the request is another's", drop_operand("and", 1)),
    ("join-late-open", "a span of an open group is not late", drop_operand("or", 1)),
    ("join-linked", "a tier's links name the requests that it worked for", drop_operand("Tuple", 1)),
    ("join-merge", "two groups that a span joins are one", drop()),
    ("join-hold-known", "until a first hold has passed nobody knows whom to wait for", drop_operand("or", 1)),
    ("join-roles", "companions that others have are waited for", always("Call")),
    ("join-habits-change", "habits change", drop_operand("comprehension", 0)),
    ("join-all-services", "a group is complete when all of its engines are", replace("Name", "any")),
    ("join-engine", "without an engine's span nothing is complete", drop_operand("or", 0)),
    ("join-halves", "of a disaggregated pair both halves are waited for", drop_operand("or", 1)),
    ("join-linger-hold", "a linger is no longer than the hold", keep("Call", "+", 0, 1)),
    ("join-shed-spans", "no more spans than configured", drop_operand("or", 0)),
    ("join-shed-bytes", "no more bytes than configured", drop_operand("or", 1)),
    ("join-hold-on", "only a completed group is taken back", drop_operand("or", 1)),
    ("join-hold-on-late", "no hold is lengthened", drop_operand("or", 0)),
    ("join-silent-companion", "a span that says nothing is no companion", keep("ListComp", "Name", 0, 2)),
    ("join-again-order", "the order of spans is theirs, not that of their arrival", keep("Call", "Attribute", 1)),
)

JOIN_PAST = guards(
    "tests/test_join_late.py tests/test_join_released.py tests/test_join.py",
    ("join-late-named", "a late span of another trace is told by its names", drop()),
    ("join-late-linked", "a late span of another trace is told by its links", replace("ListComp", "[]")),
    ("join-meets", "names are used again", keep("and", "Compare")),
    ("join-forgotten", "a forgotten request is late for nobody", drop_operand("and", 0)),
    ("join-of-trace-forgotten", "what is forgotten is late for nobody", take("then")),
)
