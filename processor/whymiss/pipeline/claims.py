"""Which spans of a request are ours.

A group's resource is read once, however many spans it has, and only the identities of small resources are kept for the
next request: both the number of spans and the size of a resource are the sender's choice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ..dialects.claim import Dialect
from ..dialects.registry import candidates, claim, identify
from ..errors import BadInput
from ..measures import Measures
from ..model import Envelope, ResourceIdentity, Span
from ..redaction import sampling_of
from ..wire.fields import resource_attributes, scope_name, valid_ids
from ..wire.limits import RESOURCE, SCOPE, SPAN, has_more_parts
from ..wire.split import Group

IDENTITIES_MAX = 4096
"""Resources whose identity is remembered; a resource is read once, not once a span."""

IDENTITY_BYTES_MAX = 4096
"""Size of a resource up to which it is remembered: together no more than 16 MiB."""


class Claims:
    """Sorts the spans of groups into ours and others. ``parts_max`` is ``join.parts_max``."""

    def __init__(self, measures: Measures, parts_max: int) -> None:
        self._measures = measures
        self._parts_max = parts_max
        self._identities: OrderedDict[bytes, ResourceIdentity] = OrderedDict()

    def of(self, group: Group, possible: Sequence[Dialect], ours: list[Span], rejected: list[str]) -> list[bytes]:
        """The spans of a group that are not ours; those that are go to ``ours``.

        A span that cannot be used is rejected alone, with a message in ``rejected``.
        """
        if not possible:
            return group.spans
        scope = scope_name(group.envelope)
        identity: ResourceIdentity | None = None
        others: list[bytes] = []
        too_many = self._is_beyond(group.envelope)
        for raw in group.spans:
            dialects = candidates(scope, raw, possible)
            if not dialects:
                others.append(raw)
                continue
            if too_many or has_more_parts(raw, SPAN, self._parts_max):
                rejected.append(
                    f"a span or its resource has too many attributes (raise join.parts_max, {self._parts_max})"
                )
                self._measures.count("whymiss.spans.rejected", reason="too_many_parts")
                continue
            try:
                identity = identity or self._identity(group.envelope)
                span = claim(raw, group.envelope, identity, dialects)
            except BadInput as problem:
                rejected.append(problem.problem)
                self._measures.count("whymiss.spans.rejected", reason="malformed")
                continue
            if span is None:
                others.append(raw)
            elif not valid_ids(span.trace_id, span.span_id):
                rejected.append("trace id or span id is missing or all zero")
                self._measures.count("whymiss.spans.rejected", reason="invalid_id")
            else:
                ours.append(span)
                self._measures.count("whymiss.spans.claimed", dialect=span.dialect)
                self._measures.count("whymiss.sampling.spans", state=sampling_of(span).value)
        return others

    def _is_beyond(self, envelope: Envelope) -> bool:
        return has_more_parts(envelope.resource, RESOURCE, self._parts_max) or has_more_parts(
            envelope.scope, SCOPE, self._parts_max
        )

    def _identity(self, envelope: Envelope) -> ResourceIdentity:
        known = self._identities.get(envelope.resource)
        if known is None:
            known = identify(resource_attributes(envelope))
            if len(envelope.resource) <= IDENTITY_BYTES_MAX:
                self._identities[envelope.resource] = known
            if len(self._identities) > IDENTITIES_MAX:
                self._identities.popitem(last=False)
        return known
