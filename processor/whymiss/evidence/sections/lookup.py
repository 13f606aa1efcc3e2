"""Where reuse ended: from a request's spans, and from its reading where it has one."""

from __future__ import annotations

from ...model import FleetView, Grade, LookupEvidence, Reason, StreamView
from ..hypotheses import Reading, Readings
from ..requests.report import RequestReport


def lookup_of_spans(
    report: RequestReport, readings: Readings, fleet: FleetView, unit: int | None, lookup_gap: Reason
) -> LookupEvidence:
    """What spans alone say of a request without a reading; ``unit`` is the match unit that the operator stated."""
    lookup, request, gap = report.lookup, report.request, readings.gap
    cached = lookup.cached_tokens if lookup is not None else None
    cached = report.reported_cached if cached is None else cached
    # guard: judge-counted, judge-uncounted, judge-streams, judge-zero
    if cached is None and (request.lookup is not None or request.gateways) and not fleet.streams():
        # Who counts gave no count: nothing shows that there was a miss at all.
        gap = Reason.NO_CACHED_TOKENS
    size = (lookup.block_size if lookup is not None else None) or readings.block_size
    return LookupEvidence(
        grade=readings.grade,
        gap=gap,
        prompt_tokens=report.prompt_tokens,
        cached_tokens=cached,
        local_hit_tokens=report.local_hit_tokens,
        block_size=size,
        match_unit=match_unit(None, report, size, cached, unit),
        first=cached // size if cached is not None and size else None,
        lookup_seen=lookup is not None,
        lookup_gap=lookup_gap,
        disabled=lookup is not None and lookup.disabled,
        speculative=lookup is not None and lookup.speculative,
        sparse_lost_tokens=lookup.sparse_lost_tokens if lookup is not None else None,
    )


def lookup_of_reading(
    report: RequestReport, reading: Reading, grade: Grade, unit: int | None, lookup_gap: Reason
) -> LookupEvidence:
    """The same of a request under one of its readings; ``unit`` is its `match_unit`."""
    lookup = report.lookup
    return LookupEvidence(  # guard: facts-local-hit
        grade=grade,
        stream=reading.stream,
        prompt_tokens=report.prompt_tokens,
        cached_tokens=reading.cached_tokens if reading.exact else None,
        # What a tier delivers is stored like what was computed: a chain begins where the local hit ended.
        local_hit_tokens=report.local_hit_tokens if reading.lookup_seen else reading.cached_tokens,
        block_size=reading.block_size,
        match_unit=unit,
        first=reading.first,
        last_hit_key=reading.last_hit_key,
        chain_known=reading.chain_known,
        lookup_seen=reading.lookup_seen,
        lookup_gap=lookup_gap,
        keys_gap=Reason.AMBIGUOUS_CHAIN if _leaves_keys_out(report) else Reason.NONE,
        loads_gap=Reason.PARTIAL_TRACE if reading.loads_unproven else Reason.NONE,
        disabled=lookup is not None and lookup.disabled,
        speculative=reading.speculative or (lookup is not None and lookup.speculative),
        sparse_lost_tokens=lookup.sparse_lost_tokens if lookup is not None else None,
    )


def _leaves_keys_out(report: RequestReport) -> bool:
    """Whether the engine's published hashes do not hold all that tells prompts apart (SGLang's ``extra_key``)."""
    engine = report.request.engine
    return engine is not None and engine.dialect == "sglang"


def match_unit(
    record: StreamView | None, report: RequestReport, block_size: int | None, cached: int | None, stated: int | None
) -> int | None:
    """Tokens a match unit: as the operator or the lookup states it, else as the record's groups have it."""
    told = stated or (report.lookup.match_unit if report.lookup is not None else None)
    if told:
        return told
    inferred = record.match_unit() if record is not None else None
    if inferred and (cached or 0) % inferred:
        # A hit that is no multiple of it: the engine matches in finer steps.
        inferred = None  # guard: facts-unit-finer
    return inferred or block_size
