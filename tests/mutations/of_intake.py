"""Guards of what an event means: its place, its chain, its group, and what only repeats."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, instead, negate, never, replace, take

INTAKE = guards(
    "tests/ledger/memtable/test_segment_builder.py tests/ledger/decode/test_coalescing.py tests/ledger/test_naive_agreement.py tests/ledger/test_stream.py",
    ("intake-all-groups", "a removal without a group is of all groups", replace("IfExp", "(Attribute_0 or 0,)")),
    ("intake-releasing", "a tier is seen to let go", drop()),
    ("intake-dense-device", "only the device's dense group chains", drop_operand("and", 1)),
    ("intake-report", "a re-announcement changes no count", never("and")),
    ("intake-report-sparse", "a sparse group's re-announcement changes no count", always()),
    ("resident-all", "a report repeats what is all resident", replace("Attribute", "Compare_0.any")),
    ("resident-at-all", "only what is resident is repeated", always("Call")),
    ("intake-cleared-run", "a clear ends a run of removals", drop()),
    ("intake-singles-dense", "only the device's dense group chains", drop_operand("and", 0)),
    ("intake-singles-group", "a sparse group has no chains", drop_operand("and", 1)),
)

CHAINING = guards(
    "tests/ledger/decode/test_coalescing.py tests/ledger/memtable/test_segment_builder.py tests/ledger/test_naive_agreement.py",
    ("chaining-single-removal", "a removal is no store", replace("*", "BinOp_0 + 1")),
    ("chaining-single-run", "a removal before a store belongs to its request", drop()),
    ("chaining-single-tail", "a store continues what was stored just before", drop()),
    (
        "chaining-single-salted",
        "after a salted block its children have no extra keys of their own",
        drop_operand("or", 0),
    ),
    ("chaining-single-described", "unpublished extra keys prove nothing", drop_operand("or", 1)),
    ("chaining-single-digest", "under unknown tokens no digest is known", drop_operand("and", 0)),
    ("chaining-single-extras", "extra keys that are known are said so", drop()),
    ("chaining-sparse", "masked stores of a sparse group are no chain", drop_operand("or", 1)),
    ("chaining-placeholder", "an offload connector's store starts no chain", drop_operand("or", 0)),
    ("chaining-unplaced", "a block of unknown depth carries no depth", always()),
)

ADMISSIONS = guards(
    "tests/ledger/memtable/test_segment_builder.py tests/ledger/test_naive_agreement.py",
    ("admissions-run", "removals before a store belong to its request", take("else")),
    ("admissions-run-first", "the lookup came before the first of them", always()),
    ("admissions-run-ends", "a store ends a run of removals", drop()),
    ("admissions-groups", "the groups of a hybrid model store side by side", always()),
    ("admissions-twin", "two stores of one group are two requests", drop_operand("or", 2)),
    ("admissions-parent", "another parent is another request", drop_operand("or", 1)),
    ("admissions-ends", "a removal ends an admission", drop()),
    ("admissions-cleared", "a clear ends an admission", instead("Attribute_0 = UnaryOp_0")),
)

REPORTS = guards(
    "tests/ledger/memtable/test_segment_builder.py tests/ledger/test_naive_agreement.py",
    ("report-session", "a report comes with a session", drop_operand("and", 0)),
    ("report-root", "a report comes from the root", drop_operand("and", 1)),
    ("report-device", "a report is the device's", drop_operand("or", 1)),
    ("report-listed", "a sparse group goes with the dense one", drop()),
)

STORES = guards(
    "tests/ledger/memtable/test_segment_builder.py tests/ledger/test_naive_agreement.py",
    ("stores-unlisted", "an offload connector's store is no chain", always()),
    ("depth-placed", "a chain of unknown depth holds no depth", drop_operand("&", 1, 1)),
    ("depth-before", "a store after the position is none before it", drop_operand("&", 1)),
    ("stores-placed", "a depth that is not known is not 0", replace("IfExp", "max(Attribute_3, 0)")),
    ("stores-continues", "pieces of one event are one store", replace("Call", "list(range(Name_4, end))")),
    ("stores-tail-before", "only a tail stored before can be continued", drop()),
    ("stores-tail-end", "only the end of an event is a tail", always()),
    ("stores-tail-cut", "a piece whose end expired has no tail", replace("Name", "255", 2)),
)

GROUPS = guards(
    "tests/ledger/memtable/test_segment_builder.py tests/ledger/test_naive_agreement.py",
    ("groups-other-size", "the end of a prompt in smaller blocks is no chain", drop_operand("or", 1)),
    ("groups-placeholder", "a placeholder sets no block size", drop_operand("or", 0)),
    ("groups-tier", "a tier's store describes no group", drop_operand("or", 1)),
    ("groups-kind", "a group keeps its kind for a life", take("else")),
    ("groups-life", "a restart may bring another model", drop()),
    ("groups-dense-first", "dense groups come first", negate("not")),
    ("groups-dense-size", "the block size is the dense group's", always()),
    ("groups-pairs", "pairs do not go unnoticed", drop()),
    ("groups-life-pairs", "a restart may bring plain token ids", drop()),
)

KEYS = guards(
    "tests/model/test_block_hash.py",
    ("keys-sizes", "hashes of unknown size are of no family", drop_operand("and", 1)),
    ("keys-range", "a number beyond 64 bits is no key", drop_operand("and", 1)),
    ("keys-last-eight", "vLLM takes the last eight bytes", replace("Subscript", "Name_1[:8]")),
    ("keys-undecidable", "sixteen digits are two numbers", replace("Compare", "not fitting")),
    ("keys-all-decimal", "sixteen decimal digits each are two numbers each", drop_operand("or", 0)),
    ("keys-hexadecimal", "sixteen characters are not always digits", drop_operand("or", 1)),
    ("keys-one-notation", "one emitter writes one notation", instead("fitting = notations")),
    ("keys-malformed", "one element that is no hash leaves no chain", never()),
    ("keys-decimal-range", "a decimal beyond 64 bits is no key", drop_operand("and", 1)),
)

COLUMNS = guards(
    "tests/ledger/memtable/test_segment_builder.py tests/ledger/decode/test_coalescing.py tests/ledger/decode/test_tolerance.py tests/ledger/decode/test_extra_keys.py tests/ledger/decode/test_batch.py",
    ("columns-sparse", "token ids that span other blocks", never("and")),
    ("columns-described", "unpublished extra keys prove nothing", drop_operand("and", 1)),
    ("columns-bad-extras", "nothing follows from extra keys that cannot be read", instead("Name_0 = None")),
    ("columns-place", "removals of another place are another run", drop_operand("and", 1)),
    ("columns-group", "a group index out of range", never()),
    (
        "columns-alone",
        "events whose hashes are not alike are taken one by one",
        replace("Compare", "Compare_0 and (not Name_0.parents)"),
    ),
    ("columns-bad-tokens", "an event that could not be read leaves no keys", drop()),
)

SINGLES = guards(
    "tests/ledger/decode/test_coalescing.py tests/ledger/test_naive_agreement.py",
    ("singles-alike", "a store that says something else is not among them", drop_operand("or", 0)),
    ("singles-removal-groups", "a removal without a group is of all groups", drop_operand("or", 0)),
    ("singles-removal-place", "a removal from another place is another's", drop_operand("or", 1)),
    ("singles-root", "what begins a prompt is not among them", drop()),
    ("singles-extras", "a store with extra keys is not like those without", drop_operand("and", 2)),
    ("singles-no-size", "a placeholder is no block of a chain", drop_operand("and", 0)),
    ("singles-group-range", "a group index out of range", drop_operand("and", 1)),
    ("singles-whole", "token ids of other blocks", drop()),
    ("singles-whole-unread", "token ids of other blocks, if they are only counted", take("then")),
)

PAIRS = guards(
    "tests/ledger/decode/test_tolerance.py",
    ("singles-pairs-unread", "pairs that are only counted are pairs", replace("Compare", "True")),
    ("tokens-pairs", "pairs are no numbers", drop()),
)

TOKENS = guards(
    "tests/ledger/decode/test_token_column.py",
    ("tokens-counted", "each event has as many numbers as it says", drop_operand("or", 1)),
    ("tokens-kept-whole", "no number reaches into the next event", drop_operand("or", 0)),
    ("tokens-marked", "what is no marker is a small number itself", drop_operand("or", 0)),
    ("tokens-ended", "the last number ends with its event", drop_operand("or", 1)),
    ("tokens-false", "a byte of a number may look like a marker", instead("break")),
    ("tokens-elsewhere", "what looks like token ids may be something else", drop_operand("or", 1)),
)
