"""Guards of where reuse ended: each chain that is not the request's, and each gap that leaves no reading."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, instead, keep, never, replace, take

READING = guards(
    "tests/evidence/test_hypotheses_of_one_stream.py tests/evidence/test_accounts.py tests/evidence tests/cases tests/recordings/test_stock.py tests/recordings/test_observed.py",
    ("direct-cached-needed", "a lookup without a count gives no reading", drop_operand("and", 1)),
    ("accounts-pairs", "pairs are one less than tokens", drop()),
    ("read-no-streams", "no record, no derived reading", drop()),
    ("direct-size-unknown", "without a block size there is no first missed block", instead("size = 16")),
    ("direct-chain-from-miss", "the expected chain begins at the first missed block", keep("Subscript", "Attribute")),
    ("direct-first-key", "a probe may name the first missed key alone", drop()),
    ("direct-last-hit", "the last hit is one before the first miss", take("else")),
    ("direct-chain-known", "one key is not the whole chain", always("Call", 3)),
    ("direct-own-rank", "of several ranks the one that stored is the request's", drop()),
    ("direct-own-store", "everything before the run of removals that leads to the own store had happened", drop()),
    ("direct-own-store-reported", "a re-announcement is no store of the request", drop_operand("and", 1)),
    (
        "direct-undecided-late",
        "an unconfirmed position may hide an event",
        replace("or", "Name_1 is not None and Call_0"),
    ),
    ("direct-undecided-touched", "an event on the block between the bounds", drop_operand("or", 1)),
    ("rank-undecided", "an undecided position is no rank's own store", drop_operand("and", 2)),
    ("rank-own-store", "only the rank that stored the block shows it", keep("Call", "Name", 0, 6)),
    ("derived-prompt-length", "without the prompt's length no chain can be told", drop_operand("or", 2)),
    ("derived-size-unknown", "without a block size no chain can be told", instead("Name_0 = Name_0 or 16")),
    ("derived-short-rank", "a short prompt stores nothing that would name its rank", take("then")),
    ("derived-rank-gap", "another rank's hole may hide the own chain", drop()),
    ("derived-nothing-agrees", "a reported count that fits no chain", never()),
    ("derived-short-parts", "a short prompt where parts of blocks can be found", never()),
    ("derived-undecided", "a lookup that may have come before or after a change", drop_operand("or", 0)),
    ("derived-sibling", "a sibling that may have come before or after the lookup", drop_operand("or", 1)),
    ("derived-all-known", "what may have been found elsewhere is open", drop_operand("or", 1)),
    ("derived-grade", "several readings are a consensus", take("then")),
    ("derived-agreeing", "a reported count chooses among chains", drop_operand("comprehension", 0)),
    ("reading-latest", "the lookup came before its own store", drop()),
    ("size-agrees", "ranks with unlike block sizes", keep("Compare", "Name", 0, 1)),
)
