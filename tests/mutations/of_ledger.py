"""Guards of who is related to whom in a record, and of what a checkpoint brings back."""

from __future__ import annotations

from .mutation import guards
from .operators import always, compare, drop, drop_operand, instead, keep, never, replace, take

EQUAL_TOKENS = (
    *guards(
        "tests/ledger/query/test_siblings.py tests/ledger/query/test_same_tokens.py tests/ledger/test_naive_agreement.py",
        ("equal-self", "a block is not one that repeats it", drop()),
        ("equal-resident", "only what is held would have been hit", drop_operand("comprehension", 0)),
        ("leading-self", "a block is no resident other of itself", drop_operand("&", 1)),
        ("whole-self", "a chain is not resident under other keys where it is itself", drop_operand("&", 1)),
        ("whole-held", "only a chain that is held would have been hit", always("and")),
        ("whole-same", "a chain of other tokens further on is not the same", drop_operand("&", 1)),
        ("whole-end", "a chain that ends earlier is not the same", drop()),
        ("leading-resident", "only what is held would have been hit in a row", keep("Subscript", "Call", 1)),
        ("leading-extras", "another tenant's blocks would not have been hit", drop()),
        ("leading-described", "extra keys that are not known are not none", drop()),
        ("content-version", "a chain may have grown since", replace("Compare", "Subscript_0[1] != Name_2[1]", 1)),
        ("content-keys", "another chain is something else", replace("Compare", "Subscript_0[0] != Name_2[0]", 1)),
    ),
    *guards(
        "tests/ledger/query/test_siblings.py tests/ledger/test_naive_agreement.py",
        ("placed-position", "what is stored later is no relative", drop_operand("&", 1)),
    ),
)
REPEATS = guards(
    "tests/ledger/query/test_siblings.py tests/ledger/test_naive_agreement.py",
    (
        "repeats-before",
        "a sibling's block that is stored again later is the one that was there before",
        replace("Call", "Attribute_2.locate(Attribute_3)"),
    ),
    ("repeats-depth", "the same tokens at another depth repeat nothing", drop_operand("&", 1)),
    ("repeats-self", "a chain does not repeat itself", replace("Subscript", "np.arange(Name_2.size)")),
    ("repeats-parent", "a sibling has the same parent", drop_operand("and", 1)),
    ("repeats-head", "a sibling begins with other tokens", replace("Compare", "Attribute_0 is not None", 1)),
)

CHILDREN = guards(
    "tests/ledger/query/test_siblings.py tests/ledger/test_naive_agreement.py",
    ("children-position", "what is stored later is no child", drop()),
    ("children-all", "there are more children than are listed in one go", always()),
    ("children-placed", "a child of unknown depth is of no parent", keep("Subscript", "Name")),
    ("children-inside", "what is stored next is no child", keep("Subscript", "Name")),
)

LINKS = guards(
    "tests/ledger/query/test_siblings.py tests/ledger/test_naive_agreement.py",
    ("links-described", "under extra keys that are not published nothing is known of them", take("then")),
    ("links-change", "what does not change leaves no mark", drop_operand("and", 1)),
    ("links-forget", "what left the window is no parent any more", drop()),
    ("links-kinds", "kinds of extra keys add up along a chain", drop_operand("Set", 0)),
)

CHECKPOINT = guards(
    "tests/ledger/test_checkpoint_fields.py tests/ledger/test_checkpoint.py",
    ("checkpoint-level", "what a checkpoint brings back is as large as it was", drop()),
    ("checkpoint-version", "what another version wrote is not read", drop_operand("or", 0)),
    ("checkpoint-order", "columns are as another machine has them", drop_operand("or", 1)),
    ("checkpoint-key", "digests of another key compare with nothing", never()),
    ("checkpoint-damage", "a damaged chunk is refused", drop()),
    ("checkpoint-places", "chunks do not change places", replace("Call", "bytes(8)", 2)),
    ("checkpoint-streams", "a stream that is missing is missed", never()),
    ("checkpoint-short", "one that was cut short is refused", drop_operand("or", 1)),
    ("checkpoint-away", "time passed while nobody ran", keep("Call", "Constant")),
    ("checkpoint-clock", "a clock that was set back lets no time run backwards", keep("Call", "/")),
    ("checkpoint-birth", "who joined late has no record from birth afterwards", drop()),
    ("checkpoint-holes", "holes are not forgotten", drop()),
    ("checkpoint-barriers", "what took everything is not forgotten", drop()),
    ("checkpoint-model", "whose blocks they are is not forgotten", drop()),
    ("checkpoint-edge", "where the window begins is not forgotten", drop()),
    ("checkpoint-incarnation", "which life it was is not forgotten", drop()),
    ("checkpoint-silence", "a silent publisher is silent afterwards", drop()),
    ("checkpoint-life", "where the present life begins is not forgotten", instead("Attribute_0 = Attribute_2")),
    ("checkpoint-known", "which groups this life described is not forgotten", drop()),
    ("checkpoint-releasing", "which tiers let go is not forgotten", drop()),
    ("checkpoint-rooted", "whose block size is settled is not forgotten", drop()),
    ("checkpoint-pairs", "that token ids are pairs is not forgotten", drop()),
    ("checkpoint-other-sizes", "that there were blocks of another size is not forgotten", drop()),
    ("checkpoint-tiers", "which tiers were named is not forgotten", drop()),
)

WINDOW = guards(
    "tests/ledger/test_retention_limits.py tests/ledger/test_retention.py tests/ledger/test_checkpoint.py",
    ("window-due", "what is over leaves", drop()),
    ("window-checkpoint", "what was over before a checkpoint leaves", never()),
    ("window-pending", "what was noted long ago is laid out", never()),
    ("window-silent", "only one that fell silent is laid out at a time", drop()),
    ("window-crowded", "what is over does not pile up", never()),
    ("window-expired", "what left the window is known no more", drop()),
    ("window-gently", "the oldest is folded before there is too much", never()),
    ("window-bytes", "there is never too much", never()),
    ("window-largest", "the largest record gives way", replace("Name", "min", 1)),
    ("window-forget", "a record that is one large base gives way too", drop()),
)

MERGING = guards(
    "tests/ledger/test_retention_limits.py tests/ledger/test_retention.py",
    ("merging-due", "what is about to leave is merged with nothing", drop_operand("or", 0)),
    ("merging-busy", "what is being merged is merged with nothing else", drop_operand("or", 1)),
    ("merging-kinds", "a place that was chained and is not any more", always("Call")),
    ("merging-rows-max", "no segment is too large to be merged in steps", drop_operand("or", 0)),
    ("merging-moved-rows", "rows are counted from the first segment on", replace("*", "0")),
    ("merging-moved-ordinals", "ordinals are counted from the first segment on", replace("*", "0", 1)),
    ("merging-spans", "no segment reaches over two spans", drop_operand("and", 1)),
    ("merging-level", "in the present only those of one level", drop()),
    ("merging-lower", "a lower neighbour does not stand in the way", compare("!=", 1)),
    ("merging-small", "what is small stays low", keep("Call", "+")),
    ("merging-once", "what was merged once is not merged with what never was", drop_operand("+", 0)),
)
