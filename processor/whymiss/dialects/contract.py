"""The input contract: ``prefix_cache.{lookup,route,offload}.*``, which anyone may emit.

| reads | from |
|---|---|
| one lookup inside an engine | ``prefix_cache.lookup.*`` |
| one routing decision | ``prefix_cache.route.*`` |
| one tier's outcome | ``prefix_cache.offload.*`` |

Where a span carries several of these, all of them count. Source: names.md, "Attributes read".
"""

from __future__ import annotations

from ..model import Attribute, Evidenced, Lookup, OffloadOutcome, Role, RouteDecision
from ..wire.fields import SpanFields
from .claim import Dialect
from .values import count, first, names, text, told_keys, truth

_LOOKUP = "prefix_cache.lookup."
_ROUTE = "prefix_cache.route."
_OFFLOAD = "prefix_cache.offload."


EXTRA_KEY_KINDS = frozenset({"cache_salt", "lora", "mm", "prompt_embeds"})
OFFLOAD_STATUSES = frozenset({"none", "hit", "miss", "timeout", "failed", "stale"})


def _request_id(span: SpanFields) -> str | None:
    return text(first(span.attributes, "gen_ai.request.id", "vllm.request.id", "request.id", "request_id"))


def _kinds(value: Attribute) -> tuple[str, ...] | None:
    """Extra-key kinds by name; anything that is not a known kind might be a value, and is only counted."""
    found = names(value)
    return None if found is None else tuple(sorted({kind if kind in EXTRA_KEY_KINDS else "other" for kind in found}))


def _status(value: Attribute) -> str | None:
    status = text(value)
    return status.lower() if status is not None and status.lower() in OFFLOAD_STATUSES else None


def read_lookup(span: SpanFields) -> Evidenced | None:
    """``prefix_cache.lookup.*``; needs at least the prompt's or the cached tokens, or ``disabled``."""
    attributes = span.attributes
    if not any(f"{_LOOKUP}{name}" in attributes for name in ("prompt_tokens", "cached_tokens", "disabled")):
        return None
    keys = told_keys(attributes.get(f"{_LOOKUP}first_miss_key"), attributes.get(f"{_LOOKUP}expected_keys"))
    return Lookup(
        request_id=_request_id(span),
        prompt_tokens=count(attributes.get(f"{_LOOKUP}prompt_tokens")),
        cached_tokens=count(attributes.get(f"{_LOOKUP}cached_tokens")),
        block_size=count(attributes.get(f"{_LOOKUP}block_size")) or None,
        match_unit=count(attributes.get(f"{_LOOKUP}match_unit")) or None,
        first_miss_key=keys.first_miss,
        expected_keys=keys.expected,
        extra_key_kinds=_kinds(attributes.get(f"{_LOOKUP}extra_key_kinds")),
        local_hit_tokens=count(attributes.get(f"{_LOOKUP}local_hit_tokens")),
        external_hit_tokens=count(attributes.get(f"{_LOOKUP}external_hit_tokens")),
        sparse_lost_tokens=count(attributes.get(f"{_LOOKUP}sparse_lost_tokens")),
        disabled=truth(attributes.get(f"{_LOOKUP}disabled")) or False,
        speculative=truth(attributes.get(f"{_LOOKUP}speculative")) or False,
        event_seq=count(attributes.get(f"{_LOOKUP}event_seq")),
    )


def read_route(span: SpanFields) -> Evidenced | None:
    """``prefix_cache.route.*``; needs the worker or a prediction."""
    attributes = span.attributes
    worker = text(attributes.get(f"{_ROUTE}worker"))
    predicted = count(attributes.get(f"{_ROUTE}predicted_blocks"))
    if worker is None and predicted is None:
        return None
    return RouteDecision(
        request_id=_request_id(span),
        worker=worker,
        predicted_blocks=predicted,
        best_worker=text(attributes.get(f"{_ROUTE}best_worker")),
        best_blocks=count(attributes.get(f"{_ROUTE}best_blocks")),
        index_version=text(attributes.get(f"{_ROUTE}index_version")),
        reason=text(attributes.get(f"{_ROUTE}reason")),
        pinned=truth(attributes.get(f"{_ROUTE}pinned")) or False,
        prefix_aware=True if predicted is not None else None,
    )


def read_offload(span: SpanFields) -> Evidenced | None:
    """``prefix_cache.offload.*``; needs a count or a status."""
    attributes = span.attributes
    outcome = OffloadOutcome(
        request_id=_request_id(span),
        found_blocks=count(attributes.get(f"{_OFFLOAD}found_blocks")),
        loaded_blocks=count(attributes.get(f"{_OFFLOAD}loaded_blocks")),
        status=_status(attributes.get(f"{_OFFLOAD}status")),
        tier=text(attributes.get(f"{_OFFLOAD}tier")),
    )
    said = (outcome.found_blocks, outcome.loaded_blocks, outcome.status)
    return None if said == (None, None, None) else outcome


SENSITIVE = (f"{_LOOKUP}first_miss_key", f"{_LOOKUP}expected_keys")
LOOKUP = Dialect(
    name="contract_lookup",
    role=Role.LOOKUP,
    needles=(_LOOKUP.encode(),),
    read=read_lookup,
    sensitive=SENSITIVE,
)
ROUTE = Dialect(name="contract_route", role=Role.ROUTER, needles=(_ROUTE.encode(),), read=read_route)
OFFLOAD = Dialect(name="contract_offload", role=Role.OFFLOAD, needles=(_OFFLOAD.encode(),), read=read_offload)
