"""Guards of how readings and facts become one verdict of a request."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, keep, never

JUDGE = guards(
    "tests/pipeline/test_judge.py tests/pipeline/test_verdicts.py tests/cases tests/evidence/test_facts.py",
    ("judge-note-lookup", "a lookup is its worker's, a router everybody's", drop_operand("and", 1)),
    ("judge-one-rank", "of several ranks none is named", keep("Compare", "Attribute")),
    ("judge-worker", "a request without a reading has a worker all the same", never()),
    ("judge-shed", "what was let go early lacks what was still to come", never()),
    ("judge-shed-unknown", "what was let go early may be clear", drop_operand("and", 1)),
    ("judge-not-shed", "what was held has its own reason", drop_operand("and", 0)),
    ("judge-counted", "who counts gave no count", never()),
    ("judge-uncounted", "nobody counts: the gap is in the events", drop_operand("and", 1)),
    ("judge-streams", "with events the gap is theirs", drop_operand("and", 2)),
    ("judge-zero", "a reported zero is a miss", drop_operand("and", 0)),
    ("local-mark", "a row says itself whether its cause is a local miss's", drop_operand("and", 1)),
    ("judge-loads", "what may have been loaded is called no miss", always()),
    ("judge-loads-unknown", "what was loaded is among what was counted as computed", keep("Call", "Name", 0, 1)),
    ("judge-loads-local", "a cause that rests on where the local hit ended", never()),
    ("judge-loads-other", "a cause that rests on no count is said all the same", always()),
    ("loads-connector", "a declared connector loads", drop_operand("or", 0)),
    ("loads-decode", "a decode half receives", drop_operand("or", 1)),
    ("loads-tiers", "a worker with tiers loads from them", drop_operand("or", 2)),
    ("loads-told", "where something says how much was loaded nothing is unseen", drop_operand("and", 1)),
    ("loads-looked", "the engine's word on what was loaded", drop()),
    ("loads-nothing", "a tier that found nothing gave nothing", never("and")),
    ("loads-something", "a tier that gave something leaves open where the local hit ended", drop_operand("and", 1)),
    ("loads-reported", "a reported count includes what was loaded", drop_operand("or", 1)),
)
