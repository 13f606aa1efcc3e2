"""All dialects in order, and the one function that claims a span."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..model import (
    Attribute,
    EngineRequest,
    Envelope,
    Evidenced,
    GatewayUsage,
    ResourceIdentity,
    Role,
    Span,
)
from ..wire.fields import SpanFields, read_span
from . import (
    aibrix,
    contract,
    dynamo,
    dynamo_log,
    gateways,
    kv_events,
    llmd,
    lmcache,
    production_stack,
    prompts,
    sglang,
    smg,
    vllm,
    vllm_probe,
)
from .claim import Dialect
from .emitter import Emitter, Guarded, Taken
from .values import count, text

EMITTERS: tuple[Emitter, ...] = (
    vllm.EMITTER,
    kv_events.EMITTER,
    vllm_probe.EMITTER,
    contract.EMITTER,
    sglang.EMITTER,
    llmd.EMITTER,
    dynamo.EMITTER,
    dynamo_log.EMITTER,
    production_stack.EMITTER,
    smg.EMITTER,
    aibrix.EMITTER,
    gateways.EMITTER,
    lmcache.EMITTER,
    prompts.EMITTER,
)
"""All that is known of any emitter, in the order in which their dialects are tried."""

DIALECTS: tuple[Dialect, ...] = tuple(dialect for emitter in EMITTERS for dialect in emitter.dialects)
_SPELLINGS = {dialect.name: emitter.request_ids for emitter in EMITTERS for dialect in emitter.dialects}

# A span that several dialects read is, to the join, what the first of these says.
_RANKING = (Role.ENGINE, Role.LOOKUP, Role.OFFLOAD, Role.ROUTER, Role.GATEWAY)


# What many needles have in common is searched for first: a request is searched a dozen times, not thirty.
_ROOTS = (
    b"prefix_cache.",
    b"llm_d.",
    b"route_request",
    b"_worker_id",
    b"gen_ai.",
    b"bootstrap",
    b"transfer",
    b"Sending ",
)


def _root_of(needle: bytes) -> bytes:
    return next((root for root in _ROOTS if root in needle), needle)


_SEARCHES = tuple((dialect, tuple((needle, _root_of(needle)) for needle in dialect.needles)) for dialect in DIALECTS)


def possible(body: bytes, scopes: Collection[str]) -> tuple[Dialect, ...]:
    """The dialects of which anything occurs in a whole request with these scopes; of most requests, none."""
    there: dict[bytes, bool] = {}

    def occurs(sought: bytes) -> bool:
        known = there.get(sought)
        if known is None:
            known = there[sought] = sought in body
        return known

    return tuple(
        dialect
        for dialect, needles in _SEARCHES
        if (not dialect.scopes or any(scope.startswith(dialect.scopes) for scope in scopes))
        and any(occurs(root) and occurs(needle) for needle, root in needles)
    )


def candidates(scope: str, raw: bytes, among: Sequence[Dialect] = DIALECTS) -> list[Dialect]:
    """The dialects for which a span is worth parsing; empty for a span that is not ours."""
    return [dialect for dialect in among if dialect.may_claim(scope, raw)]


def claim(raw: bytes, envelope: Envelope, resource: ResourceIdentity, dialects: Iterable[Dialect]) -> Span | None:
    """Parse a span once and let the dialects read it; ``None`` when none of them claims it.

    Raises ``BadInput`` when the span cannot be parsed.
    """
    fields = read_span(raw)
    claimed = said_by(fields, dialects)
    if not claimed:
        return None
    leader = claimed[0][0]
    return Span(
        raw=raw,
        envelope=envelope,
        trace_id=fields.trace_id,
        span_id=fields.span_id,
        parent_span_id=fields.parent_span_id,
        start_unix_nanos=fields.start_unix_nanos,
        end_unix_nanos=fields.end_unix_nanos,
        flags=fields.flags,
        trace_state=fields.trace_state,
        role=leader.role,
        dialect=leader.name,
        says=tuple(said for _, said in claimed if said is not None),
        resource=resource,
        spellings=_SPELLINGS[leader.name],
        linked_trace_ids=_links(fields),
        sensitive=_union(dialect.sensitive for dialect, _ in claimed),
        digested=_union(dialect.digested for dialect, _ in claimed),
    )


def take_logs(body: bytes, guarded: Guarded) -> Taken:
    """Take the log records of all emitters out of an encoded ``ExportLogsServiceRequest``.

    Raises ``BadInput`` where one may be in it and the bytes are no such request.
    """
    evidence: list[Span] = []
    rejected: list[str] = []
    for emitter in EMITTERS:
        if emitter.take_logs is not None:
            taken = emitter.take_logs(body, guarded)
            evidence += taken.evidence
            rejected += taken.rejected
            body = taken.rest
    return Taken(tuple(evidence), tuple(rejected), body)


def said_by(fields: SpanFields, dialects: Iterable[Dialect]) -> list[tuple[Dialect, Evidenced | None]]:
    """What each dialect that claims a span says, the leading one first; ``None``: it only guards an attribute."""
    claimed = [
        (dialect, said) for dialect in dialects if (said := dialect.read(fields)) is not None or dialect.guards(fields)
    ]
    if any(isinstance(said, EngineRequest) for _, said in claimed):
        # An engine's own count is not told again as a gateway's.
        claimed = [pair for pair in claimed if not isinstance(pair[1], GatewayUsage)]
    return sorted(claimed, key=lambda pair: (pair[1] is None, _RANKING.index(pair[0].role)))


def _union(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in several for name in names))


def _links(fields: SpanFields) -> tuple[bytes, ...]:
    return tuple(link[0] for link in fields.links if link[0])


def identify(attributes: Mapping[str, Attribute]) -> ResourceIdentity:
    """What a resource says about its process; the rank of vLLM's engine core is in its name."""
    process = text(attributes.get("vllm.process_name")) or ""
    rank = vllm.rank_in_name(process)
    return ResourceIdentity(
        attributes=tuple((key, value) for key, value in attributes.items() if isinstance(value, str)),
        service_name=text(attributes.get("service.name")),
        instance_id=text(attributes.get("service.instance.id")),
        pod_name=text(attributes.get("k8s.pod.name")),
        pod_ip=text(attributes.get("k8s.pod.ip")),
        pod_uid=text(attributes.get("k8s.pod.uid")),
        namespace=text(attributes.get("k8s.namespace.name")),
        host=text(attributes.get("host.name")),
        worker=text(attributes.get(contract.WORKER)),
        rank=count(attributes.get(contract.RANK)) if rank is None else rank,
        model_revision=text(attributes.get(contract.MODEL_REVISION)),
        speculative_method=text(attributes.get(contract.SPECULATIVE_METHOD)),
    )
