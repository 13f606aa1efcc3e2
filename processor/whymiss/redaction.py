"""What may leave, and the only place that makes something that may.

``Redacted`` is what exporters take, and this file alone constructs it, so a span that skipped redaction
does not type-check. Raw keys, salts, token ids and prompt text never leave; keyed digests and the names of
holders and routes leave on sampled spans only; the cause, the owner and counts leave always.

A digest is the first 16 hex digits of HMAC-SHA-256 under the operator's key, so that the same block has
the same digest on every replica and is not guessable from a low-entropy prompt.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec

from .config import RedactionConfig
from .errors import BadInput
from .model import Attribute, Envelope, Role, Span, Verdict
from .wire.fields import read_span
from .wire.splice import OPEN, Closed, splice, splice_resource
from .wire.split import assemble
from .wire.status import without_status_message


class Signal(StrEnum):
    """The three OTLP signals."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


class Redacted(msgspec.Struct, frozen=True):
    """An encoded ``Export*ServiceRequest`` that may leave; ``items`` counts its spans (0: not counted).

    ``tickets`` names the accepted requests of which something is in it.
    """

    signal: Signal
    body: bytes
    items: int
    tickets: tuple[int, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """Redacted spans by their redacted envelope.

    ``shared`` is that envelope where it is so large that it should leave once, with the spans of other parts.
    """

    groups: dict[Envelope, list[bytes]]
    tickets: tuple[int, ...]
    shared: Envelope | None = None

    @property
    def items(self) -> int:
        """Spans in it."""
        return sum(map(len, self.groups.values()))


class Sampling(StrEnum):
    """The three states of the sampled flag (Python's exporters never set it)."""

    SAMPLED = "sampled"
    UNSAMPLED = "unsampled"
    UNKNOWN = "unknown"


ENVELOPE_BYTES_SHARED = 2048
"""A resource and scope larger than this leave once for all spans that leave at the same time, and not once a trace."""

ENVELOPES_BYTES_MAX = 4 << 20
"""Bytes of envelopes that are remembered as they may leave; then they are forgotten together."""

_RANDOM = 1 << 56
"""The randomness R of a trace is below this: it has 56 bits."""


def untouched(signal: Signal, body: bytes, items: int, *, ticket: int = 0) -> Redacted:
    """A request without any span of ours: it leaves as it came."""
    return Redacted(signal, body, items, (ticket,) if ticket else ())


def nothing(tickets: tuple[int, ...]) -> Redacted:
    """An empty result: of these requests nothing is left to send."""
    return Redacted(Signal.TRACES, b"", 0, tickets)


def tickets_of(spans: Iterable[Span]) -> tuple[int, ...]:
    """The numbers of the accepted requests in which the spans came, each once, in order."""
    return tuple({span.ticket: None for span in spans if span.ticket})


def sampling_of(span: Span) -> Sampling:
    """What a span's own flags and trace state say.

    Source: W3C trace context for the flag bits; for ``ot=th`` OpenTelemetry's "TraceState: probability
    sampling": a span is kept if R >= T, with R the last 56 bits of the trace id unless ``rv`` gives it.
    """
    flags = span.flags & 0xFF
    if flags & 1:  # guard: redact-sampled-bit
        return Sampling.SAMPLED
    if flags:  # guard: redact-flags
        return Sampling.UNSAMPLED
    threshold, _ = _probability(span.trace_state)
    if threshold is None:
        return Sampling.UNKNOWN
    return Sampling.SAMPLED if randomness(span) >= threshold else Sampling.UNKNOWN  # guard: redact-threshold


def randomness(span: Span) -> int:
    """R of the specification, 56 bits: ``rv`` of the trace state, else the end of the trace id."""
    _, explicit = _probability(span.trace_state)
    return int.from_bytes(span.trace_id[-7:], "big") if explicit is None else explicit


def threshold_of(ratio: float) -> int:
    """T of the specification for a share of all traces, 0 to 1: those with R >= T are chosen."""
    return round((1 - ratio) * _RANDOM)


def adjusted_count(span: Span) -> float | None:
    """How many requests a span represents, where the trace state says (``ot=th``)."""
    threshold, _ = _probability(span.trace_state)
    return None if threshold is None else _RANDOM / (_RANDOM - threshold)


def _hex56(text: str) -> int | None:
    return _short_hex56(text) if 1 <= len(text) <= 14 else None


@lru_cache(maxsize=1024)
def _short_hex56(text: str) -> int | None:
    try:
        return int(text.ljust(14, "0"), 16)
    except ValueError:
        return None


def _probability(trace_state: str) -> tuple[int | None, int | None]:
    if "ot=" not in trace_state:
        return None, None
    members = dict(part.strip().split("=", 1) for part in trace_state.split(",") if "=" in part)
    values = dict(part.split(":", 1) for part in members.get("ot", "").split(";") if ":" in part)
    threshold = _hex56(values["th"]) if "th" in values else None
    given = values.get("rv")
    return threshold, _hex56(given) if given is not None and len(given) == 14 else None


class Redactor:
    """Turns judged spans into what may leave.

    Args:
        key: the key of digests; without one in the configuration the caller passes a random one.
        secrets: names of attributes that must not leave, wherever in a span, its resource or its scope they stand.
        closed: families of names of which only the known may leave.
    """

    def __init__(
        self, config: RedactionConfig, key: bytes, *, secrets: tuple[str, ...] = (), closed: Closed = OPEN
    ) -> None:
        self._key = key
        self._key_id = config.digest_key_id
        self._drop = (*secrets, *config.drop_attributes)
        self._closed = closed
        self._known: dict[Envelope, Envelope | BadInput] = {}
        self._known_bytes = 0
        self._unknown_is_sampled = config.unknown_sampling == "treat_as_sampled"
        self._threshold = threshold_of(config.sample_ratio)

    def digest(self, key: int) -> str:
        """The keyed digest of a block key."""
        return self._named(hmac.digest(self._key, key.to_bytes(8, "big"), "sha256"))  # guard: redact-keyed

    def text_digest(self, text: str) -> str:
        """The keyed digest of a salt or another text that must not leave."""
        # guard: redact-text-keyed
        return self._named(hmac.digest(self._key, b"text:" + text.encode("utf-8", "replace"), "sha256"))

    def _named(self, mac: bytes) -> str:
        return f"{self._key_id}:{mac[:8].hex()}" if self._key_id != "0" else mac[:8].hex()  # guard: redact-short

    def is_sampled(self, spans: Sequence[Span]) -> bool:
        """Whether the spans of one request are sampled, as far as one of them says."""
        states = {sampling_of(span) for span in spans}
        if Sampling.SAMPLED in states:  # guard: redact-any-sampled
            return True
        if Sampling.UNSAMPLED in states:  # guard: redact-unsampled
            return False
        return self._unknown_is_sampled  # guard: redact-unknown

    def may_identify(self, span: Span, *, sampled: bool) -> bool:
        """Whether digests and names may leave on a span of a request that is ``sampled``.

        A span that says of itself that it is not sampled is treated so, whatever the rest of its request says. ``sample_ratio``
        chooses by trace id: all spans of a trace agree, on every replica, and so does a later sampler with the same ratio.
        """
        # guard: redact-own-flag, redact-ratio, redact-request
        return sampled and sampling_of(span) is not Sampling.UNSAMPLED and randomness(span) >= self._threshold

    def spans(
        self, judged: Sequence[tuple[Span, Verdict | None]], *, sampled: bool, tickets: tuple[int, ...] = ()
    ) -> Redacted:
        """Encode spans with their part of the verdict, each in the envelope that it came in."""
        return self.together(self.parts(judged, sampled=sampled, tickets=tickets))

    def parts(
        self, judged: Sequence[tuple[Span, Verdict | None]], *, sampled: bool, tickets: tuple[int, ...] = ()
    ) -> list[Part]:
        """The same, to be put together: one part for each large envelope, and one for all others.

        Raises:
            BadInput: a span, a resource or a scope cannot be redacted, and must not leave.
        """
        small: dict[Envelope, list[bytes]] = {}
        large: dict[Envelope, list[bytes]] = {}
        for span, verdict in judged:
            envelope = self._envelope(span.envelope)
            is_large = len(envelope.resource) + len(envelope.scope) > ENVELOPE_BYTES_SHARED
            grouped = large if is_large else small
            grouped.setdefault(envelope, []).append(self._span(span, verdict, sampled=sampled))
        several = [Part({envelope: spans}, tickets, envelope) for envelope, spans in large.items()]
        return [Part(small, tickets), *several] if small else several

    def together(self, parts: Sequence[Part]) -> Redacted:
        """One request of several parts."""
        tickets = tuple({ticket: None for part in parts for ticket in part.tickets})
        body = assemble([pair for part in parts for pair in part.groups.items()])
        return Redacted(Signal.TRACES, body, sum(part.items for part in parts), tickets)

    def _envelope(self, envelope: Envelope) -> Envelope:
        """An envelope as it may leave; remembered, as a sender chooses how large it is and how many spans share it."""
        known = self._known.get(envelope)
        if known is None:
            try:
                # guard: redact-resource
                known = splice_resource(envelope, {}, self._drop, self._closed)
            except BadInput as problem:
                known = problem
            self._known_bytes += len(envelope.resource) + len(envelope.scope)
            if self._known_bytes > ENVELOPES_BYTES_MAX:
                self._known.clear()
                self._known_bytes = len(envelope.resource) + len(envelope.scope)
            self._known[envelope] = known
        if isinstance(known, BadInput):
            raise BadInput(known.problem)
        return known

    def _span(self, span: Span, verdict: Verdict | None, *, sampled: bool) -> bytes:
        attributes: dict[str, Attribute] = {}
        identify = self.may_identify(span, sampled=sampled)
        if verdict is not None:
            engine = span.role in {Role.ENGINE, Role.LOOKUP}
            attributes = _engine_attributes(verdict) if engine else _companion_attributes(span.role, verdict)
            if identify:  # guard: redact-identify
                attributes.update(self._identities(verdict, engine=engine))
        if identify and span.digested:  # guard: redact-digested
            attributes.update(self._digests(span))
        # guard: redact-sensitive, redact-digested-raw, redact-dropped
        remove = (*span.sensitive, *span.digested, *self._drop)
        # Where the text of an exception must not leave, it is in the status as well.
        # guard: redact-status
        raw = without_status_message(span.raw) if "exception.message" in span.sensitive else span.raw
        return splice(raw, attributes, remove=remove, closed=self._closed)

    def _digests(self, span: Span) -> dict[str, Attribute]:
        """Digests in place of a span's salts. A salt in an event or a link is removed without one."""
        values = read_span(span.raw).attributes
        return {
            name: self.text_digest(value)
            for name in span.digested
            if isinstance(value := values.get(name), str) and value
        }

    def _identities(self, verdict: Verdict, *, engine: bool) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        if engine and verdict.first_miss_key is not None:  # guard: redact-engine-only
            found["prefix_cache.first_miss.digest"] = self.digest(verdict.first_miss_key)
        if engine and verdict.last_hit_key is not None:  # guard: redact-last-hit-engine
            found["prefix_cache.last_hit.digest"] = self.digest(verdict.last_hit_key)
        if verdict.holders:
            found["prefix_cache.holders.workers"] = list(verdict.holders)
        if verdict.route is not None:
            found["prefix_cache.route.chosen"] = verdict.route
        return found


def _present(pairs: dict[str, Attribute]) -> dict[str, Attribute]:
    return {key: value for key, value in pairs.items() if value not in (None, "", [])}


def _engine_attributes(verdict: Verdict) -> dict[str, Attribute]:
    return _present(
        {
            "prefix_cache.miss.cause": verdict.cause.value,
            "prefix_cache.miss.owner": verdict.owner.value,
            "prefix_cache.miss.reason": verdict.reason.value,
            "prefix_cache.miss.evidence": verdict.grade.value,
            "prefix_cache.prompt_tokens": verdict.prompt_tokens,
            "prefix_cache.cached_tokens": verdict.cached_tokens,
            "prefix_cache.recomputed_tokens": verdict.recomputed_tokens,
            "prefix_cache.lost_tokens": verdict.lost_tokens,
            "prefix_cache.sparse_lost_tokens": verdict.sparse_lost_tokens,
            "prefix_cache.block_size": verdict.block_size,
            "prefix_cache.match_unit": verdict.match_unit,
            "prefix_cache.first_miss.block_index": verdict.block_index,
            "prefix_cache.local_residency": verdict.residency.value if verdict.residency else None,
            "prefix_cache.eviction.age_ms": verdict.eviction_age_ms,
            "prefix_cache.eviction.reason": verdict.eviction_reason,
            "prefix_cache.holders.count": verdict.holders_count,
            "prefix_cache.holders.tiers": list(verdict.holders_tiers),
            "prefix_cache.index.predicted_blocks": verdict.predicted_blocks,
            "prefix_cache.index.best_blocks": verdict.best_blocks,
            "prefix_cache.index.version": verdict.index_version,
            "prefix_cache.remote.lookup": verdict.remote_lookup,
            "prefix_cache.extra_keys.kinds": list(verdict.extra_key_kinds),
            "prefix_cache.history.window_s": verdict.window_seconds,
            "prefix_cache.history.complete": verdict.history_complete,
            "prefix_cache.fleet_view.complete": verdict.fleet_view_complete,
        }
    )


def _companion_attributes(role: Role, verdict: Verdict) -> dict[str, Attribute]:
    shared: dict[str, Attribute] = {
        "prefix_cache.miss.cause": verdict.cause.value,
        "prefix_cache.miss.owner": verdict.owner.value,
    }
    if role is Role.ROUTER:
        shared["prefix_cache.holders.count"] = verdict.holders_count
        shared["prefix_cache.holders.tiers"] = list(verdict.holders_tiers)
        shared["prefix_cache.index.predicted_blocks"] = verdict.predicted_blocks
        shared["prefix_cache.index.best_blocks"] = verdict.best_blocks
        shared["prefix_cache.index.version"] = verdict.index_version
    if role is Role.OFFLOAD:
        shared["prefix_cache.remote.lookup"] = verdict.remote_lookup
    return _present(shared)
