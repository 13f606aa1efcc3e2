"""The nouns of whymiss: what is read, what is known, what is said.

Times are integers in nanoseconds since the Unix epoch, on the clock of whoever reported them
(``_unix_nanos``). Token and block counts are plain integers. Block keys are unsigned 64-bit
integers: the low 64 bits of an engine's block hash, comparable only inside one hash family.
"""

from .history import (
    DENSE_KINDS,
    Block,
    Coverage,
    Fact,
    GroupSpec,
    Hole,
    LedgerView,
    Store,
    StreamId,
)
from .outcomes import (
    JoinOutcome,
    Late,
    Released,
    ReleaseReason,
)
from .spans import (
    _CHILD,
    _SUFFIX,
    EngineRequest,
    Envelope,
    Evidenced,
    GatewayUsage,
    Lookup,
    OffloadOutcome,
    Request,
    ResourceIdentity,
    RouteDecision,
    Span,
    caller_ids,
    request_ids,
    served_ids,
)
from .verdicts import (
    Facts,
    Holder,
    Moment,
    Verdict,
)
from .words import (
    SECOND,
    Attribute,
    Cause,
    Grade,
    Owner,
    Reason,
    Removal,
    Residency,
    Role,
    Tier,
)

__all__ = [
    "DENSE_KINDS",
    "SECOND",
    "_CHILD",
    "_SUFFIX",
    "Attribute",
    "Block",
    "Cause",
    "Coverage",
    "EngineRequest",
    "Envelope",
    "Evidenced",
    "Fact",
    "Facts",
    "GatewayUsage",
    "Grade",
    "GroupSpec",
    "Holder",
    "Hole",
    "JoinOutcome",
    "Late",
    "LedgerView",
    "Lookup",
    "Moment",
    "OffloadOutcome",
    "Owner",
    "Reason",
    "ReleaseReason",
    "Released",
    "Removal",
    "Request",
    "Residency",
    "ResourceIdentity",
    "Role",
    "RouteDecision",
    "Span",
    "Store",
    "StreamId",
    "Tier",
    "Verdict",
    "caller_ids",
    "request_ids",
    "served_ids",
]
