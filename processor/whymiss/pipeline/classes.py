"""What a judged lookup is broken down by on the class metrics: names that the evidence supports, never a raw identity."""

from __future__ import annotations

from ..evidence.requests.report import engine_says
from ..measures import Dimensions
from ..model import Request, RouteDecision, Verdict

NO_ADAPTER = "_none"
"""The adapter of a lookup that is known to have none; an adapter's own name is the operator's."""

_WORDS = {"lora": "adapter", "cache_salt": "salt"}


def dimensions_of(request: Request, verdict: Verdict, *, extrapolated: bool) -> Dimensions:
    """The dimensions of a lookup; what is not known shows no label."""
    routes = [said for span in request.routes for said in span.says if isinstance(said, RouteDecision)]
    said = engine_says(request.engine)
    model = said.model if said is not None else None
    resource = request.subject.resource
    return Dimensions(
        route=next((route.reason for route in routes if route.reason), None),
        isolation_policy=_isolation(verdict.kept_apart_by),
        adapter=_adapter(verdict),
        model=model or next((route.model for route in routes if route.model), None),
        model_revision=resource.model_revision,
        template_version=verdict.template_version,
        speculative_method=resource.speculative_method,
        block_geometry=None if verdict.block_size is None else f"{verdict.block_size}/{verdict.match_unit}",
        prompt_family=verdict.template_name,
        sampling_method="extrapolated" if extrapolated else "counted",
    )


def _isolation(kinds: tuple[str, ...] | None) -> str | None:
    """What keeps a prompt apart, in words: ``none``, ``adapter``, ``salt``, ``adapter+salt``, or ``other``."""
    if kinds is None:
        return None
    return "+".join(sorted({_WORDS.get(kind, "other") for kind in kinds})) or "none"


def _adapter(verdict: Verdict) -> str | None:
    if verdict.adapter is None and verdict.kept_apart_by is not None and "lora" not in verdict.kept_apart_by:
        return NO_ADAPTER
    return verdict.adapter
