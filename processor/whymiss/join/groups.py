"""The spans that belong together, and what they are found by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from ..model import EngineRequest, Role, RouteDecision, Span, request_ids, served_ids

FEW = 32
"""Up to here a group is a bare tuple, which is what nearly all are; a larger one gets an index."""

LINKS_MAX = 4
"""Linked traces that a span is joined to; one with more links sums up many requests and belongs to none."""

SERVICES_OF_GROUP_MAX = 32
"""Kinds of engines in one group up to which it is asked whether it is complete; one with more waits for its hold."""

_INSIDE = frozenset({Role.ENGINE, Role.LOOKUP})

Service: TypeAlias = tuple[str | None, str]
"""Whose requests have the same companions: a service and the dialect of its engine's spans."""


HALF: Final = "half"
"""Some span speaks of one half of a disaggregated request."""

Company: TypeAlias = Role | Literal["half"]
"""What a request may have beside its engine's span."""


class Open:
    """The spans of one or more requests that share a trace or a request id.

    What a group has is kept up to date span by span, so that nobody looks at all of its spans again for each that comes.
    Two groups that turn out to be one are united like sets in a union-find: the smaller joins the larger, and
    ``root`` finds where it went.
    """

    __slots__ = ("_index", "_joined", "arrived", "company", "engines", "lingers_until", "released", "services", "spans")

    def __init__(self, arrived: float) -> None:
        self.spans: tuple[Span, ...] | list[Span] = ()
        self._index: set[tuple[bytes, bytes]] | None = None
        self._joined: Open | None = None
        self.arrived = arrived
        self.lingers_until: float | None = None
        self.released = False
        self.engines = 0
        """Engines' spans in it."""
        self.company: set[Company] = set()
        """What its spans are, and whether one speaks of half a request."""
        self.services: set[Service] = set()
        """Whose its engines' spans are."""

    @property
    def root(self) -> Open:
        """The group that this one is part of by now; itself, as a rule."""
        group = self
        while group._joined is not None:
            group = group._joined
        return group

    def add(self, span: Span) -> bool:
        """Take a span; False for one that is here already: exporters repeat what they believe was lost."""
        key = (span.trace_id, span.span_id)
        if isinstance(self.spans, tuple):
            # guard: join-repeated
            if any(span.span_id == one.span_id and span.trace_id == one.trace_id for one in self.spans):
                return False
            self.spans += (span,)
            if len(self.spans) > FEW:
                self.spans = list(self.spans)
                self._index = {(one.trace_id, one.span_id) for one in self.spans}
        else:
            assert self._index is not None, "a list has an index"
            if key in self._index:  # guard: join-repeated-many
                return False
            self._index.add(key)
            self.spans.append(span)
        self.company |= company_of((span,))
        if span.role is Role.ENGINE:
            self.engines += 1
            self.services.add(service_of(span))
        return True

    def absorb(self, other: Open) -> None:
        """Take all spans of a group with no more of them; whoever waits for either waits for this one.

        It arrived when the older of them did, and lingers as that one does.
        """
        older = min(self, other, key=lambda group: group.arrived)
        self.arrived, self.lingers_until = older.arrived, older.lingers_until
        for span in other.spans:
            self.add(span)
        other.spans, other._index, other._joined = (), None, self


def service_of(span: Span) -> Service:
    """Whose span it is."""
    return span.resource.service_name, span.dialect


def names_of(span: Span) -> tuple[str, ...]:
    """The ids that an engine's span goes by, or that it may go by for whoever calls the engine."""
    return request_ids(span) if span.role in _INSIDE else served_ids(span)


def company_of(spans: Sequence[Span]) -> set[Company]:
    """What is there of a request."""
    company: set[Company] = {span.role for span in spans}
    return company | {HALF} if any(_of_a_half(span) for span in spans) else company  # guard: half-any


def _of_a_half(span: Span) -> bool:
    """Whether a span is of one half of a disaggregated request, or speaks of one: there is another engine's span."""
    # guard: half-phase, half-routed, half-engine
    return any(
        (isinstance(said, RouteDecision) and said.phase is not None)
        or (isinstance(said, EngineRequest) and said.half is not None)
        for said in span.says
    )


def linked_to(span: Span) -> tuple[bytes, ...]:
    """The traces that an offload tier's span names as the requests that it worked for."""
    linked = span.linked_trace_ids
    # guard: join-links-max, join-links-tier
    return linked if span.role is Role.OFFLOAD and len(linked) <= LINKS_MAX else ()


def span_order(span: Span) -> tuple[int, bytes, bytes]:
    """A key that sorts spans the same way in whatever order they came."""
    return (span.start_unix_nanos, span.trace_id, span.span_id)
