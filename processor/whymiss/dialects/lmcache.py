"""The LMCache multi-process server. Its spans are a trace of their own, joined by request id.

| reads | from | note |
|---|---|---|
| request id | ``session_id`` | vLLM's *internal* id, ``…-xxxxxxxx``; not on child spans, which share the root's trace |
| what a lookup found | root ``request``, ``mp.lookup_prefetch``: ``hit_tokens``, ``found_count`` | hit or miss |
| lookup given up | ``early_exit_reason`` | nothing was looked up |
| what arrived | ``mp.retrieve``: ``retrieved_count``, ``num_tokens`` | all or nothing: one missing chunk or any exception gives 0, and 0 of what a lookup found is a failed load |
| timeout | ``timeout`` | |

Counts are chunks of 256 tokens by default, of several object groups, and a retrieve asks only for what the
engine does not have: ``retrieved_count`` is never compared with ``found_count``, and no count of blocks is
told. All attributes of child spans are strings. Cannot be known: worker (``engine_id`` and ``device`` name a
process), block, reason of a failure.
Must not leave: ``cache_salt`` (raw), ``transfer_key``, and the text of exceptions.
Source: LMCache ``lmcache/v1/mp_observability/subscribers/tracing/{mp_server,timeout}.py``,
``lmcache/v1/multiprocess/modules/{lookup,lmcache_driven_transfer}.py`` of 0.5.6.
"""

from __future__ import annotations

from ..model import Evidenced, OffloadOutcome, Role
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import count, first, text
from .vllm import request_ids


def _session(span: SpanFields) -> str | None:
    return text(span.attributes.get("session_id"))


def _found(span: SpanFields) -> OffloadOutcome | None:
    attributes = span.attributes
    found = count(first(attributes, "hit_tokens", "found_count"))
    if found is None:
        return None
    in_host_memory = count(attributes.get("l2_hit_tokens")) == 0
    return OffloadOutcome(
        request_id=_session(span),
        status="hit" if found else "miss",
        tier="host" if found and in_host_memory else None,
    )


def read_request(span: SpanFields) -> Evidenced | None:
    """The root of one request, with what its lookup found."""
    if span.name != "request":
        return None
    if text(span.attributes.get("early_exit_reason")) is not None:
        return OffloadOutcome(request_id=_session(span), status="none")
    return _found(span) or OffloadOutcome(request_id=_session(span))


def read_lookup(span: SpanFields) -> Evidenced | None:
    """One lookup."""
    return _found(span) if span.name == "mp.lookup_prefetch" else None


def read_retrieve(span: SpanFields) -> Evidenced | None:
    """One load: all that was asked for, a part, or nothing."""
    attributes = span.attributes
    retrieved = count(attributes.get("retrieved_count"))
    if span.name != "mp.retrieve" or retrieved is None:
        return None
    if retrieved == 0:
        # Whether anything was to come is known from the lookup alone.
        return OffloadOutcome(request_id=_session(span), loaded_blocks=0)
    partial = count(attributes.get("num_tokens")) == 0
    return OffloadOutcome(request_id=_session(span), status="failed" if partial else "hit")


def read_timeout(span: SpanFields) -> Evidenced | None:
    """A load or lookup that took too long."""
    return OffloadOutcome(request_id=_session(span), status="timeout") if span.name == "timeout" else None


SENSITIVE = ("transfer_key", "exception.message", "exception.stacktrace")
DIGESTED = ("cache_salt",)
_SCOPES = ("lmcache_mp.",)
_GUARDED = (b"cache_salt", b"transfer_key", b"exception.message", b"exception.stacktrace")

REQUEST = Dialect(
    name="lmcache",
    role=Role.OFFLOAD,
    scopes=_SCOPES,
    needles=(b"session_id", *_GUARDED),
    read=read_request,
    sensitive=SENSITIVE,
    digested=DIGESTED,
)
LOOKUP = Dialect(
    name="lmcache_lookup",
    role=Role.OFFLOAD,
    scopes=_SCOPES,
    needles=(b"mp.lookup_prefetch",),
    read=read_lookup,
)
RETRIEVE = Dialect(
    name="lmcache_retrieve", role=Role.OFFLOAD, scopes=_SCOPES, needles=(b"mp.retrieve",), read=read_retrieve
)
TIMEOUT = Dialect(
    name="lmcache_timeout", role=Role.OFFLOAD, scopes=("lmcache_mp.timeout",), needles=(b"timeout",), read=read_timeout
)

EMITTER = Emitter(
    name="LMCache multi-process server",
    dialects=(REQUEST, LOOKUP, RETRIEVE, TIMEOUT),
    gives="lookups found or missed, loads that arrived, failed or timed out",
    lacks="worker, block, reason; its traces are its own and joined by request id",
    switch_on="`--enable-tracing --otlp-endpoint`",
    request_ids=request_ids,
)
