"""What spans say: the fields that dialects read, and the requests that spans make up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from .words import Role


class Envelope(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The resource and scope that a span came in, as bytes, so that it can leave in the same ones.

    ``resource`` is the encoded ``ResourceSpans`` without its ``scope_spans``; ``scope`` the
    encoded ``ScopeSpans`` without its ``spans``. Two equal envelopes may share one group.
    """

    resource: bytes
    scope: bytes


Half: TypeAlias = Literal["prefill", "decode"]
"""One half of a disaggregated pair."""
HALVES: tuple[Half, ...] = ("prefill", "decode")


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One engine request as the engine's own span describes it.

    ``queue_seconds``, ``first_token_seconds`` and ``prefill_seconds`` bound the lookup in time:
    it took place not before start + queue and not after start + first token - prefill.
    """

    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    queue_seconds: float | None = None
    first_token_seconds: float | None = None
    prefill_seconds: float | None = None
    choices: int = 1
    model: str | None = None
    prefill_only: bool = False
    decode_only: bool = False
    first_token_after_end: bool = False
    """The span ends when the answer's stream is set up: the time to the first token counts from there, and the request
    goes on for ``decode_seconds`` after it."""
    decode_seconds: float | None = None
    """From the first token to the last, where the span does not end with the request."""

    @property
    def half(self) -> Half | None:
        """The half of a disaggregated pair that the engine says it was; ``None`` where it does not say, or says both."""
        if self.prefill_only == self.decode_only:  # guard: half-both, side-both
            return None
        return "prefill" if self.prefill_only else "decode"


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix-cache lookup seen inside the engine: the input contract ``prefix_cache.lookup.*``.

    ``expected_keys`` is the chain of block keys of the prompt's full blocks, from block 0.
    ``present`` says whether the first missed block was in the pool at the lookup.
    """

    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    block_size: int | None = None
    match_unit: int | None = None
    first_miss_key: int | None = None
    expected_keys: tuple[int, ...] = ()
    extra_key_kinds: tuple[str, ...] | None = None
    kinds_of_block: bool = False
    """Those kinds are of the first missed block only, and not of the whole prompt."""
    local_hit_tokens: int | None = None
    external_hit_tokens: int | None = None
    sparse_lost_tokens: int | None = None
    disabled: bool = False
    speculative: bool = False
    present: bool | None = None
    preempted: bool = False
    event_seq: int | None = None


class RouteDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What a router decided and promised: the input contract ``prefix_cache.route.*``."""

    request_id: str | None = None
    worker: str | None = None
    rank: int | None = None
    predicted_blocks: int | None = None
    best_worker: str | None = None
    best_blocks: int | None = None
    index_version: str | None = None
    reason: str | None = None
    pinned: bool = False
    prefix_aware: bool | None = None
    model: str | None = None
    phase: Half | None = None
    """The half of a disaggregated pair that the decision is about, if it is one."""
    made_before: bool = False
    """The span begins once the decision is made, and not with it."""
    choice: bool = False
    """The span is the choosing itself and says no more: what the next decision under its parent rests on was read in it."""


class OffloadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an offload tier found and delivered: the input contract ``prefix_cache.offload.*``."""

    request_id: str | None = None
    found_blocks: int | None = None
    loaded_blocks: int | None = None
    status: str | None = None
    tier: str | None = None


class GatewayUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts that a gateway or SDK repeats from the engine's response."""

    request_id: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    model: str | None = None


Evidenced: TypeAlias = EngineRequest | Lookup | RouteDecision | OffloadOutcome | GatewayUsage


class ResourceIdentity(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What a resource says about the process that emitted its spans.

    ``attributes`` holds all of its string attributes, for the operator's own mapping.
    """

    attributes: tuple[tuple[str, str], ...] = ()

    service_name: str | None = None
    instance_id: str | None = None
    pod_name: str | None = None
    pod_ip: str | None = None
    pod_uid: str | None = None
    namespace: str | None = None
    host: str | None = None
    worker: str | None = None
    rank: int | None = None
    model_revision: str | None = None
    """Of the engine's model. No span and no event of any emitter says it, nor the next; who starts the process knows both."""
    speculative_method: str | None = None


def as_told(request_id: str) -> tuple[str, ...]:
    """An id in the one spelling that it has."""
    return (request_id,)


class Spellings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an emitter's ids are spelled elsewhere: from an id that a span tells to its spellings, most exact first."""

    own: Callable[[str], tuple[str, ...]] = as_told
    """As told, and as the engine's own parts may shorten it."""
    callers: Callable[[str], tuple[str, ...]] = as_told
    """As a caller of the engine's API knows it: one caller's id can stand for several lookups."""
    served: Callable[[str], tuple[str, ...]] = as_told
    """As ``own``, then as an engine serves (the first prompt of) a request with such an id."""


AS_TOLD = Spellings()


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claimed span: its bytes and the few fields that its dialect read."""

    raw: bytes
    envelope: Envelope
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start_unix_nanos: int
    end_unix_nanos: int
    flags: int
    trace_state: str
    role: Role
    dialect: str
    says: tuple[Evidenced, ...]
    resource: ResourceIdentity
    spellings: Spellings = AS_TOLD
    linked_trace_ids: tuple[bytes, ...] = ()
    sensitive: tuple[str, ...] = ()
    """Names of attributes of the span that must not leave."""
    digested: tuple[str, ...] = ()
    """Names of attributes of the span whose value may leave as a keyed digest only."""
    ticket: int = 0
    """Number of the accepted request that it came in, where requests are numbered; else 0."""


ID_CHARS_MAX = 512
"""A longer request id is none: ids are kept after their request has left, and counted as short."""


def request_ids(span: Span) -> tuple[str, ...]:
    """The ids under which a span's request may be known, most exact first, each once."""
    return _spelled(span, span.spellings.own)


def caller_ids(span: Span) -> tuple[str, ...]:
    """The ids of ``request_ids`` as a caller of the engine's API knows them: one can stand for several lookups."""
    return _spelled(span, span.spellings.callers)


def served_ids(span: Span) -> tuple[str, ...]:
    """The ids of ``request_ids`` and those under which an engine serves (the first prompt of) such a request."""
    return _spelled(span, span.spellings.served)


def _spelled(span: Span, spell: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    told = dict.fromkeys([one for said in span.says if (one := said.request_id) and len(one) <= ID_CHARS_MAX])
    if len(told) == 1:
        return spell(*told)
    return tuple(dict.fromkeys([name for request_id in told for name in spell(request_id)]))


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of one engine request: at least an engine's span or a lookup."""

    engine: Span | None = None
    lookup: Span | None = None
    routes: tuple[Span, ...] = ()
    offloads: tuple[Span, ...] = ()
    gateways: tuple[Span, ...] = ()
    decodes: tuple[bytes, ...] = ()
    """Span ids of the decode halves that this request's prefill fed; they have no lookup of their own."""

    @property
    def subject(self) -> Span:
        """The span that carries the verdict."""
        chosen = self.engine or self.lookup
        assert chosen is not None, "a request has an engine span or a lookup"
        return chosen

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans of the request, each once."""
        several = (self.engine, self.lookup, *self.routes, *self.offloads, *self.gateways)
        unique = {(span.trace_id, span.span_id): span for span in several if span is not None}
        return tuple(unique.values())
