"""Guards of what may leave: sampled flags, digests, salts and the text of exceptions."""

from __future__ import annotations

from .mutation import guards
from .operators import always, drop, drop_operand, replace, take

REDACTION = guards(
    "tests/test_redaction_digests.py tests/test_redaction.py tests/pipeline/test_leaks.py",
    ("redact-flags", "an unsampled flag is no unknown one", drop()),
    ("redact-sampled-bit", "only the lowest flag samples", drop_operand("&", 1)),
    ("redact-threshold", "a span below its threshold is not kept", take("then")),
    ("redact-unsampled", "an unsampled request names nobody", drop()),
    ("redact-unknown", "an unknown flag is read as configured", always("Attribute")),
    ("redact-any-sampled", "one sampled span samples its request", drop()),
    ("redact-own-flag", "a span that is not sampled stands alone with that", drop_operand("and", 1)),
    ("redact-ratio", "only the configured share may identify", drop_operand("and", 2)),
    ("redact-request", "only a sampled request may identify", drop_operand("and", 0)),
    ("redact-identify", "digests and names leave on sampled spans only", always()),
    ("redact-digested", "digests of salts leave on sampled spans only", drop_operand("and", 0)),
    ("redact-sensitive", "raw values never leave", drop_operand("Tuple", 0)),
    ("redact-digested-raw", "a salt never leaves as it is", drop_operand("Tuple", 1)),
    ("redact-dropped", "configured attributes are dropped", drop_operand("Tuple", 2)),
    ("redact-resource", "what must not leave is dropped of resources too", replace("Call", "envelope")),
    ("redact-status", "the text of an exception is in the status as well", take("else")),
    ("redact-keyed", "a digest that anybody can make can be guessed", replace("Attribute", "b''", 2)),
    ("redact-text-keyed", "a salt's digest that anybody can make can be guessed", replace("Attribute", "b''", 2)),
    (
        "redact-short",
        "a digest is 16 hex digits",
        replace("IfExp", "f'{self._key_id}:{mac.hex()}' if Compare_0 else Name_2.hex()"),
    ),
    ("redact-engine-only", "a first-miss digest is the engine's to carry", drop_operand("and", 0)),
    ("redact-last-hit-engine", "a last-hit digest is the engine's to carry", drop_operand("and", 0)),
)
