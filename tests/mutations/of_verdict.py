"""Guards of what is made of the table's answer: the order, the cost, and the voice of several readings."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, instead, keep, never, replace, take

VERDICT = guards(
    "tests/attribution/test_rows.py tests/attribution/test_table.py tests/attribution",
    ("decide-order", "the nearest fix that would have sufficed is the cause", replace("Name", "TABLE[::-1]", 1)),
    ("decide-owner", "a cause has its own owner", replace("Attribute", "Owner.PLATFORM", 3)),
    ("decide-gap", "rows from 9 on need the first missed block", never()),
    ("decide-spans-first", "what spans alone prove is said without events", drop_operand("and", 1)),
    ("decide-unsure", "a row that cannot be decided stops all behind it", instead("continue")),
    ("cost-full-hit", "a count that names a full hit says nothing of the loss", never()),
    ("cost-chain-known", "where only the first key is known the cost is absent", never()),
    ("cost-matchable", "never past the last matchable block", keep("Call", "Attribute", 1)),
    ("cost-negative", "no negative cost", keep("Call", "Call")),
    ("verdict-view-marked", "a partial view is marked", drop_operand("or", 0)),
    ("verdict-holder-marked", "an unconfirmed holder is marked", drop_operand("or", 1)),
    ("facts-holders-missed", "no count where nobody asked", take("then", 6)),
    ("facts-history", "a hole in the record is said", always("not")),
    ("agree-shared", "several readings speak only where they agree", drop_operand("comprehension", 0)),
    ("agree-every", "all readings, not some", replace("Name", "any", 7)),
    ("agree-unknown", "readings that name different causes", drop_operand("or", 0)),
    ("agree-reason", "`unknown` needs a reason of its own", never()),
    ("agree-cost", "what has no cause has no cost", drop()),
)
