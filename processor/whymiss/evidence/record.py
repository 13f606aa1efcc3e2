"""What the serving worker's own record says of the missed blocks at the moment of the lookup."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import ChainFacts, Fact, Facts, GroupSpec, LedgerView, Lookup, Reason, Residency, StreamId
from .reading import Reading

HELD = frozenset({Residency.RESIDENT})
HELD_OR_LOST = frozenset({Residency.RESIDENT, Residency.EVICTED})
PERHAPS_UNSEEN = frozenset(Residency) - HELD_OR_LOST


def leading(states: Sequence[Fact], wanted: frozenset[Residency]) -> int:
    """How many facts from the first on are of the wanted states."""
    if isinstance(states, ChainFacts):
        return states.leading(wanted)
    count = 0
    for fact in states:
        if fact.state not in wanted:
            break
        count += 1
    return count


def gap_after(states: Sequence[Fact], count: int, history_gap: Reason) -> Reason:
    """Why the fact behind the leading ones may be like them all the same."""
    if count >= len(states):
        return Reason.NONE
    match states[count].state:
        case Residency.AMBIGUOUS:
            return Reason.AMBIGUOUS_COPIES  # guard: gap-ambiguous
        case Residency.UNKNOWN:
            return history_gap or Reason.EVENTS_DROPPED  # guard: gap-unknown
        case Residency.NEVER_SEEN:
            return history_gap  # guard: gap-unseen
        case Residency.RESIDENT | Residency.EVICTED:
            return Reason.NONE


def skipped(states: Sequence[Fact], count: int) -> Reason:
    """Why a block that was never seen does not end a dense chain on the device: a later block of it was seen.

    A block is stored after its parent, so its key is not what was published, or the later ones are not of this chain.
    ``count`` is the index of the block behind the leading ones.
    """
    if count >= len(states) or states[count].state is not Residency.NEVER_SEEN:
        return Reason.NONE
    later = states[count + 1 :]
    # guard: skipped-later
    return Reason.NONE if leading(later, PERHAPS_UNSEEN) == len(later) else Reason.AMBIGUOUS_CHAIN


def matchable_chain(facts: Facts, reading: Reading) -> tuple[tuple[int, ...], bool]:
    """The expected keys up to the last block that can match, and whether none of them is missing."""
    if facts.prompt_tokens is None:
        return reading.chain, reading.chain_known
    wanted = max(1, (facts.prompt_tokens - 1) // reading.block_size - reading.first)  # guard: chain-matchable
    return reading.chain[:wanted], len(reading.chain) >= wanted  # guard: chain-complete


class OwnRecord:
    """Reads the record of the worker that served the request, over ``window`` nanoseconds back."""

    def __init__(self, ledger: LedgerView, window: int) -> None:
        self._ledger = ledger
        self._window = window

    def since(self, reading: Reading) -> int:
        """Where the window before a lookup begins."""
        return reading.latest - self._window

    def history_gap(self, stream: StreamId, reading: Reading) -> Reason:
        """Why nothing negative can be said from a stream's record."""
        begin = self.since(reading)
        coverage = self._ledger.coverage(stream, begin, reading.latest)
        if coverage.holes:  # guard: history-hole
            return coverage.holes[0].reason
        if not coverage.from_birth and coverage.begins_unix_nanos > begin:  # guard: history-birth
            return Reason.HISTORY_EXPIRED if coverage.expired else Reason.HISTORY_SHORT  # guard: history-short
        return Reason.NONE

    def is_dense(self, stream: StreamId) -> bool:
        """Whether what a stream is asked for first is a dense group, in which no block is without its parent."""
        groups = self._ledger.groups(stream)
        return not groups or groups[0].dense  # guard: skipped-dense

    def in_window(self, fact: Fact, reading: Reading) -> bool:
        """Whether what a fact tells of happened within the window before a lookup.

        Records keep somewhat more, each its own amount: compared beyond the window, one would tell of a time
        that another has forgotten.
        """
        # guard: window-known, window-begin
        return fact.at_unix_nanos is None or fact.at_unix_nanos >= self.since(reading)

    def add(self, facts: Facts, stream: StreamId, reading: Reading, lookup: Lookup | None) -> Facts:
        """The facts with what the record says of the first missed block and those behind it."""
        chain, complete = matchable_chain(facts, reading)
        states = self._ledger.as_of(stream, chain, reading.position)
        history_gap = self.history_gap(stream, reading)
        here, record_gap = self._first(states[0], stream, reading, lookup, history_gap)
        if here != states[0]:
            states = [here, *states[1:]]
        ahead, recoverable = leading(states, HELD), leading(states, HELD_OR_LOST)
        beyond = Reason.NONE if complete else Reason.NO_FIRST_MISS_KEY
        dense = self.is_dense(stream)
        if dense and not record_gap and here.state is Residency.NEVER_SEEN:  # guard: skipped-first
            # Only the block behind it: to look at the whole chain of all that is new costs too much.
            record_gap = skipped([here, *self._ledger.as_of(stream, chain[1:2], reading.position)], 0)
        # guard: ahead-gap, ahead-complete
        ahead_gap = gap_after(states, ahead, history_gap) or (beyond if ahead == len(states) else Reason.NONE)
        # guard: recoverable-gap, recoverable-complete
        uncertain = gap_after(states, recoverable, history_gap) or (recoverable == len(states) and not complete)
        if dense and recoverable:
            ahead_gap = ahead_gap or skipped(states, ahead)  # guard: skipped-ahead
            uncertain = uncertain or skipped(states, recoverable)  # guard: skipped-recoverable
        boundary, sparse_gap = self._vetoed(stream, facts, reading, ahead, history_gap)
        block = self._ledger.block(stream, chain[0])
        # Only what was evicted has a removal; without one the time is the latest at which it can have left.
        at = here.at_unix_nanos if here.removal is not None else None  # guard: age-removal
        age = None if at is None else max(0, reading.earliest - at)
        # guard: boundary-ahead-gap, boundary-gap-kept
        return msgspec.structs.replace(
            facts,
            key=chain[0],
            here=here,
            record_gap=record_gap,
            recoverable=None if uncertain else recoverable,
            dense_ahead=ahead,
            ahead_gap=ahead_gap,
            sparse_boundary=None if ahead_gap else boundary,
            sparse_gap=sparse_gap or (ahead_gap if boundary is not None else Reason.NONE),
            extra_key_kinds=block.kinds if block is not None else facts.extra_key_kinds,
            eviction_age_nanos=age,
        )

    def _first(
        self, fact: Fact, stream: StreamId, reading: Reading, lookup: Lookup | None, history_gap: Reason
    ) -> tuple[Fact, Reason]:
        """The first missed block, and why nothing negative can be said of it."""
        present = lookup.present if lookup is not None else None
        unclear = reading.undecided or fact.state in {Residency.AMBIGUOUS, Residency.UNKNOWN}
        if present and unclear:
            # The engine looked itself.
            return Fact(state=Residency.RESIDENT), Reason.NONE  # guard: first-present
        # The engine asks for the block in all groups, the fact is the dense group's.
        alone = len(self._ledger.groups(stream)) <= 1
        contradicted = present != (fact.state is Residency.RESIDENT) and (present or alone)  # guard: first-all-groups
        if present is not None and not unclear and contradicted:  # guard: first-contradicted
            return Fact(state=Residency.AMBIGUOUS), Reason.AMBIGUOUS_COPIES
        if reading.undecided:  # guard: first-undecided
            return Fact(state=Residency.AMBIGUOUS), Reason.EVIDENCE_LATE
        if fact.state is Residency.AMBIGUOUS:  # guard: first-ambiguous
            return fact, Reason.AMBIGUOUS_COPIES
        if fact.state is Residency.UNKNOWN:
            return fact, history_gap or Reason.HISTORY_EXPIRED  # guard: first-unknown
        # guard: first-unseen, first-evicted
        return fact, history_gap if fact.state is Residency.NEVER_SEEN else Reason.NONE

    # --- sparse groups --------------------------------------------------------------------------------

    def _vetoed(
        self, stream: StreamId, facts: Facts, reading: Reading, ahead: int, history_gap: Reason
    ) -> tuple[int | None, Reason]:
        """The last legal boundary of the dense group in blocks, when sparse groups alone kept a lookup from reaching further.

        A sliding window needs the blocks of its window before the boundary, a Mamba group its state at
        the boundary (vllm ``v1/core/single_type_kv_cache_manager.py``).
        """
        groups = self._ledger.groups(stream)
        sparse = [spec for spec in groups if not spec.dense]
        if not sparse or not ahead or not groups[0].dense:  # guard: veto-dense-first
            return None, Reason.NONE
        unit = max(1, (facts.match_unit or reading.block_size) // reading.block_size)
        boundary = (reading.first + ahead) // unit * unit  # guard: veto-unit
        if boundary <= reading.first:  # guard: veto-none
            return None, Reason.NONE
        gap = Reason.NONE
        for blocks in range(boundary, reading.first, -unit):
            answers = [self._holds(stream, spec, reading, blocks, history_gap) for spec in sparse]
            if all(answer is True for answer in answers):  # guard: veto-all-hold
                return None, Reason.NONE
            gap = gap or next((answer for answer in answers if isinstance(answer, Reason)), Reason.NONE)
        return (None, gap) if gap else (boundary, Reason.NONE)  # guard: veto-gap

    def _holds(
        self, stream: StreamId, spec: GroupSpec, reading: Reading, blocks: int, history_gap: Reason
    ) -> bool | Reason:
        """Whether a sparse group held what a match of so many blocks needs, or why that is not known."""
        size = reading.block_size
        stride = max(1, (spec.block_size or size) // size)
        needed = 1 if spec.window is None else max(1, -(-(spec.window - 1) // (size * stride)))  # guard: holds-window
        keys = [
            key
            for index, key in enumerate(reading.chain, reading.first + 1)
            if blocks - needed * stride < index <= blocks and index % stride == 0
        ]
        unclear = Reason.NONE
        for fact in self._ledger.as_of(stream, keys, reading.position, group=spec.group):
            # guard: holds-unseen
            if fact.state is Residency.EVICTED or (fact.state is Residency.NEVER_SEEN and not history_gap):
                return False  # guard: holds-lost
            if fact.state is not Residency.RESIDENT:
                unclear = unclear or history_gap or Reason.AMBIGUOUS_COPIES
        return unclear or True  # guard: holds-unclear
