"""Guards of which spans belong to a lookup: ids, traces, times, halves and companions."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, instead, keep, never, replace, take

GROUPING = guards(
    "tests/evidence/test_lookups_of_requests.py tests/evidence/test_grouping.py tests/evidence/test_request_log.py tests/evidence tests/cases tests/recordings/test_stock.py tests/recordings/test_observed.py",
    ("bounds-first-token-end", "no first token after the span's end", keep("Call", "+")),
    ("bounds-after-end", "a span that ends at its set-up does not end with the first token", drop()),
    ("end-after-first-token", "decoding goes on after the first token", drop_operand("+", 1)),
    ("bounds-queue", "no lookup while the request queues", drop_operand("+", 1)),
    ("bounds-prefill", "the lookup came before the prefill", drop_operand("-", 1)),
    ("bounds-order", "latencies are rounded", keep("Call", "Name", 0, 2)),
    ("group-preempted", "only the lookup that admitted a request counts", drop_operand("and", 1)),
    ("group-passive", "a wrapper has no lookup of its own", always("Compare")),
    ("group-lookup-alone", "a lookup without an engine span is judged", replace("GeneratorExp", "()")),
    ("request-failed", "a load of nothing of what was just found", never("Call")),
    ("concerns-phase", "what a router says of the other half is left out", always("or")),
    ("concerns-transfer", "the transfer between halves is no tier's", always("or")),
    ("concerns-usage-half", "the caller is told of the decode half", always("Compare")),
    ("concerns-usage-prompt", "a count for another prompt is another lookup's", always("or")),
    ("found-between-halves", "what the prefill half had is no tier's promise", drop_operand("and", 2)),
    ("settled-status", "a tier's own word stands", drop_operand("and", 2)),
    ("settled-nothing", "a load of something did not bring nothing", drop_operand("and", 3)),
    ("match-unbounded", "a step looks up many requests: its bound only chooses", drop_operand("Tuple", 1)),
    ("match-bounded", "of several spans with one id the bound chooses", drop_operand("Tuple", 0)),
    ("eliminate-one", "a lookup that fits several spans belongs to none", keep("Compare", "Name", 0, 1)),
    ("wrapper-last", "a wrapper has no lookup where what it wraps can have it", drop_operand("and", 1)),
    ("wrapper-too", "a lookup by a wrapper's id is no request of its own", drop_operand("Tuple", 1)),
    ("wrapper-decode", "a decode half has lookups of its own", drop_operand("and", 1)),
    ("group-own-lookup", "a span that says both has its lookup", drop_operand("and", 0)),
    ("fits-id", "another request's id", drop()),
    ("fits-trace", "without ids only one trace joins", drop()),
    ("fits-time", "a lookup outside a request's bounds", always("Compare")),
    ("fits-earliest", "no lookup before the arrival", drop_operand("Compare", 0)),
)

SIDES = guards(
    "tests/evidence/test_lookups_of_requests.py tests/evidence/test_grouping.py tests/evidence/test_request_log.py tests/evidence tests/cases tests/recordings/test_stock.py tests/recordings/test_observed.py",
    ("side-both", "a span that says no half is none", never()),
    ("side-parent-one", "a parent of both phases tells nothing", keep("Compare", "Name", 0, 1)),
    ("side-around-one", "two phases around an engine tell nothing", keep("Compare", "Name", 0, 1)),
    ("side-around-time", "an engine's span begins inside its half's", drop_operand("comprehension", 0)),
    ("side-completion", "a prefill makes one token", drop()),
    (
        "wrapper-dialect",
        "two engines of one kind are two lookups",
        instead(
            "for outer in members:\n    if any(_wraps(outer, inner) for inner in members if inner is not outer):\n        yield outer\ncontinue"
        ),
    ),
    ("wrapper-prompt", "unlike prompts are two lookups", drop_operand("or", 2)),
    ("wrapper-inside", "a wrapper is around what it wraps", always("and")),
    (
        "fed-prefill-there",
        "without its prefill half a decode half is judged",
        instead("yield from (engine for engine in engines if of.get(key_of(engine)) == 'decode')"),
    ),
    ("fed-own-pair", "a decode half of another pair", instead("yield (Name_0 or prefills[0], engine)")),
    (
        "fed-only-two",
        "without ids only the two halves of one trace are a pair",
        replace("Compare", "any((one.trace_id == Attribute_0 for one in prefills))", 1),
    ),
    ("fed-decode", "only decode halves are fed", drop()),
)

BELONGING = guards(
    "tests/evidence/test_lookups_of_requests.py tests/evidence/test_grouping.py tests/evidence/test_request_log.py tests/evidence tests/cases tests/recordings/test_stock.py tests/recordings/test_observed.py",
    ("belong-own", "a subject's own span is its own", drop()),
    ("belong-caller", "the id that an engine made of a caller's", drop_operand("or", 1)),
    ("belong-exact", "an exact id is better than a caller's", replace("or", "Call_2 or Call_0")),
    ("belong-here", "of lookups with one id those of the span's trace", drop()),
    ("belong-one-call", "callers use ids again", keep("Call", "Name", 0, 1)),
    ("belong-then", "several calls with one id at one time belong to none", take("then")),
    ("belong-overlap", "the call that ran while the span did", keep("Call", "Name", 0, 1)),
    ("belong-children", "a parent is about its child", drop()),
    ("belong-inside", "what fits several requests of a trace belongs to none", take("then")),
)

COMPANIONS = guards(
    "tests/evidence/test_lookups_of_requests.py tests/evidence/test_grouping.py tests/evidence/test_request_log.py tests/evidence tests/cases tests/recordings/test_stock.py tests/recordings/test_observed.py",
    ("companion-silent-route", "a router that promises nothing loses no promise", drop_operand("and", 1)),
    ("companion-between-halves", "the prefill half is no tier", drop_operand("and", 1)),
    (
        "companion-worker",
        "one engine with a probe says nothing of another's",
        replace("Call", "{bucket for (one, _), buckets in Attribute_1.items() if one is Name_2 for bucket in buckets}"),
    ),
    ("companion-recent", "habits change", replace("Call", "bool(Name_6)")),
)

JOIN_HALVES = guards(
    "tests/test_join_halves.py",
    ("half-any", "any span may speak of a half", replace("Name", "all")),
    ("half-phase", "a decision without a phase is of no half", drop_operand("and", 1)),
    ("half-both", "who says both halves says none", replace("Compare", "not (Attribute_0 or Attribute_1)")),
    ("half-routed", "a router's word tells of halves", drop_operand("or", 0)),
    ("half-engine", "an engine's word tells of halves", drop_operand("or", 1)),
)
