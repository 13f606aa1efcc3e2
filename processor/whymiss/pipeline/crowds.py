"""Groups of spans too large to find out who belongs to whom.

Which lookup is an engine's request's, and which router's or tier's span is about which request, is found by comparing
spans with each other: work that grows with engine requests times spans. A sender chooses both. A group beyond
``attribution.comparisons_max`` is not compared: each of its requests is judged alone, as ``unknown`` with the reason
``partial_trace``, because what the others say of it was not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..evidence.requests.report import engine_says, lookup_says
from ..model import Cause, Owner, Reason, Request, Span, Verdict

REQUESTS_MIN = 64
"""A group is counted as having at least so many requests: even of one request not all of a million spans are weighed."""


def is_crowd(spans: Sequence[Span], comparisons_max: int) -> bool:
    """Whether comparing the spans with each other would take more than that many steps."""
    if len(spans) * REQUESTS_MIN <= comparisons_max:
        requests = sum(engine_says(span) is not None or lookup_says(span) is not None for span in spans)
        return requests * len(spans) > comparisons_max
    return True


def alone(spans: Sequence[Span]) -> list[Request]:
    """The requests of a crowd, each with nothing but its own span; a lookup's span is one of its own."""
    requests: list[Request] = []
    for span in spans:
        looked = lookup_says(span)
        if engine_says(span) is not None:
            requests.append(Request(engine=span, lookup=span if looked is not None else None))
        elif looked is not None and not looked.preempted:
            requests.append(Request(lookup=span))
    return requests


def unweighed(request: Request) -> Verdict:
    """The verdict on a request of a crowd: nothing but the prompt's length is said."""
    said, looked = engine_says(request.engine), lookup_says(request.lookup)
    told = [one.prompt_tokens for one in (looked, said) if one is not None and one.prompt_tokens is not None]
    return Verdict(
        cause=Cause.UNKNOWN,
        owner=Owner.OBSERVABILITY,
        reason=Reason.PARTIAL_TRACE,
        prompt_tokens=told[0] if told else None,
    )
