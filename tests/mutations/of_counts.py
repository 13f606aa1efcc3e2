"""Guards of how many copies of a block there are: barriers, counts, the window's edge."""

from __future__ import annotations

from .mutation import guards
from .operators import always, compare, drop, drop_operand, keep, never, replace, take

BARRIERS = guards(
    "tests/ledger/residency/test_removal_reasons.py tests/ledger/test_stream.py tests/ledger/memtable/test_segment_builder.py tests/ledger/compaction/test_fold.py tests/ledger/test_naive_agreement.py",
    ("barrier-tier", "a clear empties the tier that it names", always()),
    ("barrier-below", "whether a reset of the device reaches below is not said", take("else")),
    ("barrier-above", "a clear of a tier below leaves the device alone", take("then")),
    ("barrier-restart-process", "a disk or a remote tier outlives the process", drop_operand("and", 1)),
    ("barrier-restart", "a restart empties the device", drop()),
    ("barrier-last-kept", "counts begin at the last barrier before the window", drop()),
)

TALLY = guards(
    "tests/ledger/residency/test_copies_of_one.py tests/ledger/residency/test_removal_reasons.py tests/ledger/test_stream.py tests/ledger/memtable/test_segment_builder.py tests/ledger/compaction/test_fold.py tests/ledger/test_naive_agreement.py",
    ("tally-epoch", "what came before a barrier is not counted", drop_operand("*", 1)),
    ("tally-hole-unsure", "after a hole there may be copies", drop_operand("|", 1)),
    (
        "tally-surplus",
        "more removed than stored: the record is incomplete",
        replace("Compare", "np.zeros_like(Compare_0)"),
    ),
    (
        "tally-never-negative",
        "a removal of what was not held takes no copy",
        replace("-", "np.maximum(Subscript_0, 0)"),
    ),
    ("tally-copies", "one of two copies is left", replace("Constant", "9", 1)),
    (
        "tally-barrier-position",
        "a barrier after the position has not happened",
        replace("Name", "Name_17.ordinals.size", 15),
    ),
    ("tally-lost", "a hole after the last operation", replace("Compare", "np.zeros(Name_2.size, np.bool_)", 3)),
    ("judge-unsure", "gone only when surely no copy is there", keep("Call", "Name", 2, 2)),
    ("judge-ended", "a barrier ends what was held", drop()),
    ("judge-ended-unsure", "a barrier ends what may have been held", drop_operand("|", 1)),
    (
        "judge-ended-reason",
        "what may have been gone already did not surely leave with a barrier",
        keep("Call", "Subscript"),
    ),
    ("judge-lost", "after a hole nothing is known", drop()),
    ("turns-twice", "a block that is stored while it is held has two copies", drop_operand("or", 1)),
    ("turns-barrier", "what a barrier ended must be counted", drop()),
    ("turns-hole", "after a hole what was removed may be there", never("and")),
    ("turns-first", "what was removed and never stored is missing in the record", drop_operand("or", 0)),
)

_SINGLE_TESTS = "tests/ledger/residency/test_copies_of_one.py tests/ledger/query/test_asking_many.py tests/ledger/residency/test_removal_reasons.py tests/ledger/test_stream.py tests/ledger/memtable/test_segment_builder.py tests/ledger/test_naive_agreement.py"

SINGLE = guards(
    _SINGLE_TESTS,
    ("one-epoch", "what came before a barrier is not counted", drop()),
    ("one-hole-unsure", "after a hole there may be copies", drop_operand("or", 1)),
    ("one-surplus", "more removed than stored: the record is incomplete", drop_operand("or", 0)),
    ("one-never-negative", "a removal of what was not held takes no copy", replace("Name", "0", 1)),
    ("one-barrier-position", "a barrier after the position has not happened", replace("Call", "Attribute_1.size")),
    ("one-lost", "a hole after the last operation", drop()),
    ("one-ended-unsure", "a barrier ends what may have been held", replace("Call", "residency")),
    ("one-ended", "a barrier ends what was held", replace("Call", "residency")),
)

SEGMENTS = guards(
    _SINGLE_TESTS,
    ("one-reported", "a re-announcement is no copy of one block, and changes nothing", always()),
    ("many-reported", "a re-announcement is no copy of many blocks", drop()),
    ("counted-reported", "a re-announcement is not counted with the copies of many blocks", drop_operand("&", 0)),
    (
        "counted-last-reported",
        "what comes after the position is no evidence where a re-announcement is near",
        drop_operand("&", 1),
    ),
    ("counted-last", "what comes after the position is no evidence", never()),
    ("counted-last-stored", "what is stored after the position is no evidence", replace("IfExp", "1 << 40")),
)

HISTORY = guards(
    "tests/ledger/residency/test_removal_reasons.py tests/ledger/test_stream.py tests/ledger/memtable/test_segment_builder.py tests/ledger/compaction/test_fold.py tests/ledger/query/test_siblings.py tests/ledger/test_naive_agreement.py",
    ("history-edge", "before the window nothing is known", drop()),
    ("history-edge-one", "before the window nothing is known of one block", drop()),
    ("history-low-barrier", "a barrier ends what was held", keep("Call", "Attribute", 0, 2)),
    ("touched-barrier", "a barrier concerns every block", drop()),
    ("one-last", "what comes after the position is no evidence of one block", drop_operand("Compare", 2)),
    ("one-first", "what came before an interval did not happen in it to one block", drop_operand("Compare", 0)),
    ("locate-placed", "a block of unknown depth has no place", always()),
    ("locate-before", "what is stored later is not what was known", always("Compare")),
    ("forget-edge", "what was dropped moves the beginning of the record", drop()),
    ("fold-edge", "what expired moves the beginning of the record", drop()),
)

HELD = guards(
    "tests/ledger/compaction/test_fold.py tests/ledger/test_naive_agreement.py",
    ("fold-held", "what is held outlives the window", compare("<")),
    ("fold-copies", "as many stores stay as there are copies", replace("Call", "1")),
    ("fold-barrier", "what a barrier ended is not held", keep("Call", "Attribute", 0, 2)),
    ("fold-surplus", "that more was removed than stored outlives the window", drop()),
    ("fold-turns", "a block of several copies is counted", replace("Call", "np.zeros_like(begins)")),
    ("fold-turns-barrier", "what a barrier ended is counted", drop()),
)

FOLDING = guards(
    "tests/ledger/compaction/test_fold.py tests/ledger/test_naive_agreement.py",
    ("fold-surplus-held", "that the count is unsure outlives the window", never()),
)
