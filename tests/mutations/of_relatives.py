"""Guards of what is said of other requests, and of blocks like the missed one."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, instead, keep, never, replace, take

RECENT = guards(
    "tests/evidence/test_request_log.py tests/evidence/test_equal_tokens.py tests/evidence tests/cases",
    ("recent-repeated", "exporters repeat spans", drop()),
    ("recent-order", "spans arrive in any order", replace("Call", "Name_0.append(Name_2)")),
    ("prefilling-still", "a prefill that is over computes nothing", drop_operand("and", 0)),
    ("prefilling-own", "a request's other half is not another request", drop_operand("and", 1)),
    ("began-still", "a prefill that is over stored nothing then", drop_operand("comprehension", 0)),
    ("stored-arrived", "who had not come yet stored nothing", drop_operand("Compare", 0)),
    ("stored-first-token", "a prefill that is over stored nothing then", drop_operand("Compare", 2)),
    ("stored-waiting", "who waits may be looked up before we know it", keep("+", "Name")),
    ("stored-longest", "a long prefill began long ago", drop_operand("-", 1)),
)

RELATIVES = guards(
    "tests/evidence/test_relations.py tests/evidence/test_merging.py tests/evidence tests/cases",
    ("relatives-tokens", "without tokens nothing can be compared", replace("Call", "EqualTokens()")),
    ("relatives-parent", "a parent that was hit and is not known", drop()),
    ("equal-below", "the same tokens under another salt may be in a tier", take("else")),
    ("below-differ", "one identity has one key", drop()),
    ("below-resident", "what left a tier is not in it", drop_operand("and", 0)),
    ("below-releases", "a tier that never says what leaves it", drop_operand("and", 1)),
    ("below-left", "a tier that never named a block says nothing of it", drop()),
    ("relatives-same", "one identity has one key", take("then", 1)),
    ("relatives-view", "a sibling on another worker is one too", drop_operand("or", 1)),
    ("relatives-sibling-gap", "a sibling that may have come by the lookup", take("else")),
    ("relatives-maybe", "a tail that may have been repeated by the lookup", take("else", 1)),
    ("relatives-own-complete", "chains that were not compared", replace("Attribute", "True", 1)),
    ("relatives-complete", "another worker's chains that were not compared", replace("Attribute", "True", 4)),
    ("relatives-extends", "a block with siblings extends nothing", drop_operand("and", 1)),
    ("relatives-block-0", "at block 0 every prompt begins", drop_operand("and", 0)),
    ("relatives-tail", "a tail without tokens may repeat a sibling's", never()),
    ("relatives-self", "a block is no sibling of its own", drop_operand("and", 1)),
    ("relatives-late", "another worker's record that is not confirmed", take("else")),
    ("relatives-later", "a sibling that came around the lookup", take("then")),
    ("strange-late", "a store that is still on its way", drop()),
    ("tail-chain", "a tail that is not known", drop()),
    ("differ-extras", "the same extra keys are the same identity", always("or")),
    ("differ-lora", "one name can stand for two adapters", drop_operand("or", 2)),
    ("kinds-values", "the same kinds with other values", drop_operand("or", 1)),
    ("siblings-block-0", "at block 0 no sibling is looked for", drop_operand("and", 0)),
    ("siblings-by-then", "a sibling that had not surely come is none", replace("Attribute", "at.after")),
    (
        "siblings-unconfirmed",
        "an unconfirmed record is asked up to the lookup",
        replace("Attribute", "Name_1.before", 1),
    ),
    ("siblings-next-batch", "what the next batch tells of may have come before", take("then")),
    ("siblings-surely", "only what had surely come is counted", replace("Attribute", "possible.blocks")),
    ("siblings-itself", "the missed block may come to another worker at any time", replace("ListComp", "list(Name_3)")),
    ("siblings-many", "so many siblings are not told apart", drop_operand("and", 0)),
    ("siblings-later-work", "siblings of requests that came later are no doubt", replace("Call", "not Name_10", 1)),
    ("siblings-late-dropped", "who may have had a sibling does not matter where one is known", take("else")),
    ("identities-gap-first", "an unclear block leaves the cost open", take("else")),
    (
        "siblings-late-known",
        "siblings of an unconfirmed record may have come later",
        replace("Attribute", "Reason.NONE"),
    ),
)

LIKENESS = guards(
    "tests/evidence/test_template.py tests/evidence/test_established.py",
    ("likeness-never", "only what was never seen differs from what was", drop_operand("or", 1)),
    ("likeness-gap", "what cannot be compared with its like", drop_operand("or", 2)),
    ("likeness-size", "templates are of a block size", drop_operand("or", 2)),
    ("likeness-chain", "without a key there is no block", drop_operand("or", 0)),
    ("likeness-tokens", "without tokens nothing can be compared", drop_operand("or", 1)),
    ("likeness-parent", "what was hit last is above", take("else")),
    ("likeness-first", "above block 0 is nothing", drop_operand("or", 1)),
    ("likeness-before", "a later block is compared with all that is above it", drop()),
    ("likeness-before-known", "a parent without a digest is not known", drop_operand("or", 1)),
    (
        "likeness-matchable",
        "the block of the last token cannot match",
        instead("chain, complete = reading.chain, reading.chain_known"),
    ),
)
