"""What the serving worker's own record says of the missed blocks at the moment of the lookup."""

from __future__ import annotations

from ...model import (
    Fact,
    GroupSpec,
    LocalEvidence,
    Lookup,
    LookupEvidence,
    Moment,
    Reason,
    Removal,
    Residency,
    StreamView,
)
from ..missed import HELD, HELD_OR_LOST, Missed, gap_after, is_dense, leading, skipped


def local_evidence(
    missed: Missed, asked: LookupEvidence, lookup: Lookup | None, window_seconds: float
) -> LocalEvidence:
    """What the record says of the first missed block and those behind it."""
    record, reading, chain = missed.record, missed.reading, missed.chain
    states = record.as_of(chain, reading.position)
    history_gap = missed.history_gap(record)
    here, record_gap = _first(states[0], missed, lookup, history_gap)
    if here != states[0]:
        states = [here, *states[1:]]
    ahead, recoverable = leading(states, HELD), leading(states, HELD_OR_LOST)
    dense = is_dense(record)
    if dense and not record_gap and here.state is Residency.NEVER_SEEN:  # guard: skipped-first
        # Only the block behind it: to look at the whole chain of all that is new costs too much.
        record_gap = skipped([here, *record.as_of(chain[1:2], reading.position)], 0) if len(chain) > 1 else Reason.NONE
    beyond = Reason.NONE if missed.complete else Reason.NO_FIRST_MISS_KEY
    # guard: ahead-gap, ahead-complete
    ahead_gap = gap_after(states, ahead, history_gap) or (beyond if ahead == len(states) else Reason.NONE)
    # guard: recoverable-gap, recoverable-complete
    uncertain = bool(gap_after(states, recoverable, history_gap)) or (
        recoverable == len(states) and not missed.complete
    )
    if dense and recoverable:
        ahead_gap = ahead_gap or skipped(states, ahead)  # guard: skipped-ahead
        uncertain = uncertain or bool(skipped(states, recoverable))  # guard: skipped-recoverable
    boundary, sparse_gap = _vetoed(missed, asked, ahead, history_gap)
    # Only what was evicted has a removal; without one the time is the latest at which it can have left.
    at = here.at_unix_nanos if here.removal is not None else None  # guard: age-removal
    return LocalEvidence(  # guard: boundary-ahead-gap, boundary-gap-kept
        key=chain[0],
        here=here,
        record_gap=record_gap,
        recoverable=None if uncertain else recoverable,
        dense_ahead=ahead,
        ahead_gap=ahead_gap,
        sparse_boundary=None if ahead_gap else boundary,
        sparse_gap=sparse_gap or (ahead_gap if boundary is not None else Reason.NONE),
        eviction_age_nanos=None if at is None else max(0, reading.earliest - at),
        lost_at=_lost_at(record, here),
        window_seconds=window_seconds,
    )


def _first(fact: Fact, missed: Missed, lookup: Lookup | None, history_gap: Reason) -> tuple[Fact, Reason]:
    """The first missed block, and why nothing negative can be said of it."""
    present = lookup.present if lookup is not None else None
    undecided = missed.reading.undecided
    unclear = undecided or fact.state in {Residency.AMBIGUOUS, Residency.UNKNOWN}
    if present and unclear:
        # The engine looked itself.
        return Fact(state=Residency.RESIDENT), Reason.NONE  # guard: first-present
    if present is not None and not unclear:  # guard: first-contradicted
        # The engine asks for the block in all groups, the fact is the dense group's.
        alone = len(missed.record.groups()) <= 1
        if present != (fact.state is Residency.RESIDENT) and (present or alone):  # guard: first-all-groups
            return Fact(state=Residency.AMBIGUOUS), Reason.AMBIGUOUS_COPIES
    if undecided:  # guard: first-undecided
        return Fact(state=Residency.AMBIGUOUS), Reason.EVIDENCE_LATE
    if fact.state is Residency.AMBIGUOUS:  # guard: first-ambiguous
        return fact, Reason.AMBIGUOUS_COPIES
    if fact.state is Residency.UNKNOWN:
        return fact, history_gap or Reason.HISTORY_EXPIRED  # guard: first-unknown
    # guard: first-unseen, first-evicted
    return fact, history_gap if fact.state is Residency.NEVER_SEEN else Reason.NONE


