"""Guards of the order of batches: gaps, replays, duplicates, restarts, and what a fleet's records cover."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, instead, never, replace, take

NUMBERING = guards(
    "tests/ledger/test_gaps_and_replays.py tests/ledger/test_sequencer.py tests/recordings/test_gaps.py",
    ("number-incarnation", "another incarnation is a restart", drop()),
    ("number-repeated", "a number that falls back", drop()),
    ("number-waiting", "a batch that waits already", drop_operand("or", 1)),
    ("number-unanchored", "what is replayed may be another life's", never("and")),
    ("number-follow", "what waited follows what was missing", drop_operand("+", 1)),
    ("settle-hole", "what is still missing is a hole", replace("Compare", "not Name_2._anchored")),
    ("settle-born", "a record that begins late is not from birth", drop()),
    ("gap-no-replay", "without a replay a gap is a hole at once", replace("Attribute", "Name_1._follow")),
    (
        "gap-asked-no-more",
        "a publisher that is asked no more keeps nobody waiting",
        replace("Call", "Name_1._apply(seq, Name_1.waiting.pop(seq), Attribute_1, broken=True)"),
    ),
    ("gap-waits", "with a replay a gap waits", always()),
    ("gap-anchored", "a gap at the very beginning follows nothing", never("Compare")),
    ("gap-anchor-needed", "what is replayed must continue what came before", always("Compare")),
    ("gap-flood", "no more wait than a publisher keeps", drop()),
    ("repeat-waiting-time", "a waiting number with another time is a restart", always()),
    ("repeat-anchor", "a known batch with its time anchors a replay", drop()),
    ("repeat-same", "a known batch with its time is a duplicate", replace("Compare", "Name_0 is not None")),
    ("repeat-old", "a number that falls back with an old time is a duplicate", drop()),
    ("restart-waiting", "what waits belongs to the life that is replayed", take("else")),
    ("restart-settle", "what comes live ends the life that waits", drop()),
    ("restart-barrier", "a restart leaves nothing", drop()),
    ("restart-first", "a restart that begins late has a gap", always()),
    ("restart-after-wait", "a new life may continue what waits", drop()),
    ("break-bad", "an event that could not be read happened all the same", drop_operand("or", 0)),
    ("break-lost-inside", "the publisher says that it lost events of this batch", drop_operand("or", 1)),
    ("break-lost", "the publisher says that it lost events", drop_operand("or", 2)),
    ("break-broken", "a gap is a hole", drop_operand("or", 0)),
    ("break-torn", "a bad event may have come before the others of its batch", drop_operand("or", 1)),
    ("break-after-torn", "a bad event may have come after the others of its batch", drop()),
)

TIMELINE = guards(
    "tests/ledger/test_stream.py tests/ledger/test_naive_agreement.py tests/ledger/test_sequencer.py",
    ("time-falls-back", "a clock that falls back is held at its highest", take("else")),
    ("time-life", "a number of a former life is no batch of this one", take("then")),
    ("batches-position", "a batch that ends at the position was taken", drop()),
    (
        "time-position-after",
        "a batch flushed later had not happened",
        replace("IfExp", "Attribute_0[min(Name_1 + 1, len(Attribute_0)) - 1] if Attribute_0 else 0"),
    ),
    (
        "time-confirmed",
        "only a later batch confirms",
        replace("IfExp", "Attribute_0[min(Name_0, Call_0 - 1)] if Attribute_0 else None"),
    ),
)

STREAM_RECORD = guards(
    "tests/ledger/test_stream.py tests/ledger/test_naive_agreement.py tests/ledger/test_retention.py tests/ledger/test_sequencer.py",
    ("record-joined-late", "who joins late does not know what is held", drop()),
    ("record-restart", "a new life holds nothing", drop()),
    ("record-restart-life", "a new life numbers anew", drop()),
    ("record-hole-bar", "after a hole copies are unsure", drop()),
    ("record-hole-kept", "a hole is remembered", drop()),
    ("record-holes-joined", "many holes become one, and none is forgotten", instead("del Subscript_0")),
    ("record-forget-bar", "what was dropped may be held still", drop()),
    ("coverage-until", "a hole after an interval does not touch it", drop_operand("and", 0)),
    ("coverage-after", "a hole before an interval does not touch it", drop_operand("and", 1)),
    ("coverage-edge", "what expired is not covered", take("then")),
    ("coverage-birth", "an expired birth is not in the record", drop_operand("and", 1)),
)

FLEET = guards(
    "tests/ledger/test_stream.py tests/ledger/test_clock_offset.py tests/ledger/test_sequencer.py",
    ("fleet-offset-replayed", "a replayed message shows no delay", drop_operand("and", 2)),
    ("fleet-offset-quickest", "the quickest message shows a clock best", take("then")),
    ("fleet-untimed", "a batch without a time has that of its arrival", never()),
    ("fleet-joins-late", "who joins late has no record from birth", never("and")),
    ("fleet-wait", "a wait ends", never()),
    ("fleet-wait-time", "a wait does not end early", drop_operand("and", 1)),
    ("fleet-view-self", "a worker is not another one", drop_operand("or", 0)),
    ("fleet-view-model", "another model's blocks are other blocks", drop_operand("or", 1)),
    (
        "fleet-view-unnamed",
        "a worker that names no model may serve this one",
        drop_operand("Set", 1),
    ),
    ("fleet-unit", "a hybrid model matches common multiples", replace("Call", "max(Name_0)")),
    ("fleet-view-news", "what is said of groups counts before a peer is left out", drop()),
    ("view-block-size", "blocks of another size are other blocks", always()),
)
