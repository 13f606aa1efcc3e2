"""The metrics as data: the name, meaning and labels of each. The tables of the documentation are made from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

FIRST_TOKEN_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0),
)
"""Seconds. The buckets of ``gen_ai.server.time_to_first_token`` in the semantic conventions, then as
vLLM goes on, because a miss of a long prompt takes more than 10 s."""


class Kind(StrEnum):
    """What a metric's points are; every sum is monotonic."""

    SUM = "sum"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Instrument(msgspec.Struct, frozen=True, kw_only=True):
    """One metric as users see it. ``unit`` is UCUM; a number of things is ``{thing}``.

    ``dimensional`` metrics carry the switched-on dimensions after their own ``labels``.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    dimensional: bool = False
    bounds: tuple[float, ...] = ()


def _by_class(
    name: str, unit: str, description: str, *labels: str, kind: Kind = Kind.SUM, bounds: tuple[float, ...] = ()
) -> Instrument:
    return Instrument(
        name=f"prefix_cache.{name}",
        kind=kind,
        unit=unit,
        description=description,
        labels=labels,
        dimensional=True,
        bounds=bounds,
    )


def _sum(name: str, unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(name=f"whymiss.{name}", kind=Kind.SUM, unit=unit, description=description, labels=labels)


def _gauge(name: str, unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(name=f"whymiss.{name}", kind=Kind.GAUGE, unit=unit, description=description, labels=labels)


INSTRUMENTS: Final[tuple[Instrument, ...]] = (
    _by_class("requests", "{request}", "Judged lookups, by cause; none is a lookup without a miss.", "cause"),
    _by_class("misses", "{miss}", "Lookups that missed.", "cause", "owner", "reason"),
    _by_class("queried_tokens", "{token}", "Prompt tokens of lookups whose cached tokens are known."),
    _by_class("hit_tokens", "{token}", "Cached tokens of lookups whose prompt tokens are known."),
    _by_class("recomputed_tokens", "{token}", "Prompt tokens that were not cached.", "cause", "owner"),
    _by_class("lost_tokens", "{token}", "Tokens that the fix of the named cause would have saved.", "cause", "owner"),
    _by_class("sparse_lost_tokens", "{token}", "Tokens that one cache group matched and another vetoed."),
    _by_class(
        "time_to_first_token",
        "s",
        "Time from arrival to the first token, as the engine measured it.",
        "cause",
        kind=Kind.HISTOGRAM,
        bounds=FIRST_TOKEN_BOUNDS,
    ),
    _by_class("unknown", "{request}", "Lookups without a supported cause, by the hole in the evidence.", "reason"),
    _sum("receiver.accepted_requests", "{request}", "OTLP requests acknowledged.", "transport", "signal"),
    _sum("receiver.refused_requests", "{request}", "OTLP requests refused.", "transport", "signal", "reason"),
    _sum(
        "receiver.refused_connections", "{connection}", "Connections without a request, refused.", "transport", "reason"
    ),
    _sum("receiver.accepted_spans", "{span}", "Spans in acknowledged requests.", "transport"),
    _sum("receiver.refused_spans", "{span}", "Spans refused, where the request could be read.", "transport"),
    _sum("spans.claimed", "{span}", "Spans that a dialect claimed.", "dialect"),
    _sum("spans.passed_through", "{span}", "Spans that no dialect claimed; they leave as they came."),
    _sum("spans.late", "{span}", "Claimed spans that came after their request was released."),
    _sum("spans.rejected", "{span}", "Spans that cannot be used, reported as partial success.", "reason"),
    _sum("spans.dropped", "{span}", "Spans lost after they were accepted.", "reason"),
    _sum("join.released", "{request}", "Requests that left the joiner.", "reason"),
    _sum("join.crowded", "{request}", "Groups beyond attribution.comparisons_max; they left unjudged."),
    _gauge("join.open_traces", "{trace}", "Traces held now."),
    _gauge("join.open_spans", "{span}", "Spans held now."),
    _gauge("join.memory", "By", "Bytes of the spans held now."),
    _sum("exporter.sent_spans", "{span}", "Spans that the next hop acknowledged.", "exporter"),
    _sum("exporter.failed_spans", "{span}", "Spans given up after retries.", "exporter", "error.type"),
    _sum("exporter.deferred_attempts", "{attempt}", "Attempts to be made again, by the answer.", "exporter", "code"),
    _sum("exporter.refused_requests", "{request}", "Requests refused as its queue is full.", "exporter", "limit"),
    _gauge("exporter.queue_size", "{request}", "Requests waiting for the next hop.", "exporter"),
    _gauge("exporter.queue_capacity", "{request}", "The most requests that may wait.", "exporter"),
    _gauge("spool.size", "By", "Bytes on disk that are not delivered yet."),
    _gauge("spool.capacity", "By", "The most bytes that the spool may hold."),
    _sum("spool.replayed_requests", "{request}", "Undelivered requests of an earlier run, read from disk.", "outcome"),
    _sum("spool.swept_requests", "{request}", "Requests that a failed release lost: postponed or given_up.", "outcome"),
    _sum("spool.corrupt_records", "{record}", "Requests on disk that could not be read again.", "kind"),
    _sum("spool.refused_requests", "{request}", "Requests refused because they could not go to disk.", "reason"),
    _sum("spool.failures", "{failure}", "Failures of the disk while it kept requests.", "operation"),
    _sum("ledger.events", "{event}", "KV-cache events read.", "source"),
    _sum("ledger.blocks", "{block}", "Blocks in those events.", "source"),
    _sum("ledger.bad_events", "{event}", "KV-cache events that cannot be read.", "source"),
    _sum("ledger.gaps", "{gap}", "Stretches of missing event numbers.", "source"),
    _sum("ledger.replays", "{replay}", "Gaps that the publisher filled on request.", "source"),
    _sum("ledger.restarts", "{restart}", "Publishers that began anew.", "source"),
    _gauge("ledger.lag", "s", "Age of the newest batch when it was read, on the reader's clock.", "source"),
    _gauge("ledger.sources", "{source}", "Publishers of KV-cache events that are followed."),
    _sum("ledger.silences", "{silence}", "Times that a publisher said nothing for too long.", "source"),
    _gauge("ledger.silent_sources", "{source}", "Publishers that say nothing now."),
    _sum("ledger.discovery_failures", "{lookup}", "Names or files of publishers that could not be read.", "discovery"),
    _gauge("ledger.streams", "{stream}", "Streams, by how far their record can be relied on.", "state"),
    _gauge("ledger.retained", "By", "Bytes of history held."),
    _gauge("ledger.operations", "{operation}", "Stores and removals of blocks in that history."),
    _gauge("memory.held", "By", "Bytes held, by part: receiving, join, queue or record.", "part"),
    _gauge("memory.limit", "By", "Limits of what is held (soft, hard) and of resident memory (resident).", "limit"),
    _sum("memory.refused_requests", "{request}", "Requests refused for want of memory, by limit.", "limit"),
    _gauge("process.memory", "By", "Resident memory of the process."),
    _sum("stage.failures", "{failure}", "Traces that a stage failed on; they left unjudged.", "stage", "error.type"),
    _sum("config.reloads", "{reload}", "Times that the configuration was read again: ok or failed.", "outcome"),
    _sum("sampling.spans", "{span}", "Claimed spans by sampling state.", "state"),
)
"""All metrics. The tables in the documentation are rendered from this."""