def _lost_at(record: StreamView, here: Fact) -> Moment | None:
    if here.state is not Residency.EVICTED or here.at_unix_nanos is None:
        return None
    return lost_at(record, here.removal, here.at_unix_nanos)


def lost_at(record: StreamView, removal: Removal | None, published: int) -> Moment:
    """When a block left, given when that was published.

    vLLM publishes a reset with its next step, and a restart shows with the first batch of the new life. So it
    happened at any time since the batch before. Of a block that may have been gone before the reset, nothing more
    is known.
    """
    earliest = published if removal is not None else 0  # guard: lost-unknown
    if removal in {Removal.CLEARED, Removal.RESTARTED}:
        earliest = record.published_before(published) or 0  # guard: lost-reset
    return Moment(earliest_unix_nanos=earliest, latest_unix_nanos=published)


# --- sparse groups ------------------------------------------------------------------------------------


def _vetoed(missed: Missed, asked: LookupEvidence, ahead: int, history_gap: Reason) -> tuple[int | None, Reason]:
    """The last legal boundary of the dense group in blocks, when sparse groups alone kept a lookup from reaching further.

    A sliding window needs the blocks of its window before the boundary, a Mamba group its state at
    the boundary (vllm ``v1/core/single_type_kv_cache_manager.py``).
    """
    if not ahead:
        return None, Reason.NONE
    groups, reading = missed.record.groups(), missed.reading
    if len(groups) > 1 and not all(spec.kind for spec in groups):  # guard: veto-kindless
        # Which of them needs every block is not told.
        return None, Reason.AMBIGUOUS_COPIES
    sparse = [spec for spec in groups if not spec.dense]
    if not sparse or not groups[0].dense:  # guard: veto-dense-first
        return None, Reason.NONE
    unit = max(1, (asked.match_unit or reading.block_size) // reading.block_size)
    boundary = (reading.first + ahead) // unit * unit  # guard: veto-unit
    if boundary <= reading.first:  # guard: veto-none
        return None, Reason.NONE
    gap = Reason.NONE
    for blocks in range(boundary, reading.first, -unit):
        answers = [_holds(missed, spec, blocks, history_gap) for spec in sparse]
        if all(answer is True for answer in answers):  # guard: veto-all-hold
            return None, Reason.NONE
        gap = gap or next((answer for answer in answers if isinstance(answer, Reason)), Reason.NONE)
    return (None, gap) if gap else (boundary, Reason.NONE)  # guard: veto-gap


def _holds(missed: Missed, spec: GroupSpec, blocks: int, history_gap: Reason) -> bool | Reason:
    """Whether a sparse group held what a match of so many blocks needs, or why that is not known."""
    reading = missed.reading
    size = reading.block_size
    stride = max(1, (spec.block_size or size) // size)
    needed = 1 if spec.window is None else max(1, -(-(spec.window - 1) // (size * stride)))  # guard: holds-window
    keys = [
        key
        for index, key in enumerate(reading.chain, reading.first + 1)
        if blocks - needed * stride < index <= blocks and index % stride == 0
    ]
    unclear = Reason.NONE
    for fact in missed.record.as_of(keys, reading.position, group=spec.group):
        # guard: holds-unseen
        if fact.state is Residency.EVICTED or (fact.state is Residency.NEVER_SEEN and not history_gap):
            return False  # guard: holds-lost
        if fact.state is not Residency.RESIDENT:
            unclear = unclear or history_gap or Reason.AMBIGUOUS_COPIES
    return unclear or True  # guard: holds-unclear
